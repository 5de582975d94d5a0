//! A transport whose frames travel on a stream.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use farjump_core::transport::{
    Address, ArrivalRules, Capabilities, Endpoint, InboxKind, LocalAddress, Message, Messages, OpenRequest,
    Stream, Transport, TransportError, UnconnectedEndpoint,
};

/// Keeps the streams that it gets, and moves nothing.
#[derive(Clone, Default)]
pub(super) struct Streamed(Arc<Mutex<Vec<Stream>>>);

struct UnconnectedStreamed(Streamed);

struct Still;

impl Streamed {
    /// Returns it as the only transport of a process.
    pub(super) fn one(&self) -> Vec<Box<dyn Transport>> {
        vec![Box::new(self.clone())]
    }

    /// Returns whether it got no stream.
    pub(super) fn has_none(&self) -> bool {
        self.0.lock().unwrap().is_empty()
    }

    /// Returns the only stream that it got.
    pub(super) fn stream(&self) -> Stream {
        let mut streams = self.0.lock().unwrap();
        assert_eq!(streams.len(), 1);
        streams.remove(0)
    }
}

impl Transport for Streamed {
    fn name(&self) -> &str {
        "streamed"
    }

    fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::new(InboxKind::TwoSided, ArrivalRules::DELIVERED, 1 << 20);
        can.stream = true;
        can
    }

    fn open(&mut self, _: &OpenRequest) -> Result<Box<dyn UnconnectedEndpoint>, TransportError> {
        Ok(Box::new(UnconnectedStreamed(self.clone())))
    }
}

impl UnconnectedEndpoint for UnconnectedStreamed {
    fn address(&self) -> LocalAddress<'_> {
        LocalAddress::default()
    }

    fn connect(self: Box<Self>, peer: Address, _: u32) -> Result<Endpoint, TransportError> {
        self.0.0.lock().unwrap().push(peer.stream.expect("no stream was given"));
        Ok(Endpoint::TwoSided(Box::new(Still)))
    }
}

// SAFETY: it lends nothing: `reserve` and `poll` are not called here.
unsafe impl Messages for Still {
    fn reserve(&mut self, _: usize) -> Result<NonNull<u8>, TransportError> {
        unreachable!()
    }

    fn commit(&mut self, _: usize, _: u64) -> Result<(), TransportError> {
        unreachable!()
    }

    fn poll(&mut self) -> Result<Option<Message>, TransportError> {
        Ok(None)
    }

    fn release(&mut self) {}
}
