//! `cargo xtask figures`: the paper's figures and the page of results, measured on this machine.
//!
//! `figures.toml` lists the runs ([`mod@sections`]) and the bounds on their figures ([`mod@goals`]); [`section_file`]
//! stores each run, [`mod@page`] makes the page. The page is made from the stored runs: running one section alone
//! changes nothing in the others.

mod goals;
mod in_vm;
mod page;
mod section_file;
mod sections;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use farjump_fixtures::namespaces::{Namespace, Namespaces};
use serde_json::Value;

use crate::artifacts::Artifacts;
use crate::process::{Ended, Failed, Interrupt, Run};
use crate::ucx;
use crate::workspace::{Workspace, root};
use section_file::Kept;
use sections::{Section, sections};

/// Limit for building.
const BUILDING: Duration = Duration::from_secs(20 * 60);

/// Options of `cargo xtask figures`.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// Number of rounds of each measurement
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Measure only these sections, and leave the others unchanged. `verbs` are the sections that are measured in
    /// virtual machines, and only if named here
    #[arg(long, value_name = "SECTION,…", value_delimiter = ',', value_parser = |name: &str| sections::named(name).map(Named))]
    only: Vec<Named>,
    /// Measure nothing, and write the page from the stored runs
    #[arg(long, conflicts_with_all = ["only", "rounds"])]
    page: bool,
    /// The folder of RESULTS.md, figures/ and results/ [default: benches]
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,
}

/// Sections with a common name.
#[derive(Clone, Debug)]
struct Named(Vec<&'static Section>);

/// Measures, unless only the page is wanted, and writes the page. Returns `true` unless a section ended early. The page
/// names sections that this farjump lacks.
///
/// # Errors
/// When interrupted, farjump cannot be built, or a file cannot be written.
pub(crate) fn run(options: &Options, interrupt: &Interrupt) -> Result<bool, Failed> {
    let folder = match &options.into {
        Some(folder) => std::path::absolute(folder).map_err(|error| failed(folder, &error))?,
        None => root().join("benches"),
    };
    let all_ended = options.page || measure_all(options, &folder, interrupt)?;
    write_page(&folder)?;
    Ok(all_ended)
}

/// Measures the chosen sections, and stores each. Returns `true` unless a section ended early.
///
/// # Errors
/// When interrupted, farjump cannot be built, or a file cannot be written.
fn measure_all(options: &Options, folder: &Path, interrupt: &Interrupt) -> Result<bool, Failed> {
    for part in ["figures", "results"] {
        let part = folder.join(part);
        fs::create_dir_all(&part).map_err(|error| failed(&part, &error))?;
    }
    let chosen: Vec<&'static Section> = match options.only.is_empty() {
        true => sections().iter().filter(|section| section.kernel.is_none()).collect(),
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
        match measure(section, options.rounds, &programs, folder, &mut run, interrupt) {
            Ok(()) => {}
            Err(error) if error.is_interrupt() => return Err(error),
            Err(error) => {
                say!("{}: {error}", section.name);
                all_ended &= run.rows.is_empty();
                run.failed = Some(error.to_string());
            }
        }
        run.write(&folder.join(kept_as(section)))?;
    }
    Ok(all_ended)
}

/// Writes the page from the stored runs.
///
/// # Errors
/// When a stored run cannot be read, or the page cannot be written.
fn write_page(folder: &Path) -> Result<(), Failed> {
    let runs = sections().iter().map(|section| Kept::read(&folder.join(kept_as(section))));
    let runs: Vec<Kept> = runs.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
    let page = folder.join("RESULTS.md");
    fs::write(&page, page::markdown(&runs, folder)).map_err(|error| failed(&page, &error))?;
    say!("{}", page.display());
    Ok(())
}

fn failed(path: &Path, error: &std::io::Error) -> Failed {
    Failed::Because(format!("{}: {error}", path.display()))
}

/// Path of a section's stored run, from the folder of the results.
fn kept_as(section: &Section) -> String {
    format!("results/{}.json", section.name)
}

