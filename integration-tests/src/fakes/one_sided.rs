//! `FakeOneSided`: writes into the memory of another endpoint in this process, as badly ordered as an arrival rule
//! allows.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use farjump_core::transport::{
    Address, ArrivalRules, Capabilities, Cause, Endpoint, InboxKind, LocalAddress, LocalMemory, OpenRequest,
    Operation, RemoteMemory, Transport, TransportError, UnconnectedEndpoint,
};

use super::control::{FakeHandle, InFlight, Shared};
use super::directory::Registry;
use super::{Violation, lock};
use crate::simulated_wire::{Changed, Put, SharedBlock, Tear, Wire};

const NAME: &str = "fake-one-sided";
const PAGE: usize = 4096;
const WORD: usize = 8;
/// Most cuts made in one put.
const CUTS: usize = 6;
/// Default number of puts in flight before the next one is refused as full.
const QUEUE: usize = 32;

static ENDPOINTS: Registry<FakeEndpoint> = Registry::new(*b"fakeput1");

/// The fake's guarantee about the order of writes, and no more than that.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Rule {
    /// The peer's memory is mapped, for plain stores. Puts are ordered as under `Fenced`.
    Stores,
    /// One write after the other, the bytes of each in ascending order, a few at a time.
    InOrder,
    /// Pieces of all puts up to a fence in any order, and none of a later put before the fence.
    Fenced,
    /// As `Fenced`; and completions are counted, in put order, when all pieces of a put have arrived.
    WriteImm,
    /// As `Fenced`: any order, for a user that never fences.
    Checked,
}

impl Rule {
    /// All rules.
    pub const ALL: [Rule; 5] = [Rule::Stores, Rule::InOrder, Rule::Fenced, Rule::WriteImm, Rule::Checked];

    /// The arrival rules that such a path offers.
    pub fn offered(self) -> ArrivalRules {
        match self {
            Rule::Stores => ArrivalRules::STORES | ArrivalRules::FENCED | ArrivalRules::CHECKED,
            Rule::InOrder => ArrivalRules::IN_ORDER,
            Rule::Fenced => ArrivalRules::FENCED,
            Rule::WriteImm => ArrivalRules::WRITE_IMM,
            Rule::Checked => ArrivalRules::CHECKED,
        }
    }
}

/// A one-sided transport whose endpoints are in one process.
///
/// It behaves like the least agreeable hardware that keeps the contract. [`Rule`] states the reliable order. It reads
/// the bytes of a put when it moves them, not at the call. Only a few puts fit in flight. Nothing wakes a sleeper, no
/// endpoint notices the death of its peer, and pieces in flight are lost when the sender's endpoint is dropped.
///
/// A few pieces move with each `put`, `put_with_completion` and `progress` of the sender, with each read of
/// the completions by the receiver, and at calls of [`FakeHandle`].
pub struct FakeOneSided {
    rule: Rule,
    seed: u64,
    queue: usize,
    max_frame: usize,
    opened: u64,
    shared: Arc<Shared>,
}

impl FakeOneSided {
    /// Makes a transport with this rule. The seed decides how its endpoints split, reorder and delay.
    pub fn new(rule: Rule, seed: u64) -> Self {
        let shared = Arc::default();
        FakeOneSided { rule, seed, queue: QUEUE, max_frame: 1 << 24, opened: 0, shared }
    }

    /// Sets the number of puts in flight, at least one; 32 by default.
    #[must_use]
    pub fn with_queue(mut self, puts: usize) -> Self {
        self.queue = puts.max(1);
        self
    }

    /// Sets the longest put in bytes; 16 MiB by default.
    #[must_use]
    pub fn with_max_frame(mut self, bytes: usize) -> Self {
        self.max_frame = bytes;
        self
    }

    /// A handle of its endpoints' traffic.
    pub fn handle(&self) -> FakeHandle {
        FakeHandle(self.shared.clone())
    }
}

impl Transport for FakeOneSided {
    fn name(&self) -> &str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(InboxKind::OneSided, self.rule.offered(), self.max_frame)
    }

    fn open(&mut self, request: &OpenRequest) -> Result<Box<dyn UnconnectedEndpoint>, TransportError> {
        let failed = |cause| TransportError::new(NAME, Operation::Open, cause);
        let len = request.region_len;
        if len == 0 || !len.is_multiple_of(PAGE) {
            return Err(failed(Cause::Unsupported("a region that is not whole pages of 4096 bytes")));
        }
        let region = SharedBlock::zeroed(len, PAGE)
            .ok_or_else(|| failed(Cause::System(format!("no memory for a region of {len} bytes"))))?;
        let (number, endpoint) = ENDPOINTS.enter(FakeEndpoint {
            region: Arc::new(region),
            completions: Arc::default(),
            inbound: Mutex::new(None),
            closed: AtomicBool::new(false),
        });
        let seed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(self.opened);
        self.opened += 1;
        let FakeOneSided { rule, queue, max_frame, ref shared, .. } = *self;
        Ok(Box::new(UnconnectedFake {
            number,
            endpoint,
            rule,
            seed,
            queue,
            max_frame,
            shared: shared.clone(),
        }))
    }
}

