//! The transports over which conversations go.

use std::sync::{Arc, Mutex, PoisonError};

use farjump_core::transport::{
    Address, ArrivalRules, Capabilities, Endpoint, LocalAddress, OpenRequest, Stream, Transport,
    TransportError, UnconnectedEndpoint,
};
use farjump_integration_tests::fakes::{FakeOneSided, FakeTwoSided, Rule};
use farjump_transports::shm::Shm;
use farjump_transports::tcp::Tcp;

use crate::step::Way;

/// Makes an endpoint's transport. The seed decides how bytes move, if they move in pieces.
pub fn transport(way: Way, seed: u64) -> Box<dyn Transport> {
    match way {
        Way::Shared => Box::new(Shm::new()),
        Way::SharedChecked => Box::new(Checked(Shm::new())),
        Way::Puts(rule) | Way::PutsByTcp(rule) => Box::new(FakeOneSided::new(Rule::ALL[rule], seed)),
        Way::Messages => Box::new(FakeTwoSided::new(seed)),
        Way::Stream(_) => Box::new(Tcp::new()),
    }
}

/// Shared memory that offers only checked frames.
struct Checked(Shm);

impl Transport for Checked {
    fn name(&self) -> &str {
        "checked"
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.0.capabilities();
        capabilities.arrival &= ArrivalRules::CHECKED;
        capabilities
    }

    fn open(&mut self, request: &OpenRequest) -> Result<Box<dyn UnconnectedEndpoint>, TransportError> {
        Ok(Box::new(UnconnectedChecked(self.0.open(request)?)))
    }
}

struct UnconnectedChecked(Box<dyn UnconnectedEndpoint>);

impl UnconnectedEndpoint for UnconnectedChecked {
    fn address(&self) -> LocalAddress<'_> {
        self.0.address()
    }

    fn connect(self: Box<Self>, peer: Address, timeout_ms: u32) -> Result<Endpoint, TransportError> {
        self.0.connect(peer, timeout_ms)
    }
}

/// `tcp` at the hostile end, which opens streams itself: the next connected endpoint gets this one.
#[derive(Clone, Default)]
pub struct Opened(Arc<Mutex<Option<Stream>>>);

impl Opened {
    /// Sets the stream of the next endpoint.
    pub fn set(&self, stream: Option<Stream>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = stream;
    }
}

impl Transport for Opened {
    fn name(&self) -> &str {
        farjump_transports::tcp::NAME
    }

    fn capabilities(&self) -> Capabilities {
        Tcp::new().capabilities()
    }

    fn open(&mut self, request: &OpenRequest) -> Result<Box<dyn UnconnectedEndpoint>, TransportError> {
        Ok(Box::new(UnconnectedOpened(self.clone(), Tcp::new().open(request)?)))
    }
}

struct UnconnectedOpened(Opened, Box<dyn UnconnectedEndpoint>);

impl UnconnectedEndpoint for UnconnectedOpened {
    fn address(&self) -> LocalAddress<'_> {
        self.1.address()
    }

    fn connect(self: Box<Self>, mut peer: Address, timeout_ms: u32) -> Result<Endpoint, TransportError> {
        peer.stream = self.0.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.1.connect(peer, timeout_ms)
    }
}
