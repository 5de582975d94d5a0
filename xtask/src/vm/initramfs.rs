//! A machine's initial file system, in the kernel's format: a cpio archive.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use cpio::newc::{self, Builder};

use super::newer;
use crate::process::Failed;

/// Files of the packages that are left out, with all below them: documentation, converters of character sets, and
/// drivers of other devices. Every program that lists devices would load each of these drivers.
const LEFT_OUT: [&str; 6] =
    ["usr/share", "usr/include", "var", "boot", "usr/lib/x86_64-linux-gnu/gconv", "etc/libibverbs.d"];

/// Folders that packages may rely on the distribution to merge into /usr.
const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;

/// An archive being written.
pub(super) struct Archive {
    out: BufWriter<File>,
    path: String,
    entries: u32,
}

impl Archive {
    /// Creates an archive in the file at `path`, with the folders that a system needs.
    pub(super) fn create(path: &Path) -> Result<Archive, Failed> {
        let shown = path.display().to_string();
        let file = File::create(path).map_err(|error| Failed::Because(format!("{shown}: {error}")))?;
        let mut archive = Archive { out: BufWriter::new(file), path: shown, entries: 0 };
        for folder in ["dev", "proc", "sys", "tmp", "run", "root", "modules", "job", "job/programs"] {
            archive.add(folder, FOLDER, b"")?;
        }
        Ok(archive)
    }

    /// Adds the packages' files.
    pub(super) fn add_userland(&mut self, root: &Path) -> Result<(), Failed> {
        for name in MERGED {
            if !root.join(name).exists() {
                self.add(name, LINK, format!("usr/{name}").as_bytes())?;
            }
        }
        self.add_below(root, "")?;
        // The packages' scripts would choose the program, and did not run.
        if !root.join("bin/sh").exists() && !root.join("usr/bin/sh").exists() {
            self.add("bin/sh", LINK, b"dash")?;
        }
        self.add("etc/libibverbs.d", FOLDER, b"")?;
        self.add("etc/libibverbs.d/rxe.driver", PROGRAM, b"driver rxe\n")?;
        self.add("etc/hosts", PROGRAM, b"127.0.0.1 localhost\n")?;
        self.add("etc/nsswitch.conf", PROGRAM, b"hosts: files\npasswd: files\ngroup: files\n")?;
        self.add("etc/passwd", PROGRAM, b"root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\n")?;
        self.add("etc/group", PROGRAM, b"root:x:0:\nuser:x:1000:\n")
    }

    /// Adds the libraries of a newer UCX, in the folder `newer`.
    pub(super) fn add_newer(&mut self, folder: &Path) -> Result<(), Failed> {
        let (files, links) = newer::chosen(folder)?;
        self.add_folder("newer")?;
        self.add_folder("newer/ucx")?;
        for (name, file) in files {
            self.add_file(&format!("newer/{name}"), &file)?;
        }
        for (name, to) in links {
            self.add(&format!("newer/{name}"), LINK, to.as_bytes())?;
        }
        Ok(())
    }

