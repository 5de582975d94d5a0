//! Programs that chores run: in a process group of their own, without input, up to a time limit.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, BufRead, BufReader};
use std::iter;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// Limit for the part of a run that only builds, where its own limit counts from a later line.
const BUILDING: Duration = Duration::from_secs(3 * 60 * 60);

/// Interval at which a wait checks for an interrupt.
const LOOK: Duration = Duration::from_millis(100);

/// The reason why a chore, or a step of it, cannot continue.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The user asked to stop.
    Interrupted,
    /// Anything else, in words.
    Because(String),
}

impl Failed {
    /// Returns whether the user asked to stop, so that no other step starts.
    pub(crate) fn is_interrupt(&self) -> bool {
        matches!(self, Failed::Interrupted)
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failed::Interrupted => out.write_str("interrupted"),
            Failed::Because(why) => out.write_str(why),
        }
    }
}

/// A flag that is set when the user asks to stop. Children are in groups of their own, which the terminal does not
/// signal.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Takes over SIGINT, SIGTERM and SIGHUP.
    pub(crate) fn install() -> Result<Interrupt, Failed> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP]
        {
            signal_hook::flag::register(signal, Arc::clone(&flag))
                .map_err(|error| Failed::Because(format!("catching signal {signal}: {error}")))?;
        }
        Ok(Interrupt(flag))
    }

    fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The variable that names the compiler of MPI.
pub(crate) const MPICC: &str = "MPICC";

/// The cargo that runs this.
pub(crate) fn cargo() -> OsString {
    variable("CARGO").unwrap_or_else(|| "cargo".into())
}

/// The value of a variable; an empty one counts as unset.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The part of a child's output that is shown as it comes. The caller gets all of it.
enum Show {
    All,
    Nothing,
    /// The lines that this function picks; it is called for each of them, in order.
    Some(Box<dyn FnMut(&str) -> bool>),
}

impl fmt::Debug for Show {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Show::All => "All",
            Show::Nothing => "Nothing",
            Show::Some(_) => "Some",
        })
    }
}

impl Show {
    fn shows(&mut self, line: &str) -> bool {
        match self {
            Show::All => true,
            Show::Nothing => false,
            Show::Some(picks) => picks(line),
        }
    }
}

/// The end of a child.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Its exit status from the system.
    pub(crate) status: ExitStatus,
    /// Its standard output and error, in order; standard error alone if standard output is redirected.
    pub(crate) output: String,
}

/// Picks a line of output.
type LinePicker = fn(&str) -> bool;

/// A program to be run.
#[derive(Debug)]
pub(crate) struct Run<'i> {
    command: Command,
    limit: Duration,
    /// Picks the line from which on the limit counts, if not from the start; and the limit before it.
    begins: Option<(LinePicker, Duration)>,
    /// Kills it once this is set.
    stopped: Option<&'i AtomicBool>,
    show: Show,
    /// Prefix of each line that is shown.
    mark: String,
    /// Destination of its standard output, if that is not the caller.
    output: Option<OwnedFd>,
    /// Name under which the command is shown, if it differs.
    shown: Option<String>,
    interrupt: &'i Interrupt,
}

impl<'i> Run<'i> {
    /// Makes a run of `program`, for 10 minutes at most.
    pub(crate) fn new(program: impl AsRef<std::ffi::OsStr>, interrupt: &'i Interrupt) -> Run<'i> {
        let mut command = Command::new(program);
        // `cargo xtask` is itself a `cargo run`, which sets variables about this package for its children.
        for (name, value) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            let described = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"];
            let is_described = described.iter().any(|prefix| name.starts_with(prefix));
            // The build script of the crate that binds MPI takes an empty value for a name.
            if is_described || value.is_empty() && name == MPICC {
                command.env_remove(name);
            }
        }
        command.env("TMPDIR", tempfile::env::temp_dir()).stdin(Stdio::null());
        Run {
            command,
            limit: Duration::from_secs(600),
            begins: None,
            stopped: None,
            show: Show::All,
            mark: String::new(),
            output: None,
            shown: None,
            interrupt,
        }
    }

