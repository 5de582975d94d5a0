//! A shell in a clean clone, where the commands of a document are typed one after the other.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use farjump_extern_path::extern_path;
use rustix::process::{Pid, Signal, kill_process_group};

use super::{files, root};
use crate::workbench::{Process, Workbench, runs, wait_for};

/// Reads commands from standard input, and prints a line with the status of each.
const SHELL: &str = r#"
exec 3<&0 </dev/null 2>&1
# Kills the group when this shell has ended: jobs do not end with a shell that is killed.
# `wait` waits for the shell of a substitution, so that leaves it behind.
exec 4> >(exec 5<&0; { cat <&5; kill -KILL 0; } &)
while IFS= read -r -d '' command <&3; do
    { eval "$command"; } 3<&- 4>&-
    printf '\n<<%s>>\n' "$?"
done
jobs=$(jobs -p)
[ -z "$jobs" ] || { kill $jobs; wait $jobs || :; }
"#;

/// The program that stands for `cargo` in a session: building in each clone would take minutes. Programs, examples and
/// modules were built with this test; the rest is cargo's, in the repository.
const CARGO: &str = r#"#!/bin/sh
set -e
case "$*" in
"run -p farjump --example "*) exec "$EXAMPLES/$5" ;;
"xtask "*" --help" | "xtask --help") cd "$REPOSITORY" && exec "$CARGO" "$@" ;;
# Nothing is built beside tests.
"xtask install --kv --prefix "*)
    mkdir -p "$5/lib" && ln -sf "$MODULES/libfarjump_kv.so" "$5/lib/farjump-kv.so" ;;
"xtask install --prefix "*)
    cd "$REPOSITORY" && exec "$CARGO" xtask install --prefix "$4" --archive "$ARCHIVE" >/dev/null 2>&1 ;;
*) echo "a session has no cargo $*"; exit 1 ;;
esac
"#;

/// Name of the folder with the clone.
const CLONE: &str = "farjump";

/// Returns the folder of the programs.
pub(crate) fn programs() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_farjump")).parent().expect("it lies in a folder")
}

/// Returns the folder of the examples, which `cargo test --workspace` builds with this test.
pub(crate) fn examples() -> PathBuf {
    programs().join("examples")
}

/// Returns the folder of the modules for servers, which `cargo test --workspace` builds too.
pub(crate) fn modules() -> PathBuf {
    programs().join("deps")
}

/// A shell, and the folder that it began in; both end with this.
pub(crate) struct Session {
    shell: Option<Process>,
    group: Pid,
    bench: Workbench,
}

impl Session {
    /// Starts a shell in a copy of the repository's files, with an empty folder of cargo's.
    pub(crate) fn new() -> Session {
        let bench = Workbench::new();
        let clone = bench.path(CLONE);
        for folder in [&format!("{CLONE}/target"), "bin", "home"] {
            fs::create_dir_all(bench.path(folder)).expect("a folder can be made");
        }
        files::copy(&clone);
        bench.executable("bin/cargo", &bench.write("cargo", CARGO));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders =
            [bench.path("bin"), programs().to_owned()].into_iter().chain(std::env::split_paths(&path));
        let mut shell = bench.program("bash");
        shell.args(["--noprofile", "--norc", "-c", SHELL]).current_dir(clone).process_group(0);
        shell.env("PATH", std::env::join_paths(folders).expect("no folder has a colon in its name"));
        // cargo and rustup find their own folders by it.
        for (name, folder) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
            let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
            shell.env(name, std::env::var_os(name).unwrap_or_else(|| home.join(folder).into()));
        }
        shell.env("HOME", bench.path("home")).env("REPOSITORY", root()).env("CARGO", env!("CARGO"));
        shell.env("EXAMPLES", examples()).env("MODULES", modules());
        // The compiler makes it together with the library that this test is linked with.
        shell.env("ARCHIVE", Path::new(extern_path!("farjump_c")).with_extension("a"));
        let shell = Process::start(shell.stdin(Stdio::piped()));
        let group = Pid::from_raw(shell.pid().cast_signed()).expect("no process has the id 0");
        Session { shell: Some(shell), group, bench }
    }

    /// Writes a file into the folder.
    pub(crate) fn write(&self, name: &str, text: &str) {
        self.bench.write(&format!("{CLONE}/{name}"), text);
    }

    /// Types a command, and returns the lines that it prints, empty ones left out, and its status. A target
    /// that it starts in the background is ready then.
    pub(crate) fn run(&mut self, command: &str) -> (Vec<String>, i32) {
        println!("$ {command}");
        let shell = self.shell.as_mut().expect("the shell runs");
        shell.write(format!("{command}\0").as_bytes());
        let (mut lines, mut status) = (Vec::new(), None);
        let mut awaits_target = command.trim_end().ends_with('&');
        while status.is_none() || awaits_target {
            let line = shell.line();
            match line.strip_prefix("<<").and_then(|rest| rest.strip_suffix(">>")?.parse().ok()) {
                Some(ended) => status = Some(ended),
                // The second is bash's, of a job that was killed.
                None if line.is_empty() || line.contains(" Terminated ") => {}
                None => {
                    awaits_target &= !line.starts_with("ready") && !line.starts_with("error: ");
                    lines.push(line);
                }
            }
        }
        (lines, status.unwrap_or_default())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(shell) = self.shell.take_if(|_| !std::thread::panicking()) {
            shell.finish();
        }
        // Nothing may be left; that is the good case.
        let _ = kill_process_group(self.group, Signal::KILL);
    }
}

#[test]
fn session_jobs_end_with_their_shell_even_when_it_is_killed() {
    for killed in [false, true] {
        let mut session = Session::new();
        assert_eq!(session.run("true & wait"), (vec![], 0));
        let (printed, _) = session.run("sleep 1000 & echo $!");
        let job = printed[0].parse().expect("a number");
        assert!(runs(job));
        let mut shell = session.shell.take().expect("the shell runs");
        match killed {
            true => drop(shell.kill_and_wait()),
            false => drop(shell.finish().worked()),
        }
        wait_for("the end of the job", || (!runs(job)).then_some(()));
    }
}
