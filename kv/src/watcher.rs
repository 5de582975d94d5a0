//! Reports functions that take too long, while they run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Shortest and longest time between two checks.
const SHORTEST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_secs(1);

/// The time of functions after which they are reported, in nanoseconds. Any holder may change it.
#[derive(Debug)]
pub(crate) struct Limit(AtomicU64);

impl Limit {
    pub(crate) fn new(limit: Duration) -> Limit {
        let new = Limit(AtomicU64::new(0));
        new.set(limit);
        new
    }

    pub(crate) fn get(&self) -> Duration {
        match self.0.load(Ordering::Relaxed) {
            u64::MAX => Duration::MAX,
            nanoseconds => Duration::from_nanos(nanoseconds),
        }
    }

    pub(crate) fn set(&self, limit: Duration) {
        self.0.store(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// A thread that checks at intervals how long functions have been running. It never wakes the server's thread.
#[derive(Debug)]
pub(crate) struct Watcher {
    /// The start of the run, in microseconds since `origin`, and 1 at least. 0 if no run is under way.
    began: Arc<AtomicU64>,
    origin: Instant,
    /// Dropping this ends the thread.
    ends: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A run of functions, until it is dropped.
#[derive(Debug)]
pub(crate) struct Run<'w>(&'w Watcher);

impl Watcher {
    /// Starts to watch for runs longer than `limit`, which is read at each check.
    ///
    /// # Errors
    /// The reason why there is no thread.
    pub(crate) fn start(limit: Arc<Limit>) -> Result<Watcher, String> {
        let (ends, ended) = mpsc::channel();
        let (began, origin) = (Arc::new(AtomicU64::new(0)), Instant::now());
        let seen = Arc::clone(&began);
        let watch = move || {
            let mut reported = 0;
            while ended.recv_timeout(limit.get().clamp(SHORTEST, LONGEST)) == Err(RecvTimeoutError::Timeout) {
                let began = seen.load(Ordering::Relaxed);
                let now = origin.elapsed().as_micros() as u64;
                let took = Duration::from_micros(now.saturating_sub(began));
                if began != 0 && began != reported && took > limit.get() {
                    reported = began;
                    log::warn!(
                        "functions have been running for {} ms, and other clients wait: farjump stops none",
                        took.as_millis()
                    );
                }
            }
        };
        let thread = thread::Builder::new().name("farjump-watch".to_owned()).spawn(watch);
        let thread = thread.map_err(|error| format!("no thread to watch functions: {error}"))?;
        Ok(Watcher { began, origin, ends: Some(ends), thread: Some(thread) })
    }

    /// Notes that functions run until the result is dropped.
    pub(crate) fn run(&self) -> Run<'_> {
        let now = self.origin.elapsed().as_micros() as u64;
        self.began.store(now.max(1), Ordering::Relaxed);
        Run(self)
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.0.began.store(0, Ordering::Relaxed);
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        drop(self.ends.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
