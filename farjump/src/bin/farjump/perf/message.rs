//! What the two processes say to each other between measurements: one JSON value a line.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::work::{Task, Way};
use crate::failure::Failure;

/// How long the other process may take to get ready for something.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is measured, and needs the other process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Subject {
    /// farjump, over a transport.
    Farjump(String),
    Raw,
    UcxAm,
    UcxStores,
    UcxPut,
    /// One function's work, done in one way.
    Work(Task),
}

impl Subject {
    /// Whether it is farjump itself, over a transport.
    pub(super) fn is_farjump(&self) -> bool {
        matches!(self, Subject::Farjump(_) | Subject::Work(Task { way: Way::Injected(_), .. }))
    }

    /// Whether it is UCX's active messages.
    #[cfg(feature = "ucx")]
    pub(super) fn is_messages(&self) -> bool {
        matches!(self, Subject::UcxAm | Subject::Work(Task { way: Way::Messages, .. }))
    }
}

/// What a side of a reference tells the other; empty for those that need nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Offer {
    /// By which UCX reaches its worker.
    pub(super) worker: Vec<u8>,
    /// By which UCX reaches its memory, and where that begins.
    pub(super) key: Vec<u8>,
    pub(super) start: u64,
}

/// To the other process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Make your side of all of these.
    Set(Set),
    /// The source's sides: `None` where it has none.
    Join(Vec<Option<Offer>>),
    /// Serve a subject until the memory says stop.
    Play { subject: usize, size: usize, streams: bool, expected: u64 },
    /// Time the first call that comes to a subject's target, which adds `adds` to the count.
    First { subject: usize, adds: u64 },
    /// Time loading this library and calling its function `symbol`, which adds `adds` to a number.
    Load { library: PathBuf, symbol: String, adds: u64 },
    /// End.
    End,
}

/// What is set up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Set {
    pub(super) subjects: Vec<Subject>,
    /// Processor to run on.
    pub(super) cpu: usize,
    /// Bytes of mailboxes.
    pub(super) ring: usize,
    /// Bytes of the references' memory.
    pub(super) region: usize,
    /// The longest payload.
    pub(super) longest: usize,
    /// Where sockets are made.
    pub(super) folder: PathBuf,
    /// The library of `counter`.
    pub(super) counter: PathBuf,
}

/// From the other process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// Its sides, or why there is none.
    Made(Vec<Result<Offer, String>>),
    /// Which of them are connected, or why not.
    Joined(Vec<Result<(), String>>),
    /// It serves now, or times what comes.
    Playing,
    /// It has stopped, and counted so many.
    Played(u64),
    /// What was timed, in nanoseconds.
    Timed(u64),
    /// It could not do as it was told, and ends.
    Failed(String),
}

/// One end of the conversation.
pub(super) struct Talk {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
}

impl Talk {
    pub(super) fn new(socket: UnixStream) -> std::io::Result<Talk> {
        let writer = socket.try_clone()?;
        Ok(Talk { reader: BufReader::new(socket), writer })
    }

    /// Waits no longer than anything takes for what comes.
    pub(super) fn limit(&self) -> std::io::Result<()> {
        self.writer.set_read_timeout(Some(PATIENCE))
    }

    pub(super) fn say(&mut self, what: &impl Serialize) -> Result<(), Failure> {
        let mut line = serde_json::to_vec(what).map_err(|error| {
            Failure::new(format!("a message to the other process makes no sense: {error}"))
        })?;
        line.push(b'\n');
        self.writer
            .write_all(&line)
            .map_err(|error| Failure::new(format!("the other process is gone: {error}")))
    }

    /// What the other process says next; `None` at its end.
    pub(super) fn hear<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Failure> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => Ok(None),
            Ok(_) => serde_json::from_str(&line).map(Some).map_err(|error| {
                Failure::new(format!(
                    "the other process said what makes no sense ({error}): {}",
                    line.trim_end()
                ))
            }),
            Err(error) => Err(Failure::new(format!("the other process says nothing: {error}"))),
        }
    }
}
