//! The tools of emulated tests: packages, unpacked.

use std::fs;
use std::path::{Path, PathBuf};

use super::platform::{Packages, Platform, STANDARD_LIBRARY, StandardLibrary};
use super::standard_library::{self, RUSTLIB};
use crate::fetch::debs::{self, Outcome, Store, failed};
use crate::fetch::packages;
use crate::process::{Failed, Interrupt, Run};

/// The compiler, and its sources.
const COMPILER: &str = "rustc-web";
const SOURCES: &str = "rust-web-src";
/// The linker. Debian 12's default (`lld`) does not shorten calls as riscv64's libraries require.
const LINKER: &str = "lld-22";
const LINKERS_PROGRAM: &str = "usr/bin/ld.lld-22";
/// Programs that must be installed.
const PROGRAMS: [&str; 4] = ["clang", "apt-get", "apt-cache", "dpkg-deb"];

/// The tools for all platforms.
pub(crate) struct Tools<'i> {
    /// Folders of unpacked packages: the emulator, and the compiler with its linker.
    emulator: PathBuf,
    compiler: PathBuf,
    /// This machine's packages.
    own: Store<'i>,
}

/// The folders of a platform.
pub(super) struct Folders {
    /// The folder with which programs are linked.
    pub(super) link: PathBuf,
    /// The folder in which the emulator finds a program's libraries.
    pub(super) run: PathBuf,
}

impl<'i> Tools<'i> {
    /// Gets the tools; or the reason why they are not available.
    pub(crate) fn get(folder: &Path, interrupt: &'i Interrupt) -> Result<Outcome<Tools<'i>>, Failed> {
        if !cfg!(target_arch = "x86_64") {
            return Ok(Outcome::Missing("only on x86-64".to_owned()));
        }
        if let Some(program) = PROGRAMS.into_iter().find(|program| !packages::in_path(program)) {
            return Ok(Outcome::Missing(format!("{program} is not there")));
        }
        let Some(mirror) = debs::mirror() else {
            return Ok(Outcome::Missing(
                "apt has no mirror of Debian's, from which the emulator comes".to_owned(),
            ));
        };
        let sources = debs::source(&mirror, debs::NEWER_RELEASE);
        let newer = Store::viewing(&folder.join("newer"), None, Some(&sources), interrupt)?;
        let emulator = match newer.unpacked("emulator", &[&["download", "qemu-user"]])? {
            Outcome::Here(emulator) => emulator,
            Outcome::Missing(why) => return Ok(Outcome::Missing(format!("no emulator: {why}"))),
        };
        let own = Store::new(&folder.join("own"), interrupt);
        let library = own.with_dependencies(&[STANDARD_LIBRARY, LINKER])?;
        let library: Vec<&str> = library.iter().map(String::as_str).collect();
        let compiler = match own.unpacked("compiler", &[&["download", COMPILER], &library])? {
            Outcome::Here(compiler) => compiler,
            Outcome::Missing(why) => return Ok(Outcome::Missing(format!("no compiler: {why}"))),
        };
        Ok(Outcome::Here(Tools { emulator, compiler, own }))
    }

    /// The emulator's program `name`.
    pub(super) fn emulator(&self, name: &str) -> PathBuf {
        self.emulator.join("usr/bin").join(name)
    }

    /// The compiler's folder.
    pub(super) fn compiler(&self) -> PathBuf {
        self.compiler.join("usr")
    }

    /// The linker's program.
    pub(super) fn linker(&self) -> PathBuf {
        self.compiler.join(LINKERS_PROGRAM)
    }

    /// Makes `run`, a run of cargo, use the compiler.
    pub(super) fn with_compiler<'r>(&self, run: Run<'r>) -> Run<'r> {
        let usr = self.compiler();
        run.env("RUSTC", usr.join("bin/rustc"))
            .env("RUSTDOC", usr.join("bin/rustdoc"))
            .env("LD_LIBRARY_PATH", usr.join("lib/x86_64-linux-gnu"))
    }

    /// Gets the libraries of `platform`; or the reason why they are not available. Puts its standard library into the
    /// folder where the compiler looks for it.
    pub(super) fn libraries(
        &self,
        platform: &Platform,
        folder: &Path,
        interrupt: &Interrupt,
    ) -> Result<Outcome<Folders>, Failed> {
        let link = match platform.packages {
            Packages::OfPlatform { architecture, names } => {
                let store = Store::viewing(&folder.join(architecture), Some(architecture), None, interrupt)?;
                store.unpacked("libraries", &[&[&["download"], names].concat()])?
            }
            Packages::Cross { names, .. } => {
                let name = format!("libraries-{}", platform.architecture());
                self.own.unpacked(&name, &[&[&["download"], names].concat()])?
            }
        };
        let link = match link {
            Outcome::Here(link) => link,
            Outcome::Missing(why) => return Ok(Outcome::Missing(format!("no libraries: {why}"))),
        };
        let library = match platform.standard_library {
            StandardLibrary::Packaged => link.clone(),
            StandardLibrary::Built => match self.built_library(platform, folder, interrupt)? {
                Outcome::Here(library) => library,
                Outcome::Missing(why) => return Ok(Outcome::Missing(format!("no standard library: {why}"))),
            },
        };
        self.add_to_compiler(&library, platform.rust)?;
        let run = match platform.packages {
            Packages::OfPlatform { .. } => link.clone(),
            Packages::Cross { folder, .. } => link.join(folder),
        };
        Ok(Outcome::Here(Folders { link, run }))
    }

    /// The compiler's sources, put into the folder where the compiler looks for them; or the reason why they are not
    /// available.
    pub(super) fn sources(&self) -> Result<Outcome<PathBuf>, Failed> {
        let sources = self.own.unpacked("sources", &[&["download", SOURCES]])?;
        if let Outcome::Here(sources) = &sources {
            self.add_to_compiler(sources, "src")?;
        }
        Ok(sources)
    }

    /// The standard library of `platform`, built from the compiler's sources.
    fn built_library(
        &self,
        platform: &Platform,
        folder: &Path,
        interrupt: &Interrupt,
    ) -> Result<Outcome<PathBuf>, Failed> {
        let sources = match self.sources()? {
            Outcome::Here(sources) => sources,
            Outcome::Missing(why) => return Ok(Outcome::Missing(why)),
        };
        let mut version = String::new();
        for name in ["compiler", "sources"] {
            version += &self.own.list(name)?;
        }
        let folder = folder.join(platform.architecture());
        standard_library::built(
            platform,
            |run| self.with_compiler(run),
            &sources,
            &version,
            &folder,
            interrupt,
        )
        .map(Outcome::Here)
    }

    /// Adds `name`, one of the compiler's folders that lies in another package, to the compiler's own folder.
    fn add_to_compiler(&self, package: &Path, name: &str) -> Result<(), Failed> {
        let (from, to) = (package.join(RUSTLIB).join(name), self.compiler.join(RUSTLIB).join(name));
        match fs::read_link(&to) {
            Ok(linked) if linked == from => return Ok(()),
            // This link is left from before the folder was moved or copied.
            Ok(_) => fs::remove_file(&to).map_err(|error| failed(&to, error))?,
            Err(_) => {}
        }
        std::os::unix::fs::symlink(&from, &to).map_err(|error| failed(&to, error))
    }
}
