//! `FaultInjector`: a transport with injected faults, the same for the same seed.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::{require_a_rule, without_mapping};
use farjump_core::transport::{
    Address, ArrivalRules, BorrowedFd, Capabilities, Cause, Endpoint, Lender, LocalAddress, LocalMemory,
    OpenRequest, Operation, Transport, TransportError, UnconnectedEndpoint,
};

mod odds;
mod one_sided;
mod two_sided;

use odds::FaultGenerator;
use one_sided::FaultyRemote;
use two_sided::FaultyMessages;

/// A kind of fault. One-sided, it affects puts and, where stated, words, which carry signals and credit. Two-sided,
/// it affects messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum Fault {
    /// A put, word or message is held for a while ([`Faults::hold`]). Operations ordered behind it (by a
    /// fence; every later message) wait with it. **Within the contract**: it must do no harm.
    Delay,
    /// Only the beginning of a put or message is sent. A message keeps at least one line, and whole lines.
    Truncate,
    /// The last word of a put comes later than the rest ([`Faults::hold`]), also later than puts behind a
    /// fence: a trailer that is late or never comes. The last word of a message is zeroed.
    HoldLastWord,
    /// One bit of a put, word or message is wrong.
    FlipBit,
    /// The last word of a put, and everything behind it, despite fences, overtakes the rest of the put, which
    /// comes later ([`Faults::hold`]): the signal before the body. Later messages overtake a message.
    Overtake,
    /// The link breaks: this and every later operation on it fails with [`Cause::PeerGone`], and held
    /// operations are lost.
    Kill,
}

impl Fault {
    /// All faults, in the order in which they are drawn: if several hit one operation, the first is injected.
    pub const ALL: [Fault; 6] =
        [Fault::Delay, Fault::Truncate, Fault::HoldLastWord, Fault::FlipBit, Fault::Overtake, Fault::Kill];
}

/// A probability in thousandths: affected operations of a thousand. Values over 1000 count as 1000.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PerMille(pub u16);

impl PerMille {
    /// No operation is hit.
    pub const NEVER: PerMille = PerMille(0);
    /// Every operation is hit.
    pub const ALWAYS: PerMille = PerMille(1000);
}

/// The time for which something is held back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// For this many calls of the sender's `progress`.
    Turns(u32),
    /// As long as the link lasts.
    Forever,
}

/// The faults to inject: kinds, probabilities and limits. Probabilities apply to each operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Faults {
    /// Probability of [`Fault::Delay`].
    pub delay: PerMille,
    /// Probability of [`Fault::Truncate`].
    pub truncate: PerMille,
    /// Probability of [`Fault::HoldLastWord`].
    pub hold_last_word: PerMille,
    /// Probability of [`Fault::FlipBit`].
    pub flip_bit: PerMille,
    /// Probability of [`Fault::Overtake`].
    pub overtake: PerMille,
    /// Probability of [`Fault::Kill`].
    pub kill: PerMille,
    /// The time for which held operations are held.
    pub hold: Hold,
    /// Operations at the start of each link without faults.
    pub spare: u64,
    /// Most faults injected into one link.
    pub limit: u64,
}

impl Faults {
    /// No faults; a base for others: `Faults { delay: PerMille(50), ..Faults::NONE }`.
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

    /// The probability of `fault`.
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

    /// Returns whether a write may arrive in pieces or changed, so that not even a line is sure to be whole.
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

/// A transport that injects [`Faults`] into the frames that this endpoint sends. The peer's frames are
/// unchanged.
///
/// The same seed, faults and sequence of puts and messages give the same faults. Calls of `progress` in
/// between only decide when held operations are sent.
///
/// # Arrival rules
/// The mapping of the peer's region is hidden, and with it the rule `stores`. The other rules of the inner transport
/// stay offered, **although some faults break them**. So a test can show that a receiver gets wrong frames from a
/// transport that lies. For a receiver that must notice, [`FaultInjector::offering`] leaves only a rule that can:
/// [`ArrivalRules::CHECKED`] alone notices every torn or changed frame. If a fault could tear lines, they are not
/// claimed to be whole.
///
/// # Costs
/// Held or changed operations are copied. Copies are kept until the peer must have consumed them; they are at most
/// about a region's length. Every message is copied twice.
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

    /// Offers at most `rules` of the inner transport's rules.
    #[must_use]
    pub fn offering(mut self, rules: ArrivalRules) -> Self {
        self.offered = rules;
        self
    }

