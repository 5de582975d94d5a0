//! Building for a platform on this machine.

use std::path::{Path, PathBuf};

use super::platform::{self, Platform};
use super::tools::{Folders, Tools};
use super::wrappers::Wrappers;
use crate::fetch::debs::Outcome;
use crate::process::{Failed, Interrupt, Run};
use crate::workspace::{for_emulator, root};

/// A platform with all tools that build for it.
pub(crate) struct Cross<'t, 'i> {
    platform: &'static Platform,
    tools: &'t Tools<'i>,
    interrupt: &'i Interrupt,
    /// The folder of the tools and of the built files.
    folder: PathBuf,
    folders: Folders,
    pub(super) wrappers: Wrappers,
}

/// The names of the platforms, as Rust has them.
pub(crate) fn platforms() -> Vec<&'static str> {
    platform::ALL.iter().map(|platform| platform.rust).collect()
}

impl<'t, 'i> Cross<'t, 'i> {
    /// The platform that Rust calls `rust`, one of [`platforms`]; or the reason why nothing can be built for it here.
    /// `folder` is the folder of the tools.
    ///
    /// # Errors
    /// When interrupted, or a folder cannot be written.
    /// When interrupted, or a folder cannot be written.
    pub(crate) fn for_platform(
        rust: &str,
        tools: &'t Tools<'i>,
        folder: &Path,
        interrupt: &'i Interrupt,
    ) -> Result<Outcome<Cross<'t, 'i>>, Failed> {
        match platform::ALL.iter().find(|platform| platform.rust == rust) {
            Some(platform) => Cross::of(platform, tools, folder, interrupt),
            None => Ok(Outcome::Missing(format!("{rust} is none of {}", platforms().join(" and ")))),
        }
    }

    /// The same for this platform.
    pub(super) fn of(
        platform: &'static Platform,
        tools: &'t Tools<'i>,
        folder: &Path,
        interrupt: &'i Interrupt,
    ) -> Result<Outcome<Cross<'t, 'i>>, Failed> {
        let folders = match tools.libraries(platform, folder, interrupt)? {
            Outcome::Here(folders) => folders,
            Outcome::Missing(why) => return Ok(Outcome::Missing(why)),
        };
        let wrappers = Wrappers::write(platform, tools, folder, &folders)?;
        let folder = folder.to_owned();
        Ok(Outcome::Here(Cross { platform, tools, interrupt, folder, folders, wrappers }))
    }

    /// cargo with the compiler for the platform, which the caller names in `--target`.
    pub(crate) fn cargo(&self) -> Run<'i> {
        let (platform, link) = (self.platform, &self.folders.link);
        let options = [
            ("--target", PathBuf::from(platform.clang)),
            ("--sysroot", link.clone()),
            ("--gcc-toolchain", link.join("usr")),
            ("--ld-path", self.tools.linker()),
        ];
        let link =
            options.map(|(option, value)| format!("-Clink-arg={option}={}", value.display())).join(" ");
        let run = for_emulator(Run::cargo(self.interrupt), &self.folder.join("build"))
            .directory(root())
            .env("CARGO_TERM_COLOR", "never")
            .env(&platform.variable("LINKER"), "clang")
            // For C code in crates: otherwise one of Debian's cross compilers would have to be installed.
            .env(&format!("CC_{}", platform.rust.replace('-', "_")), &self.wrappers.c_compiler)
            .env(&platform.variable("RUSTFLAGS"), &link);
        self.tools.with_compiler(run)
    }

    /// The program that compiles C for the platform, and links.
    pub(crate) fn c_compiler(&self) -> &Path {
        &self.wrappers.c_compiler
    }

    /// The platform's name in Rust.
    pub(crate) fn rust(&self) -> &'static str {
        self.platform.rust
    }

    /// The program that runs programs of the platform in the emulator.
    pub(crate) fn runner(&self) -> &Path {
        &self.wrappers.runner
    }
}