    /// The cargo that runs this.
    pub(crate) fn cargo(interrupt: &'i Interrupt) -> Run<'i> {
        Run::new(cargo(), interrupt)
    }

    /// Adds arguments.
    pub(crate) fn args(mut self, args: impl IntoIterator<Item = impl AsRef<std::ffi::OsStr>>) -> Self {
        self.command.args(args);
        self
    }

    /// Sets an environment variable.
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs in another directory.
    pub(crate) fn directory(mut self, directory: &std::path::Path) -> Self {
        self.command.current_dir(directory);
        self
    }

    /// Sets its standard input.
    pub(crate) fn input(mut self, input: OwnedFd) -> Self {
        self.command.stdin(input);
        self
    }

    /// Redirects its standard output. The caller gets, and the user is shown, standard error alone.
    pub(crate) fn output(mut self, output: OwnedFd) -> Self {
        self.output = Some(output);
        self
    }

    /// Kills it, and all processes that it started, after this time.
    pub(crate) fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Counts the limit from the first line that `begins` picks. Before that line cargo builds, and the time for it
    /// depends on the machine. That time has a limit of its own, [`BUILDING`].
    pub(crate) fn limit_from(self, begins: fn(&str) -> bool) -> Self {
        self.limit_before(BUILDING, begins)
    }

    /// Counts the limit from the first line that `begins` picks, and gives the time before it the limit `before`.
    pub(crate) fn limit_before(mut self, before: Duration, begins: fn(&str) -> bool) -> Self {
        self.begins = Some((begins, before));
        self
    }

    /// Kills it, and all processes that it started, once `stopped` is set.
    pub(crate) fn unless(mut self, stopped: &'i AtomicBool) -> Self {
        self.stopped = Some(stopped);
        self
    }

    /// Shows the command by this name.
    pub(crate) fn shown_as(mut self, shown: impl Into<String>) -> Self {
        self.shown = Some(shown.into());
        self
    }

    /// Puts `mark` before each shown line of it, to distinguish it from commands that run at the same time.
    pub(crate) fn mark(mut self, mark: &str) -> Self {
        self.mark = mark.to_owned();
        self
    }

    /// Keeps the output for the caller.
    pub(crate) fn quiet(mut self) -> Self {
        self.show = Show::Nothing;
        self
    }

    /// Shows the lines that `picks` picks; it is called for each of them, in order.
    pub(crate) fn showing(mut self, picks: impl FnMut(&str) -> bool + 'static) -> Self {
        self.show = Show::Some(Box::new(picks));
        self
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// When it cannot be started, does not end in time, or the user interrupts. The caller judges any other end.
    pub(crate) fn run(mut self) -> Result<Ended, Failed> {
        let program = self.command.get_program().to_string_lossy().into_owned();
        let args = self.command.get_args().map(|arg| arg.to_string_lossy());
        let name = program.rsplit('/').next().unwrap_or_default().into();
        let shown = self
            .shown
            .unwrap_or_else(|| iter::once(name).chain(args).collect::<Vec<Cow<'_, str>>>().join(" "));
        if !matches!(self.show, Show::Nothing) {
            say!("{}$ {shown}", self.mark);
        }
        let failed = |error: io::Error| Failed::Because(format!("{program}: {error}"));
        let (reader, writer) = io::pipe().map_err(failed)?;
        let output = match self.output {
            Some(output) => output,
            None => writer.try_clone().map_err(failed)?.into(),
        };
        self.command.stdout(output).stderr(writer);
        let mut child = Group::start(&mut self.command).map_err(failed)?;
        // The command holds the write ends: once it is dropped, the reader ends when the child does.
        drop(self.command);

        let (lines, came) = mpsc::channel();
        let reading = std::thread::spawn(move || {
            for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
                if lines.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
            }
        });
        let mut begins = self.begins;
        let mut limit = begins.map_or(self.limit, |(_, before)| before);
        let mut deadline = Instant::now() + limit;
        let mut output = String::new();
        loop {
            match came.recv_timeout(LOOK) {
                Ok(line) => {
                    if begins.is_some_and(|(begins, _)| begins(&line)) {
                        begins = None;
                        limit = self.limit;
                        deadline = Instant::now() + limit;
                    }
                    if self.show.shows(&line) {
                        say!("{}{line}", self.mark);
                    }
                    output.push_str(&line);
                    output.push('\n');
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    // A process that the child left behind may hold the pipe open: the child's own end counts.
                    if child.child.try_wait().map_err(failed)?.is_some() {
                        break;
                    }
                }
            }
            if self.interrupt.came() {
                return Err(Failed::Interrupted);
            }
            if self.stopped.is_some_and(|stopped| stopped.load(Ordering::Relaxed)) {
                return Err(Failed::Because(format!("`{shown}` was killed: it has lost its other half")));
            }
            if Instant::now() >= deadline {
                return Err(Failed::Because(format!("`{shown}` was killed after {} s", limit.as_secs())));
            }
        }
        while child.child.try_wait().map_err(failed)?.is_none() {
            if self.interrupt.came() {
                return Err(Failed::Interrupted);
            }
            if Instant::now() >= deadline {
                return Err(Failed::Because(format!("`{shown}` closed its output and did not end")));
            }
            std::thread::sleep(LOOK / 10);
        }
        let status = child.child.wait().map_err(failed)?;
        // This kills the processes that the child left behind, which ends the reading.
        drop(child);
        drop(reading.join());
        // On a busy machine the child ends before the reader has passed on all of its lines.
        for line in came.try_iter() {
            if self.show.shows(&line) {
                say!("{}{line}", self.mark);
            }
            output.push_str(&line);
            output.push('\n');
        }
        Ok(Ended { status, output })
    }
}

/// Waits for the end of this process, which writes nothing to the shell's input, and kills the shell's group.
const GUARD: &str = "trap '' HUP INT TERM; read -r _; kill -KILL 0";

/// A child and all processes that it started. They are killed together: at the latest when this value is dropped, and
/// also when this process is killed, which drops nothing.
struct Group {
    child: Child,
    guard: Guard,
}

/// A shell that leads a group. Its standard input ends with this process.
struct Guard(Child);

impl Group {
    fn start(command: &mut Command) -> io::Result<Group> {
        let mut guard = Command::new("/bin/sh");
        guard.args(["-c", GUARD]).current_dir("/").process_group(0);
        let guard = guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let guard = Guard(guard);
        let child = command.process_group(Pid::from_child(&guard.0).as_raw_nonzero().get()).spawn()?;
        Ok(Group { child, guard })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.guard.kill();
        let _ = self.child.wait();
    }
}

impl Guard {
    /// Kills its group. The group exists, as its leader was not reaped.
    fn kill(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Set for the part of [`the_end_of_this_process_ends_what_it_runs`] that is killed.
    const KILLED: &str = "FARJUMP_XTASK_KILLED";

    #[test]
    fn the_end_of_this_process_ends_what_it_runs() {
        let interrupt = Interrupt(Arc::default());
        if std::env::var_os(KILLED).is_some() {
            // The second shell belongs to the group, and is no child of this process.
            let run = Run::new("sh", &interrupt).args(["-c", "sh -c 'echo pid $$; sleep 600' & wait"]);
            drop(run.run());
            return;
        }
        let mut killed = Command::new(std::env::current_exe().unwrap());
        killed.args(["--exact", "process::tests::the_end_of_this_process_ends_what_it_runs", "--nocapture"]);
        let mut killed = killed.env(KILLED, "1").stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(killed.stdout.take().unwrap()).lines().map_while(Result::ok);
        let pid = lines.map(|line| line.strip_prefix("pid ").map(str::to_owned)).find_map(|pid| pid).unwrap();
        killed.kill().unwrap();
        killed.wait().unwrap();
        let runs =
            || fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
        let begun = Instant::now();
        while runs() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{pid} still runs");
            std::thread::sleep(LOOK / 10);
        }
    }

    #[test]
    fn a_limit_that_counts_from_a_line_counts_nothing_before_it() {
        let interrupt = Interrupt(Arc::default());
        let run = |script| {
            let run = Run::new("sh", &interrupt).args(["-c", script]).quiet().limit(Duration::ZERO);
            run.limit_from(|line| line == "runs").run()
        };
        assert!(run("echo builds; sleep 0.3; echo built").unwrap().status.success());
        let error = run("echo builds; echo runs; sleep 60").unwrap_err().to_string();
        assert!(error.ends_with("was killed after 0 s"), "{error}");
        let slow = Run::new("sh", &interrupt).args(["-c", "echo boots; sleep 60"]).quiet();
        let error = slow.limit_before(Duration::ZERO, |line| line == "up").run().unwrap_err().to_string();
        assert!(error.ends_with("was killed after 0 s"), "{error}");
    }

    #[test]
    fn a_program_that_waits_for_another_one_ends_with_it() {
        let (interrupt, stopped) = (Interrupt(Arc::default()), AtomicBool::new(false));
        let run = || Run::new("sh", &interrupt).args(["-c", "sleep 60"]).quiet().unless(&stopped);
        let error = std::thread::scope(|scope| {
            let waits = scope.spawn(|| run().run().unwrap_err().to_string());
            stopped.store(true, Ordering::Relaxed);
            waits.join().unwrap()
        });
        assert!(error.contains("lost its other half"), "{error}");
    }
}
