//! Farjump's own programs, for which a process searches. A process runs a program that it has found only if
//! no other user could have put it there than those that can change the process's own files.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, getxattr, openat, stat};
use rustix::io::Errno;

use crate::unknown_ids::{overflow_gid, overflow_uid};

/// A program that was found, and passed the check. The value holds it by the descriptor that was checked.
#[derive(Debug)]
pub struct Installed {
    path: PathBuf,
    file: OwnedFd,
}

impl Installed {
    /// Its path when it was found.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A command that runs the file that was checked, whatever its path names by then. The value must live
    /// until the command has started.
    pub fn command(&self) -> Command {
        let mut command = Command::new(by_descriptor(&self.file));
        command.arg0(&self.path);
        command
    }
}

/// Looks for the program `name`: beside the running program, and in `../libexec/farjump`, relative to the
/// folder of the file that this code was loaded from. That file is a library or the program. No other folder
/// is searched.
///
/// # Errors
/// A program is there, and must not be run: a clause with its path, the owner or the permission that is the reason, and
/// what to change.
pub fn find(name: &str) -> Result<Option<Installed>, String> {
    let own = own_file();
    let folders = folders(std::env::current_exe().ok().as_deref(), own.as_deref());
    let trust = Trust::of_this_process(own);
    for folder in folders {
        if let Some(found) = trust.open(&folder, name)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The folders that are searched, for a running program and the file that this code is in.
fn folders(program: Option<&Path>, own: Option<&Path>) -> Vec<PathBuf> {
    let beside = program.and_then(|program| Some(program.parent()?.to_path_buf()));
    let fixed = own.and_then(|own| Some(own.parent()?.parent()?.join("libexec/farjump")));
    beside.into_iter().chain(fixed).collect()
}

/// The file that this code was loaded from, by the kernel's list of mappings: the dynamic linker's name may
/// only be the one by which the program was called.
fn own_file() -> Option<PathBuf> {
    let here: fn() -> Option<PathBuf> = own_file;
    file_of(&fs::read("/proc/self/maps").ok()?, here as usize)
}

/// The file whose mapping has this address, by lines of `/proc/PID/maps` (proc_pid_maps(5)).
fn file_of(maps: &[u8], address: usize) -> Option<PathBuf> {
    let line = maps.split(|byte| *byte == b'\n').find(|line| {
        let range = line.split(|byte| *byte == b' ').next().and_then(|range| str::from_utf8(range).ok());
        let ends = range.and_then(|range| range.split_once('-'));
        let ends =
            ends.map(|(start, end)| (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16)));
        matches!(ends, Some((Ok(start), Ok(end))) if (start..end).contains(&address))
    })?;
    // Only the path has slashes, and it begins with one.
    let path = &line[line.iter().position(|byte| *byte == b'/')?..];
    Some(PathBuf::from(OsStr::from_bytes(path)))
}

/// The users and the group that may change what this process runs.
#[derive(Debug)]
struct Trust {
    user: u32,
    group: u32,
    /// The file that this code is in, and its owner.
    own: Option<(PathBuf, u32)>,
    /// The ids that stand for users and groups which this process's user namespace does not map.
    unknown: (u32, u32),
}

impl Trust {
    fn of_this_process(own: Option<PathBuf>) -> Trust {
        let own = own.and_then(|own| stat(&own).ok().map(|found| (own, found.st_uid)));
        let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Trust { user, group, own, unknown: (overflow_uid(), overflow_gid()) }
    }

    /// Opens the program `name` in `folder`; `None` if there is none.
    ///
    /// # Errors
    /// The program must not be run.
    fn open(&self, folder: &Path, name: &str) -> Result<Option<Installed>, String> {
        let path = folder.join(name);
        let refused = |why: String| format!("`{}` must not be run: {why}", path.display());
        let failed = |error: Errno| refused(format!("it cannot be looked at: {}", io::Error::from(error)));
        let place = OFlags::PATH | OFlags::CLOEXEC;
        let there = match openat(CWD, folder, place | OFlags::DIRECTORY, Mode::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            other => other.map_err(failed)?,
        };
        let file = match openat(&there, name, place | OFlags::NOFOLLOW, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            other => other.map_err(failed)?,
        };
        let found = fstat(&file).map_err(failed)?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => {}
            FileType::Symlink => {
                return Err(refused("it is a symbolic link: put the file itself there".to_owned()));
            }
            _ => return Err(refused("it is no file".to_owned())),
        }
        self.check(&found, has_access_list(&file)).map_err(|why| refused(format!("it {why}")))?;
        let of_folder = |why| refused(format!("its folder {why}"));
        self.check(&fstat(&there).map_err(failed)?, has_access_list(&there)).map_err(of_folder)?;
        if found.st_mode & 0o111 == 0 {
            return Err(refused("it may not be executed: chmod +x".to_owned()));
        }
        // The interpreter of a script would open it by its path.
        if is_script(&file) {
            return Err(refused("it is a script: put the program itself there".to_owned()));
        }
        // The standard descriptors become the command's own before it runs.
        let file = rustix::io::fcntl_dupfd_cloexec(&file, 3).map_err(failed)?;
        Ok(Some(Installed { path, file }))
    }

    /// Checks owner and permissions of a file or folder.
    ///
    /// # Errors
    /// The reason, as a clause without its subject, and what to change.
    fn check(&self, found: &Stat, has_list: bool) -> Result<(), String> {
        let owner = found.st_uid;
        let own = self.own.as_ref();
        let is_known = owner != self.unknown.0;
        if !(owner == 0 || is_known && (owner == self.user || own.is_some_and(|(_, own)| owner == *own))) {
            let unknown = if is_known { "" } else { " (no user that is known here)" };
            let root = if self.user == 0 { "root".to_owned() } else { format!("root or user {}", self.user) };
            let own = own.filter(|(_, uid)| ![0, self.user, self.unknown.0].contains(uid));
            let own = own.map(|(file, uid)| format!(", or user {uid}, who owns `{}`", file.display()));
            let own = own.unwrap_or_default();
            return Err(format!(
                "belongs to user {owner}{unknown}, and must belong to {root}{own}: chown it"
            ));
        }
        let mode = found.st_mode;
        if mode & 0o002 != 0 {
            return Err("can be written by all users: chmod o-w".to_owned());
        }
        let group = found.st_gid;
        if mode & 0o020 != 0 && (group != self.group || group == self.unknown.1) {
            return Err(format!("can be written by group {group}, which is not this process's: chmod g-w"));
        }
        if mode & 0o020 != 0 && has_list {
            return Err("can be written by those in its access control list: setfacl -b".to_owned());
        }
        Ok(())
    }
}

