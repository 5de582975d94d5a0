//! A test's handle of a fake: moves bytes in flight, and reports violations.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Violation, lock};

/// The pieces in flight from one endpoint to another.
pub(super) trait InFlight: Send + Sync {
    /// Delivers up to `pieces`; returns the number delivered.
    fn deliver(&self, pieces: usize) -> usize;
    /// Pieces that are not delivered.
    fn pending(&self) -> usize;
}

/// The state shared by a fake, its endpoints and its handles.
#[derive(Default)]
pub(super) struct Shared {
    violations: Mutex<Vec<Violation>>,
    wires: Mutex<Vec<Weak<dyn InFlight>>>,
}

impl Shared {
    pub(super) fn record(&self, violation: Violation) {
        lock(&self.violations).push(violation);
    }

    pub(super) fn add(&self, wire: Weak<dyn InFlight>) {
        let mut wires = lock(&self.wires);
        wires.retain(|wire| wire.strong_count() > 0);
        wires.push(wire);
    }

    fn wires(&self) -> Vec<Arc<dyn InFlight>> {
        lock(&self.wires).iter().filter_map(Weak::upgrade).collect()
    }
}

/// A handle of everything that the endpoints of one fake transport send. Clones are the same handle.
#[derive(Clone)]
pub struct FakeHandle(pub(super) Arc<Shared>);

impl FakeHandle {
    /// Delivers up to `pieces` pieces (whole messages in the two-sided fake) that each endpoint has in flight, in the
    /// seed's order. Returns the number delivered; it is 0 if nothing was in flight.
    pub fn pump(&self, pieces: usize) -> usize {
        self.0.wires().iter().map(|wire| wire.deliver(pieces)).sum()
    }

    /// Pieces in flight.
    pub fn pending(&self) -> usize {
        self.0.wires().iter().map(|wire| wire.pending()).sum()
    }

    /// Starts a thread that delivers piece by piece until the returned value is dropped. The seed still
    /// decides the order; the scheduler decides the time.
    pub fn pump_in_background(&self) -> Background {
        let stop = Arc::new(AtomicBool::new(false));
        let (handle, stopped) = (self.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Relaxed) {
                if handle.pump(1) == 0 {
                    std::thread::sleep(Duration::from_micros(50));
                } else {
                    std::thread::yield_now();
                }
            }
        });
        Background { stop, thread: Some(thread) }
    }

    /// The violations of this fake's users so far, oldest first.
    pub fn violations(&self) -> Vec<Violation> {
        lock(&self.0.violations).clone()
    }

    /// Panics with a list of the violations, if there are any.
    #[track_caller]
    pub fn assert_clean(&self) {
        let violations = self.violations();
        let list: Vec<String> = violations.iter().map(|violation| format!("\n  {violation}")).collect();
        assert!(violations.is_empty(), "the transport contract was broken:{}", list.concat());
    }
}

/// A thread that delivers pieces in flight. Dropping it ends the thread and waits for its end.
pub struct Background {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed when it happened.
            let _ = thread.join();
        }
    }
}
