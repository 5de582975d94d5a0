//! The tools of emulated tests: packages, unpacked.

use std::fs;
use std::path::{Path, PathBuf};

use super::platform::{Platform, STANDARD_LIBRARY};
use crate::debs::{Outcome, Store, failed};
use crate::packages;
use crate::process::{Failed, Interrupt};

/// Debian's release with the emulator.
const NEWER_RELEASE: &str = "trixie";
/// The keys of Debian's releases.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// The compiler.
const COMPILER: &str = "rustc-web";
/// Programs that must be installed.
const PROGRAMS: [&str; 5] = ["clang", "ld.lld", "apt-get", "apt-cache", "dpkg-deb"];

/// The tools for all platforms: folders of unpacked packages.
pub(super) struct Tools {
    pub(super) emulator: PathBuf,
    pub(super) compiler: PathBuf,
}

impl Tools {
    /// Gets the tools; or the reason why they are not available.
    pub(super) fn get(folder: &Path, interrupt: &Interrupt) -> Result<Outcome<Tools>, Failed> {
        if !cfg!(target_arch = "x86_64") {
            return Ok(Outcome::Missing("only on x86-64".to_owned()));
        }
        if let Some(program) = PROGRAMS.into_iter().find(|program| !packages::in_path(program)) {
            return Ok(Outcome::Missing(format!("{program} is not there")));
        }
        let Some(mirror) = mirror() else {
            return Ok(Outcome::Missing(
                "apt has no mirror of Debian's, from which the emulator comes".to_owned(),
            ));
        };
        let sources = format!("deb [signed-by={KEYS}] {mirror} {NEWER_RELEASE} main\n");
        let newer = Store::viewing(&folder.join("newer"), None, Some(&sources), interrupt)?;
        let emulator = match unpacked(&newer, "emulator", &[&["download", "qemu-user"]])? {
            Outcome::Here(emulator) => emulator,
            Outcome::Missing(why) => return Ok(Outcome::Missing(format!("no emulator: {why}"))),
        };
        let own = Store::new(&folder.join("own"), interrupt);
        let library = own.with_dependencies(&[STANDARD_LIBRARY])?;
        let library: Vec<&str> = library.iter().map(String::as_str).collect();
        let compiler = match unpacked(&own, "compiler", &[&["download", COMPILER], &library])? {
            Outcome::Here(compiler) => compiler,
            Outcome::Missing(why) => return Ok(Outcome::Missing(format!("no compiler: {why}"))),
        };
        Ok(Outcome::Here(Tools { emulator, compiler }))
    }

    /// Gets the folder with which programs for `platform` are linked, and in which the emulator finds their
    /// libraries. Puts the platform's standard library where the compiler looks for it.
    pub(super) fn libraries(
        &self,
        platform: &Platform,
        folder: &Path,
        interrupt: &Interrupt,
    ) -> Result<Outcome<PathBuf>, Failed> {
        let architecture = platform.debian;
        let store = Store::viewing(&folder.join(architecture), Some(architecture), None, interrupt)?;
        let libraries = match unpacked(&store, "libraries", &[&[&["download"], platform.libraries].concat()])?
        {
            Outcome::Here(libraries) => libraries,
            Outcome::Missing(why) => return Ok(Outcome::Missing(format!("no libraries: {why}"))),
        };
        beside(&libraries, &self.compiler, platform.rust)?;
        Ok(Outcome::Here(libraries))
    }
}

/// Unpacks the packages of several `apt-get` commands into one folder.
fn unpacked(store: &Store<'_>, name: &str, commands: &[&[&str]]) -> Result<Outcome<PathBuf>, Failed> {
    let mut files = Vec::new();
    for command in commands {
        match store.fetch(command)? {
            Outcome::Here(more) => files.extend(more),
            Outcome::Missing(why) => return Ok(Outcome::Missing(why)),
        }
    }
    store.unpack(name, &files).map(Outcome::Here)
}

/// Puts the standard library for another platform where the compiler looks for it.
fn beside(libraries: &Path, compiler: &Path, platform: &str) -> Result<(), Failed> {
    let platforms = "usr/lib/rustlib";
    let (from, to) = (libraries.join(platforms).join(platform), compiler.join(platforms).join(platform));
    match fs::read_link(&to) {
        Ok(linked) if linked == from => return Ok(()),
        // Of a folder that was moved or copied.
        Ok(_) => fs::remove_file(&to).map_err(|error| failed(&to, error))?,
        Err(_) => {}
    }
    std::os::unix::fs::symlink(&from, &to).map_err(|error| failed(&to, error))
}

/// The mirror of Debian's that apt uses.
fn mirror() -> Option<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirror_is_found_in_a_list_of_sources() {
        let list = "# deb http://old.example/debian stretch main\n\
                    deb http://security.example/debian-security bookworm main\n\
                    deb [arch=amd64] http://mirror.example/debian/ bookworm main\n";
        assert_eq!(mirror_in(list).as_deref(), Some("http://mirror.example/debian/"));
        assert_eq!(mirror_in("deb http://archive.ubuntu.com/ubuntu noble main\n"), None);
    }
}
