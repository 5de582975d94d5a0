//! `cargo xtask coverage`: the share of the code within peers' reach that the fuzzers execute.

mod left_out;
mod tools;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::artifacts::Artifacts;
use crate::fetch::packages;
use crate::process::{Failed, Interrupt, Run};
use crate::test::report::last;
use crate::workspace::{Workspace, root};
use left_out::LeftOut;
use tools::Tools;

/// Least share of the lines that the fuzzers must reach, in percent.
const GOAL: f64 = 75.0;
/// Limit for building, and for running, with virtual machines beside it.
const LIMIT: Duration = Duration::from_secs(30 * 60);
/// Seed of every fuzzer, so that two runs reach the same code except for the effects of time.
const SEED: &str = "22";
/// Makes rustc count a crate's executions. Names stay as they are: PyPI's tools are built without zlib.
const WRAPPER: &str =
    "#!/bin/sh\nexec \"$@\" -C instrument-coverage -C llvm-args=-enable-name-compression=false\n";
/// The tests that are the fuzzers.
const FUZZERS: [&str; 2] = ["fuzz", "conversations"];

/// Parts of the project, each with the folder of its sources and the folders that do not count.
const PARTS: [Part; 10] = [
    // Models run under loom alone.
    Part { name: "core", folder: "core/src/", without: &["core/src/mailbox/loom"] },
    Part { name: "loader", folder: "loader/src/", without: &[] },
    Part { name: "inspect", folder: "loader/builder/src/inspect/", without: &[] },
    Part { name: "control", folder: "control/src/", without: &[] },
    Part { name: "shm", folder: "transports/src/shm/", without: &[] },
    Part { name: "tcp", folder: "transports/src/tcp/", without: &[] },
    Part { name: "serve", folder: "farjump/src/serve/", without: &[] },
    Part { name: "executor", folder: "farjump/src/executor/", without: &["farjump/src/executor/crash/"] },
    Part { name: "link", folder: "farjump/src/link/", without: &[] },
    Part { name: "handles", folder: "handles/src/", without: &[] },
];

struct Part {
    name: &'static str,
    folder: &'static str,
    without: &'static [&'static str],
}

impl Part {
    fn has(&self, file: &str) -> bool {
        file.starts_with(self.folder) && !self.without.iter().any(|without| file.starts_with(without))
    }
}

/// Options of `cargo xtask coverage`.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// Also lists the lines that no fuzzer reached, of the files whose path contains this. An empty text stands for all
    /// files.
    #[arg(long, value_name = "PATH")]
    unreached: Option<String>,
}

/// The result.
enum Seen {
    /// The share reached, in percent.
    Reached(f64),
    /// Nothing can be measured on this machine, with the reason.
    NotHere(String),
}

/// Measures, for `cargo xtask coverage`. Returns `true` if the fuzzers reach enough.
///
/// # Errors
/// A fuzzer failed, the list of exceptions does not match, or nothing can be measured on this machine.
pub(crate) fn run(options: &Options, interrupt: &Interrupt) -> Result<bool, Failed> {
    match measure(options, interrupt)? {
        Seen::Reached(percent) => Ok(percent >= GOAL),
        Seen::NotHere(why) => Err(Failed::Because(why)),
    }
}

fn measure(options: &Options, interrupt: &Interrupt) -> Result<Seen, Failed> {
    // Before the build: a list that does not match is found in a second.
    let left_out = LeftOut::read(Path::new("fuzz/unreached"))?;
    let target = Workspace::load(false, interrupt)?.target();
    let tools = match Tools::find(interrupt)? {
        Ok(tools) => tools,
        Err(why) => return Ok(Seen::NotHere(why)),
    };
    let folder = target.join("coverage");
    let programs = build(&folder, interrupt)?;
    let profile = execute(&folder, &programs, &tools, interrupt)?;
    let lines = tools.lines(&profile, &programs, interrupt)?;
    Ok(Seen::Reached(report(&lines, &left_out, options)?))
}

/// Builds the fuzzers with counters, and returns their programs.
fn build(folder: &Path, interrupt: &Interrupt) -> Result<Vec<PathBuf>, Failed> {
    let failed = |error: std::io::Error| Failed::Because(format!("{}: {error}", folder.display()));
    fs::create_dir_all(folder).map_err(failed)?;
    // Dependencies have no counters, and are those of the tests. Cargo calls this wrapper for the crates of the
    // workspace alone, and keeps its output apart.
    let wrapper = folder.join("rustc");
    fs::write(&wrapper, WRAPPER).map_err(failed)?;
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).map_err(failed)?;

    let mut args = vec!["test", "--no-run", "--workspace"];
    args.extend(packages::features());
    args.extend(FUZZERS.iter().flat_map(|test| ["--test", test]));
    let run = Run::cargo(interrupt)
        .args(args)
        .directory(root())
        .env("RUSTC_WORKSPACE_WRAPPER", &wrapper)
        .env("CARGO_ENCODED_RUSTFLAGS", "")
        // Otherwise inlined functions of other crates have counters that the report does not find. Of 57 lines of
        // core's channel/line.rs it counts 10 as reached; with this setting it counts 54 of 54. CI turns this off for
        // everything else.
        .env("CARGO_INCREMENTAL", "1")
        // Build scripts and macros of the workspace would otherwise leave profiles in their working folders.
        .env("LLVM_PROFILE_FILE", "/dev/null")
        .limit(LIMIT);
    let built = Artifacts::of(run, "the fuzzers")?;
    let tests = built.messages().filter(|artifact| artifact["target"]["kind"][0] == "test");
    let programs: Vec<_> = tests.filter_map(|test| test["executable"].as_str().map(PathBuf::from)).collect();
    match programs.is_empty() {
        true => Err(Failed::Because("cargo built no fuzzer".to_owned())),
        false => Ok(programs),
    }
}

