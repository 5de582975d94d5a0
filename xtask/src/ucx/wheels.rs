//! Other versions of UCX than the system's: PyPI's wheels, which pip installs into a folder among the user's caches.

use std::fs;
use std::path::{Path, PathBuf};

use crate::fetch::wheels::Set;
use crate::process::{Failed, Interrupt};

/// The package. Each wheel holds the libraries, headers and tools of a UCX below `libucx`.
const PACKAGE: &str = "libucx-cu12";
/// The version of Debian 12, which is used as it is installed.
const SYSTEM: &str = "1.13";
/// Versions of UCX, the versions of the wheels, and the hashes of the wheels for 64-bit x86. The last is the newest.
const WHEELS: [Wheel; 9] = [
    Wheel::new("1.14.1", "1.14.1.post2", "60d6b6e6c929264cc29549e4e23c86c9a5b0eb44b06999b6afb17eb736bbd56e"),
    Wheel::new("1.15.0", "1.15.0.post2", "1f139d2b8393053fa5447efe1258d8246322a461a1c18e7b04c0163d2541fb01"),
    Wheel::new("1.16.0", "1.16.0.post2", "cde033822102393ce304063b03f1663122458ecd3d93fecb43c6ceb3988228d4"),
    Wheel::new("1.17.0", "1.17.0", "242b6b7568e3546b7af7e51b91a0e0f65951bc7c9c8a82431220231b93d802bf"),
    Wheel::new("1.18.1", "1.18.1", "d8fa5fc4bd76b2796e083bb3a7fb27373ccd9428daf6fe64d0dfd02fc0c95420"),
    Wheel::new("1.19.0", "1.19.0", "64b9448f23c7bb29be30d21bac5742f7297845d0f0c159e6302670b35e71251f"),
    Wheel::new("1.20.1", "1.20.1", "30cf28f3d157416edd806fc7f7359147234e41d8830b223ef9f76a9f648aa6c5"),
    Wheel::new("1.21.0", "1.21.0", "975d167df36dde7488838998d12329e52a2ecfdf120318689f56a4283fcc2e5e"),
    Wheel::new("1.22.0", "1.22.0", "5cbbef0c140a0a158ae3486089af659b38822b2234cd3dc90ba40a5e6553402a"),
];

/// A version that pip can install.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wheel {
    /// UCX's version number.
    version: &'static str,
    /// PyPI's version number.
    release: &'static str,
    sha256: &'static str,
}

/// A UCX for the tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Choice {
    /// The system's, which must be of this version.
    System(&'static str),
    /// One that pip installs.
    Wheel(Wheel),
}

impl Wheel {
    const fn new(version: &'static str, release: &'static str, sha256: &'static str) -> Wheel {
        Wheel { version, release, sha256 }
    }

    /// The newest.
    pub(crate) const fn newest() -> Wheel {
        WHEELS[WHEELS.len() - 1]
    }

    /// The folder with its libraries, installed if it is missing. `Err` inside says why it is not available.
    ///
    /// # Errors
    /// When interrupted.
    pub(crate) fn folder(self, interrupt: &Interrupt) -> Result<Result<PathBuf, String>, Failed> {
        let Wheel { version, release, sha256 } = self;
        let pinned = [(PACKAGE, release, sha256)];
        let set = Set { what: &format!("UCX {version}"), name: &format!("ucx/{release}"), pinned: &pinned };
        // The archives are larger than all other files.
        let folder = set.folder(|installed| strip(&installed.join("libucx/lib")), interrupt)?;
        Ok(folder.map(|folder| folder.join("libucx/lib")))
    }
}

impl Choice {
    /// The UCX that a user names: `1.13` for the system's, two numbers or all of them for others.
    ///
    /// # Errors
    /// When there is none of this name. The error lists the existing ones.
    pub(crate) fn parse(name: &str) -> Result<Choice, String> {
        if name == SYSTEM {
            return Ok(Choice::System(SYSTEM));
        }
        let is_named = |wheel: &&Wheel| {
            wheel.version == name || wheel.version.rsplit_once('.').is_some_and(|(short, _)| short == name)
        };
        WHEELS.iter().find(is_named).map(|wheel| Choice::Wheel(*wheel)).ok_or_else(|| {
            let known: Vec<_> = WHEELS.iter().map(|wheel| wheel.version).collect();
            format!(
                "there is no UCX `{name}` to test with: name {SYSTEM}, the system's, or {}",
                known.join(", ")
            )
        })
    }

    /// Its version.
    pub(crate) fn version(self) -> &'static str {
        match self {
            Choice::System(version) => version,
            Choice::Wheel(wheel) => wheel.version,
        }
    }
}

/// Removes the archives in a folder and those below it.
fn strip(folder: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            strip(&path)?;
        } else if path.extension().is_some_and(|ending| ending == "a" || ending == "la") {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_short_names_and_an_unknown_name_lists_all() {
        for (name, version) in [
            ("1.13", "1.13"),
            ("1.18", "1.18.1"),
            ("1.18.1", "1.18.1"),
            ("1.20", "1.20.1"),
            ("1.22", "1.22.0"),
        ] {
            assert_eq!(Choice::parse(name).map(Choice::version), Ok(version));
        }
        assert_eq!(Wheel::newest().version, "1.22.0");
        for name in ["", "1", "1.1", "1.18.0", "1.23", "1.13.1", "latest"] {
            let why = Choice::parse(name).unwrap_err();
            assert!(
                why.contains(name) && why.contains("1.13, the system's") && why.contains("1.22.0"),
                "{why}"
            );
        }
    }
}
