//! Contents of the virtual machines: packages of the distribution, downloaded by apt, kept, and unpacked
//! without being installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Outcome;
use crate::packages;
use crate::process::{Failed, Interrupt, Run};

/// Packages of a machine, besides their dependencies. Debian 12's names.
const USERLAND: [&str; 10] = [
    "busybox-static",
    "dash",
    "iproute2",
    "ibverbs-providers",
    "ibverbs-utils",
    "perftest",
    "libucx0",
    "ucx-utils",
    "libgcc-s1",
    "libstdc++6",
];

/// Packages that depend on the newest kernel of a series; any of them will do.
const KERNELS: [&str; 3] = ["linux-image-amd64", "linux-image-6.1-amd64", "linux-image-6.12-amd64"];

/// Limit for a download.
const DOWNLOAD: Duration = Duration::from_secs(10 * 60);
/// Limit for apt's planning.
const THINK: Duration = Duration::from_secs(60);

/// A folder of downloads and of their unpacked files.
#[derive(Debug)]
pub(super) struct Store<'i> {
    folder: PathBuf,
    interrupt: &'i Interrupt,
}

/// A kernel, unpacked.
#[derive(Debug)]
pub(super) struct Kernel {
    /// Its series: `6.1`.
    pub(super) series: String,
    /// Its release: `6.1.0-56-amd64`.
    pub(super) release: String,
    /// Its package's files.
    pub(super) root: PathBuf,
}

impl<'i> Store<'i> {
    /// The store in `folder`, which need not exist.
    pub(super) fn new(folder: &Path, interrupt: &'i Interrupt) -> Store<'i> {
        Store { folder: folder.to_owned(), interrupt }
    }

    /// The root file system of the machines; or why there is none.
    ///
    /// # Errors
    /// Interrupted, or a package that cannot be unpacked.
    pub(super) fn userland(&self) -> Result<Outcome<PathBuf>, Failed> {
        // As on an empty system: the list includes all dependencies, libc too.
        fs::create_dir_all(&self.folder).map_err(|error| failed(&self.folder, error))?;
        let nothing = self.folder.join("nothing");
        fs::write(&nothing, "").map_err(|error| failed(&nothing, error))?;
        let status = format!("Dir::State::status={}", nothing.display());
        let options = ["-o", &status, "-y", "--no-install-recommends", "install"];
        let arguments = [&options[..], &USERLAND[..]].concat();
        let files = match self.fetch(&arguments)? {
            Outcome::Here(files) => files,
            Outcome::Missing(why) => return Ok(Outcome::Missing(why)),
        };
        self.unpack("userland", &files).map(Outcome::Here)
    }

    /// The newest kernel of a series (`6.1`); or why there is none.
    ///
    /// # Errors
    /// Interrupted, or a package that cannot be unpacked.
    pub(super) fn kernel(&self, series: &str) -> Result<Outcome<Kernel>, Failed> {
        let ended = Run::new("apt-cache", self.interrupt)
            .args(["depends"])
            .args(KERNELS)
            .limit(THINK)
            .quiet()
            .run()?;
        let Some(package) = kernel_of(series, &ended.output) else {
            let names = KERNELS.join(" nor ");
            return Ok(Outcome::Missing(format!(
                "apt knows no kernel {series}: neither {names} depends on one (apt-get update may help, as root)"
            )));
        };
        let files = match self.fetch(&["download", package])? {
            Outcome::Here(files) => files,
            Outcome::Missing(why) => return Ok(Outcome::Missing(why)),
        };
        let root = self.unpack(&format!("kernel-{series}"), &files)?;
        let release = package.trim_start_matches("linux-image-").to_owned();
        Ok(Outcome::Here(Kernel { series: series.to_owned(), release, root }))
    }

    /// Downloads the packages of `apt-get ARGUMENTS`, as far as they are missing; or why that fails.
    fn fetch(&self, arguments: &[&str]) -> Result<Outcome<Vec<PathBuf>>, Failed> {
        let tried = self.fetch_listed(arguments)?;
        match tried {
            // Old lists name packages that no longer exist; a new machine has no lists.
            Outcome::Missing(_) if packages::update(self.interrupt)? => self.fetch_listed(arguments),
            tried => Ok(tried),
        }
    }

    /// The same, by the present lists of packages.
    fn fetch_listed(&self, arguments: &[&str]) -> Result<Outcome<Vec<PathBuf>>, Failed> {
        let folder = self.folder.join("packages");
        fs::create_dir_all(&folder).map_err(|error| failed(&folder, error))?;
        let apt =
            |directory| Run::new("apt-get", self.interrupt).directory(directory).env("LC_ALL", "C").quiet();
        // Elsewhere: apt-get prints nothing for a package whose file exists.
        let listed = apt(&self.folder).args(["--print-uris"]).args(arguments).limit(THINK).run()?;
        let wanted: Vec<_> = listed.output.lines().filter_map(Wanted::read).collect();
        if !listed.status.success() || wanted.is_empty() {
            return Ok(Outcome::Missing(format!(
                "apt-get does not know what they need: {}",
                said(&listed.output)
            )));
        }
        let is_there = |wanted: &&Wanted<'_>| {
            folder.join(wanted.file).metadata().is_ok_and(|metadata| metadata.len() == wanted.len)
        };
        let lacking: Vec<_> = wanted.iter().filter(|wanted| !is_there(wanted)).collect();
        if !lacking.is_empty() {
            println!("downloading {} packages", lacking.len());
            let names = lacking.iter().map(|wanted| wanted.package());
            let ended = apt(&folder).args(["download"]).args(names).limit(DOWNLOAD).run()?;
            if !ended.status.success() {
                return Ok(Outcome::Missing(format!(
                    "packages cannot be downloaded: {}",
                    said(&ended.output)
                )));
            }
        }
        if let Some(lost) = wanted.iter().find(|wanted| !is_there(wanted)) {
            return Ok(Outcome::Missing(format!("apt-get downloaded something else than {}", lost.file)));
        }
        Ok(Outcome::Here(wanted.iter().map(|wanted| folder.join(wanted.file)).collect()))
    }

