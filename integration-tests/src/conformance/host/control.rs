//! Commands of a check to a target besides injecting: lines over a stream of their own.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use super::{PATIENCE, Stream};
use crate::conformance::failure::{Failure, ensure};

/// A command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    /// Responds with the address once the target listens.
    Ready,
    /// The word at `target_args`.
    Word,
    /// Drops this code; responds with 1 if it was in the store.
    DropCode([u8; 16]),
    /// The counters.
    Counts,
    /// The output of injected code.
    Printed,
    /// Ends at once, as if killed: there is no response.
    Die,
}

impl Command {
    fn to_line(self) -> String {
        match self {
            Command::Ready => "ready".into(),
            Command::Word => "word".into(),
            Command::DropCode(id) => format!("forget {:032x}", u128::from_be_bytes(id)),
            Command::Counts => "counts".into(),
            Command::Printed => "printed".into(),
            Command::Die => "die".into(),
        }
    }

    fn parse(line: &str) -> Option<Command> {
        Some(match line {
            "ready" => Command::Ready,
            "word" => Command::Word,
            "counts" => Command::Counts,
            "printed" => Command::Printed,
            "die" => Command::Die,
            _ => {
                let id = u128::from_str_radix(line.strip_prefix("forget ")?, 16).ok()?;
                Command::DropCode(id.to_be_bytes())
            }
        })
    }
}

/// The counters of a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Counts {
    pub(crate) calls: u64,
    pub(crate) images: u64,
    pub(crate) links: u64,
    pub(crate) refusals: u64,
    pub(crate) sources: u64,
}

impl Counts {
    pub(super) fn to_lines(self) -> Vec<String> {
        [self.calls, self.images, self.links, self.refusals, self.sources]
            .map(|count| count.to_string())
            .into()
    }

    pub(super) fn parse(lines: &[String]) -> Result<Counts, Failure> {
        let counts: Vec<u64> = lines.iter().map(|line| line.parse()).collect::<Result<_, _>>()?;
        match counts[..] {
            [calls, images, links, refusals, sources] => {
                Ok(Counts { calls, images, links, refusals, sources })
            }
            _ => Err(Failure::new(format!("the target counted {counts:?}"))),
        }
    }
}

/// The end that sends commands.
pub(crate) struct Commands {
    stream: BufReader<Stream>,
}

impl Commands {
    pub(crate) fn new(stream: Stream) -> Result<Commands, Failure> {
        stream.set_read_timeout(PATIENCE)?;
        Ok(Commands { stream: BufReader::new(stream) })
    }

    /// Sends a command, and waits for the lines of the response.
    pub(crate) fn request(&mut self, command: &Command) -> Result<Vec<String>, Failure> {
        let gone = |error: std::io::Error| Failure::new(format!("the target does not respond: {error}"));
        writeln!(self.stream.get_mut(), "{}", command.to_line()).map_err(gone)?;
        let count: usize = self.line().map_err(gone)?.parse()?;
        (0..count).map(|_| self.line().map_err(gone)).collect()
    }

    /// Makes a target on another machine die, and waits until nothing of it is left.
    pub(crate) fn die(mut self) -> Result<(), Failure> {
        let reply = writeln!(self.stream.get_mut(), "{}", Command::Die.to_line()).and_then(|()| self.line());
        let reply = reply.map_err(|error| Failure::new(format!("a target that was to die: {error}")))?;
        ensure!(reply.starts_with("ended: signal: 9"), "a target that was to die {reply}");
        Ok(())
    }

    /// Ends the commands to a target on another machine, and waits until it has ended properly.
    pub(crate) fn end(mut self) -> Result<(), Failure> {
        let reply = self.stream.get_ref().finish().and_then(|()| self.line());
        let reply = reply.map_err(|error| Failure::new(format!("the end of a target: {error}")))?;
        ensure!(reply == "ended: played", "the target's process {reply}");
        Ok(())
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end_matches('\n').to_owned())
    }
}

/// The end that responds, which never waits.
pub(crate) struct CommandReceiver {
    stream: Stream,
    line: Vec<u8>,
}

/// The received command.
pub(crate) enum Received {
    Nothing,
    Command(Command),
    /// The end that sends commands is gone.
    End,
}

impl CommandReceiver {
    pub(crate) fn new(stream: Stream) -> Result<CommandReceiver, Failure> {
        stream.set_nonblocking(true)?;
        Ok(CommandReceiver { stream, line: Vec::new() })
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Polls for a command.
    pub(crate) fn look(&mut self) -> Result<Received, Failure> {
        // There is one command at a time, so nothing comes behind its end.
        let mut bytes = [0; 128];
        match self.stream.read(&mut bytes) {
            Ok(0) => return Ok(Received::End),
            Ok(len) => self.line.extend(&bytes[..len]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Received::Nothing),
            // The other end was killed with a command open.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(Received::End),
            Err(error) => return Err(error.into()),
        }
        let Some(line) = self.line.strip_suffix(b"\n") else { return Ok(Received::Nothing) };
        let line = String::from_utf8_lossy(line).into_owned();
        self.line.clear();
        let command = Command::parse(&line);
        ensure!(command.is_some(), "asked {line:?}");
        Ok(command.map_or(Received::Nothing, Received::Command))
    }

    /// Responds to the command.
    pub(crate) fn respond(&mut self, lines: &[String]) -> Result<(), Failure> {
        let mut text = format!("{}\n", lines.len());
        for line in lines {
            text += line;
            text.push('\n');
        }
        self.stream.set_nonblocking(false)?;
        self.stream.write_all(text.as_bytes())?;
        Ok(self.stream.set_nonblocking(true)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_read_as_what_it_was() {
        let id = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255];
        let plain = [Command::Ready, Command::Word, Command::Counts, Command::Printed, Command::Die];
        for command in plain.into_iter().chain([Command::DropCode(id)]) {
            assert_eq!(Command::parse(&command.to_line()), Some(command));
        }
        assert_eq!(Command::parse("forget x"), None);
    }
}
