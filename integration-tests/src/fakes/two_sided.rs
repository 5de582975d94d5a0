//! `FakeTwoSided`: whole messages to another endpoint in this process, through a queue that is often full.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

use farjump_core::frame::{DELIVERED_HEADER_LEN, LINE};
use farjump_core::transport::{
    self, Address, ArrivalRules, Capabilities, Cause, Endpoint, InboxKind, LocalAddress, Messages,
    OpenRequest, Operation, Transport, TransportError, UnconnectedEndpoint,
};

use super::control::{FakeHandle, InFlight, Shared};
use super::directory::Registry;
use super::{Violation, lock};
use crate::simulated_wire::SharedBlock;

const NAME: &str = "fake-two-sided";
/// Default number of messages on their way before the next one is refused as full.
const QUEUE: usize = 16;
/// Contents of a lent buffer, which cannot pass for zeros.
const LENT: u8 = 0xa5;
/// Value with which a released message is overwritten.
const RELEASED: u8 = 0xdd;

static ENDPOINTS: Registry<FakeEndpoint> = Registry::new(*b"fakemsg1");

/// A two-sided transport whose endpoints are in one process.
///
/// Messages arrive in order, exactly once, at addresses aligned exactly as the capabilities state. A queue of a few
/// messages is the only buffer; now and then a commit is refused although there is space. Released messages are
/// overwritten. An endpoint notices the end of its peer: sending fails at once, and receiving fails after the last
/// arrived message. Nothing wakes a sleeper.
///
/// A few messages move with each `commit` and `progress` of the sender, with each `poll` of the receiver, and
/// at calls of [`FakeHandle`].
pub struct FakeTwoSided {
    seed: u64,
    queue: usize,
    max_frame: usize,
    opened: u64,
    shared: Arc<Shared>,
}

impl FakeTwoSided {
    /// Makes a transport whose seed decides when messages arrive and when commits are refused.
    pub fn new(seed: u64) -> Self {
        let shared = Arc::default();
        FakeTwoSided { seed, queue: QUEUE, max_frame: 1 << 20, opened: 0, shared }
    }

    /// Sets the number of messages on their way, at least one; 16 by default.
    #[must_use]
    pub fn with_queue(mut self, messages: usize) -> Self {
        self.queue = messages.max(1);
        self
    }

    /// Sets the longest message in bytes; 1 MiB by default.
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

impl Transport for FakeTwoSided {
    fn name(&self) -> &str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(InboxKind::TwoSided, ArrivalRules::DELIVERED, self.max_frame)
    }

    fn open(&mut self, _request: &OpenRequest) -> Result<Box<dyn UnconnectedEndpoint>, TransportError> {
        let inbox = Mutex::new(Inbox {
            generator: fastrand::Rng::with_seed(self.seed.wrapping_add(self.opened << 32)),
            undelivered: VecDeque::new(),
            delivered: VecDeque::new(),
            connected: false,
            shared: self.shared.clone(),
        });
        self.opened += 1;
        let (number, endpoint) =
            ENDPOINTS.enter(FakeEndpoint { inbox: Arc::new(inbox), closed: AtomicBool::new(false) });
        let FakeTwoSided { queue, max_frame, ref shared, .. } = *self;
        Ok(Box::new(UnconnectedFake {
            number,
            endpoint: Some(endpoint),
            queue,
            max_frame,
            shared: shared.clone(),
        }))
    }
}

struct FakeEndpoint {
    inbox: Arc<Mutex<Inbox>>,
    /// Whether the inbox is not read any more.
    closed: AtomicBool,
}

/// Messages to one endpoint.
struct Inbox {
    generator: fastrand::Rng,
    undelivered: VecDeque<Message>,
    delivered: VecDeque<Message>,
    connected: bool,
    /// The sender's shared state, once it is connected.
    shared: Arc<Shared>,
}

struct Message {
    block: SharedBlock,
    len: usize,
    /// Its contents when it was committed.
    committed: Vec<u8>,
    frame: u64,
}

impl Inbox {
    fn len(&self) -> usize {
        self.undelivered.len() + self.delivered.len()
    }

    /// Delivers a few messages, or none, like a call that makes some progress.
    fn work(&mut self) {
        let messages = self.generator.usize(0..=2);
        self.deliver(messages);
    }

    fn deliver(&mut self, messages: usize) -> usize {
        let moved = messages.min(self.undelivered.len());
        for message in self.undelivered.drain(..moved) {
            if message.block.read(0, message.len) != message.committed {
                self.shared.record(Violation::WrittenAfterCommit { frame: message.frame });
                message.block.write(0, &message.committed);
            }
            self.delivered.push_back(message);
        }
        moved
    }
}

impl InFlight for Mutex<Inbox> {
    fn deliver(&self, pieces: usize) -> usize {
        lock(self).deliver(pieces)
    }

    fn pending(&self) -> usize {
        lock(self).undelivered.len()
    }
}

struct UnconnectedFake {
    number: u64,
    /// Present until it is connected.
    endpoint: Option<Arc<FakeEndpoint>>,
    queue: usize,
    max_frame: usize,
    shared: Arc<Shared>,
}

