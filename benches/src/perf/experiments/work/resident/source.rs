//! The source's endpoints.

use std::cell::Cell;

use farjump::{Library, Link};

#[cfg(feature = "ucx")]
use super::super::data::CALLS;
use super::super::data::Store;
#[cfg(feature = "ucx")]
use super::super::functions::AREA;
use super::super::injected::Injected;
use super::super::native::with_reply;
#[cfg(feature = "ucx")]
use super::super::one_sided::Remote;
use super::super::source::{Calls, Perform, WorkSource};
use super::Task;
use super::present::{Natives, Present, present, shared_store};
use super::query::{Job, Jobs};
#[cfg(feature = "ucx")]
use super::query::{NODE, NODE_HEAD, STEPS};
use crate::perf::experiments::role::Source;
use crate::perf::process::liveness::Watch;
use crate::perf::process::shared_memory::Memory;
use crate::program::failure::Failure;

/// Longest reply of a function on resident data, in bytes.
const LONGEST_REPLY: usize = 256;

/// The calls of the present work.
pub(super) struct Turn {
    pub(super) work: Present,
    jobs: Jobs,
    /// The last call, and the number of the next.
    pub(super) job: Job,
    next: usize,
}

thread_local! {
    /// The number of this process's next call. All ways count on, so that no call reads what the previous one
    /// left in a cache.
    static TURN: Cell<usize> = const { Cell::new(0) };
}

impl Turn {
    pub(super) fn new() -> Turn {
        Turn { work: present(), jobs: Jobs::NONE, job: Jobs::NONE.nth(0), next: 0 }
    }
}

impl Calls for Turn {
    fn prepare(&mut self, _size: usize) {
        self.work = present();
        self.jobs = self.work.jobs();
        self.next = TURN.get();
    }

    #[inline]
    fn next(&mut self) {
        self.job = self.jobs.nth(self.next);
        self.next = self.next.wrapping_add(1);
    }

    #[inline]
    fn args(&self) -> &'static [u8] {
        self.job.args
    }

    fn end(&mut self, reply: Option<&[u8]>) -> Result<(), Failure> {
        TURN.set(self.next);
        match reply {
            Some(reply) if reply != self.job.result => Err(Failure::new(format!(
                "`{}` gave a wrong result for {} B of resident data: {reply:02x?} instead of {:02x?}",
                self.work.query, self.work.size, self.job.result
            ))),
            _ => Ok(()),
        }
    }
}

/// Returns an endpoint of the source that works in this way.
pub(super) fn endpoint<W: Perform<Turn>>(method: W) -> WorkSource<Turn, W> {
    WorkSource::new(Turn::new(), method, LONGEST_REPLY)
}

/// Returns the source's endpoint of injected functions.
pub(crate) fn injected<'a>(link: &'a Link, library: &'a Library) -> impl Source + 'a {
    endpoint(Injected { link, library })
}

/// Computes where the data are mapped.
struct Loads {
    natives: Natives,
    store: &'static Store,
}

impl Perform<Turn> for Loads {
    #[inline]
    fn perform(&mut self, turn: &Turn, reply: &mut Vec<u8>, _watch: &Watch) -> Result<(), Failure> {
        self.natives.call_here(turn.job);
        with_reply(|own| reply.extend_from_slice(own));
        Ok(())
    }

    fn settle(&mut self, calls: u64, _watch: &Watch) -> Result<(), Failure> {
        self.store.report(calls);
        Ok(())
    }
}

/// Returns the source's endpoint that loads the target's data.
pub(crate) fn loading(task: &Task, memory: &Memory) -> Result<Box<dyn Source>, Failure> {
    let store = shared_store(memory);
    Ok(Box::new(endpoint(Loads { natives: Natives::place(task, store)?, store })))
}

/// Fetches the data, or node after node, and computes here.
#[cfg(feature = "ucx")]
struct Fetches<R> {
    remote: R,
    natives: Natives,
    store: &'static Store,
}

#[cfg(feature = "ucx")]
impl<R: Remote> Perform<Turn> for Fetches<R> {
    #[inline]
    fn perform(&mut self, turn: &Turn, reply: &mut Vec<u8>, watch: &Watch) -> Result<(), Failure> {
        let Turn { work, job, .. } = *turn;
        let remote = &mut self.remote;
        if work.stepwise {
            return walk(job, reply, |node, _| {
                remote.get(AREA + node * NODE, NODE_HEAD, 0, watch)?;
                remote.arrive(watch)?;
                Ok(head(remote.fetched()))
            });
        }
        remote.get(AREA, work.size, 0, watch)?;
        remote.arrive(watch)?;
        self.store.show(remote.fetched(), work.size);
        self.natives.call_here(job);
        with_reply(|own| reply.extend_from_slice(own));
        Ok(())
    }

    fn settle(&mut self, calls: u64, watch: &Watch) -> Result<(), Failure> {
        self.remote.put_word(CALLS, calls, watch)?;
        self.remote.flush(watch)
    }

    fn lanes(&self) -> Option<String> {
        self.remote.lanes()
    }
}

/// Walks the list by a `fetch` for each node. `fetch` gets the node, and whether it is the last.
#[cfg(feature = "ucx")]
#[inline]
pub(super) fn walk(
    job: Job,
    reply: &mut Vec<u8>,
    mut fetch: impl FnMut(usize, bool) -> Result<[u64; 2], Failure>,
) -> Result<(), Failure> {
    let mut node = job.args.first_chunk().copied().map_or(0, u64::from_le_bytes);
    let mut total = 0_u64;
    for step in 1..=STEPS {
        let [next, value] = fetch(node as usize, step == STEPS)?;
        total = total.wrapping_add(value);
        node = next;
    }
    reply.extend(total.to_le_bytes());
    Ok(())
}

/// Reads a node's next node and value; zeros if there are too few bytes.
#[cfg(feature = "ucx")]
#[inline]
pub(super) fn head(bytes: &[u8]) -> [u64; 2] {
    let (words, _) = bytes.as_chunks();
    [0, 1].map(|at| words.get(at).copied().map_or(0, u64::from_le_bytes))
}

/// Returns the source's endpoint that fetches by an access to the target's memory.
#[cfg(feature = "ucx")]
pub(crate) fn fetching<R: Remote + 'static>(task: &Task, remote: R) -> Result<Box<dyn Source>, Failure> {
    // `show` gives it other data than the store's own.
    let store = Store::own(0);
    Ok(Box::new(endpoint(Fetches { remote, natives: Natives::place(task, store)?, store })))
}
