//! A transport that reports every operation to a sink: the base of [`super::Trace`] and [`super::Metered`].

use std::ptr::NonNull;
use std::sync::Arc;

use super::event::{Action, Event};
use super::{require_a_rule, without_mapping};
use farjump_core::transport::{
    Address, ArrivalRules, BorrowedFd, Capabilities, Endpoint, Lender, LocalAddress, LocalMemory, Message,
    Messages, OpenRequest, PathInfo, Reads, RemoteMemory, Transport, TransportError, UnconnectedEndpoint,
};

/// The observer. Called on the thread that uses the endpoint, during the operation.
pub(super) type Sink = Arc<dyn Fn(&Event<'_>) + Send + Sync>;

/// States whether the peer's region stays reachable by plain stores, which no sink sees.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mapping {
    Shown,
    Hidden,
}

pub(super) struct Observed {
    inner: Box<dyn Transport>,
    sink: Sink,
    mapping: Mapping,
    opened: u64,
}

impl Observed {
    pub(super) fn new(inner: Box<dyn Transport>, mapping: Mapping, sink: Sink) -> Self {
        Observed { inner, sink, mapping, opened: 0 }
    }
}

impl Transport for Observed {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        match self.mapping {
            Mapping::Shown => self.inner.capabilities(),
            Mapping::Hidden => without_mapping(self.inner.capabilities()),
        }
    }

    fn open(&mut self, request: &OpenRequest) -> Result<Box<dyn UnconnectedEndpoint>, TransportError> {
        if self.mapping == Mapping::Hidden {
            require_a_rule(self.inner.name(), &self.capabilities())?;
        }
        let number = self.opened;
        self.opened += 1;
        let result = self.inner.open(request);
        let name = self.inner.name();
        let action = Action::Open { region_len: request.region_len, max_frame: request.max_frame };
        (self.sink)(&Event::new(name, number, action, result.as_ref().err()));
        let inner = result?;
        let link = Link { name: name.into(), number, sink: self.sink.clone(), mapping: self.mapping };
        Ok(Box::new(UnconnectedObserved { inner, link: Arc::new(link) }))
    }
}

/// One endpoint. The drop of the last reference reports its end.
struct Link {
    name: String,
    number: u64,
    sink: Sink,
    mapping: Mapping,
}

impl Link {
    fn observe(&self, action: Action<'_>, failure: Option<&TransportError>) {
        (self.sink)(&Event::new(&self.name, self.number, action, failure));
    }

    /// Reports `action` with this result, and returns the result.
    fn observed<T>(
        &self,
        action: Action<'_>,
        result: Result<T, TransportError>,
    ) -> Result<T, TransportError> {
        self.observe(action, result.as_ref().err());
        result
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.observe(Action::Close, None);
    }
}

// In each of these structs `inner` stands before `link`, so that the end is reported after it happened.

struct UnconnectedObserved {
    inner: Box<dyn UnconnectedEndpoint>,
    link: Arc<Link>,
}

impl UnconnectedEndpoint for UnconnectedObserved {
    fn address(&self) -> LocalAddress<'_> {
        self.inner.address()
    }

    fn arrival_with(&mut self, peer: &[u8]) -> Result<ArrivalRules, TransportError> {
        self.inner.arrival_with(peer)
    }

    fn connect(self: Box<Self>, peer: Address, deadline_ms: u32) -> Result<Endpoint, TransportError> {
        let UnconnectedObserved { inner, link } = *self;
        let action = Action::Connect { address_len: peer.bytes.len(), descriptors: peer.descriptors.len() };
        Ok(match link.observed(action, inner.connect(peer, deadline_ms))? {
            Endpoint::OneSided { local, remote } => Endpoint::OneSided {
                local: Box::new(ObservedLocal { inner: local, completions: 0, link: link.clone() }),
                remote: Box::new(ObservedRemote { inner: remote, link }),
            },
            Endpoint::TwoSided(messages) => {
                Endpoint::TwoSided(Box::new(ObservedMessages { inner: messages, handed_over: false, link }))
            }
        })
    }
}

struct ObservedRemote {
    inner: Box<dyn RemoteMemory>,
    link: Arc<Link>,
}

// SAFETY: the pointer and the length are those of `inner`, which keeps the contract and lives as long as this
// value.
unsafe impl RemoteMemory for ObservedRemote {
    fn len(&self) -> usize {
        self.inner.len()
    }

    fn mapped(&self) -> Option<NonNull<u8>> {
        match self.link.mapping {
            Mapping::Shown => self.inner.mapped(),
            Mapping::Hidden => None,
        }
    }

    fn put(&mut self, offset: usize, bytes: &[u8], frame: u64) -> Result<(), TransportError> {
        self.link.observed(Action::Put { offset, bytes, frame }, self.inner.put(offset, bytes, frame))
    }