/// The part of an endpoint that its peer reaches.
struct FakeEndpoint {
    region: Arc<SharedBlock>,
    completions: Arc<AtomicU64>,
    /// The peer's pieces in flight to here, once it has connected.
    inbound: Mutex<Option<Weak<Mutex<SeededWire>>>>,
    /// Whether the local half was dropped.
    closed: AtomicBool,
}

/// The kind of a put: bytes that stay in place, with or without a completion, or a word that is copied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bytes,
    WithCompletion,
    Word,
}

/// Puts in flight in one direction, which the seed splits, holds and reorders as far as the rule allows.
struct SeededWire {
    rule: Rule,
    generator: fastrand::Rng,
    wire: Wire,
}

impl SeededWire {
    fn new(
        rule: Rule,
        seed: u64,
        queue: usize,
        to: &FakeEndpoint,
        shared: Arc<Shared>,
    ) -> Result<SeededWire, Cause> {
        let on_changed = move |Changed { at: offset, frame }| {
            shared.record(Violation::BytesChanged { offset, frame });
        };
        let mut wire = Wire::new(to.region.clone(), to.completions.clone(), on_changed)
            .map_err(|error| Cause::System(format!("/proc/self/mem: {error}")))?;
        wire.set_capacity(queue);
        if rule == Rule::InOrder {
            wire = wire.in_turn();
        }
        Ok(SeededWire { rule, generator: fastrand::Rng::with_seed(seed), wire })
    }

    /// Starts a put inside the region. Returns whether there was space for it.
    fn put(&mut self, at: usize, bytes: &[u8], kind: Kind, frame: u64) -> bool {
        if self.wire.is_full() {
            return false;
        }
        let cuts = self.cuts(at, bytes.len());
        self.wire.put(Put {
            at,
            bytes,
            frame,
            // Under `Checked` a receiver may take a frame before all of it has arrived, if the old contents happen to
            // be equal, and return credit. Then the bytes cannot be checked.
            lent: kind != Kind::Word && self.rule != Rule::Checked,
            completion: kind == Kind::WithCompletion,
            tear: if self.rule == Rule::InOrder { Tear::InTurn } else { Tear::Shuffled },
            cuts: &cuts,
        })
    }

    /// Delivers a few pieces, or none, like a call that makes some progress.
    fn work(&mut self) {
        let pieces = self.generator.usize(0..=3);
        self.deliver(pieces);
    }

    fn deliver(&mut self, pieces: usize) -> usize {
        let SeededWire { generator, wire, .. } = self;
        (0..pieces).take_while(|_| wire.deliver(&mut |ways| generator.usize(0..ways))).count()
    }

    /// Offsets at which a put of `len` bytes to `at` is cut: ascending, only at multiples of 8 in the region.
    fn cuts(&mut self, at: usize, len: usize) -> Vec<usize> {
        let first = at.next_multiple_of(8) - at;
        let inner = len.saturating_sub(first + 1) / 8 + 1;
        let mut cuts: Vec<_> =
            (0..self.generator.usize(0..=CUTS)).map(|_| first + 8 * self.generator.usize(0..inner)).collect();
        cuts.retain(|cut| (1..len).contains(cut));
        cuts.sort_unstable();
        cuts.dedup();
        cuts
    }
}

impl InFlight for Mutex<SeededWire> {
    fn deliver(&self, pieces: usize) -> usize {
        lock(self).deliver(pieces)
    }

    fn pending(&self) -> usize {
        lock(self).wire.pieces()
    }
}

struct UnconnectedFake {
    number: u64,
    endpoint: Arc<FakeEndpoint>,
    rule: Rule,
    seed: u64,
    queue: usize,
    max_frame: usize,
    shared: Arc<Shared>,
}

