//! Faults over RDMA on a machine with a device: peers that lie, queues that fill, links that go down, devices that
//! are removed.
//!
//! `verbs-faults [WORD]…` runs the cases with one of the words in their names, each in a process of its own with a
//! watchdog. It prints `ok`, `failed` or `skipped` for each. Status 0 if none failed, 1 if one did, 77 if none could
//! run, 2 for anything else. `VERBS_FAULTS_IN_TURN=yes` tests each claim over one backend. `verbs-faults --falls
//! ADDRESS` plays the other machine in the cases between two; `--to ADDRESS [WORD]…` runs those (`two_machines.rs`).
//! Most cases need root and Soft-RoCE, because they remove network interfaces and devices. They are for throw-away
//! machines (`docs/design/vm-test.md`), and skipped with other devices.

mod address;
mod cases;
mod command;
mod endpoints;
mod forks;
mod helper;
mod machine;
mod objects;
mod source;
mod target;

use std::process::ExitCode;

use cases::Case;
use farjump_integration_tests::conformance::build_into;

/// Exit status of a skipped test program (automake's manual, "Scripts-based Testsuites").
const SKIPPED: u8 = 77;

/// The reason why a case cannot be tried here.
struct Skip(String);

/// The end of a case that does not panic.
type Done = Result<(), Skip>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match &*words {
        ["--play", role @ ..] => {
            play(role);
            ExitCode::SUCCESS
        }
        ["--case", name] => cases::run_here(name),
        ["--falls", address] => {
            crate::cases::two_machines::fall(address);
            ExitCode::SUCCESS
        }
        ["--to", address, words @ ..] => tried(&cases::between(address), words),
        words if words.iter().any(|word| word.starts_with('-')) => {
            eprintln!(
                "verbs-faults [WORD]…, verbs-faults --falls ADDRESS, verbs-faults --to ADDRESS [WORD]…"
            );
            ExitCode::from(2)
        }
        words => tried(&cases::alone(), words),
    }
}

/// Plays a role in this process.
///
/// # Panics
/// If there is no such role.
fn play(role: &[&str]) {
    helper::limit_locked();
    match role {
        ["target", backend, address] => target::play(backend, address),
        ["source", backend, address] => source::play(backend, address),
        ["owner", backend, address] => objects::play(backend, address),
        _ => panic!("no such role: {role:?}"),
    }
}

/// Runs the cases with one of the words in their names, or all without words.
fn tried(cases: &[Case], words: &[&str]) -> ExitCode {
    if let Err(why) = farjump_transports::verbs::Write::usable() {
        println!("skipped: no RDMA device: {why}");
        return ExitCode::from(SKIPPED);
    }
    // A machine without a compiler has libraries from another machine.
    let built = match std::env::var_os(helper::LIBRARIES) {
        Some(_) => None,
        None => Some(tempfile::tempdir().expect("a temporary folder")),
    };
    if let Some(Err(why)) = built.as_ref().map(|folder| build_into(folder.path())) {
        eprintln!("the functions to inject do not build: {why}");
        return ExitCode::from(2);
    }
    let libraries = built.as_ref().map(|folder| folder.path());
    let chosen = |case: &&Case| words.is_empty() || words.iter().any(|word| case.name.contains(word));
    let verdicts: Vec<_> =
        cases.iter().filter(chosen).map(|case| cases::run_apart(case, libraries)).collect();
    let count = |code| verdicts.iter().filter(|verdict| **verdict == code).count();
    let (ok, skipped) = (count(cases::Verdict::Ok), count(cases::Verdict::Skipped));
    let failed = verdicts.len() - ok - skipped;
    println!("{ok} ok, {failed} failed, {skipped} skipped");
    match (failed, ok) {
        (0, 0) => ExitCode::from(SKIPPED),
        (0, _) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
