//! External measuring tools, run unmodified: a server on the target's processor and a client on the source's.
//! They print their results to standard output.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use farjump_os::limits;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::perf::machine::Cpus;
use crate::perf::machine::pin;
use crate::program::failure::Failure;
use crate::program::workspace::Stage;

/// Time limit of one run.
const PATIENCE: Duration = Duration::from_secs(120);
/// Interval between checks of a condition.
const INTERVAL: Duration = Duration::from_millis(2);
/// Length of the excerpt shown of output that is not understood, in characters from the end.
const SHOWN: usize = 400;

#[derive(Clone, Debug)]
pub(in crate::perf) struct Tool {
    /// Its program, searched for in PATH.
    pub(in crate::perf) program: &'static str,
    /// The file to run instead, if there is one for this measurement.
    pub(in crate::perf) file: Option<PathBuf>,
    /// Its package in Debian and Ubuntu.
    pub(in crate::perf) package: &'static str,
}

impl Tool {
    /// Runs it once, with these variables: a server with these arguments, and once it listens on `port` a
    /// client with the same arguments and the server's address. Returns the result that `parse` finds in the
    /// client's output.
    ///
    /// # Errors
    /// A sentence for the user, if the tool is not installed, fails or does not end.
    pub(in crate::perf) fn run(
        &self,
        stage: &Stage,
        cpus: Cpus,
        port: u16,
        arguments: &[String],
        variables: &[(&str, String)],
        parse: impl Fn(&str) -> Option<f64>,
    ) -> Result<f64, Failure> {
        let program = self.program;
        let command = || {
            let mut command = Command::new(self.file.as_deref().unwrap_or(Path::new(program)));
            command.args(arguments).envs(variables.iter().map(|(name, value)| (name, value)));
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        let mut server = self.start_on(stage, cpus.target, cpus.source, &mut command())?;
        let deadline = Instant::now() + PATIENCE;
        while !is_listening(port) {
            if server.has_ended()? || Instant::now() > deadline {
                return Err(Failure::new(format!("{program} does not listen on port {port}")));
            }
            std::thread::sleep(INTERVAL);
        }
        let said = stage.folder().join("tool");
        let cannot_write = |error| {
            Failure::new(format!("cannot write `{}`: {error}{}", said.display(), limits::behind(&error)))
        };
        let out = File::create(&said).map_err(cannot_write)?;
        let also = out.try_clone().map_err(cannot_write)?;
        let mut client = self.start(stage, command().arg("127.0.0.1").stdout(out).stderr(also))?;
        while !client.has_ended()? {
            if Instant::now() > deadline {
                return Err(Failure::new(format!("{program} did not end within {} s", PATIENCE.as_secs())));
            }
            std::thread::sleep(INTERVAL);
        }
        drop(server);
        let text = fs::read_to_string(&said).unwrap_or_default();
        parse(&text).ok_or_else(|| self.not_understood(&text))
    }

    fn not_understood(&self, text: &str) -> Failure {
        let text = text.trim();
        let from = text.char_indices().rev().nth(SHOWN).map_or(0, |(at, _)| at);
        match text[from..].trim() {
            "" => Failure::new(format!("{} ended without a word", self.program)),
            text => Failure::new(format!("{}: the output is not understood: `{text}`", self.program)),
        }
    }

    /// Starts it on processor `cpu`, from this thread, which continues on `own`.
    fn start_on<'a>(
        &self,
        stage: &'a Stage,
        cpu: usize,
        own: usize,
        command: &mut Command,
    ) -> Result<Running<'a>, Failure> {
        // A process inherits the processors of the thread that starts it.
        pin(cpu)?;
        let started = self.start(stage, command);
        pin(own)?;
        started
    }

    fn start<'a>(&self, stage: &'a Stage, command: &mut Command) -> Result<Running<'a>, Failure> {
        let child = stage.start(command).map_err(|error| {
            let Tool { program, file, package } = self;
            let (named, missing) = match file {
                Some(file) => {
                    (file.display().to_string(), "Name a UCX that was installed with its tools".to_owned())
                }
                None => (
                    (*program).to_owned(),
                    format!("Install {package} (the package of Debian and Ubuntu that has it)"),
                ),
            };
            Failure::new(format!("cannot run {named}: {error}{}", limits::behind_program(&error, &missing)))
        })?;
        let pid = Pid::from_raw(child.id() as i32).ok_or_else(|| Failure::new("a process has no id"))?;
        Ok(Running { stage, program: self.program, child: Some(child), pid })
    }
}

/// Returns a port without a listener.
pub(in crate::perf) fn free_port() -> Result<u16, Failure> {
    TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| Failure::new(format!("there is no free port on this machine: {error}")))
}

/// Returns whether a process listens there. It does not connect, as the server takes any connection for its
/// client.
fn is_listening(port: u16) -> bool {
    let listens = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, state) = (fields.next(), fields.nth(1));
        local.is_some_and(|local| local.ends_with(&format!(":{port:04X}"))) && state == Some("0A")
    };
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .any(|file| fs::read_to_string(file).is_ok_and(|text| text.lines().any(listens)))
}

/// A process that is killed on drop.
struct Running<'a> {
    stage: &'a Stage,
    program: &'static str,
    child: Option<Child>,
    pid: Pid,
}

impl Running<'_> {
    fn has_ended(&mut self) -> Result<bool, Failure> {
        // Only the workspace reaps it, as it has its id.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(self.pid), options) {
            Ok(ended) => Ok(ended.is_some()),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(Failure::new(format!("cannot wait for {}: {error}", self.program))),
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            // Not reaped yet, so the id is its own; the server may not have ended by itself.
            let _ = kill_process(self.pid, Signal::KILL);
            let _ = self.stage.finish(child);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_counts_as_listening_only_while_its_listener_exists() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback is there");
        let port = listener.local_addr().expect("it is bound").port();
        assert!(is_listening(port));
        drop(listener);
        assert!(!is_listening(port));
    }

    #[test]
    fn a_tool_that_is_not_there_is_named_with_its_package() {
        let stage = Stage::set("perf").expect("a folder can be made");
        let mut tool = Tool { program: "farjump-has-no-such-tool", file: None, package: "perftest" };
        let start = |tool: &Tool| {
            let started = tool.start(&stage, &mut Command::new(tool.program));
            started.map(drop).expect_err("it is not there").to_string()
        };
        let error = start(&tool);
        assert!(error.contains("farjump-has-no-such-tool") && error.contains("Install perftest"), "{error}");
        tool.file = Some("/absent/ucx_perftest".into());
        let error = start(&tool);
        assert!(error.contains("/absent/ucx_perftest") && !error.contains("package"), "{error}");
    }

    #[test]
    fn the_error_about_unreadable_tool_output_quotes_its_last_part() {
        let tool = Tool { program: "ib_write_lat", file: None, package: "perftest" };
        let long = format!("{} Unable to find the Infiniband/RoCE device\n", "x".repeat(2 * SHOWN));
        let error = tool.not_understood(&long).to_string();
        assert!(error.contains("RoCE device") && error.len() < SHOWN + 100, "{error}");
        assert!(tool.not_understood("\n").to_string().contains("without a word"));
    }
}
