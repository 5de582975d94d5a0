use std::io;
use std::process::{Command, Output};

use farjump_tools::Tool;

use super::*;
use crate::deferred_close::no_stuck_descriptors;

/// Runs a program to its end. The new process has copies of all descriptors for a moment, and waits while it
/// closes one that blocks. Such descriptors of another test would make the two wait for each other.
pub(super) fn output(command: &mut Command) -> io::Result<Output> {
    let _without = no_stuck_descriptors();
    command.output()
}

#[test]
fn the_detected_cpu_has_the_baseline_and_is_detected_once() {
    let cpu = detected();
    assert_eq!(Some(cpu.machine()), Machine::native());
    let baseline = Cpu::of_level(cpu.machine(), Level::BASELINE);
    for feature in baseline.features() {
        assert!(cpu.has(feature), "{feature}");
    }
    assert!(Arc::ptr_eq(&cpu, &detected()));
    assert_eq!(Cpu::decode(&cpu.encode()).as_ref(), Ok(&*cpu));
}

/// A compiler and our table agree on each feature that both know. Either may know more.
#[test]
fn gcc_and_clang_see_the_same_instructions() {
    let (cpu, known) = (detected(), known());
    let seen: Vec<_> = [by_gcc(), by_clang()].into_iter().flatten().collect();
    if seen.is_empty() {
        return eprintln!("skipped: neither gcc nor clang tells the host's instructions here");
    }
    for (compiler, features) in seen {
        let both = features.iter().filter(|(feature, _)| known.contains(&&**feature)).count();
        assert!(both > 20 || known.is_empty(), "{compiler} told {features:?}");
        for (feature, enabled) in features {
            let unknown = !known.contains(&&*feature);
            assert!(unknown || cpu.has(&feature) == enabled, "{feature}: {compiler} says {enabled}");
        }
    }
}

/// All features that this machine's detection could find.
fn known() -> Vec<&'static str> {
    #[cfg(target_arch = "x86_64")]
    return x86_64::tests::all();
    #[cfg(not(target_arch = "x86_64"))]
    Vec::new()
}

type Seen = (&'static str, Vec<(String, bool)>);

/// Returns whether all of these tools work. Runs them as [`output`].
pub(super) fn all_work(tools: &[&str]) -> bool {
    let _without = no_stuck_descriptors();
    farjump_tools::all_work(tools)
}

/// Returns a tool, if it works. Runs it as [`output`].
fn works(tool: &str) -> Option<Tool> {
    let _without = no_stuck_descriptors();
    Tool::tried(tool).inspect_err(|why| println!("not compared: {why}")).ok()
}

/// The options that gcc derives from the host: lines `-mavx2   [enabled]`.
fn by_gcc() -> Option<Seen> {
    let gcc = works("gcc")?;
    let output = output(gcc.command().args(["-march=native", "-Q", "--help=target"])).ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let features = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let feature = words.next()?.strip_prefix("-m")?;
        let state = words.next()?;
        let known = ["[enabled]", "[disabled]"].contains(&state);
        known.then(|| (feature.to_owned(), state == "[enabled]"))
    });
    let features: Vec<_> = features.collect();
    (output.status.success() && !features.is_empty()).then_some(("gcc", features))
}

/// The features that clang derives from the host: arguments `-target-feature +avx2`.
fn by_clang() -> Option<Seen> {
    let arguments = ["-march=native", "-###", "-c", "-x", "c", "/dev/null"];
    let output = output(works("clang")?.command().args(arguments)).ok()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let mut words = text.split_whitespace().map(|word| word.trim_matches('"'));
    let mut features = Vec::new();
    while let Some(word) = words.next() {
        if word == "-target-feature"
            && let Some(feature) = words.next()
        {
            features.extend(feature.strip_prefix('+').map(|feature| (feature.to_owned(), true)));
            features.extend(feature.strip_prefix('-').map(|feature| (feature.to_owned(), false)));
        }
    }
    (output.status.success() && !features.is_empty()).then_some(("clang", features))
}

/// Returns whether `compiler` accepts these options, for an empty source.
pub(super) fn takes(compiler: &str, options: &[String]) -> bool {
    let common = ["-fsyntax-only", "-Werror", "-x", "c", "/dev/null"];
    let output = output(Command::new(compiler).args(options).args(common));
    output.is_ok_and(|output| output.status.success())
}
