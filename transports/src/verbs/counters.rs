//! Counters of the requests and completions of this process's queue pairs, to find the cost of a message.
//!
//! Each queue pair has its own counters, written by plain stores of its one owner. Nothing is shared before a read.

use farjump_os::PerProcess;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The counters of all send queues of this process since it began, of present and of dropped links.
///
/// Only differences are meaningful: read the counters before and after, in the sending process. They include requests
/// that links make by themselves, such as returns of credit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Lists of work requests posted to a device: a device doorbell each, and over Soft-RoCE a system call.
    pub posts: u64,
    /// Work requests in them: writes and sends, including the words that return credit.
    pub requests: u64,
    /// Bytes in those requests, without the headers that the device adds.
    pub bytes: u64,
    /// Completions taken off send queues.
    pub completions: u64,
}

/// The counters of the process until now.
pub fn counts() -> Counts {
    let registry = registry();
    registry.live.iter().fold(registry.gone, |sum, live| sum.plus(live.read()))
}

impl Counts {
    fn plus(self, other: Counts) -> Counts {
        Counts {
            posts: self.posts + other.posts,
            requests: self.requests + other.requests,
            bytes: self.bytes + other.bytes,
            completions: self.completions + other.completions,
        }
    }

    /// The counts since `before` was read.
    pub fn since(self, before: Counts) -> Counts {
        Counts {
            posts: self.posts.saturating_sub(before.posts),
            requests: self.requests.saturating_sub(before.requests),
            bytes: self.bytes.saturating_sub(before.bytes),
            completions: self.completions.saturating_sub(before.completions),
        }
    }
}

/// The counters of one queue pair. Written only by its owner, one thread at a time.
#[derive(Debug, Default)]
struct Cells {
    posts: AtomicU64,
    requests: AtomicU64,
    bytes: AtomicU64,
    completions: AtomicU64,
}

impl Cells {
    // Relaxed, because the numbers order nothing. Each is exact, but together they need not be of one moment.
    fn read(&self) -> Counts {
        Counts {
            posts: self.posts.load(Ordering::Relaxed),
            requests: self.requests.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            completions: self.completions.load(Ordering::Relaxed),
        }
    }
}

/// There is one writer, so a load and a store replace a locked instruction.
#[inline(always)]
fn add(cell: &AtomicU64, more: u64) {
    cell.store(cell.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

/// The counters of all queue pairs of this process.
#[derive(Default)]
struct Registry {
    live: Vec<Arc<Cells>>,
    /// The sum of the counters of dropped queue pairs.
    gone: Counts,
}

static REGISTRY: PerProcess<Mutex<Registry>> = PerProcess::new();

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// A queue pair's entry in the counters of the process. Its counts remain when it is dropped.
#[derive(Debug)]
pub(super) struct Counter(Arc<Cells>);

impl Counter {
    /// Makes an entry at zero.
    pub(super) fn new() -> Counter {
        let cells = Arc::<Cells>::default();
        registry().live.push(Arc::clone(&cells));
        Counter(cells)
    }

    /// Counts one list of `requests` requests with `bytes` bytes in all.
    #[inline(always)]
    pub(super) fn posted(&mut self, requests: usize, bytes: usize) {
        add(&self.0.posts, 1);
        add(&self.0.requests, requests as u64);
        add(&self.0.bytes, bytes as u64);
    }

    /// Counts `completions` completions.
    #[inline(always)]
    pub(super) fn completed(&mut self, completions: usize) {
        if completions != 0 {
            add(&self.0.completions, completions as u64);
        }
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        let mut registry = registry();
        let before = registry.live.len();
        registry.live.retain(|live| !Arc::ptr_eq(live, &self.0));
        // A forked child has copies of its parent's counters.
        if registry.live.len() != before {
            registry.gone = registry.gone.plus(self.0.read());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_queue_pairs_survive_their_drop() {
        let before = counts();
        let (mut first, mut second) = (Counter::new(), Counter::new());
        first.posted(2, 100);
        second.posted(1, 24);
        second.completed(0);
        second.completed(3);
        drop(first);
        // At least: with a device, other tests of this process have their own queue pairs.
        let counted = counts().since(before);
        assert!(counted.posts >= 2 && counted.requests >= 3 && counted.completions >= 3, "{counted:?}");
        let live = registry().live.iter().filter(|live| Arc::ptr_eq(live, &second.0)).count();
        assert_eq!(live, 1);
        let cells = Arc::clone(&second.0);
        drop(second);
        assert!(counts().since(before).requests >= 3);
        assert!(!registry().live.iter().any(|live| Arc::ptr_eq(live, &cells)));
        assert_eq!(cells.read(), Counts { posts: 1, requests: 1, bytes: 24, completions: 3 });
    }
}
