//! A stream of frames whose bytes the receiver can compute: number and seed determine everything about a frame.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use farjump_core::channel::{Channel, Polled, Received, Reserved, SendError};
use farjump_core::frame::{Kind, MAX_NAME, Plan, PlanCode};
use farjump_core::image::CodeId;
use farjump_core::transport::{ArrivalRules, TransportError};

use crate::conformance::failure::{Failure, ensure};
use crate::conformance::pattern;

/// Time without any movement after which a stream counts as stuck.
const PATIENCE: Duration = Duration::from_secs(20);
/// Polls that compute the sum of a frame of 16 MiB twice, and save up for it.
const LOOKS: u32 = 8192;
/// Value of the unused bytes of a payload's space.
const UNUSED: u8 = 0xee;
/// Time that a byte may take to arrive after its frame counted as arrived.
pub(super) const LATE: Duration = Duration::from_secs(1);
const OTHER_FAILED: &str = "the other end failed";
const NAMES: [&str; 3] =
    ["", "stream", "a-name-that-takes-more-than-a-line-by-itself-to-write-down-completely"];

/// The style of a stream's frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style<'a> {
    pub(super) seed: u64,
    /// Lengths of payloads to draw from.
    pub(super) sizes: &'a [usize],
    /// True if some frames carry code, request alignment, and use less than they reserved.
    pub(super) varied: bool,
}

/// All properties of one frame.
struct Shape {
    kind: Kind,
    wants_reply: bool,
    alone: bool,
    index: u16,
    token: u32,
    align_log2: u8,
    payload: usize,
    /// Bytes reserved beyond the payload.
    spare: usize,
    image: usize,
    name: &'static str,
    id: CodeId,
    epoch: u64,
    /// Whether one step sends it from bytes elsewhere.
    in_one: bool,
}

impl Style<'_> {
    fn shape(&self, number: u64) -> Shape {
        let mut rng = fastrand::Rng::with_seed(pattern::word(!self.seed, number, 0));
        let payload = self.sizes[rng.usize(0..self.sizes.len())];
        let mut id = [0; 16];
        rng.fill(&mut id);
        let mut shape = Shape {
            kind: Kind::Call,
            wants_reply: rng.bool(),
            alone: rng.bool(),
            index: rng.u16(..),
            token: rng.u32(..),
            align_log2: 0,
            payload,
            spare: 0,
            image: 0,
            name: NAMES[rng.usize(0..NAMES.len())],
            id: CodeId(id),
            epoch: rng.u64(..),
            in_one: rng.bool(),
        };
        if self.varied {
            match rng.u8(0..16) {
                0 => (shape.kind, shape.image) = (Kind::CallCode, rng.usize(1..2000)),
                1 => shape.kind = Kind::CallId,
                2 | 3 => shape.align_log2 = rng.u8(3..=12),
                4 | 5 => shape.spare = rng.usize(1..200),
                _ => {}
            }
        }
        shape
    }
}

/// The image of a frame, different from its payload.
fn image(len: usize, seed: u64, number: u64) -> Vec<u8> {
    pattern::bytes(len, seed ^ 0x1111, number)
}

impl Shape {
    fn plan<'a>(&self, image: &'a [u8]) -> Plan<'a> {
        let code = PlanCode { image, id: self.id, epoch: self.epoch, name: self.name, family: None };
        Plan {
            kind: self.kind,
            wants_reply: self.wants_reply,
            alone: self.alone,
            travelled: false,
            index: self.index,
            token: self.token,
            align_log2: self.align_log2,
            code: self.kind.names_code().then_some(code),
        }
    }
}

/// The sending end of a stream.
pub(super) struct Sender<'a> {
    style: Style<'a>,
    number: u64,
    /// True if the frame is finished and kept, because the backend could not take it.
    made: bool,
}

impl<'a> Sender<'a> {
    pub(super) fn new(style: Style<'a>) -> Self {
        Sender { style, number: 0, made: false }
    }

    /// Frames sent.
    pub(super) fn sent(&self) -> u64 {
        self.number
    }

