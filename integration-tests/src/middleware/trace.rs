//! `Trace`: every operation of a transport, passed to a sink.

use std::sync::Arc;

use super::event::{Event, Step};
use super::observer::{Mapping, Observed};
use farjump_core::transport::{Capabilities, OpenRequest, Transport, TransportError, UnconnectedEndpoint};

/// A transport that passes each operation to a sink, as an [`Event`] that displays as one line.
///
/// The sink is called on the thread that uses the endpoint, after the operation. So its output has the order of
/// operations on that thread. It should not wait. Operations without result are left out: progress that succeeded, a
/// poll without a message, completions that did not grow.
///
/// # Costs
/// Plain stores call no trait, so the mapping of the peer's region is hidden, and with it the arrival rule `stores`.
/// The inner transport's `put`, `fence` and `put_word` carry the bytes, a call each, and the signal becomes a write
/// of its own. [`super::Metered`] hides nothing, and sees no stores.
///
/// ```
/// # use farjump_core::transport::Transport;
/// # use farjump_integration_tests::middleware::Trace;
/// fn traced(inner: Box<dyn Transport>) -> Trace {
///     Trace::new(inner, |event| eprintln!("{event}"))
/// }
/// ```
pub struct Trace(Observed);

impl Trace {
    /// Wraps `inner`; `sink` gets every operation of every endpoint.
    pub fn new(inner: Box<dyn Transport>, sink: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        let worth_telling = move |event: &Event<'_>| {
            if event.action.step() != Step::Progress || event.failure.is_some() {
                sink(event);
            }
        };
        Trace(Observed::new(inner, Mapping::Hidden, Arc::new(worth_telling)))
    }
}

impl Transport for Trace {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    /// Opens an endpoint of the inner transport.
    ///
    /// # Errors
    /// [`Unsupported`](farjump_core::transport::Cause::Unsupported) over a transport whose only arrival rule
    /// is `stores`; else those of the inner transport.
    fn open(&mut self, request: &OpenRequest) -> Result<Box<dyn UnconnectedEndpoint>, TransportError> {
        self.0.open(request)
    }
}