    /// A handle that counts the injected faults, and can break the links, from any thread.
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

    /// Opens an endpoint of the inner transport.
    ///
    /// # Errors
    /// [`Cause::Unsupported`] if hiding the mapping, or [`FaultInjector::offering`], leaves no arrival rule;
    /// else those of the inner transport.
    fn open(&mut self, request: &OpenRequest) -> Result<Box<dyn UnconnectedEndpoint>, TransportError> {
        let capabilities = self.capabilities();
        require_a_rule(self.inner.name(), &capabilities)?;
        let inner = self.inner.open(request)?;
        let link = Arc::new(Link {
            name: self.inner.name().into(),
            record: self.record.clone(),
            broken: AtomicBool::new(false),
            holding: AtomicBool::new(false),
        });
        // A different seed for each link, so that they fail differently; the odd factor keeps the seeds
        // apart.
        let seed = self.seed ^ self.opened.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.opened += 1;
        let generator = FaultGenerator::new(seed, self.faults, link);
        Ok(Box::new(UnconnectedFaulty { inner, generator, max_frame: capabilities.max_frame }))
    }
}

/// The counts of the faults injected by one [`FaultInjector`]. Clones read the same counts.
#[derive(Clone)]
pub struct FaultHandle(Arc<Record>);

impl FaultHandle {
    /// Number of injections of `fault`, over all links.
    pub fn count(&self, fault: Fault) -> u64 {
        self.0.counts[fault as usize].load(Relaxed)
    }

    /// Number of injected faults of all kinds.
    pub fn total(&self) -> u64 {
        Fault::ALL.into_iter().map(|fault| self.count(fault)).sum()
    }

    /// Breaks every link of the injector, also future ones: each of their operations fails with
    /// [`Cause::PeerGone`] from now on. Does not count as a fault.
    pub fn kill(&self) {
        self.0.killed.store(true, Relaxed);
    }
}

impl std::fmt::Debug for FaultHandle {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_map().entries(Fault::ALL.into_iter().map(|fault| (fault, self.count(fault)))).finish()
    }
}

/// The state shared by an injector and its handles. Counts and a switch: no memory is published through them,
/// so their order does not matter.
#[derive(Default)]
struct Record {
    counts: [AtomicU64; Fault::ALL.len()],
    killed: AtomicBool,
}

/// The state shared by the two directions of one endpoint.
struct Link {
    name: String,
    record: Arc<Record>,
    broken: AtomicBool,
    /// True if the sender holds an operation that only its `progress` sends.
    holding: AtomicBool,
}

impl Link {
    /// Checks that the link is not broken.
    ///
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

struct UnconnectedFaulty {
    inner: Box<dyn UnconnectedEndpoint>,
    generator: FaultGenerator,
    max_frame: usize,
}

impl UnconnectedEndpoint for UnconnectedFaulty {
    fn address(&self) -> LocalAddress<'_> {
        self.inner.address()
    }

    fn arrival_with(&mut self, peer: &[u8]) -> Result<ArrivalRules, TransportError> {
        self.inner.arrival_with(peer)
    }

    fn connect(self: Box<Self>, peer: Address, deadline_ms: u32) -> Result<Endpoint, TransportError> {
        let endpoint = self.inner.connect(peer, deadline_ms)?;
        let link = self.generator.link().clone();
        link.check(Operation::Connect)?;
        Ok(match endpoint {
            Endpoint::OneSided { local, remote } => Endpoint::OneSided {
                local: Box::new(FaultyLocal { inner: local, link }),
                remote: Box::new(FaultyRemote::new(remote, self.generator)),
            },
            Endpoint::TwoSided(messages) => {
                Endpoint::TwoSided(Box::new(FaultyMessages::new(messages, self.generator, self.max_frame)))
            }
        })
    }
}

/// The receiving half: unchanged until the link breaks.
struct FaultyLocal {
    inner: Box<dyn LocalMemory>,
    link: Arc<Link>,
}

// SAFETY: the pointers and the length are those of `inner`, which keeps the contract and lives as long as
// this value.
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
        // This endpoint must return to make progress while it holds an operation, so it must not sleep
        // without a limit.
        Ok(self.inner.before_sleep()? && !self.link.holding.load(Relaxed))
    }

    fn after_sleep(&mut self) -> Result<(), TransportError> {
        self.link.check(Operation::Wake)?;
        self.inner.after_sleep()
    }

    fn lender(&self) -> Option<Box<dyn Lender>> {
        self.inner.lender()
    }
}
