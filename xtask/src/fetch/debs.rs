//! Packages of the distribution: apt downloads them, and they are kept and unpacked without being installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::fetch::packages;
use crate::fetch::whole;
use crate::process::{Failed, Interrupt, Run};

/// The keys of Debian's releases.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// The release after the one that most machines have: its emulator and its kernels are newer.
pub(crate) const NEWER_RELEASE: &str = "trixie";
/// Limit for a download.
const DOWNLOAD: Duration = Duration::from_secs(10 * 60);
/// Limit for apt's planning.
const THINK: Duration = Duration::from_secs(60);

/// A value, or why it is not available here.
#[derive(Debug)]
pub(crate) enum Outcome<T> {
    Here(T),
    Missing(String),
}

impl<T> Outcome<T> {
    /// Maps the value.
    pub(crate) fn map<U>(self, of: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Outcome::Here(value) => Outcome::Here(of(value)),
            Outcome::Missing(why) => Outcome::Missing(why),
        }
    }

    /// The value; or, as an error, the reason why it is not available.
    pub(crate) fn here(self) -> Result<T, String> {
        match self {
            Outcome::Here(value) => Ok(value),
            Outcome::Missing(why) => Err(why),
        }
    }
}

/// A folder of downloads and of their unpacked files.
#[derive(Debug)]
pub(crate) struct Store<'i> {
    pub(crate) folder: PathBuf,
    /// apt's options for the store's own lists of packages; none for the system's.
    view: Vec<String>,
    pub(crate) interrupt: &'i Interrupt,
}

