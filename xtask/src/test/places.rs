//! Machines as people have them. The built tests run once more as a user without privileges on a bare machine, and on
//! a machine with many oddities at once.
//!
//! A test passes there, or is skipped with its reason. `docs/design/tests.md` lists the conditions and their reasons.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use farjump_tools::fakes::{Fakes, which};

use crate::checks::without_ucx;
use crate::process::{Failed, Interrupt, variable};
use crate::test::programs::TestPrograms;
use crate::test::report::Tally;
use crate::test::suite::suite;
use crate::view::{USER, View};
use crate::workspace::{Workspace, root};

/// A machine.
struct Place {
    /// The machine's name in output.
    name: &'static str,
    /// True if its user owns the clone and has no privileges.
    is_users: bool,
    /// True if the place has UCX, provided that this machine has it.
    has_ucx: bool,
    /// Missing programs, by the beginnings of their names.
    without: &'static [&'static str],
    /// Programs that exist and do not start.
    broken: &'static [&'static str],
    /// Names of programs, each with the other program that it starts.
    other: &'static [(&'static str, &'static str)],
    /// Variables. Those without a value are set to nothing.
    variables: &'static [(&'static str, &'static str)],
    /// Name and mount options of the folder for temporary files.
    temporary: (&'static str, &'static str),
    /// Programs that start the tests.
    through: &'static [&'static str],
    /// Whether git refuses the clone, as another user's.
    is_git_refused: bool,
    /// The packages whose tests run, by their folders. Words for the test programs follow if only some of the tests
    /// run. Each of these is one view.
    tests: &'static [(&'static [&'static str], &'static [&'static str])],
}

/// A folder below which the path of a socket is too long (unix(7)).
const LONG: &str = "a-folder-whose-name-is-so-long-that-the-path-of-a-socket-in-it-has-more-than-107-bytes";

/// The place of a user with gcc and Rust, and nothing else.
const USERS: Place = Place {
    name: "a user with gcc and Rust alone",
    is_users: true,
    has_ucx: false,
    without: &["clang", "c++", "g++", "x86_64-linux-gnu-g++", "apt", "lld", "ld.lld"],
    broken: &[],
    other: &[],
    variables: &[],
    temporary: ("tmp", "mode=1777"),
    through: &[
        "prlimit",
        "--nofile=1024:1024",
        "setpriv",
        "--reuid",
        USER,
        "--regid",
        USER,
        "--clear-groups",
    ],
    is_git_refused: false,
    tests: &[
        (&["cli", "control", "transports", "examples/graph", "examples/tokio"], &ALIKE_ANYWHERE),
        (&["benches"], &["measuring::", "iceoryx::", "invocation::"]),
    ],
};

/// Leaves out the tests that compute or wait longest and do not depend on a place.
const ALIKE_ANYWHERE: [&str; 6] = [
    "--skip",
    "denied_calls::",
    "--skip",
    "demo::the_demo_handles_a_file_larger_than_each_process_memory_limit",
    "--skip",
    "signals::a_signal_at_any_startup_call",
];

const PLACES: [Place; 4] = [
    USERS,
    Place {
        name: "a user with UCX",
        has_ucx: true,
        tests: &[(&["benches", "cli", "transports"], &["ucx"])],
        ..USERS
    },
    Place {
        name: "broken tools, one processor, long paths",
        is_users: false,
        has_ucx: true,
        without: &[],
        broken: &[
            "clang",
            "clang++",
            "gfortran",
            "g++",
            "c++",
            "ld.lld",
            "python3",
            "pkg-config",
            "mpicc",
            "gdb",
        ],
        other: &[],
        variables: &[
            ("FARJUMP_CC", ""),
            ("FARJUMP_LD", ""),
            ("FARJUMP_TRANSPORT", ""),
            ("FARJUMP_KEY_FILE", ""),
            ("LD_BIND_NOW", "1"),
        ],
        temporary: (LONG, "mode=1777"),
        through: &["taskset", "-c", "0"],
        is_git_refused: true,
        tests: &[
            (&["loader", "loader/builder"], &[]),
            (&["cli"], &["build::", "bitcode::", "doctor::", "broken_tools::", "documents::files::"]),
            (&["c"], &["packages::"]),
            (&["farjump"], &["calls_between_threads"]),
        ],
    },
    Place {
        name: "clang, gold, blanks",
        is_users: false,
        has_ucx: true,
        without: &["git"],
        broken: &[],
        other: &[("cc", "clang"), ("ld", "ld.gold")],
        variables: &[("HOME", "/nonexistent")],
        temporary: ("a b ü", "mode=1777"),
        through: &["prlimit", "--as=17179869184"],
        is_git_refused: false,
        tests: &[
            (&["loader", "loader/builder"], &[]),
            (&["cli"], &["build::", "bitcode::", "documents::files::", "paths::", "temporary::"]),
            (&["c"], &["packages::", "programs::"]),
            (&["kv"], &["replicas_run", "enabled::"]),
            (&["examples/tokio"], &[]),
            (&["examples/graph"], &[]),
            (&["transports/ucx-sys"], &[]),
            (&["farjump"], &["links_share_what_was_compiled"]),
        ],
    },
];

/// Options of `cargo xtask places`.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// Uses only machines whose name contains this.
    name: Option<String>,
}

