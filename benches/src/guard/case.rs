//! The counted cases: calls of one kind over one transport, and their operations.

use farjump::Mode;
use farjump::transports::available;
use serde::{Deserialize, Serialize};

use crate::Failure;

/// Mode, and bytes of payload.
const KINDS: [(Mode, usize); 4] =
    [(Mode::Cached, 8), (Mode::Cached, 64), (Mode::Cached, 1024), (Mode::Always, 8)];
/// The transport over which objects are got, with the owner's memory mapped.
const MAPPED: &str = "shm";
/// Bytes of the object that is got.
const OBJECT: usize = 64;

/// Calls of one kind over one transport.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Case {
    /// The transport's name.
    pub(crate) transport: String,
    pub(crate) mode: Mode,
    /// Bytes of payload.
    pub(crate) size: usize,
}

/// The cases of this machine.
pub(crate) struct Cases {
    pub(crate) usable: Vec<Case>,
    /// The other transports, each with the reason against it.
    pub(crate) unusable: Vec<(&'static str, String)>,
}

/// Largest payload of counted batches, in bytes: larger payloads share no frame.
const BATCHED: usize = 256;

/// Returns whether batches of such calls are counted too. Calls that share no frame cost the same in a batch. Over a
/// device one poll may find any number of a batch's frames.
pub(crate) fn has_batches(transport: &str, mode: Mode, size: usize) -> bool {
    mode == Mode::Cached && size <= BATCHED && !is_by_device(transport)
}

/// Returns whether calls of this mode are those by which a client gets an object of a store.
pub(crate) fn gets(mode: Mode) -> bool {
    mode == Mode::Local
}

/// Returns whether a device moves the transport's frames. They arrive some time after they were sent, so a round
/// trip would count polls that find nothing.
pub(crate) fn is_by_device(transport: &str) -> bool {
    transport.starts_with("verbs-")
}

impl Case {
    /// Returns the operations that are counted.
    pub(crate) fn operations(&self) -> impl Iterator<Item = MeasuredOperation> + use<> {
        let gets = gets(self.mode);
        let batches = has_batches(&self.transport, self.mode, self.size);
        let round_trips = !is_by_device(&self.transport);
        MeasuredOperation::ALL.into_iter().filter(move |operation| match operation {
            MeasuredOperation::Get => gets,
            _ if gets => false,
            MeasuredOperation::RoundTrip => round_trips,
            operation => batches || !operation.is_batch(),
        })
    }

    /// Returns the cases of the transports in `asked`, or of all.
    ///
    /// # Errors
    /// A transport in `asked` is unknown or unusable.
    pub(crate) fn all(asked: &[String]) -> Result<Cases, Failure> {
        let backends = available();
        let mut cases = Cases { usable: Vec::new(), unusable: Vec::new() };
        for name in asked {
            match backends.iter().find(|backend| backend.name == name).map(|backend| &backend.usable) {
                Some(Ok(_)) => {}
                Some(Err(why)) => return Err(format!("{name} cannot be used here: {why}").into()),
                None => {
                    let names: Vec<_> = backends.iter().map(|backend| backend.name).collect();
                    return Err(format!("there is no transport `{name}`: give {}", names.join(", ")).into());
                }
            }
        }
        for backend in backends {
            if !asked.is_empty() && !asked.iter().any(|name| name == backend.name) {
                continue;
            }
            match backend.usable {
                Ok(_) => {
                    let objects = (backend.name == MAPPED).then_some((Mode::Local, OBJECT));
                    cases.usable.extend(KINDS.into_iter().chain(objects).map(|(mode, size)| Case {
                        transport: backend.name.to_owned(),
                        mode,
                        size,
                    }));
                }
                Err(why) => cases.unusable.push((backend.name, why)),
            }
        }
        Ok(cases)
    }
}

/// The arguments of the counted process.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Counted {
    /// The transport's name.
    pub(crate) transport: String,
    /// The mode's name.
    pub(crate) mode: Mode,
    /// Bytes of payload.
    pub(crate) size: usize,
    /// Number of counted calls.
    pub(crate) turns: u32,
    /// Turns of an additional empty loop.
    pub(crate) burden: u32,
    /// Number of functions of which each is called once, instead of the calls above.
    #[arg(long, default_value_t = 0)]
    pub(crate) first: u32,
}

/// The operation that a figure belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) enum MeasuredOperation {
    /// `Link::send`, at the source.
    #[serde(rename = "send")]
    Send,
    /// `Target::poll` that runs a sent call.
    #[serde(rename = "poll")]
    Poll,
    /// `Link::inject`, `Target::poll` and `Pending::wait`: both processes' parts together.
    #[serde(rename = "round trip")]
    RoundTrip,
    /// `Link::batch` with [`BATCH`] calls, at the source: all of them together.
    #[serde(rename = "batch")]
    Batch,
    /// `Target::poll` that runs a batch.
    #[serde(rename = "poll batch")]
    PollBatch,
    /// `Client::get` of an object in mapped memory, and the drop of its view: the source's part and the store's together.
    #[serde(rename = "get")]
    Get,
    /// `Target::poll` that receives code never seen, links it and runs it. Not recorded: its number of lines
    /// depends on the keys of hash tables.
    #[serde(rename = "first call")]
    FirstCall,
}

/// Calls in a batch.
pub(crate) const BATCH: u32 = 16;

impl MeasuredOperation {
    /// All recorded operations, in display order.
    pub(crate) const ALL: [MeasuredOperation; 6] = [
        MeasuredOperation::Send,
        MeasuredOperation::Poll,
        MeasuredOperation::RoundTrip,
        MeasuredOperation::Batch,
        MeasuredOperation::PollBatch,
        MeasuredOperation::Get,
    ];

    /// Returns whether it begins with a frame that was sent before.
    pub(crate) fn receives(self) -> bool {
        matches!(self, MeasuredOperation::Poll | MeasuredOperation::PollBatch)
    }

    fn is_batch(self) -> bool {
        matches!(self, MeasuredOperation::Batch | MeasuredOperation::PollBatch)
    }
}

impl std::fmt::Display for MeasuredOperation {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.pad(match self {
            MeasuredOperation::Send => "send",
            MeasuredOperation::Poll => "poll",
            MeasuredOperation::RoundTrip => "round trip",
            MeasuredOperation::Batch => "batch",
            MeasuredOperation::PollBatch => "poll batch",
            MeasuredOperation::Get => "get",
            MeasuredOperation::FirstCall => "first call",
        })
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}, {}, {} B", self.transport, self.mode, self.size)
    }
}
