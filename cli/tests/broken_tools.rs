//! `build` with compilers and linkers that exist and do not work: the errors quote their words.

use std::process::Command;

use farjump_tools::fakes::{Fakes, which, words_of};
use farjump_tools::{Tool, all_work};

use crate::workbench::{Done, Workbench, finish};

const COUNT: &str = "#include <farjump_ifunc.h>
FARJUMP_COPY_ARGS(count)
FARJUMP_IFUNC void count_main(void *payload, size_t size, void *args)
{ (void)payload; (void)args; farjump_reply(&size, sizeof size); }
";
const RUST: &str = "#![no_std]\n#[farjump_ifunc::ifunc]\nfn count(of: &[u8]) -> u64 { of.len() as u64 }\n";

/// Returns a command that builds `count` with these programs before the real ones.
fn building(bench: &Workbench, fakes: &Fakes, source: &str, more: &[&str]) -> Command {
    bench.write("count.c", COUNT);
    bench.write("count.rs", RUST);
    let mut command = bench.farjump();
    command.args(["build", source, "-o", "libcount.so"]).args(more).env("PATH", fakes.path());
    command
}

fn build(bench: &Workbench, fakes: &Fakes, more: &[&str]) -> Done {
    finish(&mut building(bench, fakes, "count.c", more))
}

/// Returns the refusal of a tool that does not start.
fn refusal(tool: &str) -> String {
    format!(
        "`{tool}` is there and does not run (exit status: 127):\n{}\nRepair it, or use another: ",
        words_of(tool)
    )
}

#[test]
fn a_named_linker_that_fails_is_refused_with_its_message() {
    let bench = Workbench::new();
    let fakes = Fakes::new().broken(&["ld.lld"]);
    let by_option = build(&bench, &fakes, &["--linker", "ld.lld"]);
    let by_variable = finish(building(&bench, &fakes, "count.c", &[]).env("FARJUMP_LD", "ld.lld"));
    for done in [by_option, by_variable] {
        assert!(!done.err.contains("layout"), "{}", done.err);
        done.fails(1, &[&refusal("ld.lld"), "FARJUMP_LD"]);
    }
    // A linker that prints its version is tried, too.
    let fakes = Fakes::new()
        .script("ld.lld", "[ \"$1\" = --version ] && echo LLD 1 && exit\necho no disk >&2\nexit 2");
    let refused = "`ld.lld` is there and does not link a line (exit status: 2):\nno disk\n";
    build(&bench, &fakes, &["--linker", "ld.lld"]).fails(1, &[refused, "FARJUMP_LD"]);
    bench.is_clean();
}

#[test]
fn a_linker_that_was_not_named_and_links_nothing_is_passed_over() {
    let bench = Workbench::new();
    // The C compiler links the library, by `ld`.
    let liar = "[ \"$1\" = --version ] && echo LLD 1 && exit\nexit 2";
    let fakes = Fakes::new().script("ld.bfd", liar).script("ld.lld", liar);
    build(&bench, &fakes, &[]).worked();
    bench.is_clean();
}

#[test]
fn a_c_compiler_that_cannot_start_is_refused_with_its_message() {
    let bench = Workbench::new();
    let fakes = Fakes::new().broken(&["cc", "no-such-machine-gcc"]);
    build(&bench, &fakes, &[]).fails(1, &[&refusal("cc"), "--cc"]);
    build(&bench, &fakes, &["--cc", "no-such-machine-gcc"]).fails(1, &[&refusal("no-such-machine-gcc")]);
    // For another machine, `build` first determines the compiler's family.
    let target = ["--target", "aarch64-unknown-linux-gnu", "--cc", "no-such-machine-gcc"];
    build(&bench, &fakes, &target).fails(1, &[&refusal("no-such-machine-gcc")]);
    bench.is_clean();
}

#[test]
fn a_compiler_that_ends_without_a_word_is_described_by_its_status() {
    let bench = Workbench::new();
    let fakes = Fakes::new().script("cc", "kill -KILL $$");
    build(&bench, &fakes, &[]).fails(1, &["`cc` does not compile count.c:\nsignal: 9 (SIGKILL)"]);
}

#[test]
fn a_cross_or_bitcode_build_takes_the_first_compiler_that_compiles() {
    let Some(gcc) = which("gcc").filter(|_| all_work(&["gcc"])) else { return };
    let bench = Workbench::new();
    let gcc = |fakes: Fakes| fakes.link("cc", &gcc);
    let target = ["--target", "aarch64-unknown-linux-gnu"];
    let all = ["aarch64-linux-gnu-gcc", "clang", "zig"];
    let fakes = gcc(Fakes::new().broken(&all));
    build(&bench, &fakes, &target).fails(1, &[&refusal("aarch64-linux-gnu-gcc"), "gcc-aarch64-linux-gnu"]);
    build(&bench, &fakes, &["--bitcode"]).fails(1, &[&refusal("clang"), "zig", "--cc"]);
    // Rust needs none of them.
    let rust = finish(&mut building(&bench, &fakes, "count.rs", &target));
    assert!(!rust.err.contains("does not run"), "{}", rust.err);
    if Tool::tried("clang").is_err() {
        return println!("not tried with one that works: there is no clang");
    }
    let fakes = gcc(Fakes::new().broken(&all[..1]));
    build(&bench, &fakes, &target).worked();
    let fakes = gcc(Fakes::new().broken(&all[2..]));
    build(&bench, &fakes, &["--bitcode"]).worked();
    bench.is_clean();
}

#[test]
fn a_rust_compiler_that_cannot_start_is_refused_with_its_message() {
    let bench = Workbench::new();
    let fakes = Fakes::new().broken(&["rustc"]);
    let refused = |fakes: &Fakes, more: &[&str], says: &str| {
        finish(building(&bench, fakes, "count.rs", more).env_remove("RUSTC")).fails(1, &[says]);
    };
    refused(&fakes, &[], &refusal("rustc"));
    // The `rustc` of rustup exists without a toolchain.
    let without = "error: rustup could not choose a version of rustc to run";
    let fakes = Fakes::new().script("rustc", &format!("echo '{without}' >&2; exit 1"));
    refused(&fakes, &["--target", "aarch64-unknown-linux-gnu"], without);
    bench.is_clean();
}
