//! `cargo xtask figures`: the paper's figures and the page of results, measured on this machine.
//!
//! [`sections`] lists the runs, [`section_file`] stores each run, [`goals`] has the bounds on figures,
//! [`results`] writes the page. The page is made from the stored runs: a section that is run alone changes
//! nothing of the others.

mod goal_table;
mod goals;
mod in_vm;
mod results;
mod section_file;
mod sections;
mod sentences;
mod table;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use farjump_namespaces::{Namespaces, Side};
use serde_json::Value;

use crate::process::{Ended, Failed, Interrupt, Run};
use crate::ucx;
use crate::workspace::{Workspace, root};
use section_file::Kept;
use sections::{SECTIONS, Section};

/// Limit for building.
const BUILDING: Duration = Duration::from_secs(20 * 60);

/// Options of `cargo xtask figures`.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// Number of rounds of each measurement
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Measure these sections and leave the others as they are; `verbs` are those that are measured in
    /// virtual machines, and only if they are asked for
    #[arg(long, value_name = "SECTION,…", value_delimiter = ',', value_parser = |name: &str| sections::named(name).map(Named))]
    only: Vec<Named>,
    /// The folder of RESULTS.md, figures/ and results/ [default: benches]
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,
}

/// Sections with a common name.
#[derive(Clone, Debug)]
struct Named(Vec<&'static Section>);

/// Measures, and writes the page. `true` unless a section ended early; the page names sections that this
/// farjump lacks.
///
/// # Errors
/// When interrupted, farjump cannot be built, or a file cannot be written.
pub(crate) fn run(options: &Options, interrupt: &Interrupt) -> Result<bool, Failed> {
    let folder = match &options.into {
        Some(folder) => std::path::absolute(folder).map_err(|error| failed(folder, &error))?,
        None => root().join("benches"),
    };
    for part in ["figures", "results"] {
        let part = folder.join(part);
        fs::create_dir_all(&part).map_err(|error| failed(&part, &error))?;
    }
    let chosen: Vec<&Section> = match options.only.is_empty() {
        true => SECTIONS.iter().filter(|section| section.kernel.is_none()).collect(),
        false => options.only.iter().flat_map(|named| named.0.iter().copied()).collect(),
    };
    let programs = Programs::build(&chosen, interrupt)?;
    let (date, built) = (date(interrupt)?, built(interrupt)?);
    let mut all_ended = true;
    for section in chosen {
        let mut run = Kept {
            section: section.name.to_owned(),
            command: command(section, options.rounds).join(" "),
            date: date.clone(),
            built: built.clone(),
            failed: None,
            machine: Value::Null,
            rounds: Vec::new(),
            rows: Vec::new(),
        };
        measure(section, options.rounds, &programs, &folder, &mut run, interrupt)?;
        if let Some(why) = &run.failed {
            println!("{}: {why}", section.name);
            all_ended &= run.rows.is_empty();
        }
        run.write(&folder.join(kept_as(section)))?;
    }
    let runs = SECTIONS.iter().map(|section| Kept::read(&folder.join(kept_as(section))));
    let runs: Vec<Kept> = runs.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
    let page = folder.join("RESULTS.md");
    fs::write(&page, results::page(&runs, &folder)).map_err(|error| failed(&page, &error))?;
    println!("{}", page.display());
    Ok(all_ended)
}

fn failed(path: &Path, error: &std::io::Error) -> Failed {
    Failed::Because(format!("{}: {error}", path.display()))
}

/// Path of a section's stored run, from the folder of the results.
fn kept_as(section: &Section) -> String {
    format!("results/{}.json", section.name)
}

/// Placeholder for UCX's library in the shown command.
const LIBRARY: &str = "libucp.so.0";

/// The command that a user would type.
fn command(section: &Section, rounds: u32) -> Vec<String> {
    let own = section.args.iter().map(|arg| (*arg).to_owned());
    let rounds = ["--rounds".to_owned(), rounds.max(section.rounds).to_string()];
    let mut words: Vec<_> =
        ["farjump".to_owned(), "perf".to_owned()].into_iter().chain(own).chain(rounds).collect();
    if section.newest_ucx {
        words.extend(["--ucx".to_owned(), LIBRARY.to_owned()]);
    }
    words
}

/// The arguments of a section's run, with the path of UCX's library where one is named. `Err` inside says why
/// there is none.
fn arguments(
    section: &Section,
    rounds: u32,
    interrupt: &Interrupt,
) -> Result<Result<Vec<String>, String>, Failed> {
    let mut words = command(section, rounds).split_off(1);
    if !section.newest_ucx {
        return Ok(Ok(words));
    }
    Ok(ucx::newest_library(interrupt)?.map(|library| {
        for word in words.iter_mut().filter(|word| *word == LIBRARY) {
            *word = library.display().to_string();
        }
        words
    }))
}

/// Runs a section, and stores the result.
fn measure(
    section: &Section,
    rounds: u32,
    programs: &Programs,
    folder: &Path,
    run: &mut Kept,
    interrupt: &Interrupt,
) -> Result<(), Failed> {
    let program = match programs.of(section) {
        Ok(program) => program,
        Err(why) => {
            run.failed = Some(why);
            return Ok(());
        }
    };
    let arguments = match arguments(section, rounds, interrupt)? {
        Ok(arguments) => arguments,
        Err(why) => {
            run.failed = Some(why);
            return Ok(());
        }
    };
    if let Some(kernel) = section.kernel {
        return in_vm::measure(kernel, &arguments, section.limit, &program, run, interrupt);
    }
    let printed = tempfile::NamedTempFile::new().map_err(|error| failed(folder, &error))?;
    let output = File::create(printed.path()).map_err(|error| failed(printed.path(), &error))?;
    let namespaces = match section.delay.map(Namespaces::delayed) {
        None => None,
        Some(Ok(namespaces)) => Some(namespaces),
        Some(Err(why)) => {
            run.failed = Some(why);
            return Ok(());
        }
    };
    let mut started = match &namespaces {
        None => Run::new(program, interrupt),
        Some(namespaces) => {
            let words = namespaces.launcher(Side::Left);
            Run::new(&words[0], interrupt).args(&words[1..]).args([program])
        }
    };
    started = started
        .args(&arguments)
        .args(["--json"])
        .output(output.into())
        .shown_as(run.command.clone())
        .limit(section.limit);
    if let Some(namespaces) = &namespaces {
        let across = format!("{},{}", namespaces.file(Side::Right).display(), Side::Right.address());
        started = started.args(["--across", &across]);
    }
    if section.picture {
        let picture = folder.join(results::picture(section.name));
        // An old one would pass for the new measurement.
        if picture.exists() {
            fs::remove_file(&picture).map_err(|error| failed(&picture, &error))?;
        }
        started = started.args([Path::new("--plot"), &picture]);
    }
    run.failed = match started.run() {
        Err(error) if error.is_interrupt() => return Err(error),
        Err(error) => Some(error.to_string()),
        Ok(ended) => why_failed(&ended),
    };
    let text = fs::read_to_string(printed.path()).map_err(|error| failed(printed.path(), &error))?;
    if let (Err(error), None) = (run.take(&text), &run.failed) {
        run.failed = Some(format!("what it printed is not what docs/perf.md says: {error}"));
    }
    Ok(())
}

/// A command's message about its failure; `None` if it succeeded.
fn why_failed(ended: &Ended) -> Option<String> {
    if ended.status.success() {
        return None;
    }
    let said = ended.output.lines().find_map(|line| line.strip_prefix("error: "));
    Some(said.map_or_else(|| ended.status.to_string(), str::to_owned))
}

/// farjump with default features, and with the features that sections need: copies, which a later build
/// leaves unchanged.
struct Programs(BTreeMap<Option<&'static str>, Result<PathBuf, String>>);

impl Programs {
    /// Builds the programs of these sections, before any measurement.
    ///
    /// # Errors
    /// When farjump with default features cannot be built. Sections whose features cannot be built lack their
    /// results.
    fn build(sections: &[&Section], interrupt: &Interrupt) -> Result<Programs, Failed> {
        let target = Workspace::load(false, interrupt)?.target();
        let folder = target.join("figures");
        fs::create_dir_all(&folder).map_err(|error| failed(&folder, &error))?;
        let mut programs = BTreeMap::new();
        // The default build comes last, and stays in cargo's place.
        let mut wanted: Vec<_> = sections.iter().map(|section| section.features).collect();
        wanted.sort_by_key(|features| features.is_none());
        wanted.dedup();
        for features in wanted {
            let mut build = Run::cargo(interrupt)
                .args(["build", "--release", "--package", "farjump-cli", "--bin", "farjump"])
                .directory(root())
                .limit(BUILDING);
            if let Some(features) = features {
                build = build.args(["--features", features]);
            }
            let ended = build.run()?;
            let copy = folder.join(features.map_or("farjump".to_owned(), |name| format!("farjump-{name}")));
            let program = match why_failed(&ended) {
                None => {
                    let made = target.join("release/farjump");
                    fs::copy(&made, &copy).map_err(|error| failed(&made, &error))?;
                    Ok(copy)
                }
                Some(why) => Err(format!("farjump cannot be built: {why}")),
            };
            match (features, program) {
                (None, Err(why)) => return Err(Failed::Because(why)),
                (features, program) => programs.insert(features, program),
            };
        }
        Ok(Programs(programs))
    }

    /// The program for a section, or why there is none.
    fn of(&self, section: &Section) -> Result<PathBuf, String> {
        let built = self.0.get(&section.features).cloned();
        built.unwrap_or_else(|| Err("farjump was not built for it".to_owned()))
    }
}

/// Today, in UTC.
fn date(interrupt: &Interrupt) -> Result<String, Failed> {
    answer(Run::new("date", interrupt).args(["-u", "+%Y-%m-%d"]))
}

/// farjump's version, and its compiler. Results do not count as changes, committed or not.
fn built(interrupt: &Interrupt) -> Result<String, Failed> {
    let git = |args: &[&str]| answer(Run::new("git", interrupt).args(args).directory(root()));
    let commit = git(&["rev-parse", "--short", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no", "--", ".", ":!benches"])?;
    let changed = if changed.is_empty() { "" } else { " with changes" };
    let compiler = answer(Run::new("rustc", interrupt).args(["--version"]).directory(root()))?;
    Ok(format!("farjump {} at {commit}{changed}, built by {compiler}", env!("CARGO_PKG_VERSION")))
}

/// A program's output of one line.
fn answer(run: Run<'_>) -> Result<String, Failed> {
    Ok(run.quiet().run()?.output.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn ended(script: &str) -> Ended {
        let output = Command::new("sh").args(["-c", script]).output().expect("there is a shell");
        Ended { status: output.status, output: String::from_utf8_lossy(&output.stderr).into_owned() }
    }

    #[test]
    fn what_a_command_says_of_its_failure_is_its_error() {
        assert_eq!(why_failed(&ended("echo 'error: no' >&2; true")), None);
        let said = why_failed(&ended("echo warning >&2; echo 'error: no such metric' >&2; exit 2"));
        assert_eq!(said.as_deref(), Some("no such metric"));
        assert!(why_failed(&ended("exit 3")).is_some_and(|why| why.contains('3')));
    }

    const REPORT: &str = r#"{"machine": {}, "rounds": [], "rows": [{"metric": "rate", "unit": "million/s", "subject": "farjump"}]}"#;

    /// A section run by a script in farjump's place, and whether it made a picture.
    fn measured(script: &str, limit: Duration) -> (Kept, bool) {
        let folder = tempfile::tempdir().expect("a folder can be made");
        fs::create_dir(folder.path().join("figures")).expect("a folder can be made");
        let program = folder.path().join("farjump");
        // Another process writes it: a file that this process has open for writing could not be run.
        let written = Command::new("sh")
            .args(["-c", r#"printf '#!/bin/sh\n%s\n' "$1" >"$2" && chmod 700 "$2""#, "sh", script])
            .arg(&program)
            .status();
        assert!(written.is_ok_and(|status| status.success()));
        let interrupt = Interrupt::install().expect("signals can be caught");
        let section = Section { limit, ..*sections::named("rate").expect("it is one")[0] };
        let picture = folder.path().join(results::picture(section.name));
        fs::write(&picture, "old").expect("it can be written");
        let mut run = section_file::tests::kept("rate", &[]);
        run.rounds.clear();
        let programs = Programs(BTreeMap::from([(None, Ok(program))]));
        measure(&section, 3, &programs, folder.path(), &mut run, &interrupt).expect("nobody interrupts");
        (run, picture.exists())
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_run_is_kept_as_it_was_printed_and_what_it_said_besides_is_not() {
        // The last argument is the picture's file.
        let script = format!("echo warning >&2; for last; do :; done; echo new >\"$last\"; echo '{REPORT}'");
        let (run, drawn) = measured(&script, LONG);
        assert_eq!((run.failed.as_deref(), run.rows.len(), drawn), (None, 1, true));
    }

    #[test]
    fn a_run_that_breaks_off_keeps_its_rows_and_one_that_is_refused_has_none_and_no_old_picture() {
        let (run, drawn) = measured(&format!("echo '{REPORT}'; echo 'error: it is gone' >&2; exit 1"), LONG);
        assert_eq!((run.failed.as_deref(), run.rows.len(), drawn), (Some("it is gone"), 1, false));
        let (run, drawn) = measured("echo 'error: no such metric' >&2; exit 2", LONG);
        assert_eq!((run.failed.as_deref(), run.rows.len(), drawn), (Some("no such metric"), 0, false));
        let (run, _) = measured("echo '{}'", LONG);
        assert!(run.failed.is_some_and(|why| why.contains("docs/perf.md")));
    }

    #[test]
    fn a_run_that_does_not_end_is_killed() {
        let (run, _) = measured("exec sleep 600", Duration::from_secs(1));
        assert!(run.failed.is_some_and(|why| why.contains("was killed after 1 s")));
    }

    #[test]
    fn a_farjump_that_could_not_be_built_is_missing_in_its_sections_alone() {
        let interrupt = Interrupt::install().expect("signals can be caught");
        let programs = Programs(BTreeMap::from([(Some("iceoryx2"), Err("no such feature".to_owned()))]));
        let mut run = section_file::tests::kept("iceoryx2", &[]);
        let section = sections::named("iceoryx2").expect("it is one")[0];
        measure(section, 3, &programs, Path::new("/nonexistent"), &mut run, &interrupt).expect("it is told");
        assert_eq!(run.failed.as_deref(), Some("no such feature"));
    }

    #[test]
    fn sections_have_names_of_their_own_and_say_what_is_typed() {
        let names: std::collections::BTreeSet<_> = SECTIONS.iter().map(|section| section.name).collect();
        assert_eq!(names.len(), SECTIONS.len());
        let latency = sections::named("latency").expect("it is one")[0];
        assert_eq!(command(latency, 3)[..3], ["farjump", "perf", "latency"]);
        assert_eq!(command(latency, 3).last().map(String::as_str), Some("3"));
        let newest = sections::named("latency-newest-ucx").expect("it is one")[0];
        assert_eq!(command(newest, 3)[command(newest, 3).len() - 2..], ["--ucx", "libucp.so.0"]);
        assert!(!command(latency, 3).contains(&"--ucx".to_owned()));
        let unknown = sections::named("speed").expect_err("it is none");
        let verbs = sections::named("verbs").expect("they are some");
        assert!(verbs.len() > 1 && verbs.iter().all(|section| section.kernel.is_some()));
        assert!(unknown.contains("`speed`") && unknown.contains("wake-up"), "{unknown}");
    }
}
