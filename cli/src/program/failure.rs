//! The failure of a command: one text for the user, one exit code for programs.

use std::fmt;
use std::process::ExitCode;

use farjump::{ConnectError, Error, InjectError, ServeError, WaitError};
use farjump_control::{ConnectionError, HandshakeError, RejectCause};

use crate::program::rust_names::in_flags;

/// Exit codes, as the long help shows them.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  it worked
  1  it failed
  2  the command line is wrong
  3  the target refused the function or the connection, or the function called farjump_panic
  4  a time limit passed
  5  there is no target at the address, or it ended before it replied
  6  farjump cannot work on this machine: `doctor` found something impossible
Commands that were interrupted end with 128 and the signal's number. With --json, the last line of standard
error is an object with the error of a command that failed, and its exit code: {\"error\": TEXT, \"exit\": N}.";

/// The exit code of a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// The command failed for a reason without a code of its own.
    Failed = 1,
    /// The command line makes no sense, whatever this machine and its files are.
    Usage = 2,
    /// The target refused the function or the connection, or the function panicked.
    Refused = 3,
    /// A time limit passed.
    TimedOut = 4,
    /// No target listens at the address, or the target ended before it replied.
    NoTarget = 5,
    /// This machine cannot run farjump.
    Impossible = 6,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// The failure of a command.
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    text: String,
    /// Whether another transport may be the remedy.
    is_about_transport: bool,
}

impl Failure {
    /// Makes a failure of no special kind. `text` is one sentence without a full stop, or another program's words. Rust
    /// names in it become options ([`in_flags`]).
    pub fn new(text: impl Into<String>) -> Failure {
        Failure::with_exit(Exit::Failed, text)
    }

    /// Makes the failure of a command line that makes no sense, beyond the errors that clap finds. `text` as in
    /// [`Failure::new`].
    pub fn usage(text: impl Into<String>) -> Failure {
        Failure::with_exit(Exit::Usage, text)
    }

    /// Returns the same failure, of a command line that makes no sense.
    pub fn of_command_line(self) -> Failure {
        Failure { exit: Exit::Usage, ..self }
    }

    /// Makes the failure of a limitation that only a change of the machine removes. `text` as in [`Failure::new`].
    pub fn impossible(text: impl Into<String>) -> Failure {
        Failure::with_exit(Exit::Impossible, text)
    }

    /// Makes a failure with this exit code. `text` as in [`Failure::new`].
    pub fn with_exit(exit: Exit, text: impl Into<String>) -> Failure {
        Failure { exit, text: in_flags(text), is_about_transport: false }
    }

    /// Returns the failure for programs, as the command with `--json` ends standard error with it.
    pub fn to_json(&self) -> String {
        error_as_json(&self.text, self.exit)
    }

    /// Puts these words before the text.
    pub fn behind(self, words: &str) -> Failure {
        Failure { text: format!("{words}: {}", self.text), ..self }
    }

    /// Puts `words` for the place of a value before the text, unless that has the place's `name`.
    pub fn blaming(self, name: &str, words: &str) -> Failure {
        if self.text.contains(name) { self } else { self.behind(words) }
    }

    /// Returns whether the text has this value as a whole word.
    pub fn quotes(&self, value: &str) -> bool {
        let is_part = |letter: char| letter.is_alphanumeric() || "-_.".contains(letter);
        let is_word = |at: usize| {
            !self.text[..at].ends_with(is_part) && !self.text[at + value.len()..].starts_with(is_part)
        };
        !value.is_empty() && self.text.match_indices(value).any(|(at, _)| is_word(at))
    }

    /// Returns the exit code.
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// Returns whether the requested transport cannot be used, or not at this address.
    pub fn is_about_transport(&self) -> bool {
        self.is_about_transport
    }
}

/// Returns the object that ends standard error of a failed command with `--json`, in one line.
pub fn error_as_json(text: &str, exit: Exit) -> String {
    serde_json::json!({ "error": text, "exit": exit as u8 }).to_string()
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let exit = match &error {
            Error::Config(_) => Exit::Usage,
            Error::Call(_) | Error::Inject(InjectError::OverLimit { .. }) => Exit::Refused,
            Error::Wait(WaitError::TimedOut { .. }) => Exit::TimedOut,
            Error::Wait(WaitError::PeerGone { .. }) => Exit::NoTarget,
            Error::Connect(error) => of_connect(error),
            Error::Serve(error) => of_serve(error),
            Error::Library(error) => of_library(error),
            _ => Exit::Failed,
        };
        let text = match advice(&error) {
            Some(advice) => format!("{error} ({advice})"),
            None => error.to_string(),
        };
        let is_about_transport = is_about_transport(&error);
        Failure { is_about_transport, ..Failure::with_exit(exit, text) }
    }
}

/// Returns whether the requested transport cannot be used, or not at this address.
fn is_about_transport(error: &Error) -> bool {
    let Error::Connect(error) = error else { return false };
    match error {
        ConnectError::Unavailable(_) => true,
        ConnectError::Handshake(error) => matches!(
            error,
            HandshakeError::NeedsUnixSocket { .. }
                | HandshakeError::Refused { cause: RejectCause::NoCommonTransport, .. }
        ),
        _ => false,
    }
}

