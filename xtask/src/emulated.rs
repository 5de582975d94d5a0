//! Tests for aarch64, under an emulator of single programs (QEMU).
//!
//! Packages with the tools are unpacked into `target/emulated`: the emulator, a compiler with its standard library for
//! that architecture, and the libraries to link. clang and lld link. `docs/decisions/emulated-tests.md` has the reasons.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::debs::{Outcome, Store, failed};
use crate::packages;
use crate::process::{Failed, Interrupt, Run};
use crate::suite::suite;
use crate::test_report::Tally;
use crate::workspace::{Workspace, root};

/// The suite's name in counts.
const NAME: &str = "core for aarch64, emulated";
/// The platform, as Rust, clang and Debian name it.
const PLATFORM: &str = "aarch64-unknown-linux-gnu";
const CLANGS_PLATFORM: &str = "aarch64-linux-gnu";
const ARCHITECTURE: &str = "arm64";
/// Debian's release with the emulator.
const NEWER_RELEASE: &str = "trixie";
/// The keys of Debian's releases.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// The compiler, and its standard library.
const COMPILER: &str = "rustc-web";
const STANDARD_LIBRARY: &str = "libstd-rust-web-dev";
/// Packages of the other architecture, with which programs are linked.
const LIBRARIES: [&str; 6] =
    [STANDARD_LIBRARY, "libc6-dev", "libc6", "libgcc-12-dev", "libgcc-s1", "linux-libc-dev"];
/// Programs that must be installed.
const PROGRAMS: [&str; 5] = ["clang", "ld.lld", "apt-get", "apt-cache", "dpkg-deb"];
/// Tells the tests that the emulator runs stale code until it is told of fresh code.
const KEEPS_STALE_CODE: &str = "FARJUMP_TEST_KEEPS_STALE_CODE";

/// The tools with which emulated tests are built and run.
struct Tools {
    /// Folders of unpacked packages: the emulator, the compiler, and the libraries of the other architecture.
    emulator: PathBuf,
    compiler: PathBuf,
    libraries: PathBuf,
}

/// Runs them, or reports why not.
///
/// # Errors
/// When interrupted, or cargo cannot be run.
pub(crate) fn all(interrupt: &Interrupt) -> Result<Tally, Failed> {
    let folder = Workspace::load(false, interrupt)?.target().join("emulated");
    let begun = Instant::now();
    let tools = match tools(&folder, interrupt)? {
        Outcome::Here(tools) => tools,
        Outcome::Missing(why) => {
            let mut tally = Tally::default();
            tally.skipped.push((NAME.to_owned(), why));
            return Ok(tally);
        }
    };
    println!("prepared the emulated tests in {} s", begun.elapsed().as_secs());
    let of_compiler = |file: &str| tools.compiler.join("usr").join(file);
    let link = ["--target", "--sysroot", "-fuse-ld"]
        .into_iter()
        .zip([Path::new(CLANGS_PLATFORM), &tools.libraries, Path::new("lld")])
        .map(|(option, value)| format!("-Clink-arg={option}={}", value.display()));
    let link = link.collect::<Vec<_>>().join(" ");
    let emulator = tools.emulator.join("usr/bin/qemu-aarch64");
    let run = Run::cargo(interrupt)
        .args(["test", "--package", "farjump-core", "--no-fail-fast", "--target", PLATFORM])
        .args(["--", "--show-output"])
        .directory(root())
        .env("CARGO_TERM_COLOR", "never")
        .env("CARGO_TARGET_DIR", folder.join("build"))
        .env("RUSTC", of_compiler("bin/rustc"))
        .env("RUSTDOC", of_compiler("bin/rustdoc"))
        .env("LD_LIBRARY_PATH", of_compiler("lib/x86_64-linux-gnu"))
        .env(&variable("LINKER"), "clang")
        .env(&variable("RUSTFLAGS"), &link)
        // Examples in documentation are linked too.
        .env("RUSTDOCFLAGS", &link)
        .env(&variable("RUNNER"), format!("{} -L {}", emulator.display(), tools.libraries.display()))
        .env(KEEPS_STALE_CODE, "1");
    suite(NAME, run, true)
}

/// Cargo's variable for a setting of the platform.
fn variable(setting: &str) -> String {
    format!("CARGO_TARGET_{}_{setting}", PLATFORM.to_uppercase().replace('-', "_"))
}

/// Gets the tools; or the reason why they are not available.
fn tools(folder: &Path, interrupt: &Interrupt) -> Result<Outcome<Tools>, Failed> {
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
    let emulator = match get(&newer, "emulator", &[&["download", "qemu-user"]])? {
        Outcome::Here(emulator) => emulator,
        Outcome::Missing(why) => return Ok(Outcome::Missing(format!("no emulator: {why}"))),
    };
    let own = Store::new(&folder.join("own"), interrupt);
    let library = own.with_dependencies(&[STANDARD_LIBRARY])?;
    let library: Vec<&str> = library.iter().map(String::as_str).collect();
    let compiler = match get(&own, "compiler", &[&["download", COMPILER], &library])? {
        Outcome::Here(compiler) => compiler,
        Outcome::Missing(why) => return Ok(Outcome::Missing(format!("no compiler: {why}"))),
    };
    let other = Store::viewing(&folder.join(ARCHITECTURE), Some(ARCHITECTURE), None, interrupt)?;
    let libraries = match get(&other, "libraries", &[&[&["download"], &LIBRARIES[..]].concat()])? {
        Outcome::Here(libraries) => libraries,
        Outcome::Missing(why) => return Ok(Outcome::Missing(format!("no libraries: {why}"))),
    };
    beside(&libraries, &compiler)?;
    Ok(Outcome::Here(Tools { emulator, compiler, libraries }))
}

/// Unpacks the packages of several `apt-get` commands into one folder.
fn get(store: &Store<'_>, name: &str, commands: &[&[&str]]) -> Result<Outcome<PathBuf>, Failed> {
    let mut files = Vec::new();
    for command in commands {
        match store.fetch(command)? {
            Outcome::Here(more) => files.extend(more),
            Outcome::Missing(why) => return Ok(Outcome::Missing(why)),
        }
    }
    store.unpack(name, &files).map(Outcome::Here)
}

/// Puts the standard library for the other architecture where the compiler looks for it.
fn beside(libraries: &Path, compiler: &Path) -> Result<(), Failed> {
    let platforms = "usr/lib/rustlib";
    let (from, to) = (libraries.join(platforms).join(PLATFORM), compiler.join(platforms).join(PLATFORM));
    if to.exists() {
        return Ok(());
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

    #[test]
    fn cargos_variables_name_the_platform() {
        assert_eq!(variable("RUNNER"), "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER");
    }
}