/// Runs the chore. Returns `true` if nothing failed.
///
/// # Errors
/// As [`of_users`].
pub(crate) fn run(options: &Options, interrupt: &Interrupt) -> Result<bool, Failed> {
    let name = options.name.as_deref().unwrap_or("");
    match chosen(|place| place.name.contains(name), interrupt)? {
        Ok(tally) => {
            say!("\n{}{tally}", tally.names());
            Ok(tally.failed.is_empty())
        }
        Err(why) => Err(Failed::Because(why)),
    }
}

/// Runs the tests as users of bare machines, for CI, which has no time for the odd ones. `Err` inside says why there are no
/// such places here.
///
/// # Errors
/// When interrupted, or the tests were not built.
pub(crate) fn of_users(interrupt: &Interrupt) -> Result<Result<Tally, String>, Failed> {
    chosen(|place| place.is_users, interrupt)
}

fn chosen(
    is_chosen: impl Fn(&Place) -> bool,
    interrupt: &Interrupt,
) -> Result<Result<Tally, String>, Failed> {
    if let Some(why) = View::obstacle(interrupt)? {
        return Ok(Err(why));
    }
    let programs = TestPrograms::built_or_build(interrupt)?;
    let target = Workspace::load(false, interrupt)?.target();
    let mut tally = Tally::default();
    for place in PLACES.iter().filter(|place| is_chosen(place)) {
        let fakes = place.fakes();
        let (view, run_in) = place.view(&target, interrupt)?;
        for (packages, words) in place.tests {
            let (chosen, packages) = (programs.of(packages), packages.join(", "));
            let words: Vec<_> = ["--show-output"].iter().chain(*words).copied().collect();
            let run = view.run(TestPrograms::RUNNER, &TestPrograms::args(&words));
            let run =
                chosen.passed_to(run).shown_as(format!("{packages} {} ({})", words.join(" "), place.name));
            let run = run.directory(root()).env("PATH", fakes.path()).env("TMPDIR", &run_in.temporary);
            let run = run_in.variables.iter().fold(run, |run, (name, value)| run.env(name, value));
            let run = place.variables.iter().fold(run, |run, (name, value)| run.env(name, value));
            let mut ran = suite(&format!("{packages}: {}", place.name), run, true)?;
            if !place.has_ucx {
                without_ucx::is_taken_away(&mut ran);
            }
            for failure in &mut ran.failed {
                failure.name = format!("{} ({})", failure.name, place.name);
            }
            tally.add(ran);
        }
    }
    Ok(Ok(tally))
}

/// The folder for temporary files and the variables of tests in a place.
struct Inside {
    temporary: PathBuf,
    variables: Vec<(&'static str, PathBuf)>,
}

impl Place {
    fn fakes(&self) -> Fakes {
        let fakes = Fakes::new().broken(self.broken);
        // A program that is not installed here is missing in the place, too.
        let others = self.other.iter().filter_map(|(name, program)| Some((*name, which(program)?)));
        others.fold(fakes, |fakes, (name, program)| fakes.link(name, &program))
    }

    fn view<'i>(&self, target: &Path, interrupt: &'i Interrupt) -> Result<(View<'i>, Inside), Failed> {
        let mut view = View::new(self.name, interrupt)?;
        let temporary = view.folder(self.temporary.0, self.temporary.1);
        // These folders lie below a home by default, and a place may have another one.
        let (cargo, rustup) = (of_home("CARGO_HOME", ".cargo"), of_home("RUSTUP_HOME", ".rustup"));
        let mut variables = vec![("CARGO_HOME", cargo.clone()), ("RUSTUP_HOME", rustup)];
        if self.is_users {
            variables.push(("HOME", view.folder("home", &format!("mode=700,uid={USER}"))));
            view = view.owned(&[&cargo, root(), target]);
        }
        let git = root().join(".git");
        if self.is_git_refused && git.is_dir() {
            view = view.owned(&[&git]);
        }
        let inside = Inside { temporary, variables };
        let ucx = if self.has_ucx { Vec::new() } else { without_ucx::files_of_ucx(target, interrupt)? };
        Ok((view.without(&ucx).without(&self.hidden()).through(self.through), inside))
    }

    /// The files of the programs that the place lacks.
    fn hidden(&self) -> Vec<PathBuf> {
        let path = env::var_os("PATH").unwrap_or_default();
        let mut folders: Vec<_> =
            env::split_paths(&path).filter_map(|folder| folder.canonicalize().ok()).collect();
        folders.sort();
        folders.dedup();
        let files = folders.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
        let is_hidden = |name: &str| self.without.iter().any(|begin| name.starts_with(begin));
        files
            .filter(|file| file.file_name().to_str().is_some_and(is_hidden))
            .map(|file| file.path())
            .collect()
    }
}

/// The folder that a variable names, or its usual place below the user's home.
fn of_home(name: &str, usual: &str) -> PathBuf {
    let below_home = || PathBuf::from(variable("HOME").unwrap_or_default()).join(usual);
    variable(name).map_or_else(below_home, PathBuf::from)
}
