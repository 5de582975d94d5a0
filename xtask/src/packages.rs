//! What the tests need of the system, and how it is installed.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::child::{Failed, Interrupt, Run};

/// What the tests use besides Rust. Debian and Ubuntu name the packages alike.
const NEEDED: [Needed; 11] = [
    Needed { file: "cc", package: "gcc", used: "links everything" },
    Needed { file: "gcc", package: "gcc", used: "compiles ifuncs in C" },
    Needed { file: "readelf", package: "binutils", used: "links images, and shows what a program needs" },
    Needed { file: "g++", package: "g++", used: "compiles ifuncs in C++, and the C++ that must be refused" },
    Needed { file: "clang", package: "clang", used: "compiles ifuncs with another compiler" },
    Needed { file: "gfortran", package: "gfortran", used: "compiles ifuncs in Fortran" },
    Needed { file: "gdb", package: "gdb", used: "looks at injected code that runs" },
    Needed { file: "ld.lld", package: "lld", used: "links images with another linker" },
    Needed { file: "liblz4.a", package: "liblz4-dev", used: "an archive that a distribution made" },
    Needed { file: "libucp.so.0", package: "libucx0", used: "moves frames over UCX" },
    Needed {
        file: "libucp.so",
        package: "libucx-dev",
        used: "has the headers that the bindings of UCX are compared with",
    },
];

/// How long installing may take.
const LIMIT: Duration = Duration::from_secs(15 * 60);

/// A program that tests run, or a library that they link or load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Needed {
    /// A program's name in `PATH`, or the file name of a library.
    pub(crate) file: &'static str,
    /// The package that has it.
    pub(crate) package: &'static str,
    /// What it is used for.
    pub(crate) used: &'static str,
}

/// What is not there.
pub(crate) fn missing() -> Vec<Needed> {
    let there = |file: &str| if file.starts_with("lib") { linkable(file) } else { in_path(file) };
    NEEDED.into_iter().filter(|needed| !there(needed.file)).collect()
}

/// Installs what is missing where that can be done without asking, and returns what is still missing then.
///
/// # Errors
/// When interrupted. That apt fails is no error: what it did not install is returned.
pub(crate) fn install(interrupt: &Interrupt) -> Result<Vec<Needed>, Failed> {
    let lacking = missing();
    if lacking.is_empty() {
        return Ok(lacking);
    }
    let Some(prefix) = privileged(interrupt) else { return Ok(lacking) };
    let mut names: Vec<_> = lacking.iter().map(|needed| needed.package).collect();
    names.dedup();
    for arguments in [vec!["update"], [&["install", "-y", "--no-install-recommends"], &names[..]].concat()] {
        let words = [prefix, &["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"], &arguments].concat();
        let ended = Run::new(words[0], interrupt).args(&words[1..]).limit(LIMIT).run()?;
        if !ended.status.success() {
            println!("apt-get {} failed: the tests go on with what is there", arguments[0]);
        }
    }
    Ok(missing())
}

/// What a person would type to have these.
pub(crate) fn advice(lacking: &[Needed]) -> String {
    let mut names: Vec<_> = lacking.iter().map(|needed| needed.package).collect();
    names.dedup();
    format!("as root: apt-get install {} (or what your system calls them)", names.join(" "))
}

/// How to run apt-get without being asked for a password: the words before it, or `None`.
fn privileged(interrupt: &Interrupt) -> Option<&'static [&'static str]> {
    if !in_path("apt-get") {
        return None;
    }
    if rustix::process::geteuid().is_root() {
        return Some(&[]);
    }
    let may = in_path("sudo")
        && Run::new("sudo", interrupt)
            .args(["-n", "true"])
            .limit(Duration::from_secs(10))
            .quiet()
            .run()
            .is_ok_and(|ended| ended.status.success());
    may.then_some(&["sudo", "-n"])
}

fn in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| executable(&folder.join(program)))
}

/// Whether the compiler finds a library. One that it does not find it repeats as it was given.
fn linkable(library: &str) -> bool {
    let output = Command::new("cc").arg(format!("-print-file-name={library}")).stdin(Stdio::null()).output();
    output.is_ok_and(|output| {
        let path = String::from_utf8_lossy(&output.stdout);
        Path::new(path.trim()).is_absolute() && Path::new(path.trim()).is_file()
    })
}

fn executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}
