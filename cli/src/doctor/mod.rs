//! `doctor`: the properties of this machine that make farjump slow or impossible, and their fixes.
//!
//! A probe reads files of the kernel or tries an operation of farjump, in this process or in one with a time limit. It
//! leaves nothing changed, except for [`leftovers::clean`]. A pure function judges its result, so every judgement is
//! tested without the machine it concerns.

#[cfg(feature = "bitcode")]
mod bitcode;
mod connection;
mod finding;
mod leftovers;
mod libraries;
mod memory;
mod processors;
#[cfg(feature = "verbs")]
mod rdma;
mod run_bounded;
mod system;
#[cfg(feature = "build")]
mod temporary;
#[cfg(feature = "build")]
mod tools;

use std::fmt::Write;

use clap::Args;
use serde_json::{Value, json};

use crate::report;
use farjump_cli::program::failure::Failure;
use finding::{Finding, Verdict, overall};

/// Find causes on this machine that make farjump slow or impossible
///
/// Processors, memory, the kernel, compilers and libraries: the state, the consequence for farjump, and the command
/// that fixes it. Without --clean it changes nothing on the machine.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Verdicts:
  impossible  no source or no target can run here
  slow        they run, and this costs time
  note        neither: a fact that only building, tools or later versions need
  ok

Replace the words in capitals in a mend (UNIT, PATH, IMAGE) by your own.

Ends with 0 if farjump works here, slow or not, and with 6 if something is impossible.

With --json, one object:
  verdict   impossible, slow or ok: the worst of all findings, notes aside
  findings  a list of objects, always in the same order:
    name      the thing that was checked
    verdict   impossible, slow, note or ok
    found     the state found, a sentence for people
    figures   the same for programs: an object of numbers and truth values, may be empty
    means     the consequence for farjump
    mend      the command that fixes it, or null

With --clean and --json, one object:
  removed   the files that are gone
  bytes     their memory
  kept      the number of files that stay because they changed just now

docs/guide/doctor.md lists the names and figures.")]
pub(crate) struct Doctor {
    /// Remove the files that killed processes over UCX left in /dev/shm: your own, or as root those of all users.
    /// Removes nothing without proof that no process uses the files. Checks nothing else
    #[arg(long)]
    pub(crate) clean: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Runs all probes and shows the findings.
///
/// # Errors
/// A finding that makes farjump impossible here; with `--clean`, files that are not removed.
pub(crate) fn run(arguments: &Doctor) -> Result<(), Failure> {
    if arguments.clean {
        return leftovers::clean(arguments.json);
    }
    let findings = look();
    let as_json = || {
        let list: Vec<Value> = findings.iter().map(Finding::as_json).collect();
        json!({ "verdict": overall(&findings).word(), "findings": list })
    };
    report::print(arguments.json, as_json, || show(&findings))?;
    let named = |finding: &&Finding| finding.verdict == Verdict::Impossible;
    let names: Vec<_> = findings.iter().filter(named).map(|finding| finding.name).collect();
    match names[..] {
        [] => Ok(()),
        _ => Err(Failure::impossible(format!("farjump cannot work on this machine: {}", names.join(", ")))),
    }
}

fn look() -> Vec<Finding> {
    let mut findings = system::look();
    findings.extend(memory::look());
    let stopper = findings.iter().find(|finding| finding.verdict == Verdict::Impossible);
    findings.push(connection::look(stopper.map(|finding| finding.name)));
    findings.extend(processors::look());
    #[cfg(feature = "build")]
    {
        findings.push(temporary::look());
        findings.extend(tools::look());
    }
    findings.extend(libraries::look());
    #[cfg(feature = "bitcode")]
    findings.push(bitcode::look());
    findings.push(leftovers::look());
    #[cfg(feature = "verbs")]
    findings.push(rdma::look());
    findings
}

/// Lists the worst findings first. Findings without a fault take one line each.
fn show(findings: &[Finding]) -> String {
    let mut sorted: Vec<_> = findings.iter().collect();
    sorted.sort_by_key(|finding| finding.verdict);
    let width = findings.iter().map(|finding| finding.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    let mut line = |verdict: &str, name: &str, rest: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{verdict:10}  {name:width$}  {rest}");
    };
    for finding in &sorted {
        line(finding.verdict.word(), finding.name, &finding.found);
        if finding.verdict != Verdict::Ok {
            line("", "", &finding.means);
            if let Some(mend) = &finding.mend {
                line("", "", &format!("$ {mend}"));
            }
        }
    }
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    text.push_str(&summary(count(Verdict::Impossible), count(Verdict::Slow)));
    text
}

fn summary(impossible: usize, slow: usize) -> String {
    let things = |count: usize| if count == 1 { "1 thing".to_owned() } else { format!("{count} things") };
    match (impossible, slow) {
        (0, 0) => "\nfarjump works here, and nothing slows it down.\n".to_owned(),
        (0, _) => format!("\nfarjump works here; {} would slow it down.\n", things(slow)),
        _ => format!("\nfarjump does not work here, for {}.\n", things(impossible)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_is_shown_first_and_what_is_well_in_one_line() {
        let findings = [
            Finding::new("a", Verdict::Ok, "fine", "never shown").mend("never typed"),
            Finding::new("long", Verdict::Note, "so", "meaning"),
            Finding::new("c", Verdict::Impossible, "bad", "why").mend("mend it"),
        ];
        let expected = "\
impossible  c     bad
                  why
                  $ mend it
note        long  so
                  meaning
ok          a     fine

farjump does not work here, for 1 thing.
";
        assert_eq!(show(&findings), expected);
    }

    #[test]
    fn the_last_line_says_whether_farjump_works() {
        assert!(summary(0, 0).contains("nothing slows it down"));
        assert!(summary(0, 2).contains("works here; 2 things would slow it down"));
        assert!(summary(1, 1).contains("does not work here, for 1 thing"));
    }
}