impl<'i> Store<'i> {
    /// The store in `folder`, which need not exist.
    pub(crate) fn new(folder: &Path, interrupt: &'i Interrupt) -> Store<'i> {
        Store { folder: folder.to_owned(), view: Vec::new(), interrupt }
    }

    /// The store in `folder` of packages for another architecture (`arm64`), or, with the text of a `sources.list`,
    /// of another release. apt keeps their lists there, so this needs no privilege.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub(crate) fn viewing(
        folder: &Path,
        architecture: Option<&str>,
        sources: Option<&str>,
        interrupt: &'i Interrupt,
    ) -> Result<Store<'i>, Failed> {
        for made in ["lists/partial", "cache/archives/partial"] {
            let made = folder.join(made);
            fs::create_dir_all(&made).map_err(|error| failed(&made, error))?;
        }
        let at = |name: &str| folder.join(name).display().to_string();
        let mut settings =
            vec![format!("Dir::State::Lists={}", at("lists")), format!("Dir::Cache={}", at("cache"))];
        if let Some(architecture) = architecture {
            settings.push(format!("APT::Architecture={architecture}"));
            settings.push(format!("APT::Architectures={architecture}"));
        }
        if let Some(sources) = sources {
            let list = folder.join("sources.list");
            fs::write(&list, sources).map_err(|error| failed(&list, error))?;
            settings.push(format!("Dir::Etc::SourceList={}", list.display()));
            settings.push("Dir::Etc::SourceParts=/dev/null".to_owned());
            // apt looks for the installed version, which another release need not have.
            settings.push(format!("Dir::State::status={}", nothing_installed(folder)?.display()));
        }
        let view = settings.into_iter().flat_map(|setting| ["-o".to_owned(), setting]).collect();
        Ok(Store { folder: folder.to_owned(), view, interrupt })
    }

    /// Updates the lists of packages. Returns `false` if this user may not, or if that failed.
    fn update(&self) -> Result<bool, Failed> {
        if self.view.is_empty() {
            return packages::update(self.interrupt);
        }
        let apt = Run::new("apt-get", self.interrupt).args(&self.view).args(["update"]);
        Ok(apt.limit(DOWNLOAD).quiet().run()?.status.success())
    }

    /// `apt-get install`'s arguments for these packages with all their dependencies, as on an empty system.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub(crate) fn with_dependencies(&self, packages: &[&str]) -> Result<Vec<String>, Failed> {
        let nothing = nothing_installed(&self.folder)?;
        let status = format!("Dir::State::status={}", nothing.display());
        let options = ["-o", &status, "-y", "--no-install-recommends", "install"];
        Ok([&options[..], packages].concat().into_iter().map(str::to_owned).collect())
    }

    /// The dependencies of these packages, in apt's words: lines with `Depends: PACKAGE`. Packages that are missing
    /// in the present lists have no lines.
    ///
    /// # Errors
    /// When interrupted, or there is no apt.
    pub(crate) fn depends(&self, packages: &[&str]) -> Result<String, Failed> {
        let apt = Run::new("apt-cache", self.interrupt).args(&self.view).args(["depends"]).args(packages);
        Ok(apt.limit(THINK).quiet().run()?.output)
    }

    /// Downloads the missing packages of `apt-get ARGUMENTS`. Returns the files, or the reason of a failure.
    ///
    /// # Errors
    /// When interrupted, or the folder cannot be written.
    pub(crate) fn fetch(&self, arguments: &[&str]) -> Result<Outcome<Vec<PathBuf>>, Failed> {
        let tried = self.fetch_listed(arguments)?;
        match tried {
            // Old lists name packages that no longer exist; a new machine has no lists.
            Outcome::Missing(_) if self.update()? => self.fetch_listed(arguments),
            tried => Ok(tried),
        }
    }

    /// Does the same with the present lists of packages.
    fn fetch_listed(&self, arguments: &[&str]) -> Result<Outcome<Vec<PathBuf>>, Failed> {
        let folder = self.folder.join("packages");
        fs::create_dir_all(&folder).map_err(|error| failed(&folder, error))?;
        let apt = |directory| {
            let run = Run::new("apt-get", self.interrupt).args(&self.view).directory(directory);
            run.env("LC_ALL", "C").quiet()
        };
        // In another folder: apt-get prints nothing for a package whose file exists.
        let listed = apt(&self.folder).args(["--print-uris"]).args(arguments).limit(THINK).run()?;
        let wanted: Vec<_> = listed.output.lines().filter_map(Wanted::read).collect();
        if !listed.status.success() || wanted.is_empty() {
            return Ok(Outcome::Missing(format!(
                "apt-get does not know what they need: {}",
                said(&listed.output)
            )));
        }
        let is_there = |wanted: &&Wanted<'_>| whole::is_whole(&folder.join(wanted.file));
        let lacking: Vec<_> = wanted.iter().filter(|wanted| !is_there(wanted)).collect();
        if !lacking.is_empty() {
            say!("downloading {} packages", lacking.len());
            for wanted in &lacking {
                // apt-get takes a file of this name for the package.
                let path = folder.join(wanted.file);
                whole::remove(&path).map_err(|error| failed(&path, error))?;
            }
            let names = lacking.iter().map(|wanted| wanted.package());
            let ended = apt(&folder).args(["download"]).args(names).limit(DOWNLOAD).run()?;
            if !ended.status.success() {
                return Ok(Outcome::Missing(format!(
                    "packages cannot be downloaded: {}",
                    said(&ended.output)
                )));
            }
        }
        for wanted in lacking {
            // apt-get has compared it with the hash of its lists.
            let path = folder.join(wanted.file);
            if !path.is_file() {
                let what = wanted.file;
                return Ok(Outcome::Missing(format!("apt-get downloaded something else than {what}")));
            }
            whole::note(&path).map_err(|error| failed(&path, error))?;
        }
        Ok(Outcome::Here(wanted.iter().map(|wanted| folder.join(wanted.file)).collect()))
    }

    /// The file with the names of the packages in the folder `name`.
    fn list_of(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.list"))
    }

    /// The packages that were unpacked into the folder `name`, one a line.
    ///
    /// # Errors
    /// When there are none.
    pub(crate) fn list(&self, name: &str) -> Result<String, Failed> {
        let list = self.list_of(name);
        fs::read_to_string(&list).map_err(|error| failed(&list, error))
    }

    /// Unpacks packages into a folder of this name, unless it has them already.
    ///
    /// # Errors
    /// When interrupted, or a package cannot be unpacked.
    pub(crate) fn unpack(&self, name: &str, files: &[PathBuf]) -> Result<PathBuf, Failed> {
        let (root, list) = (self.folder.join(name), self.list_of(name));
        let names: String = files.iter().map(|file| format!("{}\n", file.display())).collect();
        if fs::read_to_string(&list).is_ok_and(|listed| listed == names) && whole::is_whole(&root) {
            return Ok(root);
        }
        for old in [&list, &root] {
            whole::remove(old).map_err(|error| failed(old, error))?;
        }
        fs::create_dir_all(&root).map_err(|error| failed(&root, error))?;
        for file in files {
            let ended =
                Run::new("dpkg-deb", self.interrupt).args(["-x"]).args([file, &root]).quiet().run()?;
            if !ended.status.success() {
                return Err(Failed::Because(format!("{}: {}", file.display(), said(&ended.output))));
            }
        }
        fs::write(&list, names).map_err(|error| failed(&list, error))?;
        whole::note(&root).map_err(|error| failed(&root, error))?;
        Ok(root)
    }

    /// Unpacks the packages of several `apt-get` commands into one folder of this name. Returns the folder, or the
    /// reason of a failure.
    ///
    /// # Errors
    /// When interrupted, or a package cannot be unpacked.
    pub(crate) fn unpacked(&self, name: &str, commands: &[&[&str]]) -> Result<Outcome<PathBuf>, Failed> {
        let mut files = Vec::new();
        for command in commands {
            match self.fetch(command)? {
                Outcome::Here(more) => files.extend(more),
                Outcome::Missing(why) => return Ok(Outcome::Missing(why)),
            }
        }
        self.unpack(name, &files).map(Outcome::Here)
    }
}

