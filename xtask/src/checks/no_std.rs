//! farjump-core needs neither std nor libc.
//!
//! The check links a program for this machine that has farjump-core and no std. The program has a panic handler and
//! an allocator of its own. If any crate below it used std, there would be two panic handlers, and the compiler
//! refuses that. It is a workspace of its own, so features that other members request have no effect on it. The
//! compiler of the emulated tests also checks core for machines that have no std at all.

use std::fs;
use std::time::Duration;

use crate::emulated;
use crate::fetch::debs::Outcome;
use crate::fetch::packages;
use crate::process::{Failed, Interrupt, Run};
use crate::test::report::last;
use crate::workspace::{Workspace, crate_tree, root};

/// Platforms without a system, each with the words of core's refusal if core refuses it. CI checks only the first.
/// For each of the others the compiler's core takes a minute to build, and farjump's stops at its first lines.
const BARE: [(&str, Option<&str>); 3] = [
    ("x86_64-unknown-none", None),
    ("thumbv7em-none-eabihf", Some(REFUSAL)),
    ("wasm32-unknown-unknown", Some(REFUSAL)),
];
const REFUSAL: &str = "farjump-core runs where pointers and atomic operations have 64 bits";
/// Crates that wrap the operating system's interface.
const SYSTEM: [&str; 4] = ["libc", "rustix", "nix", "linux-raw-sys"];

const PROBE: &str = r#"//! Links farjump-core without std.
#![no_std]

use core::alloc::{GlobalAlloc, Layout};

pub use farjump_core;

struct None;

unsafe impl GlobalAlloc for None {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }
    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static NONE: None = None;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
"#;

/// Links the program, searches the dependencies, and checks core for machines without a system.
pub(crate) fn check(interrupt: &Interrupt) -> Result<(&'static str, String), Failed> {
    let tree = crate_tree(&["--package", "farjump-core", "--edges", "normal"], "farjump-core", interrupt)?;
    let mut used = tree.iter().filter_map(|line| line.split_whitespace().next());
    if let Some(system) = used.find(|name| SYSTEM.contains(name)) {
        return Err(Failed::Because(format!("farjump-core depends on {system}")));
    }

    let folder = Workspace::load(false, interrupt)?.target().join("no-std");
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        let made = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
        made.map_err(|error| Failed::Because(format!("{}: {error}", path.display())))
    };
    write("Cargo.toml", &manifest())?;
    write("src/lib.rs", PROBE)?;
    let lock = fs::read_to_string(root().join("Cargo.lock"));
    write("Cargo.lock", &lock.map_err(|error| Failed::Because(format!("Cargo.lock: {error}")))?)?;
    let ended = Run::cargo(interrupt)
        .args(["build", "--quiet"])
        .directory(&folder)
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .limit(Duration::from_secs(300))
        .run()?;
    if !ended.status.success() {
        return Err(Failed::Because("a program without std cannot link farjump-core".into()));
    }

    let checked = if packages::in_ci() { &BARE[..1] } else { &BARE };
    for &(platform, refusal) in checked {
        let ended = match emulated::check_core(platform, interrupt)? {
            Outcome::Here(ended) => ended,
            Outcome::Missing(why) => return Ok(("skipped", format!("for machines without a system: {why}"))),
        };
        judge(platform, refusal, ended.status.success(), &ended.output)?;
    }
    let names: Vec<_> = checked.iter().map(|(platform, _)| *platform).collect();
    Ok(("ok", format!("for {} too", names.join(", "))))
}

/// Judges the check of core for `platform`, whose output is `said`.
fn judge(platform: &str, refusal: Option<&str>, passed: bool, said: &str) -> Result<(), Failed> {
    let why = match (refusal, passed) {
        (None, true) => return Ok(()),
        (Some(refusal), false) if said.contains(refusal) => return Ok(()),
        (None, false) => "does not build",
        (Some(_), true) => "builds, and is not meant to",
        (Some(_), false) => "does not build, and does not say that it needs 64 bits",
    };
    Err(Failed::Because(format!("farjump-core {why} for {platform}\n    {}", last(said).join("\n    "))))
}

fn manifest() -> String {
    format!(
        "[workspace]\n\n[package]\nname = \"farjump-core-without-std\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [lib]\ncrate-type = [\"staticlib\"]\n\n[dependencies]\nfarjump-core = {{ path = {:?} }}\n\n\
         [profile.dev]\npanic = \"abort\"\n",
        root().join("core")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unsupported_platform_passes_only_with_cores_own_refusal() {
        let refused = format!("error: {REFUSAL}: ...");
        assert!(judge("a", None, true, "").is_ok() && judge("a", Some(REFUSAL), false, &refused).is_ok());
        for (refusal, passed, said) in
            [(None, false, "error"), (Some(REFUSAL), true, ""), (Some(REFUSAL), false, "no AtomicU64")]
        {
            assert!(judge("a", refusal, passed, said).is_err(), "{said}");
        }
    }
}
