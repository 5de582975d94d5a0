//! The failure of a command: one text for the user, one exit code for programs.

use std::fmt;
use std::process::ExitCode;

use farjump::{ConnectError, Error, InjectError, WaitError};
use farjump_control::{ConnectError as NoConnection, HandshakeError};

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
Commands that were interrupted end with 128 and the signal's number.";

/// The exit code of a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// The command failed for a reason without a code of its own.
    Failed = 1,
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
}

impl Failure {
    /// A failure of no special kind. `text` is one sentence without a full stop, or another program's words.
    pub fn new(text: impl Into<String>) -> Failure {
        Failure { exit: Exit::Failed, text: text.into() }
    }

    /// A limitation that only a change of the machine removes. `text` as in [`Failure::new`].
    pub fn impossible(text: impl Into<String>) -> Failure {
        Failure { exit: Exit::Impossible, text: text.into() }
    }

    /// A failure with this exit code. `text` as in [`Failure::new`].
    pub fn with_exit(exit: Exit, text: impl Into<String>) -> Failure {
        Failure { exit, text: text.into() }
    }

    /// Returns the exit code.
    pub fn exit(&self) -> Exit {
        self.exit
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let exit = match &error {
            Error::Call(_) | Error::Inject(InjectError::OverLimit { .. }) => Exit::Refused,
            Error::Wait(WaitError::TimedOut { .. }) => Exit::TimedOut,
            Error::Wait(WaitError::PeerGone { .. }) => Exit::NoTarget,
            Error::Connect(error) => of_connect(error),
            _ => Exit::Failed,
        };
        let text = in_flags(error.to_string());
        let text = match advice(&error) {
            Some(advice) => format!("{text} ({advice})"),
            None => text,
        };
        Failure { exit, text }
    }
}

/// Methods that errors of transports name, and the options for them of all commands that have a transport.
const OF_TRANSPORTS: [(&str, &str); 2] =
    [("BackendOptions::with_ucx_tcp", "--ucx-tcp"), ("verbs::choose_device", "--device")];

/// Names options of the program where `text`, an error of the library or a refusal of a target, names methods
/// of a target's builder, settings of a build or options of transports.
pub fn in_flags(mut text: String) -> String {
    for (method, option) in OF_TRANSPORTS {
        text = text.replace(method, option);
    }
    for (settings, command) in [("TargetBuilder::", "serve"), ("Options::", "build")] {
        let mut from = 0;
        while let Some(at) = text[from..].find(settings).map(|at| from + at) {
            let name = at + settings.len();
            let is_name = |letter: char| letter.is_ascii_lowercase() || letter == '_';
            let end = text[name..].find(|letter| !is_name(letter)).map_or(text.len(), |len| name + len);
            let flag = match &text[name..end] {
                "export_library" => "export".to_owned(),
                "mailbox_size" => "mailbox".to_owned(),
                "modes" => "mode".to_owned(),
                "rights" => "allow".to_owned(),
                "store_capacity" => "store-bytes --store-images".to_owned(),
                other => other.replace('_', "-"),
            };
            let option = format!("`farjump {command} --{flag}`");
            text.replace_range(at..end, &option);
            from = at + option.len();
        }
    }
    text
}

/// The part of the command line that mends an error. Errors of the library name methods at most.
fn advice(error: &Error) -> Option<&'static str> {
    const KEY: &str = "--key FILE on both sides";
    match error {
        Error::Connect(ConnectError::Connection(NoConnection::KeyMissing { .. })) => Some(KEY),
        Error::Connect(ConnectError::Handshake(error)) => match error {
            HandshakeError::KeyWanted { .. }
            | HandshakeError::KeyUnknown { .. }
            | HandshakeError::WrongKey { .. } => Some(KEY),
            HandshakeError::OwnerUnknown { .. } | HandshakeError::OwnUserUnknown { .. } => {
                Some("a key over TCP: --key FILE on both sides")
            }
            _ => None,
        },
        _ => None,
    }
}

/// The exit code of a failure to connect.
fn of_connect(error: &ConnectError) -> Exit {
    match error {
        ConnectError::Connection(error) => match error {
            NoConnection::Denied { .. } | NoConnection::NotWritable { .. } => Exit::Refused,
            NoConnection::TimedOut { .. } => Exit::TimedOut,
            NoConnection::NobodyListens { .. } | NoConnection::NoSocket { .. } => Exit::NoTarget,
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
            _ => Exit::Failed,
        },
        _ => Exit::Failed,
    }
}

impl From<farjump_loader::Error> for Failure {
    fn from(error: farjump_loader::Error) -> Failure {
        Failure::new(error.to_string())
    }
}

#[cfg(feature = "build")]
impl From<farjump::build::BuildError> for Failure {
    fn from(error: farjump::build::BuildError) -> Failure {
        Failure::new(in_flags(error.to_string()))
    }
}

#[cfg(feature = "build")]
impl From<farjump::inspect::InspectError> for Failure {
    fn from(error: farjump::inspect::InspectError) -> Failure {
        Failure::new(error.to_string())
    }
}
