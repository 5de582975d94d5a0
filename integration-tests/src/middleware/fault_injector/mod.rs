//! `FaultInjector`: a transport that goes wrong on purpose, the same way each time for the same seed.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::{require_a_rule, without_mapping};
use farjump_core::transport::{
    Address, ArrivalRules, BorrowedFd, Capabilities, Cause, Endpoint, LocalAddress, LocalMemory, OpenRequest,
    Opening, Operation, Transport, TransportError,
};

mod odds;
mod one_sided;
mod two_sided;

use odds::Dice;
use one_sided::FaultyRemote;
use two_sided::FaultyMessages;

/// What can be made to go wrong. One-sided, it happens to puts (and where it says so to words, which carry signals and
/// credits); two-sided, to messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum Fault {
    /// A put, word or message is held for a while ([`Faults::hold`]). What is ordered behind it (by a fence; every later
    /// message) waits with it. **Within the contract**: nothing may go wrong by it.
    Delay,
    /// Only the beginning of a put or of a message is sent. A message keeps at least one line, and whole lines.
    Truncate,
    /// The last word of a put comes later than the rest ([`Faults::hold`]), and later than what is behind a fence: a trailer
    /// that is not there yet, or never. A message goes with its last word zeroed.
    HoldLastWord,
    /// One bit of a put, word or message is wrong.
    FlipBit,
    /// The last word of a put, and whatever follows it, fences notwithstanding, goes ahead of the rest of the put, which
    /// comes later ([`Faults::hold`]): the signal before the body. A message is overtaken by those behind it.
    Overtake,
    /// The link breaks: this and every later operation on it fails with [`Cause::PeerGone`], and what was held is lost.
    Kill,
}

impl Fault {
    /// All of them, in the order in which they are drawn: of several that hit one operation the first is injected.
    pub const ALL: [Fault; 6] =
        [Fault::Delay, Fault::Truncate, Fault::HoldLastWord, Fault::FlipBit, Fault::Overtake, Fault::Kill];
}

/// A probability, in thousandths: how many operations of a thousand are hit. Over 1000 is as 1000.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PerMille(pub u16);

impl PerMille {
    /// No operation is hit.
    pub const NEVER: PerMille = PerMille(0);
    /// Every operation is hit.
    pub const ALWAYS: PerMille = PerMille(1000);
}

/// For how long something is held back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// For so many calls of the sender's `progress`.
    Turns(u32),
    /// As long as the link lasts.
    Forever,
}

/// Which faults are injected, how often, and into what. The probabilities are each operation's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Faults {
    /// How often [`Fault::Delay`].
    pub delay: PerMille,
    /// How often [`Fault::Truncate`].
    pub truncate: PerMille,
    /// How often [`Fault::HoldLastWord`].
    pub hold_last_word: PerMille,
    /// How often [`Fault::FlipBit`].
    pub flip_bit: PerMille,
    /// How often [`Fault::Overtake`].
    pub overtake: PerMille,
    /// How often [`Fault::Kill`].
    pub kill: PerMille,
    /// How long what is held back is held.
    pub hold: Hold,
    /// Operations at the start of each link to which nothing happens.
    pub spare: u64,
    /// Most faults injected into one link.
    pub limit: u64,
}

impl Faults {
    /// None at all; to be completed: `Faults { delay: PerMille(50), ..Faults::NONE }`.
    pub const NONE: Faults = Faults {
        delay: PerMille::NEVER,
        truncate: PerMille::NEVER,
        hold_last_word: PerMille::NEVER,
        flip_bit: PerMille::NEVER,
        overtake: PerMille::NEVER,
        kill: PerMille::NEVER,
        hold: Hold::Turns(8),
        spare: 0,
        limit: u64::MAX,
    };