/// Returns the part of the command line that mends an error. Errors of the library name methods at most.
fn advice(error: &Error) -> Option<&'static str> {
    const KEY: &str = "--key-file FILE on both sides";
    match error {
        Error::Connect(ConnectError::Connection(ConnectionError::KeyMissing { .. })) => Some(KEY),
        Error::Connect(ConnectError::Handshake(
            HandshakeError::KeyWanted { .. }
            | HandshakeError::KeyUnknown { .. }
            | HandshakeError::WrongKey { .. },
        )) => Some(KEY),
        _ => None,
    }
}

/// Returns the exit code of a failure to connect.
fn of_connect(error: &ConnectError) -> Exit {
    match error {
        ConnectError::Connection(error) => match error {
            ConnectionError::Denied { .. } | ConnectionError::NotWritable { .. } => Exit::Refused,
            ConnectionError::TimedOut { .. } => Exit::TimedOut,
            ConnectionError::NotListening { .. } | ConnectionError::NoSocket { .. } => Exit::NoTarget,
            _ => Exit::Failed,
        },
        ConnectError::Handshake(error) => match error {
            HandshakeError::Refused { .. }
            | HandshakeError::OtherUser { .. }
            | HandshakeError::OwnerUnknown { .. }
            | HandshakeError::OwnUserUnknown { .. }
            | HandshakeError::KeyWanted { .. }
            | HandshakeError::KeyUnknown { .. }
            | HandshakeError::WrongKey { .. } => Exit::Refused,
            HandshakeError::TimedOut { .. } => Exit::TimedOut,
            HandshakeError::PeerGone { .. }
            | HandshakeError::CutShort { .. }
            | HandshakeError::Silent { .. } => Exit::NoTarget,
            // The transport that was named never leads to such an address.
            HandshakeError::NeedsUnixSocket { .. } => Exit::Usage,
            _ => Exit::Failed,
        },
        ConnectError::Unavailable(farjump_transports::Error::UnknownTransport { .. })
        | ConnectError::MailboxSize { .. } => Exit::Usage,
        _ => Exit::Failed,
    }
}

/// Returns the exit code of a target that could not be made. Limits that contradict each other do so on each machine.
fn of_serve(error: &ServeError) -> Exit {
    match error {
        ServeError::Limit { .. } | ServeError::InPlaceOfAllowed | ServeError::ForwardMode { .. } => {
            Exit::Usage
        }
        _ => Exit::Failed,
    }
}

/// Returns the exit code of an error about a library or its code.
fn of_library(error: &farjump_loader::Error) -> Exit {
    match error {
        farjump_loader::Error::ArenaLength { .. } => Exit::Usage,
        _ => Exit::Failed,
    }
}

impl From<farjump_loader::Error> for Failure {
    fn from(error: farjump_loader::Error) -> Failure {
        Failure::with_exit(of_library(&error), error.to_string())
    }
}

#[cfg(feature = "build")]
impl From<farjump::build::BuildError> for Failure {
    fn from(error: farjump::build::BuildError) -> Failure {
        use farjump::build::BuildError::{Name, TargetTwice};
        let exit = match &error {
            Name { .. } | TargetTwice { .. } => Exit::Usage,
            _ => Exit::Failed,
        };
        Failure::with_exit(exit, error.to_string())
    }
}

#[cfg(feature = "build")]
impl From<farjump::inspect::InspectError> for Failure {
    fn from(error: farjump::inspect::InspectError) -> Failure {
        Failure::new(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_value_is_a_whole_word_of_the_text() {
        let quotes = |text: &str| Failure::new(text).quotes("farm.key");
        assert!(quotes("reading farm.key failed") && quotes("reading `keys/farm.key` failed"));
        assert!(
            !quotes("reading my-farm.key failed") && !quotes("it failed") && !quotes("farm.key.old is there")
        );
        let blamed = Failure::new("no").blaming("FARJUMP_KEY_FILE", "FARJUMP_KEY_FILE=farm.key").to_string();
        assert_eq!(blamed, "FARJUMP_KEY_FILE=farm.key: no");
        assert_eq!(Failure::new("KEY is wrong").blaming("KEY", "KEY=x").to_string(), "KEY is wrong");
    }

    #[test]
    fn an_error_about_keys_has_one_remedy() {
        let peer = || "farjump (pid 7)".to_owned();
        let address = "tcp:192.0.2.1:7471".parse().expect("it is an address");
        let errors = [
            Error::from(ConnectionError::KeyMissing { address }),
            HandshakeError::KeyWanted { peer: peer() }.into(),
            HandshakeError::KeyUnknown { peer: peer() }.into(),
            HandshakeError::WrongKey { peer: peer() }.into(),
            HandshakeError::OwnerUnknown { peer: peer() }.into(),
        ];
        for error in errors {
            let text = Failure::from(error).to_string().replace(&peer(), "");
            assert_eq!(text.matches('(').count(), 1, "{text}");
            assert!(
                text.ends_with("(--key-file FILE on both sides)") || text.ends_with("(`farjump key FILE`)"),
                "{text}"
            );
        }
    }
}