    fn add_below(&mut self, root: &Path, below: &str) -> Result<(), Failed> {
        let folder = root.join(below);
        let failed = |error| Failed::Because(format!("{}: {error}", folder.display()));
        let entries: Result<Vec<_>, _> = fs::read_dir(&folder).map_err(failed)?.collect();
        let mut entries = entries.map_err(failed)?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let name = if below.is_empty() { name } else { format!("{below}/{name}") };
            let kind = entry.file_type().map_err(failed)?;
            if LEFT_OUT.contains(&&*name) {
                continue;
            } else if kind.is_symlink() {
                let to = fs::read_link(entry.path()).map_err(failed)?;
                self.add(&name, LINK, to.to_string_lossy().as_bytes())?;
            } else if kind.is_dir() {
                self.add(&name, FOLDER, b"")?;
                self.add_below(root, &name)?;
            } else if kind.is_file() {
                self.add_file(&name, &entry.path())?;
            }
        }
        Ok(())
    }

    /// Adds a copy of a file. All files are executable: permissions do not matter in the machine.
    pub(super) fn add_file(&mut self, name: &str, file: &Path) -> Result<(), Failed> {
        let bytes =
            fs::read(file).map_err(|error| Failed::Because(format!("{}: {error}", file.display())))?;
        self.add(name, PROGRAM, &bytes)
    }

    /// Adds a file with these bytes.
    pub(super) fn add_bytes(&mut self, name: &str, bytes: &[u8]) -> Result<(), Failed> {
        self.add(name, PROGRAM, bytes)
    }

    /// Adds an empty folder, whose parent exists.
    pub(super) fn add_folder(&mut self, name: &str) -> Result<(), Failed> {
        self.add(name, FOLDER, b"")
    }

    fn add(&mut self, name: &str, mode: u32, bytes: &[u8]) -> Result<(), Failed> {
        let failed = |error| Failed::Because(format!("{}: {error}", self.path));
        let Ok(len) = u32::try_from(bytes.len()) else {
            return Err(Failed::Because(format!("{name} is too large for the archive")));
        };
        self.entries += 1;
        let mut writer = Builder::new(name).ino(self.entries).nlink(1).mode(mode).write(&mut self.out, len);
        writer.write_all(bytes).map_err(failed)?;
        writer.finish().map_err(failed)?;
        Ok(())
    }

    /// Ends the archive.
    pub(super) fn finish(self) -> Result<(), Failed> {
        let path = self.path;
        let failed = |error| Failed::Because(format!("{path}: {error}"));
        newc::trailer(self.out).map_err(failed)?.flush().map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::*;

    #[test]
    fn an_archive_has_all_package_files_except_excluded_ones() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        for name in ["usr/bin", "usr/share/doc", "usr/lib64", "etc/libibverbs.d"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        fs::write(root.join("usr/bin/dash"), "a shell").unwrap();
        symlink("dash", root.join("usr/bin/sh")).unwrap();
        fs::write(root.join("usr/share/doc/x"), "text").unwrap();
        fs::write(root.join("etc/libibverbs.d/mlx5.driver"), "driver mlx5").unwrap();
        let path = folder.path().join("archive");
        let mut archive = Archive::create(&path).unwrap();
        archive.add_userland(&root).unwrap();
        archive.finish().unwrap();

        let mut file = File::open(&path).unwrap();
        let mut entries = Vec::new();
        loop {
            let reader = newc::Reader::new(file).unwrap();
            let entry = reader.entry();
            if entry.is_trailer() {
                break;
            }
            let (name, mode) = (entry.name().to_owned(), entry.mode());
            let mut bytes = Vec::new();
            file = reader.to_writer(&mut bytes).unwrap();
            entries.push((name, mode, String::from_utf8(bytes).unwrap()));
        }
        let find = |name: &str| entries.iter().find(|(known, ..)| known == name).cloned();
        assert_eq!(find("usr/bin/dash"), Some(("usr/bin/dash".into(), PROGRAM, "a shell".into())));
        assert_eq!(find("usr/bin/sh"), Some(("usr/bin/sh".into(), LINK, "dash".into())));
        assert_eq!(find("lib64"), Some(("lib64".into(), LINK, "usr/lib64".into())));
        assert_eq!(find("etc/libibverbs.d/rxe.driver").unwrap().2, "driver rxe\n");
        assert!(find("bin/sh").is_none() && find("usr/share").is_none());
        assert!(find("etc/libibverbs.d/mlx5.driver").is_none());
        // If cpio is installed, it has to list the same: the kernel reads this format.
        if let Ok(listed) = Command::new("cpio").arg("-it").stdin(File::open(&path).unwrap()).output() {
            assert_eq!(String::from_utf8_lossy(&listed.stdout).lines().count(), entries.len());
        }
    }
}