/// The program behind `farjump perf`.
const PROGRAM: &str = "farjump-perf";

/// Placeholder for UCX's library in the shown command.
const LIBRARY: &str = "libucp.so.0";

/// The command that a user would type.
fn command(section: &Section, rounds: u32) -> Vec<String> {
    let rounds = rounds.max(section.rounds).to_string();
    let words = ["farjump", "perf"].into_iter().chain(section.run.split(' ')).chain(["--rounds", &rounds]);
    let set = section.tls.iter().map(|tls| format!("UCX_TLS={tls}"));
    set.chain(words.map(str::to_owned)).collect()
}

/// The arguments of a section's run, with the path of UCX's library in place of its placeholder.
///
/// # Errors
/// When interrupted, or UCX is not available.
fn arguments(section: &Section, rounds: u32, interrupt: &Interrupt) -> Result<Vec<String>, Failed> {
    let mut words = command(section, rounds);
    // `farjump perf`, for which its own program runs.
    words.drain(..2 + usize::from(section.tls.is_some()));
    if let Some(word) = words.iter_mut().find(|word| *word == LIBRARY) {
        *word = ucx::newest_library(interrupt)?.map_err(Failed::Because)?.display().to_string();
    }
    Ok(words)
}

/// Runs a section, and takes its rows.
///
/// # Errors
/// When interrupted, or the run failed. Rows that it printed before are in `run`.
fn measure(
    section: &Section,
    rounds: u32,
    programs: &Programs,
    folder: &Path,
    run: &mut Kept,
    interrupt: &Interrupt,
) -> Result<(), Failed> {
    let program = programs.of(section).map_err(Failed::Because)?;
    let arguments = arguments(section, rounds, interrupt)?;
    if let Some(kernel) = &section.kernel {
        return in_vm::measure(kernel, &arguments, section.limit, &program, run, interrupt);
    }
    let printed = tempfile::NamedTempFile::new().map_err(|error| failed(folder, &error))?;
    let output = File::create(printed.path()).map_err(|error| failed(printed.path(), &error))?;
    let namespaces = section.delay.map(Namespaces::delayed).transpose().map_err(Failed::Because)?;
    let mut started = match &namespaces {
        None => Run::new(program, interrupt),
        Some(namespaces) => {
            let words = namespaces.launcher(Namespace::Left);
            Run::new(&words[0], interrupt).args(&words[1..]).args([program])
        }
    };
    if let Some(tls) = &section.tls {
        started = started.env("UCX_TLS", tls);
    }
    started = started
        .args(&arguments)
        .args(["--json"])
        .output(output.into())
        .shown_as(run.command.clone())
        .limit(section.limit);
    if let Some(namespaces) = &namespaces {
        let across =
            format!("{},{}", namespaces.file(Namespace::Right).display(), Namespace::Right.address());
        started = started.args(["--across", &across]);
    }
    if section.picture {
        let picture = folder.join(page::picture(&section.name));
        // An old picture would pass for the new measurement.
        if picture.exists() {
            fs::remove_file(&picture).map_err(|error| failed(&picture, &error))?;
        }
        started = started.args([Path::new("--plot"), &picture]);
    }
    let ended = started.run().and_then(|ended| succeeded(&ended));
    let text = fs::read_to_string(printed.path()).map_err(|error| failed(printed.path(), &error))?;
    let taken = run.take(&text);
    ended.and(taken)
}

/// # Errors
/// When a command failed, with its own message.
fn succeeded(ended: &Ended) -> Result<(), Failed> {
    if ended.status.success() {
        return Ok(());
    }
    let said = ended.output.lines().find_map(|line| line.strip_prefix("error: "));
    Err(Failed::Because(said.map_or_else(|| ended.status.to_string(), str::to_owned)))
}