    /// How often `fault` is injected.
    pub fn odds(&self, fault: Fault) -> PerMille {
        match fault {
            Fault::Delay => self.delay,
            Fault::Truncate => self.truncate,
            Fault::HoldLastWord => self.hold_last_word,
            Fault::FlipBit => self.flip_bit,
            Fault::Overtake => self.overtake,
            Fault::Kill => self.kill,
        }
    }

    /// Whether a write may come in pieces or changed, so that not even a line is sure to be whole.
    fn tear(&self) -> bool {
        [Fault::Truncate, Fault::HoldLastWord, Fault::FlipBit, Fault::Overtake]
            .into_iter()
            .any(|fault| self.odds(fault) != PerMille::NEVER)
    }
}

impl Default for Faults {
    fn default() -> Self {
        Faults::NONE
    }
}

/// A transport that injects [`Faults`] into what this side sends; what it receives is the other side's to spoil.
///
/// The same seed, faults and sequence of puts and messages give the same faults; how often `progress` is called in between
/// decides only when what is held comes.
///
/// # What it offers
/// The mapping of the peer's region is hidden, and with it the rule `stores`. The other rules of the inner transport stay
/// offered, **although some faults break them**: so a test can show that a receiver is told nonsense by a transport that
/// lies. Where the receiver is to notice, leave only the rule that can, with [`FaultInjector::offering`]:
/// [`ArrivalRules::CHECKED`] alone notices every torn or changed frame. Lines are not said to be placed whole when a
/// fault could tear them.
///
/// # What it costs
/// What is held or changed is copied, and copies are kept until the peer must have consumed them; at most about a region's
/// length. Every message is copied twice.
pub struct FaultInjector {
    inner: Box<dyn Transport>,
    seed: u64,
    faults: Faults,
    offered: ArrivalRules,
    record: Arc<Record>,
    opened: u64,
}

impl FaultInjector {
    /// Wraps `inner`.
    pub fn new(inner: Box<dyn Transport>, seed: u64, faults: Faults) -> Self {
        FaultInjector { inner, seed, faults, offered: ArrivalRules::all(), record: Arc::default(), opened: 0 }
    }

    /// Offers at most `rules`, of those that the inner transport has.
    #[must_use]
    pub fn offering(mut self, rules: ArrivalRules) -> Self {
        self.offered = rules;
        self
    }

    /// What tells of the faults injected so far, and can break the links, from any thread.
    pub fn handle(&self) -> FaultHandle {
        FaultHandle(self.record.clone())
    }
}

impl Transport for FaultInjector {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = without_mapping(self.inner.capabilities());
        capabilities.arrival &= self.offered;
        capabilities.line_whole &= !self.faults.tear();
        capabilities
    }

    /// As the inner transport.
    ///
    /// # Errors
    /// [`Cause::Unsupported`] where hiding the mapping, or [`FaultInjector::offering`], leaves no arrival rule; else those
    /// of the inner.
    fn open(&mut self, request: &OpenRequest) -> Result<Box<dyn Opening>, TransportError> {
        let capabilities = self.capabilities();
        require_a_rule(self.inner.name(), &capabilities)?;
        let inner = self.inner.open(request)?;
        let link = Arc::new(Link {
            name: self.inner.name().into(),
            record: self.record.clone(),
            broken: AtomicBool::new(false),
            holding: AtomicBool::new(false),
        });
        // Another seed for each link, so that not all of them fail alike; the odd factor keeps them apart.
        let seed = self.seed ^ self.opened.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.opened += 1;
        let dice = Dice::new(seed, self.faults, link);
        Ok(Box::new(FaultyOpening { inner, dice, max_frame: capabilities.max_frame }))
    }
}

/// The faults injected by one [`FaultInjector`], counted. Clones look at the same counts.
#[derive(Clone)]
pub struct FaultHandle(Arc<Record>);

impl FaultHandle {
    /// How often `fault` was injected, over all links.
    pub fn count(&self, fault: Fault) -> u64 {
        self.0.counts[fault as usize].load(Relaxed)
    }

