//! The transports of conversations.

use std::sync::{Arc, Mutex, PoisonError};

use farjump_core::transport::{ArrivalRules, Stream, Transport};
use farjump_fixtures::altered::Altered;
use farjump_integration_tests::fakes::{FakeOneSided, FakeTwoSided, Rule};
use farjump_transports::shm::Shm;
use farjump_transports::tcp::Tcp;

use crate::step::Route;

/// Makes an endpoint's transport. The seed decides how bytes move, if they move in pieces.
pub fn transport(route: Route, seed: u64) -> Box<dyn Transport> {
    match route {
        Route::Shared => Box::new(Shm::new()),
        Route::SharedChecked => {
            Altered::new(Shm::new()).named("checked").with_rules(ArrivalRules::CHECKED).boxed()
        }
        Route::Puts(rule) | Route::PutsByTcp(rule) => Box::new(FakeOneSided::new(Rule::ALL[rule], seed)),
        Route::Messages => Box::new(FakeTwoSided::new(seed)),
        Route::Stream(_) => Box::new(Tcp::new()),
    }
}

/// `tcp` at the hostile peer, which opens streams itself: the next connected endpoint gets this stream.
#[derive(Clone, Default)]
pub struct Opened(Arc<Mutex<Option<Stream>>>);

impl Opened {
    /// Sets the stream of the next endpoint.
    pub fn set(&self, stream: Option<Stream>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = stream;
    }

    /// The transport whose endpoints get these streams.
    pub fn transport(&self) -> Box<dyn Transport> {
        let opened = Arc::clone(&self.0);
        let taking = Altered::new(Tcp::new()).connecting(move |endpoint, mut peer, timeout_ms| {
            peer.stream = opened.lock().unwrap_or_else(PoisonError::into_inner).take();
            endpoint.connect(peer, timeout_ms)
        });
        taking.boxed()
    }
}
