//! Programs that the tests call by name, in a folder in front of `PATH`: compilers and linkers that work for the
//! platform, though they run on this machine.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::platform::Platform;
use super::tools::{Folders, Tools};
use crate::fetch::debs::failed;
use crate::process::Failed;

/// The names by which tests and builds call compilers, and the compilers.
const COMPILERS: [(&str, &str); 6] = [
    ("cc", "clang"),
    ("gcc", "clang"),
    ("clang", "clang"),
    ("c++", "clang++"),
    ("g++", "clang++"),
    ("clang++", "clang++"),
];
/// The names of linkers. The first is the program's own, by which it chooses its mode.
const LINKERS: [&str; 3] = ["ld.lld", "ld", "ld.bfd"];

/// The written programs.
pub(super) struct Wrappers {
    /// Runs a program of the platform in the emulator, with the others in front of `PATH`.
    pub(super) runner: PathBuf,
    /// Compiles C for the platform.
    pub(super) c_compiler: PathBuf,
}

impl Wrappers {
    /// Writes the programs into a folder of `folder`.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub(super) fn write(
        platform: &Platform,
        tools: &Tools<'_>,
        folder: &Path,
        folders: &Folders,
    ) -> Result<Wrappers, Failed> {
        let bin = folder.join(platform.architecture()).join("bin");
        fs::create_dir_all(&bin).map_err(|error| failed(&bin, error))?;
        let (sysroot, linker) = (folders.link.display(), tools.linker());
        let (compiler, linker) = (tools.compiler(), linker.display());
        let compiler = compiler.display();
        let own_libraries =
            format!("LD_LIBRARY_PATH={compiler}/lib/x86_64-linux-gnu\nexport LD_LIBRARY_PATH\n");
        for (name, program) in COMPILERS {
            // Without a search of `PATH`, where this wrapper comes first.
            let program = Path::new("/usr/bin").join(program);
            let target = platform.clang;
            let quiet = "-Wno-unused-command-line-argument";
            let line = format!(
                "exec {} --target={target} --sysroot={sysroot} --gcc-toolchain={sysroot}/usr --ld-path={} {quiet} \"$@\"\n",
                program.display(),
                bin.join(LINKERS[0]).display()
            );
            write(&bin.join(name), &line)?;
        }
        for name in LINKERS {
            write(&bin.join(name), &format!("{own_libraries}exec {linker} \"$@\"\n"))?;
        }
        // The compiler runs on this machine, and so do the macros that it loads.
        let rustc = format!(
            "{own_libraries}case \" $* \" in\n\
             *\" proc-macro \"* | *\" -vV \"*) exec {compiler}/bin/rustc -Clinker=/usr/bin/cc \"$@\" ;;\nesac\n\
             exec {compiler}/bin/rustc --target {} -Clinker=cc \"$@\"\n",
            platform.rust
        );
        write(&bin.join("rustc"), &rustc)?;
        let c_compiler = bin.join("clang");
        let runner = folder.join(platform.architecture()).join("run");
        let emulator = tools.emulator(platform.emulator);
        let (bin, emulator, run) = (bin.display(), emulator.display(), folders.run.display());
        let line = format!(
            "unset LD_LIBRARY_PATH RUSTDOC\nPATH=\"{bin}:$PATH\"\nRUSTC={bin}/rustc\nexport PATH RUSTC\n\
             exec {emulator} -L {run} \"$@\"\n"
        );
        write(&runner, &line)?;
        Ok(Wrappers { runner, c_compiler })
    }
}

impl Wrappers {
    /// Writes a program that runs `program`, of the platform, in the emulator.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn start(&self, program: &Path) -> Result<PathBuf, Failed> {
        let name = program.file_name().unwrap_or_default();
        let path = self.runner.with_file_name(name);
        write(&path, &format!("exec {} {} \"$@\"\n", self.runner.display(), program.display()))?;
        Ok(path)
    }
}

/// Writes a program of these lines.
fn write(path: &Path, lines: &str) -> Result<(), Failed> {
    fs::write(path, format!("#!/bin/sh\n{lines}"))
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o755)))
        .map_err(|error| failed(path, error))
}
