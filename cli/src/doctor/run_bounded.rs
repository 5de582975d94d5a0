//! Runs a program with bounds on its output and its time.

use std::fmt;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use farjump_os::limits;
use rustix::process::{Pid, Signal, kill_process_group};

/// Interval between checks for its end.
const LOOK: Duration = Duration::from_millis(2);
/// Bytes of output that are read.
const LONGEST: u64 = 64 * 1024;
/// Longest time for its output to stay open after its end.
const LINGER: Duration = Duration::from_millis(500);

/// Reason why a program gave no result.
#[derive(Debug)]
pub(super) enum Silent {
    /// It did not start.
    NotStarted(io::Error),
    /// It did not end in this time, and was killed with all its children.
    TooLong(Duration),
}

impl Silent {
    /// Returns whether there is no such program.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self, Silent::NotStarted(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

impl fmt::Display for Silent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            silent if silent.is_missing() => out.write_str("not found"),
            Silent::NotStarted(error) => {
                write!(out, "does not start: {error}{}", limits::behind_program(error, ""))
            }
            Silent::TooLong(limit) => write!(out, "did not end within {} s", limit.as_secs()),
        }
    }
}

/// Runs `command` without input, in a process group of its own, for at most `limit`. Returns its exit status
/// and its output, errors included, trimmed.
pub(super) fn run(mut command: Command, limit: Duration) -> Result<(ExitStatus, String), Silent> {
    let (mut reader, writer) = io::pipe().map_err(Silent::NotStarted)?;
    let errors = writer.try_clone().map_err(Silent::NotStarted)?;
    command.stdin(Stdio::null()).stdout(writer).stderr(errors).process_group(0).env("LC_ALL", "C");
    let mut child = command.spawn().map_err(Silent::NotStarted)?;
    // The pipe ends once all writers have closed it, and the command holds one.
    drop(command);
    let (sender, said) = mpsc::channel();
    let listening = thread::Builder::new().spawn(move || {
        let mut bytes = Vec::new();
        // The bytes before a read error are the output. The receiver may be gone.
        let _ = reader.by_ref().take(LONGEST).read_to_end(&mut bytes);
        let _ = sender.send(bytes);
    });
    if let Err(error) = listening {
        end(&mut child);
        return Err(Silent::NotStarted(error));
    }
    let Some(status) = wait(&mut child, limit).map_err(Silent::NotStarted)? else {
        end(&mut child);
        return Err(Silent::TooLong(limit));
    };
    let bytes = said.recv_timeout(LINGER).unwrap_or_default();
    Ok((status, String::from_utf8_lossy(&bytes).trim().to_owned()))
}

fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        let ended = child.try_wait()?;
        if ended.is_some() || start.elapsed() >= limit {
            return Ok(ended);
        }
        thread::sleep(LOOK);
    }
}

/// Kills the program and its group. The program has not been reaped, so its number is still its own.
fn end(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Result<(ExitStatus, String), Silent> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        run(command, limit)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_bounded_run_returns_all_output_and_the_exit_status() {
        let (status, said) = shell("echo one; echo two >&2; exit 3", LONG).expect("it ends");
        assert_eq!((status.code(), &*said), (Some(3), "one\ntwo"));
    }

    #[test]
    fn a_program_that_never_ends_is_ended() {
        let silent = shell("sleep 1000", Duration::from_millis(20)).expect_err("it does not end");
        assert!(matches!(silent, Silent::TooLong(_)), "{silent}");
    }

    #[test]
    fn a_program_that_never_stops_talking_is_not_listened_to_for_ever() {
        // SIGPIPE ends a program whose output is no longer read.
        let (status, said) = shell("exec yes", LONG).expect("it ends");
        assert!(!status.success() && said.len() as u64 <= LONGEST);
    }

    #[test]
    fn a_program_that_is_not_there_is_not_found() {
        let silent = run(Command::new("/no/such/program"), LONG).expect_err("it is not there");
        assert_eq!(silent.to_string(), "not found");
    }
}
