//! Mended faults, put back one at a time: the conversations of `fuzz/conversations` have to find each.
//!
//! A copy of the sources has all faults. Each is active only if a variable has its name, so one build serves all. The
//! sources themselves have none; a test fails if a change does not fit the sources.

mod table;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::process::{Failed, Interrupt, Run};
use crate::test::suite::LIMIT;
use crate::workspace::{BUILDING, Workspace, root, tracked_files};
use table::{FAULTS, FAULTY, Fault, Finder};

/// The variable with the name of the active fault.
const VARIABLE: &str = "FARJUMP_PLANTED";
/// The time within which the conversations have to find a fault.
const FINDING: Duration = Duration::from_secs(60);
/// Most tries of a kept seed.
const TRIES: usize = 10;
/// More conversations than there is time for.
const RUNS: &str = "1000000";
/// Printed by a conversation that fails.
const FOUND: &str = "the conversation of FARJUMP_FUZZ_SEED=";

/// Seeds that find the faults: the kind of the conversation, the fault, the seed. The tests replay them.
const SEEDS: &str = "fuzz/conversations/seeds";

/// Options of `cargo xtask faults`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Searches only for faults whose name contains this.
    name: Option<String>,
    /// Keeps a seed of each fault in fuzz/conversations/seeds, which the tests replay.
    #[arg(long)]
    keep: bool,
}

