//! What the two processes say to each other between measurements: one JSON value a line.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::baselines::ring::Layout;
use super::work::{Task, Way};
use crate::program::failure::Failure;

/// How long the other process may take to get ready for something.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is measured, and needs the other process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Subject {
    /// farjump, over a transport.
    Farjump(String),
    Raw,
    /// A stream over TCP, sealed or not.
    Stream {
        sealed: bool,
    },
    UcxAm,
    /// The same, over TCP alone.
    UcxAmTcp,
    UcxStores,
    UcxPut,
    /// One function's work, done in one way.
    Work(Task),
    /// A target of farjump's over a transport, for so many sources, whose socket has this name.
    Crowd {
        transport: String,
        socket: String,
        sources: usize,
    },
    Iceoryx2,
}

impl Subject {
    /// Whether it is farjump itself, over a transport.
    pub(super) fn is_farjump(&self) -> bool {
        matches!(
            self,
            Subject::Farjump(_) | Subject::Crowd { .. } | Subject::Work(Task { way: Way::Injected(_), .. })
        )
    }

    /// Whether it is UCX's active messages.
    #[cfg(feature = "ucx")]
    pub(super) fn is_messages(&self) -> bool {
        matches!(self, Subject::UcxAm | Subject::Work(Task { way: Way::Messages, .. }))
    }
}

/// What sleeps until it is woken.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Sleeper {
    /// A target of farjump's for so many sources, over a transport, whose socket has this name.
    Farjump {
        transport: String,
        socket: String,
        sources: usize,
    },
    Futex,
    UcxWait,
}

/// What a side of a reference tells the other; empty for those that need nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Offer {
    /// By which UCX reaches its worker.
    pub(super) worker: Vec<u8>,
    /// By which UCX reaches its memory, and where that begins.
    pub(super) key: Vec<u8>,
    pub(super) start: u64,
    /// Where it listens.
    pub(super) address: Option<SocketAddr>,
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
    /// Be a source too: of the target whose socket has this name, over this transport.
    Connect { socket: String, transport: String },
    /// Be this, until the end.
    Sleep(Sleeper),
    /// Send so many messages of `size` bytes as a source.
    Send { size: usize, count: u64 },
}

/// What is set up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Set {
    pub(super) subjects: Vec<Subject>,
    /// Processor to run on.
    pub(super) cpu: usize,
    /// Bytes of mailboxes.
    pub(super) ring: usize,
    /// Whether farjump's targets sleep where nothing comes.
    pub(super) sleeps: bool,
    /// Of the references' rings.
    pub(super) layout: Layout,
    /// Where sockets are made.
    pub(super) folder: PathBuf,
    /// The address at which targets and references listen that are on TCP.
    pub(super) host: String,
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
    /// It has stopped.
    Played(Played),
    /// What was timed, in nanoseconds.
    Timed(u64),
    /// It could not do as it was told, and ends.
    Failed(String),
    /// It is a source now.
    Connected,
    /// It has sent, and all has run.
    Sent(Sent),
}

/// What came of serving.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Played {
    /// Messages that were counted.
    pub(super) counted: u64,
    /// Processor time that it took, in nanoseconds. To wait takes as much.
    pub(super) cpu: u64,
}

/// Messages that a source sent and that have run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Sent {
    /// When the first was sent, in nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share.
    pub(super) start: u64,
    /// When the last had run, likewise.
    pub(super) end: u64,
    /// Processor time that the source took for them, in nanoseconds.
    pub(super) cpu: u64,
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