    /// Sends the next frame if that is possible now.
    pub(super) fn send(&mut self, channel: &mut Channel) -> Result<bool, Failure> {
        let shape = self.style.shape(self.number);
        let image = image(shape.image, self.style.seed, self.number);
        let plan = shape.plan(&image);
        if shape.in_one && shape.spare == 0 {
            return self.send_in_one(channel, &plan, shape.payload);
        }
        let space = if self.made {
            channel.kept().ok_or_else(|| Failure::new("a kept frame is gone"))?
        } else {
            match channel.reserve(&plan, shape.payload + shape.spare) {
                Ok(space) => self.fill(space, &shape)?,
                Err(SendError::Full) => return Ok(false),
                Err(error) => return Err(Failure::from(error).at(format!("reserving frame {}", self.number))),
            }
        };
        match space.commit(&plan, shape.payload) {
            Ok(()) => {
                self.made = false;
                self.number += 1;
                Ok(true)
            }
            Err(SendError::Full) => {
                self.made = true;
                Ok(false)
            }
            Err(error) => Err(Failure::from(error).at(format!("committing frame {}", self.number))),
        }
    }

    fn send_in_one(
        &mut self,
        channel: &mut Channel,
        plan: &Plan<'_>,
        payload: usize,
    ) -> Result<bool, Failure> {
        match channel.send_bytes(plan, &pattern::bytes(payload, self.style.seed, self.number)) {
            Ok(()) => {
                self.number += 1;
                Ok(true)
            }
            Err(SendError::Full) => Ok(false),
            Err(error) => Err(Failure::from(error).at(format!("sending frame {}", self.number))),
        }
    }

    fn fill<'c>(&self, space: Reserved<'c>, shape: &Shape) -> Result<Reserved<'c>, Failure> {
        ensure!(
            space.space() == shape.payload + shape.spare,
            "space for {} bytes was reserved and {} given",
            shape.payload + shape.spare,
            space.space()
        );
        let bytes = pattern::bytes(shape.payload, self.style.seed, self.number);
        // SAFETY: the channel lends `space` bytes at `payload`, and `slack` behind them, until the commit.
        unsafe {
            space.payload().copy_from_nonoverlapping(std::ptr::NonNull::from(&bytes[..]).cast(), bytes.len());
            let rest = space.payload().add(bytes.len());
            rest.write_bytes(UNUSED, space.space() - bytes.len() + space.slack());
        }
        Ok(space)
    }
}

/// The receiving end of a stream.
pub(super) struct Receiver<'a> {
    style: Style<'a>,
    number: u64,
    partial: u64,
    torn: bool,
}

impl<'a> Receiver<'a> {
    pub(super) fn new(style: Style<'a>) -> Self {
        Receiver { style, number: 0, partial: 0, torn: false }
    }

    /// Frames taken, each with all bytes right.
    pub(super) fn taken(&self) -> u64 {
        self.number
    }

    /// Polls that found a frame without its end.
    pub(super) fn partial(&self) -> u64 {
        self.partial
    }

    /// Returns whether a frame was wrong when it counted as arrived, and right a moment later.
    pub(super) fn found_torn(&self) -> bool {
        self.torn
    }

    /// Takes the next frame if it has arrived.
    pub(super) fn take(&mut self, channel: &mut Channel) -> Result<bool, Failure> {
        let place = |failure: Failure, number| failure.at(format!("frame {number}"));
        match look(channel) {
            Ok(Polled::Nothing) => return Ok(false),
            Ok(Polled::Partial) => {
                self.partial += 1;
                return Ok(false);
            }
            Ok(Polled::Frame(frame)) => {
                if let Err(failure) = self.compare(&frame) {
                    thread::sleep(LATE);
                    self.torn = self.compare(&frame).is_ok();
                    let failure = if self.torn { failure.at("torn") } else { failure };
                    return Err(place(failure, self.number));
                }
                frame.release()?;
            }
            Err(error) => return Err(place(error.into(), self.number)),
        }
        self.number += 1;
        Ok(true)
    }