/// The mirror of Debian's that apt uses.
pub(crate) fn mirror() -> Option<String> {
    let read = |file: &str| fs::read_to_string(Path::new("/etc/apt").join(file)).unwrap_or_default();
    let sources = read("sources.list.d/debian.sources");
    let uri = sources.lines().find_map(|line| line.strip_prefix("URIs:"));
    let uri = uri.and_then(|uris| uris.split_whitespace().next()).map(str::to_owned);
    uri.or_else(|| mirror_in(&read("sources.list"))).filter(|_| Path::new(KEYS).exists())
}

/// The first mirror in the text of a `sources.list` that looks like one of Debian's.
fn mirror_in(list: &str) -> Option<String> {
    let entries = list.lines().filter_map(|line| line.strip_prefix("deb "));
    let mut uris = entries.filter_map(|entry| entry.split_whitespace().find(|word| word.contains("://")));
    uris.find(|uri| uri.trim_end_matches('/').ends_with("debian")).map(str::to_owned)
}

/// A line of a `sources.list` for the main part of a release of Debian's.
pub(crate) fn source(mirror: &str, release: &str) -> String {
    format!("deb [signed-by={KEYS}] {mirror} {release} main\n")
}

/// apt's record of an empty system, made in `folder`.
fn nothing_installed(folder: &Path) -> Result<PathBuf, Failed> {
    fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    let nothing = folder.join("nothing");
    fs::write(&nothing, "").map_err(|error| failed(&nothing, error))?;
    Ok(nothing)
}

pub(crate) fn failed(path: &Path, error: std::io::Error) -> Failed {
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

/// A file that apt would download.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Wanted<'o> {
    file: &'o str,
}

impl<'o> Wanted<'o> {
    /// Parses a line `'URI' FILE BYTES HASH`.
    fn read(line: &'o str) -> Option<Wanted<'o>> {
        let (_, rest) = line.strip_prefix('\'')?.split_once("' ")?;
        let mut words = rest.split(' ');
        let (file, _) = (words.next()?, words.next()?.parse::<u64>().ok()?);
        (file.ends_with(".deb") && !file.contains('/')).then_some(Wanted { file })
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
    fn files_that_apt_would_download_are_read() {
        let line = "'http://deb.debian.org/pool/x/zlib1g_1.2.13_amd64.deb' zlib1g_1%3a1.2.13_amd64.deb 86684 MD5Sum:ec42";
        let wanted = Wanted::read(line).unwrap();
        assert_eq!((wanted.package(), wanted.file), ("zlib1g", "zlib1g_1%3a1.2.13_amd64.deb"));
        for line in
            ["Need to get 18.0 MB of archives.", "'http://x' ../up.deb 3 MD5Sum:1", "'http://x' y.dsc 3 m"]
        {
            assert_eq!(Wanted::read(line), None, "{line}");
        }
    }

    #[test]
    fn a_mirror_is_found_in_a_list_of_sources() {
        let list = "# deb http://old.example/debian stretch main\n\
                    deb http://security.example/debian-security bookworm main\n\
                    deb [arch=amd64] http://mirror.example/debian/ bookworm main\n";
        assert_eq!(mirror_in(list).as_deref(), Some("http://mirror.example/debian/"));
        assert_eq!(mirror_in("deb http://archive.ubuntu.com/ubuntu noble main\n"), None);
    }
}
