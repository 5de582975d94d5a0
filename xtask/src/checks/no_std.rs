//! farjump-core needs neither std nor libc.
//!
//! The check links a program for this machine that has farjump-core and no std: a panic handler and an
//! allocator of its own. If any crate below it pulled in std, there would be two panic handlers, and the
//! compiler refuses that. It is a workspace of its own, so features that other members request do not leak
//! in. Where the bare-metal target is installed, core is checked for that too, which has no std at all.

use std::fs;
use std::time::Duration;

use crate::process::{Failed, Interrupt, Run};
use crate::step::{Verdict, cargo};
use crate::workspace::{Workspace, crate_tree, root};

const BARE: &str = "x86_64-unknown-none";
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

/// Links the program, and searches the dependencies.
pub(crate) fn check(interrupt: &Interrupt) -> Verdict {
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

    let sysroot = Run::new("rustc", interrupt).args(["--print", "sysroot"]).quiet().run()?.output;
    if std::path::Path::new(sysroot.trim()).join("lib/rustlib").join(BARE).join("lib").is_dir() {
        cargo(interrupt, &["check", "--package", "farjump-core", "--target", BARE], &[])?;
        say!("farjump-core builds for {BARE} too");
    } else {
        say!("not checked for {BARE}: the target is not installed (rustup target add {BARE})");
    }
    Ok(())
}

fn manifest() -> String {
    format!(
        "[workspace]\n\n[package]\nname = \"farjump-core-without-std\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [lib]\ncrate-type = [\"staticlib\"]\n\n[dependencies]\nfarjump-core = {{ path = {:?} }}\n\n\
         [profile.dev]\npanic = \"abort\"\n",
        root().join("core")
    )
}
