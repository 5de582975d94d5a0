//! Messages between the two processes, outside measurements: one JSON value a line.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use farjump::WaitPolicy;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::perf::experiments::baselines::ring::Layout;
use crate::perf::experiments::first_call;
use crate::perf::experiments::work::{Method, Task, resident};
use crate::perf::report::metric::Against;
use crate::program::failure::Failure;

/// Longest time for the other process to get ready.
const PATIENCE: Duration = Duration::from_secs(60);

/// An endpoint in the other process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(in crate::perf) enum EndpointSpec {
    /// A target of farjump's over a transport, for so many sources, with this socket name.
    Farjump {
        transport: String,
        socket: String,
        sources: usize,
    },
    /// Such a target for one source, which takes bitcode rather than images.
    Compiling {
        transport: String,
        socket: String,
    },
    Baseline(Against),
    /// One function's work, done in one way.
    Work(Task),
    /// Work on data that the target holds, done in one way.
    Resident(resident::Task),
}

impl Set {
    /// Returns the waiting of farjump's sources and targets. Where both have a processor of their own they
    /// poll all the time. Else they wait as they do in other programs.
    pub(in crate::perf) fn wait_policy(&self) -> Option<WaitPolicy> {
        match (self.sleeps, self.cpu) {
            (true, _) => Some(WaitPolicy::sleep_only()),
            (false, Some(_)) => Some(WaitPolicy::spin_only()),
            (false, None) => None,
        }
    }
}

impl EndpointSpec {
    /// Returns whether it is farjump itself, over a transport.
    pub(in crate::perf) fn is_farjump(&self) -> bool {
        matches!(
            self,
            EndpointSpec::Farjump { .. }
                | EndpointSpec::Compiling { .. }
                | EndpointSpec::Work(Task { method: Method::Injected(_), .. })
                | EndpointSpec::Resident(resident::Task { method: resident::Method::Injected(_), .. })
        )
    }
}

/// Data that a baseline's endpoint needs of its peer; empty where it needs none.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(in crate::perf) struct Offer {
    /// Address of its UCX worker.
    pub(in crate::perf) worker: Vec<u8>,
    /// UCX's key to its memory, and the start of that memory.
    pub(in crate::perf) key: Vec<u8>,
    pub(in crate::perf) start: u64,
    /// The address at which it listens.
    pub(in crate::perf) address: Option<SocketAddr>,
}

/// A command to the other process. Its reply is `Ok` with the value stated here, or `Err` with the reason why the
/// process failed and ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::perf) enum Order {
    /// Open your endpoints of all of these. The reply has their offers, or the reason why each is missing.
    Set(Set),
    /// Connect to the source's endpoints: `None` where it has none. The reply has the success of each.
    Join(Vec<Option<Offer>>),
    /// Hold data of `size` bytes for this function. The reply is nothing.
    Hold { query: resident::Query, size: usize },
    /// Serve an endpoint until the shared memory says stop. Two replies: nothing, and [`Played`] at the end.
    Play { endpoint: usize, size: usize, streams: bool, expected: u64 },
    /// Time the next calls that reach an endpoint's target, which add these numbers to the count. Two replies:
    /// nothing, and the nanoseconds of each.
    First { endpoint: usize, adds: Vec<u64> },
    /// Time loading each of these libraries and calling its function. The reply has the nanoseconds of each.
    Load(Vec<first_call::Loaded>),
    /// End, without a reply.
    End,
    /// Become a source too: of the target with this socket name, over this transport.
    Connect { socket: String, transport: String },
    /// Become this endpoint, which sleeps until it is woken, to the end. The reply has its offer, or the
    /// reason why it is missing.
    Sleep(EndpointSpec),
    /// Become this shard of a chase, which sleeps until messages come, to the end. The reply is nothing.
    Shard(ShardSpec),
    /// As a shard, model a wire with this latency in nanoseconds. The reply is nothing.
    Wire(u64),
    /// As a shard, count the messages that have been handled so far. The reply is their number.
    Handled,
    /// Send this many messages of `size` bytes as a source. The reply is [`Sent`].
    Send { size: usize, count: u64 },
}

/// The parameters of the setup.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::perf) struct Set {
    pub(in crate::perf) endpoints: Vec<EndpointSpec>,
    /// Processor to run on; `None` if the system chooses.
    pub(in crate::perf) cpu: Option<usize>,
    /// Bytes of mailboxes.
    pub(in crate::perf) ring: usize,
    /// Whether farjump's targets sleep while nothing comes.
    pub(in crate::perf) sleeps: bool,
    /// The layout of the baselines' rings.
    pub(in crate::perf) layout: Layout,
    /// The folder of sockets.
    pub(in crate::perf) folder: PathBuf,
    /// The address of targets and baselines on TCP.
    pub(in crate::perf) host: String,
    /// The library of `counter`.
    pub(in crate::perf) counter: PathBuf,
}

/// A shard of a chase, and the other places there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(in crate::perf) struct ShardSpec {
    pub(in crate::perf) transport: String,
    /// Distinguishes the sockets of this contestant.
    pub(in crate::perf) contestant: usize,
    /// The number of this shard, of so many.
    pub(in crate::perf) shard: usize,
    pub(in crate::perf) shards: usize,
    /// Logarithm of the words of a shard.
    pub(in crate::perf) log2: u32,
}

/// The result of serving.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(in crate::perf) struct Played {
    /// Messages counted.
    pub(in crate::perf) counted: u64,
    /// Processor time used, in nanoseconds. Polling uses as much as work.
    pub(in crate::perf) cpu: u64,
    /// The processor at the end.
    pub(in crate::perf) processor: usize,
    /// The number of times that it yielded its processor to a source that waits there.
    pub(in crate::perf) yields: u64,
}

/// Messages sent by a source, all of which have run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(in crate::perf) struct Sent {
    /// Start of the first send, in nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share.
    pub(in crate::perf) start: u64,
    /// End of the last one's run, likewise.
    pub(in crate::perf) end: u64,
    /// Processor time that the source used for them, in nanoseconds.
    pub(in crate::perf) cpu: u64,
}

/// One endpoint of the conversation.
pub(in crate::perf) struct Talk {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
}

impl Talk {
    pub(in crate::perf) fn new(socket: UnixStream) -> std::io::Result<Talk> {
        let writer = socket.try_clone()?;
        Ok(Talk { reader: BufReader::new(socket), writer })
    }

    /// Sets a read timeout longer than any command takes.
    pub(in crate::perf) fn limit(&self) -> std::io::Result<()> {
        self.writer.set_read_timeout(Some(PATIENCE))
    }

    pub(in crate::perf) fn say(&mut self, what: &impl Serialize) -> Result<(), Failure> {
        let mut line = serde_json::to_vec(what).map_err(|error| {
            Failure::new(format!("a message to the other process cannot be encoded: {error}"))
        })?;
        line.push(b'\n');
        self.writer
            .write_all(&line)
            .map_err(|error| Failure::new(format!("the other process is gone: {error}")))
    }

    /// Replies to a command.
    pub(in crate::perf) fn reply(&mut self, value: impl Serialize) -> Result<(), Failure> {
        self.say(&Ok::<_, String>(value))
    }

    /// Returns the next message of the other process; `None` at the end of the stream.
    pub(in crate::perf) fn hear<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Failure> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => Ok(None),
            Ok(_) => serde_json::from_str(&line).map(Some).map_err(|error| {
                Failure::new(format!(
                    "the other process sent an unknown message ({error}): {}",
                    line.trim_end()
                ))
            }),
            Err(error) => Err(Failure::new(format!("no message from the other process: {error}"))),
        }
    }
}