    fn compare(&self, frame: &Received<'_>) -> Result<(), Failure> {
        let shape = self.style.shape(self.number);
        // The payload first, in place: a torn one may be whole a moment later.
        let (header, at) = (frame.header(), frame.payload());
        let len = header.payload_len as usize;
        ensure!(len == shape.payload, "its payload is {len} bytes long, and not {}", shape.payload);
        ensure!(frame.payload_is_aligned(8), "its payload is not aligned to 8 bytes");
        // SAFETY: the channel lends `len` bytes at `at` until the release; aligned, as was just checked.
        let difference = unsafe { pattern::first_difference(at, len, self.style.seed, self.number) };
        if let Some(byte) = difference {
            return Err(Failure::new(format!("byte {byte} of a payload of {len} is wrong")));
        }
        ensure!(
            (header.kind, header.index, header.token) == (shape.kind, shape.index, shape.token),
            "its header is {header:?}"
        );
        let contents = frame.contents();
        let code = contents.code();
        ensure!(code.is_some() == shape.kind.names_code(), "it names code {code:?}");
        if let Some(code) = code {
            ensure!((code.id, code.epoch) == (shape.id, shape.epoch), "it names code {code:?}");
            let mut name = [0; MAX_NAME];
            let len = contents.copy_name_to(&mut name);
            ensure!(&name[..len] == shape.name.as_bytes(), "its name is not {}", shape.name);
            let mut found = Vec::new();
            contents.copy_image(&mut found);
            ensure!(found == image(shape.image, self.style.seed, self.number), "its image is wrong");
        }
        Ok(())
    }
}

/// Polls for a frame. Under the rule with a checksum, it polls as often as one more sum of a torn frame needs. A poll
/// sums up a part of the frame, and polls in between save up for the next sum. Background movers of frames run only
/// between two of these calls.
fn look(channel: &mut Channel) -> Result<Polled<'_>, TransportError> {
    let before = channel.summed();
    for _ in 0..LOOKS {
        if !matches!(channel.poll()?, Polled::Partial)
            || channel.rule() != ArrivalRules::CHECKED
            || !(channel.is_summing() || channel.summed() == before)
        {
            break;
        }
    }
    channel.poll()
}

/// Reports when nothing has moved for too long.
pub(super) struct Patience {
    since: Instant,
    turns: u32,
}

impl Patience {
    pub(super) fn new() -> Patience {
        Patience { since: Instant::now(), turns: 0 }
    }

    /// Records a movement.
    pub(super) fn moved(&mut self) {
        self.turns = 0;
    }

    /// Records a turn without movement.
    pub(super) fn stuck(&mut self, what: impl FnOnce() -> String) -> Result<(), Failure> {
        if self.turns == 0 {
            self.since = Instant::now();
        }
        self.turns += 1;
        if self.turns.is_multiple_of(1024) {
            ensure!(self.since.elapsed() < PATIENCE, "nothing moves any more: {}", what());
            thread::yield_now();
        }
        Ok(())
    }
}

/// Two channels in two threads. Frames of one may need its progress until the other has them, so each thread stays
/// until both are done.
#[derive(Default)]
pub(super) struct Company {
    finished: AtomicU32,
    failed: AtomicBool,
}

impl Company {
    /// Fails once the other channel has failed: there is nothing left to wait for.
    pub(super) fn check(&self) -> Result<(), Failure> {
        ensure!(!self.failed.load(Relaxed), "{OTHER_FAILED}");
        Ok(())
    }

    /// Runs one channel's work, and stays until the other one's is done, too.
    pub(super) fn work(
        &self,
        channel: &mut Channel,
        work: impl FnOnce(&mut Channel) -> Result<u64, Failure>,
    ) -> Result<u64, Failure> {
        let result = work(channel).and_then(|counted| {
            self.finished.fetch_add(1, Relaxed);
            let mut patience = Patience::new();
            while self.finished.load(Relaxed) < 2 {
                self.check()?;
                channel.progress(true)?;
                patience.stuck(|| "the other end is not done".into())?;
            }
            Ok(counted)
        });
        if result.is_err() {
            self.failed.store(true, Relaxed);
        }
        result
    }
}

/// The sum of two channels' counts. Of two failures, the one that is not only about the other.
pub(super) fn both(one: Result<u64, Failure>, other: Result<u64, Failure>) -> Result<u64, Failure> {
    match (one, other) {
        (Ok(one), Ok(other)) => Ok(one + other),
        (Err(one), Err(other)) if one == Failure::new(OTHER_FAILED) => Err(other),
        (Err(failure), _) | (_, Err(failure)) => Err(failure),
    }
}