/// Runs the fuzzers, and returns their joint profile.
fn execute(
    folder: &Path,
    programs: &[PathBuf],
    tools: &Tools,
    interrupt: &Interrupt,
) -> Result<PathBuf, Failed> {
    let failed = |error: std::io::Error| Failed::Because(format!("{}: {error}", folder.display()));
    let profiles = folder.join("profiles");
    if profiles.exists() {
        fs::remove_dir_all(&profiles).map_err(failed)?;
    }
    fs::create_dir_all(&profiles).map_err(failed)?;
    for program in programs {
        // Processes of one program share a file.
        let ended = Run::new(program, interrupt)
            .directory(root())
            .env("LLVM_PROFILE_FILE", profiles.join("%4m.profraw"))
            .env("FARJUMP_FUZZ_SEED", SEED)
            .limit(LIMIT)
            .run()?;
        if !ended.status.success() {
            let said = last(&ended.output).join("\n    ");
            return Err(Failed::Because(format!("{} failed\n    {said}", program.display())));
        }
    }
    let raw = fs::read_dir(&profiles).map_err(failed)?.filter_map(|entry| Some(entry.ok()?.path()));
    tools.merge(raw.collect(), &folder.join("fuzzers.profdata"), interrupt)
}

/// Number of executions of each line of a file, by the path of the file in the workspace.
type Lines = BTreeMap<String, BTreeMap<usize, u64>>;

/// Prints the table, and returns the share of all lines.
fn report(lines: &Lines, left_out: &LeftOut, options: &Options) -> Result<f64, Failed> {
    let mut rows = Vec::new();
    let (mut all, mut all_reached, mut all_left_out) = (0, 0, 0);
    let mut unreached = String::new();
    for part in &PARTS {
        let (mut of_part, mut part_reached, mut files) = (0, 0, Vec::new());
        for (file, lines) in lines.iter().filter(|(file, _)| part.has(file)) {
            let out = left_out.of(file);
            let counted: Vec<_> = lines.iter().filter(|(line, _)| !out.contains(line)).collect();
            all_left_out += lines.len() - counted.len();
            let reached = counted.iter().filter(|&&(_, count)| *count > 0).count();
            (of_part, part_reached) = (of_part + counted.len(), part_reached + reached);
            files.push((file.as_str(), reached, counted.len()));
            if options.unreached.as_ref().is_some_and(|path| file.contains(path.as_str())) {
                list(
                    &mut unreached,
                    file,
                    counted.iter().filter(|(_, count)| **count == 0).map(|(line, _)| **line),
                );
            }
        }
        if of_part == 0 {
            return Err(Failed::Because(format!("nothing of {} is in what the fuzzers linked", part.folder)));
        }
        rows.push((part.name, part_reached, of_part));
        rows.extend(files);
        (all, all_reached) = (all + of_part, all_reached + part_reached);
    }
    if !unreached.is_empty() {
        say!("{}", unreached.trim_end());
    }
    say!("{:48} {:>7} {:>7} {:>7}", "", "reached", "lines", "%");
    for (name, reached, lines) in rows {
        let name = if name.contains('/') { format!("  {name}") } else { name.to_owned() };
        say!("{name:48} {reached:>7} {lines:>7} {:>7.1}", percent(reached, lines));
    }
    say!("{all_left_out} lines are left out, for the reasons in fuzz/unreached");
    say!("reach: {:.1} %", percent(all_reached, all));
    Ok(percent(all_reached, all))
}

/// Lines with their text, in the style of compilers.
fn list(to: &mut String, file: &str, lines: impl Iterator<Item = usize>) {
    let text = fs::read_to_string(root().join(file)).unwrap_or_default();
    for line in lines {
        let _ = writeln!(to, "{file}:{line}: {}", text.lines().nth(line - 1).unwrap_or("").trim());
    }
}

fn percent(part: usize, of: usize) -> f64 {
    if of == 0 { 100.0 } else { 100.0 * part as f64 / of as f64 }
}