impl UnconnectedEndpoint for UnconnectedFake {
    fn address(&self) -> LocalAddress<'_> {
        ENDPOINTS.address(self.number)
    }

    fn connect(mut self: Box<Self>, peer: Address, _deadline_ms: u32) -> Result<Endpoint, TransportError> {
        let failed = |cause| TransportError::new(NAME, Operation::Connect, cause);
        let peer = ENDPOINTS.find(&peer).map_err(failed)?;
        let mut inbox = lock(&peer.inbox);
        if std::mem::replace(&mut inbox.connected, true) {
            return Err(failed(Cause::Address("another end has connected to it".into())));
        }
        inbox.shared = self.shared.clone();
        drop(inbox);
        let in_flight: Weak<Mutex<Inbox>> = Arc::downgrade(&peer.inbox);
        self.shared.add(in_flight as Weak<dyn InFlight>);
        let Some(own) = self.endpoint.take() else {
            return Err(failed(Cause::Unsupported("connecting twice")));
        };
        Ok(Endpoint::TwoSided(Box::new(FakeMessages {
            own,
            peer,
            queue: self.queue,
            max_frame: self.max_frame,
            space: None,
            held: None,
            released: None,
            failed: false,
            shared: self.shared.clone(),
        })))
    }
}

impl Drop for UnconnectedFake {
    fn drop(&mut self) {
        if let Some(endpoint) = &self.endpoint {
            endpoint.closed.store(true, Relaxed);
        }
    }
}

struct FakeMessages {
    own: Arc<FakeEndpoint>,
    peer: Arc<FakeEndpoint>,
    queue: usize,
    max_frame: usize,
    space: Option<SharedBlock>,
    /// The message that `poll` returned.
    held: Option<Message>,
    /// The message before, kept so that a late reader sees that it was released.
    released: Option<SharedBlock>,
    /// Whether an error that ends the link was returned.
    failed: bool,
    shared: Arc<Shared>,
}

impl FakeMessages {
    fn fail(&mut self, operation: Operation, cause: Cause) -> TransportError {
        self.failed |= !matches!(cause, Cause::Full | Cause::TooLarge { .. });
        TransportError::new(NAME, operation, cause)
    }

    /// Checks the conditions of sending.
    fn may_send(&mut self) -> Result<(), TransportError> {
        if self.failed {
            self.shared.record(Violation::UsedAfterError);
        }
        if self.peer.closed.load(Relaxed) {
            return Err(self.fail(Operation::Send, Cause::PeerGone));
        }
        Ok(())
    }
}

// SAFETY: buffers and messages are blocks of this value's own, at least line-aligned and of the requested or
// returned length. A buffer stays until `commit` takes it or the next `reserve` replaces it, a message until
// the one after it is released.
unsafe impl Messages for FakeMessages {
    fn reserve(&mut self, len: usize) -> Result<NonNull<u8>, TransportError> {
        self.may_send()?;
        if len > self.max_frame {
            return Err(self.fail(Operation::Send, Cause::TooLarge { len, max: self.max_frame }));
        }
        if lock(&self.peer.inbox).len() >= self.queue {
            return Err(self.fail(Operation::Send, Cause::Full));
        }
        match SharedBlock::zeroed_no_better(len, LINE) {
            Some(space) => {
                space.write(0, &vec![LENT; len]);
                Ok(self.space.insert(space).start())
            }
            None => {
                let cause = Cause::System(format!("no memory for a message of {len} bytes"));
                Err(self.fail(Operation::Send, cause))
            }
        }
    }

    fn commit(&mut self, len: usize, frame: u64) -> Result<(), TransportError> {
        self.may_send().map_err(|error| error.with_frame(frame))?;
        let wrong = match &self.space {
            None => Some(Violation::CommitWithoutReserve { frame }),
            Some(space) if len > space.len() => {
                Some(Violation::CommitTooLong { frame, len, reserved: space.len() })
            }
            Some(_) if len < DELIVERED_HEADER_LEN => Some(Violation::CommitTooShort { frame, len }),
            Some(_) => None,
        };
        if let Some(violation) = wrong {
            self.shared.record(violation);
            let cause = Cause::Unsupported("committing what was not reserved, or is no frame");
            return Err(self.fail(Operation::Send, cause).with_frame(frame));
        }
        let peer = self.peer.clone();
        let mut inbox = lock(&peer.inbox);
        if inbox.generator.u8(0..8) == 0 {
            inbox.work();
            return Err(self.fail(Operation::Send, Cause::Full).with_frame(frame));
        }
        if let Some(block) = self.space.take() {
            let committed = block.read(0, len);
            inbox.undelivered.push_back(Message { block, len, committed, frame });
        }
        inbox.work();
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<transport::Message>, TransportError> {
        if self.held.is_none() {
            // Read before the inbox: if the peer has closed, its earlier messages are in the inbox then.
            let closed = self.peer.closed.load(std::sync::atomic::Ordering::Acquire);
            let own = self.own.clone();
            let mut inbox = lock(&own.inbox);
            inbox.work();
            self.held = inbox.delivered.pop_front();
            if self.held.is_none() && closed && inbox.undelivered.is_empty() {
                return Err(self.fail(Operation::Receive, Cause::PeerGone));
            }
        }
        Ok(self.held.as_ref().map(|message| transport::Message::new(message.block.start(), message.len)))
    }

    fn release(&mut self) {
        if let Some(message) = self.held.take() {
            message.block.write(0, &vec![RELEASED; message.len]);
            self.released = Some(message.block);
        }
    }

    fn progress(&mut self) -> Result<(), TransportError> {
        let peer = self.peer.clone();
        let mut inbox = lock(&peer.inbox);
        inbox.work();
        let lost = inbox.undelivered.front().map(|message| message.frame);
        match lost {
            Some(frame) if peer.closed.load(Relaxed) => {
                Err(self.fail(Operation::Progress, Cause::PeerGone).with_frame(frame))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for FakeMessages {
    fn drop(&mut self) {
        // Pairs with the acquire load in `poll`.
        self.own.closed.store(true, std::sync::atomic::Ordering::Release);
    }
}