    /// Unpacks packages into a folder of this name, unless it has them already.
    fn unpack(&self, name: &str, files: &[PathBuf]) -> Result<PathBuf, Failed> {
        let (root, list) = (self.folder.join(name), self.folder.join(format!("{name}.list")));
        let names: String = files.iter().map(|file| format!("{}\n", file.display())).collect();
        if root.is_dir() && fs::read_to_string(&list).is_ok_and(|listed| listed == names) {
            return Ok(root);
        }
        for old in [&list, &root] {
            let removed = if old.is_dir() { fs::remove_dir_all(old) } else { fs::remove_file(old) };
            match removed {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(old, error)),
                _ => {}
            }
        }
        fs::create_dir_all(&root).map_err(|error| failed(&root, error))?;
        for file in files {
            let ended =
                Run::new("dpkg-deb", self.interrupt).args(["-x"]).args([file, &root]).quiet().run()?;
            if !ended.status.success() {
                // The download is useless, and would be found again.
                let _ = fs::remove_file(file);
                return Err(Failed::Because(format!("{}: {}", file.display(), said(&ended.output))));
            }
        }
        // Last, so that it exists only if all else does.
        fs::write(&list, names).map_err(|error| failed(&list, error))?;
        Ok(root)
    }
}

fn failed(path: &Path, error: std::io::Error) -> Failed {
    Failed::Because(format!("{}: {error}", path.display()))
}

/// apt's error; its last lines if there is none.
fn said(output: &str) -> &str {
    let mut lines = output.lines().filter(|line| !line.trim().is_empty());
    lines
        .clone()
        .find(|line| line.starts_with("E: "))
        .or_else(|| lines.next_back())
        .unwrap_or("it says nothing")
}

/// The kernel of a series on which one of the packages in the output of `apt-cache depends` depends.
fn kernel_of<'o>(series: &str, output: &'o str) -> Option<&'o str> {
    let begins = format!("linux-image-{series}.");
    output
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|package| package.starts_with(&begins))
}

/// A file that apt would download.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Wanted<'o> {
    file: &'o str,
    len: u64,
}

impl<'o> Wanted<'o> {
    /// From a line `'URI' FILE BYTES HASH`.
    fn read(line: &'o str) -> Option<Wanted<'o>> {
        let (_, rest) = line.strip_prefix('\'')?.split_once("' ")?;
        let mut words = rest.split(' ');
        let (file, len) = (words.next()?, words.next()?.parse().ok()?);
        (file.ends_with(".deb") && !file.contains('/')).then_some(Wanted { file, len })
    }

    /// The package's name.
    fn package(self) -> &'o str {
        self.file.split('_').next().unwrap_or(self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_apt_would_download_are_read_with_their_lengths() {
        let line = "'http://deb.debian.org/pool/x/zlib1g_1.2.13_amd64.deb' zlib1g_1%3a1.2.13_amd64.deb 86684 MD5Sum:ec42";
        let wanted = Wanted::read(line).unwrap();
        assert_eq!((wanted.package(), wanted.len), ("zlib1g", 86684));
        for line in
            ["Need to get 18.0 MB of archives.", "'http://x' ../up.deb 3 MD5Sum:1", "'http://x' y.dsc 3 m"]
        {
            assert_eq!(Wanted::read(line), None, "{line}");
        }
    }

    #[test]
    fn a_series_is_no_other_one_whose_number_begins_alike() {
        let output = "linux-image-amd64\n  Depends: linux-image-6.12.117+deb12-amd64\nx\n  Depends: linux-image-6.1.0-56-amd64\n";
        assert_eq!(kernel_of("6.1", output), Some("linux-image-6.1.0-56-amd64"));
        assert_eq!(kernel_of("6.12", output), Some("linux-image-6.12.117+deb12-amd64"));
        assert_eq!(kernel_of("6.18", output), None);
    }
}