/// Builds the copy, and lets the conversations look for each fault. Returns whether they found all.
///
/// # Errors
/// When a change does not fit, the copy does not build, its conversations fail without a fault, or the user
/// interrupts.
pub(crate) fn run(options: &Options, interrupt: &Interrupt) -> Result<bool, Failed> {
    let wanted = options.name.as_deref().unwrap_or("");
    let faults: Vec<_> = FAULTS.iter().filter(|fault| fault.name.contains(wanted)).collect();
    if faults.is_empty() {
        return Err(Failed::Because(format!("no fault has `{wanted}` in its name")));
    }
    let folder = Workspace::load(false, interrupt)?.target().join("faults");
    let source = folder.join("source");
    copy(&source, interrupt)?;
    let cargo = |test: &str| {
        Run::cargo(interrupt)
            .args(["test", "--package", "farjump-conversations", "--test", "conversations", test])
            .directory(&source)
            .env("CARGO_TARGET_DIR", folder.join("target"))
    };
    let built = cargo("").args(["--no-run"]).limit(BUILDING).run()?;
    if !built.status.success() {
        return Err(Failed::Because("the copy with the faults does not build".to_owned()));
    }
    for finder in [Finder::Errands, Finder::Stores] {
        let ended = cargo(finder.test()).limit(LIMIT).quiet().run()?;
        if !ended.status.success() {
            return Err(Failed::Because(format!("without a fault the copy fails:\n{}", ended.output)));
        }
    }
    let find = |fault: &Fault, seed: &str, runs: &str| -> Result<(Option<u64>, String), Failed> {
        let finding = cargo(fault.finder.test()).limit(FINDING).quiet().env(VARIABLE, fault.name);
        let finding = finding.env("FARJUMP_FUZZ_SEED", seed).env("FARJUMP_FUZZ_RUNS", runs);
        match finding.env("FARJUMP_FUZZ_SHRINK", "0").run() {
            Ok(ended) => Ok((found_by(&ended.output), ended.output)),
            Err(error) if error.is_interrupt() => Err(error),
            Err(error) => Ok((None, error.to_string())),
        }
    };
    let mut seeds = Seeds::read()?;
    let (mut missed, first) = (0, random_seed());
    for fault in &faults {
        let begun = Instant::now();
        let (by, output) = find(fault, &first, RUNS)?;
        let took = begun.elapsed().as_secs_f64();
        let Some(by) = by else {
            missed += 1;
            say!("{took:8.1} s  NOT FOUND: {}\n{output}", fault.name);
            continue;
        };
        say!("{took:8.1} s  found: {}, by seed {by}", fault.name);
        if let Some(why) = reason(&output) {
            say!("            {why}");
        }
        let finds = |seed: u64| -> Result<bool, Failed> {
            // A fault that depends on time may need several tries.
            for _ in 0..TRIES {
                if find(fault, &seed.to_string(), "1")?.0.is_some() {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        let kept = seeds.of(fault);
        if options.keep {
            let still = kept.map(finds).transpose()?.unwrap_or(false);
            seeds.keep(fault, kept.filter(|_| still).unwrap_or(by));
        } else if !kept.map(finds).transpose()?.unwrap_or(false) {
            missed += 1;
            say!("            the seed in {SEEDS} does not find it: cargo xtask faults --keep");
        }
    }
    if options.keep {
        seeds.write()?;
    }
    say!("{} of {} planted faults were found", faults.len() - missed, faults.len());
    Ok(missed == 0)
}

/// The seed of the conversation that failed.
fn found_by(output: &str) -> Option<u64> {
    let behind = output.split_once(FOUND)?.1;
    behind.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

/// A seed that differs each time.
fn random_seed() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    (now.as_micros() as u64 & ((1 << 48) - 1)).to_string()
}

/// The lines of [`SEEDS`].
struct Seeds(Vec<String>);

impl Seeds {
    fn read() -> Result<Seeds, Failed> {
        let text = fs::read_to_string(root().join(SEEDS));
        let text = text.map_err(|error| Failed::Because(format!("{SEEDS}: {error}")))?;
        Ok(Seeds(text.lines().map(str::to_owned).collect()))
    }

    fn write(&self) -> Result<(), Failed> {
        let text: String = self.0.iter().map(|line| format!("{line}\n")).collect();
        fs::write(root().join(SEEDS), text).map_err(|error| Failed::Because(format!("{SEEDS}: {error}")))
    }

    fn head(fault: &Fault) -> String {
        format!("{} {} ", fault.finder.kind(), fault.name)
    }

    fn of(&self, fault: &Fault) -> Option<u64> {
        let head = Seeds::head(fault);
        self.0.iter().find_map(|line| line.strip_prefix(&head)?.parse().ok())
    }

    fn keep(&mut self, fault: &Fault, seed: u64) {
        let head = Seeds::head(fault);
        self.0.retain(|line| !line.starts_with(&head));
        self.0.push(format!("{head}{seed}"));
        self.0.sort();
    }
}

/// The reason of a failure, in the words of the conversation, or of farjump's own check.
fn reason(output: &str) -> Option<&str> {
    let failed = |line: &&str| line.contains("panicked at ") && !line.contains("fuzz/conversations/tests");
    output.lines().skip_while(|line| !failed(line)).nth(1)
}

/// Brings the copy up to date. Files that stay as they are keep their times, so that cargo builds little.
fn copy(into: &Path, interrupt: &Interrupt) -> Result<(), Failed> {
    let failed = |path: &Path, error: std::io::Error| Failed::Because(format!("{}: {error}", path.display()));
    for name in tracked_files(&[], interrupt)? {
        let (from, to) = (root().join(&name), into.join(&name));
        if let Ok(linked) = fs::read_link(&from) {
            if fs::read_link(&to).is_ok_and(|there| there == linked) {
                continue;
            }
            let folder = to.parent().unwrap_or(into);
            fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
            let _ = fs::remove_file(&to);
            std::os::unix::fs::symlink(linked, &to).map_err(|error| failed(&to, error))?;
            continue;
        }
        // git still tracks files that were removed.
        let Ok(mut bytes) = fs::read(&from) else { continue };
        if let Ok(text) = str::from_utf8(&bytes) {
            bytes = with_faults(&name, text, FAULTS)?.into_bytes();
        }
        if fs::read(&to).is_ok_and(|there| there == bytes) {
            continue;
        }
        let folder = to.parent().unwrap_or(into);
        fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
        fs::write(&to, bytes).map_err(|error| failed(&to, error))?;
        let mode = fs::metadata(&from).map_err(|error| failed(&from, error))?.permissions();
        fs::set_permissions(&to, mode).map_err(|error| failed(&to, error))?;
    }
    Ok(())
}

/// The text of a file with all faults in it.
fn with_faults(file: &str, text: &str, faults: &[Fault]) -> Result<String, Failed> {
    let mut text = text.to_owned();
    for fault in faults {
        for change in fault.changes.iter().filter(|change| change.file == file) {
            if text.matches(change.from).count() != 1 {
                return Err(Failed::Because(format!(
                    "the fault `{}` does not fit {file} any more: `{}` has to stand there once. Adapt xtask/src/faults/table.rs",
                    fault.name, change.from
                )));
            }
            let condition =
                format!("std::env::var_os({VARIABLE:?}).is_some_and(|planted| planted == {:?})", fault.name);
            text = text.replacen(change.from, &change.to.replace(FAULTY, &condition), 1);
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_fits_the_sources() {
        for change in FAULTS.iter().flat_map(|fault| fault.changes) {
            let text = fs::read_to_string(root().join(change.file)).unwrap();
            let changed = with_faults(change.file, &text, FAULTS).unwrap_or_else(|error| panic!("{error}"));
            assert!(changed != text && change.to.contains(FAULTY) && !changed.contains(FAULTY));
        }
    }

    #[test]
    fn faults_have_names_of_their_own_and_a_test_that_exists() {
        let tests = fs::read_to_string(root().join("fuzz/conversations/tests/conversations.rs")).unwrap();
        for (at, fault) in FAULTS.iter().enumerate() {
            assert!(FAULTS[..at].iter().all(|other| other.name != fault.name), "{}", fault.name);
            assert!(tests.contains(&format!("fn {}()", fault.finder.test())));
            assert!(tests.contains(&format!("{:?}", fault.finder.kind())));
        }
    }
}