    fn put_word(&mut self, offset: usize, word: u64, frame: u64) -> Result<(), TransportError> {
        self.link.observed(Action::PutWord { offset, word, frame }, self.inner.put_word(offset, word, frame))
    }

    fn fence(&mut self) -> Result<(), TransportError> {
        self.link.observed(Action::Fence, self.inner.fence())
    }

    fn put_with_completion(&mut self, offset: usize, bytes: &[u8], frame: u64) -> Result<(), TransportError> {
        let result = self.inner.put_with_completion(offset, bytes, frame);
        self.link.observed(Action::PutWithCompletion { offset, bytes, frame }, result)
    }

    fn progress(&mut self) -> Result<(), TransportError> {
        self.link.observed(Action::Progress, self.inner.progress())
    }

    fn wake_peer(&mut self) -> Result<(), TransportError> {
        self.link.observed(Action::Ring, self.inner.wake_peer())
    }

    fn store_load_ordered(&self) -> bool {
        self.inner.store_load_ordered()
    }

    fn path_info(&self) -> PathInfo {
        self.inner.path_info()
    }

    fn staging(&mut self, len: usize) -> Result<Option<NonNull<u8>>, TransportError> {
        self.inner.staging(len)
    }

    fn reads(&mut self) -> Option<&mut dyn Reads> {
        self.inner.reads()
    }
}

struct ObservedLocal {
    inner: Box<dyn LocalMemory>,
    /// Completions that were reported.
    completions: u64,
    link: Arc<Link>,
}

// SAFETY: the pointers and the length are those of `inner`, which keeps the contract and lives as long as
// this value.
unsafe impl LocalMemory for ObservedLocal {
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
        let result = self.inner.completions();
        let count = *result.as_ref().unwrap_or(&self.completions);
        if result.is_err() || count != self.completions {
            self.completions = count;
            self.link.observe(Action::Completions { count }, result.as_ref().err());
        }
        result
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }

    fn stays_armed(&self) -> bool {
        self.inner.stays_armed()
    }

    fn before_sleep(&mut self) -> Result<bool, TransportError> {
        let result = self.inner.before_sleep();
        self.link.observed(Action::Arm { promised: matches!(result, Ok(true)) }, result)
    }

    fn after_sleep(&mut self) -> Result<(), TransportError> {
        self.link.observed(Action::Disarm, self.inner.after_sleep())
    }

    fn lender(&self) -> Option<Box<dyn Lender>> {
        self.inner.lender()
    }
}

struct ObservedMessages {
    inner: Box<dyn Messages>,
    /// True if the message that [`Messages::poll`] returns was reported.
    handed_over: bool,
    link: Arc<Link>,
}

// SAFETY: buffers and messages are those of `inner`, which keeps the contract, and are returned when `inner`
// gets them back.
unsafe impl Messages for ObservedMessages {
    fn reserve(&mut self, len: usize) -> Result<NonNull<u8>, TransportError> {
        self.link.observed(Action::Reserve { len }, self.inner.reserve(len))
    }

    fn commit(&mut self, len: usize, frame: u64) -> Result<(), TransportError> {
        self.link.observed(Action::Commit { len, frame }, self.inner.commit(len, frame))
    }

    fn poll(&mut self) -> Result<Option<Message>, TransportError> {
        let result = self.inner.poll();
        match &result {
            Ok(Some(message)) if !self.handed_over => {
                self.handed_over = true;
                self.link.observe(Action::Deliver { len: message.len() }, None);
            }
            Ok(_) => {}
            Err(error) => self.link.observe(Action::Deliver { len: 0 }, Some(error)),
        }
        result
    }

    fn release(&mut self) {
        self.inner.release();
        if std::mem::take(&mut self.handed_over) {
            self.link.observe(Action::Release, None);
        }
    }

    fn progress(&mut self) -> Result<(), TransportError> {
        self.link.observed(Action::Progress, self.inner.progress())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }

    fn arm(&mut self) -> Result<bool, TransportError> {
        let result = self.inner.arm();
        self.link.observed(Action::Arm { promised: matches!(result, Ok(true)) }, result)
    }

    fn disarm(&mut self) -> Result<(), TransportError> {
        self.link.observed(Action::Disarm, self.inner.disarm())
    }

    fn wants_write(&self) -> bool {
        self.inner.wants_write()
    }

    fn wakes_unarmed(&self) -> bool {
        self.inner.wakes_unarmed()
    }

    fn has_end(&self) -> bool {
        self.inner.has_end()
    }

    fn path_info(&self) -> PathInfo {
        self.inner.path_info()
    }

    fn lender(&self) -> Option<Box<dyn Lender>> {
        self.inner.lender()
    }

    fn reads(&mut self) -> Option<&mut dyn Reads> {
        self.inner.reads()
    }
}