impl UnconnectedEndpoint for UnconnectedFake {
    fn address(&self) -> LocalAddress<'_> {
        ENDPOINTS.address(self.number)
    }

    fn connect(self: Box<Self>, peer: Address, _deadline_ms: u32) -> Result<Endpoint, TransportError> {
        let failed = |cause| TransportError::new(NAME, Operation::Connect, cause);
        let to = ENDPOINTS.find(&peer).map_err(failed)?;
        let UnconnectedFake { endpoint, rule, seed, queue, max_frame, shared, .. } = *self;
        let wire =
            Arc::new(Mutex::new(SeededWire::new(rule, seed, queue, &to, shared.clone()).map_err(failed)?));
        let mut inbound = lock(&to.inbound);
        if inbound.is_some() {
            return Err(failed(Cause::Address("another end has connected to it".into())));
        }
        *inbound = Some(Arc::downgrade(&wire));
        drop(inbound);
        let in_flight: Weak<Mutex<SeededWire>> = Arc::downgrade(&wire);
        shared.add(in_flight as Weak<dyn InFlight>);
        Ok(Endpoint::OneSided {
            local: Box::new(FakeLocal(endpoint.clone())),
            remote: Box::new(FakeRemote { own: endpoint, to, wire, rule, max_frame, shared }),
        })
    }
}

struct FakeLocal(Arc<FakeEndpoint>);

// SAFETY: the block is page-aligned and zeroed when made, does not move, and lives as long as the `FakeEndpoint` held
// here. Only the one connected peer writes to it besides core.
unsafe impl LocalMemory for FakeLocal {
    fn base(&self) -> NonNull<u8> {
        self.0.region.start()
    }

    fn len(&self) -> usize {
        self.0.region.len()
    }

    fn completions(&mut self) -> Result<u64, TransportError> {
        let inbound = lock(&self.0.inbound).as_ref().and_then(Weak::upgrade);
        if let Some(inbound) = inbound {
            lock(&inbound).work();
        }
        // Pairs with the release store of the wire.
        Ok(self.0.completions.load(Ordering::Acquire))
    }
}

impl Drop for FakeLocal {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Relaxed);
    }
}

struct FakeRemote {
    own: Arc<FakeEndpoint>,
    to: Arc<FakeEndpoint>,
    wire: Arc<Mutex<SeededWire>>,
    rule: Rule,
    max_frame: usize,
    shared: Arc<Shared>,
}

impl FakeRemote {
    fn start(&mut self, offset: usize, bytes: &[u8], kind: Kind, frame: u64) -> Result<(), TransportError> {
        let failed = |cause| TransportError::new(NAME, Operation::Put, cause).with_frame(frame);
        let (len, region) = (bytes.len(), self.len());
        if self.own.closed.load(Ordering::Relaxed) {
            self.shared.record(Violation::PutAfterClose { offset });
        }
        if offset.checked_add(len).is_none_or(|end| end > region) {
            self.shared.record(Violation::PutOutside { offset, len, region });
            return Err(failed(Cause::OutOfRegion { offset, len, region }));
        }
        if len > self.max_frame {
            self.shared.record(Violation::PutTooLong { offset, len, max: self.max_frame });
            return Err(failed(Cause::TooLarge { len, max: self.max_frame }));
        }
        let mut wire = lock(&self.wire);
        if !wire.put(offset, bytes, kind, frame) {
            return Err(failed(Cause::Full));
        }
        wire.work();
        Ok(())
    }
}

// SAFETY: `mapped` returns the peer's block, page-aligned and unmoving, which the `FakeEndpoint` held here keeps
// alive.
unsafe impl RemoteMemory for FakeRemote {
    fn len(&self) -> usize {
        self.to.region.len()
    }

    fn mapped(&self) -> Option<NonNull<u8>> {
        (self.rule == Rule::Stores).then(|| self.to.region.start())
    }

    fn put(&mut self, offset: usize, bytes: &[u8], frame: u64) -> Result<(), TransportError> {
        self.start(offset, bytes, Kind::Bytes, frame)
    }

    fn put_word(&mut self, offset: usize, word: u64, frame: u64) -> Result<(), TransportError> {
        if !offset.is_multiple_of(WORD) {
            self.shared.record(Violation::WordUnaligned { offset });
            let cause = Cause::Unsupported("a word at an offset that is not a multiple of 8");
            return Err(TransportError::new(NAME, Operation::Put, cause).with_frame(frame));
        }
        self.start(offset, &word.to_le_bytes(), Kind::Word, frame)
    }

    fn fence(&mut self) -> Result<(), TransportError> {
        lock(&self.wire).wire.fence();
        Ok(())
    }

    fn put_with_completion(&mut self, offset: usize, bytes: &[u8], frame: u64) -> Result<(), TransportError> {
        if self.rule != Rule::WriteImm {
            self.shared.record(Violation::CompletionNotOffered { offset });
            let cause = Cause::Unsupported("write with immediate by this rule");
            return Err(TransportError::new(NAME, Operation::Put, cause).with_frame(frame));
        }
        self.start(offset, bytes, Kind::WithCompletion, frame)
    }

    fn progress(&mut self) -> Result<(), TransportError> {
        lock(&self.wire).work();
        Ok(())
    }
}
