//! `Metered`: counts the operations of a transport and the bytes that they move.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::event::{Event, Step};
use super::observer::{Mapping, Observed};
use farjump_core::transport::{Capabilities, OpenRequest, Transport, TransportError, UnconnectedEndpoint};

/// A transport that counts its operations; [`Metered::meter`] reads the counts.
///
/// It keeps the mapping of the peer's region. Under the arrival rule `stores` frames are plain stores that call no
/// trait, so it counts only opening, connecting, progress, wake-ups, sleeping and closing. It counts each progress,
/// and does not count polls that find nothing.
pub struct Metered {
    observed: Observed,
    meter: Meter,
}

impl Metered {
    /// Wraps `inner`, with all counts at zero.
    pub fn new(inner: Box<dyn Transport>) -> Self {
        let meter = Meter(Arc::default());
        let counting = meter.clone();
        let sink = Arc::new(move |event: &Event<'_>| counting.add(event));
        Metered { observed: Observed::new(inner, Mapping::Shown, sink), meter }
    }

    /// The counts of all endpoints of this transport, at any time and from any thread.
    pub fn meter(&self) -> Meter {
        self.meter.clone()
    }
}

impl Transport for Metered {
    fn name(&self) -> &str {
        self.observed.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.observed.capabilities()
    }

    fn open(&mut self, request: &OpenRequest) -> Result<Box<dyn UnconnectedEndpoint>, TransportError> {
        self.observed.open(request)
    }
}

/// The counts of one [`Metered`] transport. Clones read the same counts. Its `Display` names those that are not zero:
/// `open 1, put 12 (1440 bytes, 3 refused for want of space)`.
#[derive(Clone)]
pub struct Meter(Arc<[Cell; Step::ALL.len()]>);

#[derive(Default)]
struct Cell {
    done: AtomicU64,
    bytes: AtomicU64,
    full: AtomicU64,
    failed: AtomicU64,
}

/// The counts of one kind of operation. The four are read one after the other, so under concurrent use they need not
/// match.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// Operations that succeeded.
    pub done: u64,
    /// Bytes that these moved between the peers; see [`super::Action::bytes_moved`].
    pub bytes: u64,
    /// Operations refused as full; the caller retries these.
    pub full: u64,
    /// Operations that failed for another cause.
    pub failed: u64,
}

impl Meter {
    /// The counts of `step` so far.
    pub fn count(&self, step: Step) -> Count {
        let cell = &self.0[step as usize];
        // Statistics: no conclusion is drawn from one count about another, or about memory.
        Count {
            done: cell.done.load(Relaxed),
            bytes: cell.bytes.load(Relaxed),
            full: cell.full.load(Relaxed),
            failed: cell.failed.load(Relaxed),
        }
    }

    fn add(&self, event: &Event<'_>) {
        let cell = &self.0[event.action.step() as usize];
        match event.failure {
            None => {
                cell.done.fetch_add(1, Relaxed);
                cell.bytes.fetch_add(event.action.bytes_moved() as u64, Relaxed);
            }
            Some(failure) if failure.is_full() => _ = cell.full.fetch_add(1, Relaxed),
            Some(_) => _ = cell.failed.fetch_add(1, Relaxed),
        }
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Meter({self})")
    }
}

impl fmt::Display for Meter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for step in Step::ALL {
            let count = self.count(step);
            if count == Count::default() {
                continue;
            }
            write!(out, "{between}{step} {}", count.done)?;
            between = ", ";
            let mut open = " (";
            for (number, what) in
                [(count.bytes, "bytes"), (count.full, "refused for want of space"), (count.failed, "failed")]
            {
                if number != 0 {
                    write!(out, "{open}{number} {what}")?;
                    open = ", ";
                }
            }
            if open == ", " {
                out.write_str(")")?;
            }
        }
        if between.is_empty() { out.write_str("nothing counted") } else { Ok(()) }
    }
}
