//! `Trace`: every operation of a transport, handed to a sink.

use std::sync::Arc;

use super::event::{Event, Step};
use super::observer::{Mapping, Observed};
use farjump_core::transport::{Capabilities, OpenRequest, Opening, Transport, TransportError};

/// A transport that hands each operation to a sink, as an [`Event`] that displays as one line.
///
/// The sink is called on the thread that works with the end, after the operation: what it prints comes in the order in
/// which things were done on that thread. It should not wait. Operations that found nothing are left out: progress that
/// succeeded, a poll without a message, completions that did not grow.
///
/// # What it costs
/// Plain stores pass no trait, so the mapping of the peer's region is hidden, and with it the arrival rule `stores`: the
/// inner transport's `put`, `fence` and `put_word` carry the bytes, a call each, and the signal becomes a write of its own.
/// [`super::Metered`] hides nothing, and sees no stores.
///
/// ```
/// # use farjump_core::{middleware::Trace, transport::Transport};
/// fn traced(inner: Box<dyn Transport>) -> Trace {
///     Trace::new(inner, |event| eprintln!("{event}"))
/// }
/// ```
pub struct Trace(Observed);

impl Trace {
    /// Wraps `inner`; `sink` is told of every operation of every end that it makes.
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

    /// As the inner transport.
    ///
    /// # Errors
    /// [`Unsupported`](farjump_core::transport::Cause::Unsupported) over a transport whose only arrival rule is `stores`; else
    /// those of the inner.
    fn open(&mut self, request: &OpenRequest) -> Result<Box<dyn Opening>, TransportError> {
        self.0.open(request)
    }
}