/// farjump with default features, and with the features that sections need. These are copies, which a later build
/// leaves unchanged.
struct Programs(BTreeMap<Option<&'static str>, Result<PathBuf, String>>);

impl Programs {
    /// Builds the programs of these sections, before any measurement.
    ///
    /// # Errors
    /// When the program with default features cannot be built. Sections whose features cannot be built lack their
    /// results.
    fn build(sections: &[&'static Section], interrupt: &Interrupt) -> Result<Programs, Failed> {
        let target = Workspace::load(false, interrupt)?.target();
        let folder = target.join("figures");
        fs::create_dir_all(&folder).map_err(|error| failed(&folder, &error))?;
        let mut programs = BTreeMap::new();
        // The default build comes last, and stays in cargo's place.
        let mut wanted: Vec<_> = sections.iter().map(|section| section.features.as_deref()).collect();
        wanted.sort_by_key(|features| features.is_none());
        wanted.dedup();
        for features in wanted {
            let mut build = Run::cargo(interrupt)
                .args(["build", "--release", "--package", "farjump-benches", "--bin", PROGRAM])
                .directory(root())
                .limit(BUILDING);
            if let Some(features) = features {
                build = build.args(["--features", features]);
            }
            let built = Artifacts::of(build, PROGRAM).and_then(|built| built.program(PROGRAM));
            let copy = folder.join(features.map_or(PROGRAM.to_owned(), |name| format!("{PROGRAM}-{name}")));
            let program = match built {
                Ok(made) => {
                    fs::copy(&made, &copy).map_err(|error| failed(&made, &error))?;
                    Ok(copy)
                }
                Err(error) if error.is_interrupt() => return Err(error),
                Err(why) => Err(why.to_string()),
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
        let built = self.0.get(&section.features.as_deref()).cloned();
        built.unwrap_or_else(|| Err("no program was built for it".to_owned()))
    }
}

/// Today, in UTC.
fn date(interrupt: &Interrupt) -> Result<String, Failed> {
    reply(Run::new("date", interrupt).args(["-u", "+%Y-%m-%d"]))
}

/// farjump's version, and its compiler. Results do not count as changes, committed or not.
fn built(interrupt: &Interrupt) -> Result<String, Failed> {
    let git = |args: &[&str]| reply(Run::new("git", interrupt).args(args).directory(root()));
    let commit = git(&["rev-parse", "--short", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no", "--", ".", ":!benches"])?;
    let changed = if changed.is_empty() { "" } else { " with changes" };
    let compiler = reply(Run::new("rustc", interrupt).args(["--version"]).directory(root()))?;
    Ok(format!("farjump {} at {commit}{changed}, built by {compiler}", env!("CARGO_PKG_VERSION")))
}

/// A program's output of one line.
fn reply(run: Run<'_>) -> Result<String, Failed> {
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
    fn a_failed_command_reports_its_error_line_or_its_status() {
        let said = |script| succeeded(&ended(script)).map_err(|error| error.to_string());
        assert_eq!(said("echo 'error: no' >&2; true"), Ok(()));
        let two = said("echo warning >&2; echo 'error: no such metric' >&2; exit 2");
        assert_eq!(two, Err("no such metric".to_owned()));
        assert!(said("exit 3").is_err_and(|why| why.contains('3')));
    }

    const REPORT: &str = r#"{"machine": {}, "rounds": [], "rows": [{"metric": "rate", "unit": "million/s", "subject": "farjump"}]}"#;

    /// Runs a section with a script in farjump's place. Returns the reason of its failure, its number of rows, and
    /// whether it made a picture.
    fn measured(script: &str, limit: Duration) -> (Option<String>, usize, bool) {
        let folder = crate::scratch::folder().expect("a folder can be made");
        fs::create_dir(folder.path().join("figures")).expect("a folder can be made");
        let program = folder.path().join(PROGRAM);
        // Another process writes the file: a file that this process has open for writing could not be run.
        let written = Command::new("sh")
            .args(["-c", r#"printf '#!/bin/sh\n%s\n' "$1" >"$2" && chmod 700 "$2""#, "sh", script])
            .arg(&program)
            .status();
        assert!(written.is_ok_and(|status| status.success()));
        let interrupt = Interrupt::install().expect("signals can be caught");
        let section = Section { limit, ..sections::named("rate").expect("it is one")[0].clone() };
        let picture = folder.path().join(page::picture(&section.name));
        fs::write(&picture, "old").expect("it can be written");
        let mut run = section_file::tests::kept("rate", &[]);
        run.rounds.clear();
        let programs = Programs(BTreeMap::from([(None, Ok(program))]));
        let failed = measure(&section, 3, &programs, folder.path(), &mut run, &interrupt).err();
        (failed.map(|error| error.to_string()), run.rows.len(), picture.exists())
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_run_keeps_its_printed_rows_and_ignores_standard_error() {
        // The last argument is the picture's file.
        let script = format!("echo warning >&2; for last; do :; done; echo new >\"$last\"; echo '{REPORT}'");
        assert_eq!(measured(&script, LONG), (None, 1, true));
    }

    #[test]
    fn a_failed_run_keeps_rows_unless_refused_and_never_an_old_picture() {
        let broken = measured(&format!("echo '{REPORT}'; echo 'error: it is gone' >&2; exit 1"), LONG);
        assert_eq!(broken, (Some("it is gone".to_owned()), 1, false));
        let refused = measured("echo 'error: no such metric' >&2; exit 2", LONG);
        assert_eq!(refused, (Some("no such metric".to_owned()), 0, false));
        let (other, ..) = measured("echo '{}'", LONG);
        assert!(other.is_some_and(|why| why.contains("docs/reference/perf.md")));
    }

    #[test]
    fn a_run_that_does_not_end_is_killed() {
        let (failed, ..) = measured("exec sleep 600", Duration::from_secs(1));
        assert!(failed.is_some_and(|why| why.contains("was killed after 1 s")));
    }

    #[test]
    fn a_section_fails_with_the_build_error_of_its_farjump() {
        let interrupt = Interrupt::install().expect("signals can be caught");
        let programs = Programs(BTreeMap::from([(Some("iceoryx2"), Err("no such feature".to_owned()))]));
        let mut run = section_file::tests::kept("iceoryx2", &[]);
        let section = sections::named("iceoryx2").expect("it is one")[0];
        let failed = measure(section, 3, &programs, Path::new("/nonexistent"), &mut run, &interrupt);
        assert!(failed.is_err_and(|error| error.to_string() == "no such feature"));
    }

    #[test]
    fn the_page_alone_is_made_of_stored_runs() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        fs::create_dir(folder.path().join("results")).expect("a folder can be made");
        let stored = section_file::tests::kept("floor", &[serde_json::json!({})]);
        stored.write(&folder.path().join("results/floor.json")).expect("it can be written");
        let interrupt = Interrupt::install().expect("signals can be caught");
        let into = Some(folder.path().to_owned());
        let options = Options { rounds: 9, only: Vec::new(), page: true, into };
        assert!(run(&options, &interrupt).is_ok_and(|all_ended| all_ended));
        let page = fs::read_to_string(folder.path().join("RESULTS.md")).expect("it is written");
        assert!(page.contains("| [floor](results/floor.json) |"), "{page}");
    }

    #[test]
    fn sections_have_names_of_their_own_and_say_what_is_typed() {
        let names: std::collections::BTreeSet<_> = sections().iter().map(|section| &section.name).collect();
        assert_eq!(names.len(), sections().len());
        let latency = sections::named("latency").expect("it is one")[0];
        assert_eq!(command(latency, 3)[..3], ["farjump", "perf", "latency"]);
        assert_eq!(command(latency, 3).last().map(String::as_str), Some("3"));
        let newest = sections::named("latency-newest-ucx").expect("it is one")[0];
        let has_library = |section| command(section, 3).contains(&LIBRARY.to_owned());
        assert_eq!((has_library(newest), has_library(latency)), (true, false));
        let unknown = sections::named("speed").expect_err("it is none");
        let verbs = sections::named("verbs").expect("they are some");
        assert!(verbs.len() > 1 && verbs.iter().all(|section| section.kernel.is_some()));
        assert!(unknown.contains("`speed`") && unknown.contains("wake-up"), "{unknown}");
    }
}