    /// How many faults of all kinds were injected.
    pub fn total(&self) -> u64 {
        Fault::ALL.into_iter().map(|fault| self.count(fault)).sum()
    }

    /// Breaks every link of the injector, those to come too: each of their operations fails with [`Cause::PeerGone`] from
    /// now on. Counted as no fault.
    pub fn kill(&self) {
        self.0.killed.store(true, Relaxed);
    }
}

impl std::fmt::Debug for FaultHandle {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_map().entries(Fault::ALL.into_iter().map(|fault| (fault, self.count(fault)))).finish()
    }
}

/// What an injector and its handles share. Counts and a switch: no memory is published through them, so their order
/// against other memory does not matter.
#[derive(Default)]
struct Record {
    counts: [AtomicU64; Fault::ALL.len()],
    killed: AtomicBool,
}

/// What the two directions of one end share.
struct Link {
    name: String,
    record: Arc<Record>,
    broken: AtomicBool,
    /// The sending side holds something that only its `progress` sends.
    holding: AtomicBool,
}

impl Link {
    /// # Errors
    /// [`Cause::PeerGone`] once the link was broken.
    fn check(&self, operation: Operation) -> Result<(), TransportError> {
        if self.broken.load(Relaxed) || self.record.killed.load(Relaxed) {
            return Err(TransportError::new(self.name.as_str(), operation, Cause::PeerGone));
        }
        Ok(())
    }

    /// Breaks the link, in the middle of `operation`.
    fn kill(&self, operation: Operation, frame: u64) -> TransportError {
        self.broken.store(true, Relaxed);
        TransportError::new(self.name.as_str(), operation, Cause::PeerGone).with_frame(frame)
    }
}

struct FaultyOpening {
    inner: Box<dyn Opening>,
    dice: Dice,
    max_frame: usize,
}

impl Opening for FaultyOpening {
    fn address(&self) -> LocalAddress<'_> {
        self.inner.address()
    }

    fn arrival_with(&mut self, peer: &[u8]) -> Result<ArrivalRules, TransportError> {
        self.inner.arrival_with(peer)
    }

    fn connect(self: Box<Self>, peer: Address, deadline_ms: u32) -> Result<Endpoint, TransportError> {
        let endpoint = self.inner.connect(peer, deadline_ms)?;
        let link = self.dice.link().clone();
        link.check(Operation::Connect)?;
        Ok(match endpoint {
            Endpoint::OneSided { local, remote } => Endpoint::OneSided {
                local: Box::new(FaultyLocal { inner: local, link }),
                remote: Box::new(FaultyRemote::new(remote, self.dice)),
            },
            Endpoint::TwoSided(messages) => {
                Endpoint::TwoSided(Box::new(FaultyMessages::new(messages, self.dice, self.max_frame)))
            }
        })
    }
}

/// The receiving side: as it is, until the link breaks.
struct FaultyLocal {
    inner: Box<dyn LocalMemory>,
    link: Arc<Link>,
}

// SAFETY: the pointers and the length are those of `inner`, which keeps the promise and lives as long as this value.
unsafe impl LocalMemory for FaultyLocal {
    fn base(&self) -> NonNull<u8> {
        self.inner.base()
    }

    fn len(&self) -> usize {
        self.inner.len()
    }

    fn executable(&mut self) -> Result<NonNull<u8>, TransportError> {
        self.inner.executable()
    }

    fn completions(&mut self) -> Result<u64, TransportError> {
        self.link.check(Operation::Receive)?;
        self.inner.completions()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }

    fn before_sleep(&mut self) -> Result<bool, TransportError> {
        self.link.check(Operation::Wake)?;
        // While this end holds something back it has to come back and make progress, so it must not sleep without end.
        Ok(self.inner.before_sleep()? && !self.link.holding.load(Relaxed))
    }

    fn after_sleep(&mut self) -> Result<(), TransportError> {
        self.link.check(Operation::Wake)?;
        self.inner.after_sleep()
    }
}