/// The path by which this process, and a child until it runs a program, reaches a file that it holds.
fn by_descriptor(file: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Returns whether a file has an access list besides its mode (acl(5)). Also `true` if the system does not
/// report it.
fn has_access_list(file: &OwnedFd) -> bool {
    let asked = getxattr(by_descriptor(file), "system.posix_acl_access", &mut [0; 1][..]);
    !matches!(asked, Err(Errno::NODATA | Errno::OPNOTSUPP))
}

fn is_script(file: &OwnedFd) -> bool {
    use std::io::Read;
    let mut start = [0; 2];
    // A program that may be executed and not read is no script.
    fs::File::open(by_descriptor(file)).is_ok_and(|mut file| file.read_exact(&mut start).is_ok())
        && start == *b"#!"
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    const NAME: &str = "a_program";

    fn trust() -> Trust {
        let own = Some((PathBuf::from("/opt/lib/libown.so"), 50));
        Trust { user: 1000, group: 100, own, unknown: (65_534, 65_534) }
    }

    /// A file of this owner and group.
    fn of(uid: u32, gid: u32, mode: u32) -> Stat {
        let mut found = stat("/").unwrap();
        (found.st_uid, found.st_gid, found.st_mode) = (uid, gid, mode);
        found
    }

    #[test]
    fn only_root_this_user_its_group_and_the_own_files_owner_pass() {
        let trust = trust();
        for owner in [0, 1000, 50] {
            assert_eq!(trust.check(&of(owner, 7, 0o755), false), Ok(()));
            assert_eq!(trust.check(&of(owner, 100, 0o775), false), Ok(()));
        }
        for (found, has_list, said) in [
            (
                of(1234, 100, 0o755),
                false,
                &["user 1234", "root or user 1000, or user 50, who owns `/opt/lib/libown.so`"][..],
            ),
            (of(65_534, 100, 0o755), false, &["user 65534 (no user that is known here)", "chown"]),
            (of(0, 7, 0o775), false, &["group 7", "chmod g-w"]),
            (of(0, 65_534, 0o775), false, &["group 65534", "chmod g-w"]),
            (of(1000, 100, 0o757), false, &["all users", "chmod o-w"]),
            (of(1000, 100, 0o1777), false, &["all users", "chmod o-w"]),
            (of(1000, 100, 0o775), true, &["access control list", "setfacl -b"]),
        ] {
            let why = trust.check(&found, has_list).unwrap_err();
            assert!(said.iter().all(|words| why.contains(words)), "{why}");
        }
        // A list cannot give more than the group's bits.
        assert_eq!(trust.check(&of(0, 7, 0o755), true), Ok(()));
        // The id of unknown users identifies no user, even if this process or its file has it.
        let nobody = Trust { user: 65_534, own: Some(("/own".into(), 65_534)), ..trust };
        let why = nobody.check(&of(65_534, 0, 0o755), false).unwrap_err();
        assert!(!why.contains("/own"), "{why}");
    }

    #[test]
    fn a_checked_program_runs_as_opened_and_unsafe_ones_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let trust = Trust::of_this_process(None);
        let open = || trust.open(folder.path(), NAME);
        assert!(open().unwrap().is_none());
        assert!(trust.open(&folder.path().join("nowhere"), NAME).unwrap().is_none());
        let file = folder.path().join(NAME);
        let refused = |words: &str| {
            let why = open().unwrap_err();
            assert!(why.contains(words) && why.contains(&*file.display().to_string()), "{why}");
        };
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        symlink("/bin/true", &file).unwrap();
        refused("symbolic link");
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        refused("no file");
        fs::remove_dir(&file).unwrap();
        fs::write(&file, "#!/bin/sh\n").unwrap();
        mode(&file, 0o644);
        refused("chmod +x");
        mode(&file, 0o755);
        refused("script");
        // Copied by another process: a child of another test might hold a written file open.
        let cp =
            |from: &str, to: &Path| assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
        cp("/bin/true", &file);
        mode(&file, 0o757);
        refused("it can be written by all users");
        mode(&file, 0o755);
        mode(folder.path(), 0o1777);
        refused("its folder can be written by all users");
        mode(folder.path(), 0o700);
        let found = open().unwrap().expect("it may be run");
        assert_eq!(found.path(), file);
        // Another file of that name is not the checked one.
        fs::remove_file(&file).unwrap();
        cp("/bin/false", &file);
        assert!(found.command().status().unwrap().success());
        assert!(!open().unwrap().unwrap().command().status().unwrap().success());
        if rustix::process::geteuid().is_root() {
            chown(&file, Some(1234), None).unwrap();
            refused("it belongs to user 1234, and must belong to root");
            chown(&file, Some(0), None).unwrap();
            chown(folder.path(), Some(1234), None).unwrap();
            refused("its folder belongs to user 1234");
        }
    }

    #[test]
    fn an_access_control_list_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let opened = || openat(CWD, folder.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        assert!(!has_access_list(&opened()));
        // Version 2, then tag, permissions and id: owner, user 1234, group, mask, others.
        let entries: [(u16, u16, u32); 5] = [(1, 7, !0), (2, 7, 1234), (4, 5, !0), (16, 7, !0), (32, 0, !0)];
        let entries = entries
            .map(|(tag, may, id)| [&tag.to_le_bytes()[..], &may.to_le_bytes(), &id.to_le_bytes()].concat());
        let list = [&2_u32.to_le_bytes()[..], &entries.concat()].concat();
        let flags = rustix::fs::XattrFlags::empty();
        if let Err(error) = rustix::fs::setxattr(folder.path(), "system.posix_acl_access", &list, flags) {
            return println!("skipped: this file system takes no access control list: {error}");
        }
        assert!(has_access_list(&opened()));
        let found = fstat(opened()).unwrap();
        let trust = Trust { group: found.st_gid, ..Trust::of_this_process(None) };
        assert!(trust.check(&found, true).unwrap_err().contains("setfacl -b"));
    }

    #[test]
    fn the_search_covers_the_programs_folder_and_the_own_files_libexec() {
        let of = |program: &str, own: &str| folders(Some(Path::new(program)), Some(Path::new(own)));
        let [bin, libexec] = ["/moved/bin", "/moved/libexec/farjump"].map(PathBuf::from);
        assert_eq!(of("/moved/bin/farjump", "/moved/bin/farjump"), [bin.clone(), libexec.clone()]);
        assert_eq!(of("/usr/bin/server", "/moved/lib/libfarjump.so"), [PathBuf::from("/usr/bin"), libexec]);
        assert_eq!(of("/moved/bin/farjump", "/farjump"), [bin]);
        assert_eq!(folders(None, None), [""; 0].map(PathBuf::from));
    }

    #[test]
    fn the_own_file_is_that_of_the_mapping() {
        assert_eq!(own_file(), std::env::current_exe().ok());
        let maps = b"1000-2000 r--p 00000000 08:01 5   /a b/lib.so\n2000-3000 rw-p 00000000 00:00 0 \nx\n\
            7000-8000 r-xp 0 fe:00 1  /c (deleted)\n9000-a000 r--p 0 0:0 0 [heap]";
        let of = |address| file_of(maps, address).map(|path| path.display().to_string());
        assert_eq!(of(0x1fff).as_deref(), Some("/a b/lib.so"));
        assert_eq!(of(0x7000).as_deref(), Some("/c (deleted)"));
        assert_eq!([0x2000, 0x9000, 0xf000].map(of), [None, None, None]);
    }
}
