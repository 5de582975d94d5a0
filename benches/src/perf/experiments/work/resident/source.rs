//! The source's endpoints.

use std::cell::Cell;
use std::time::Duration;

use farjump::{Library, Link};

use super::super::data::Store;
#[cfg(feature = "ucx")]
use super::super::data::{AREA, CALLS};
use super::super::native::with_reply;
#[cfg(feature = "ucx")]
use super::super::one_sided::Remote;
use super::Task;
use super::present::{Natives, Present, present, shared_store};
use super::query::{Job, Jobs};
#[cfg(feature = "ucx")]
use super::query::{NODE, NODE_HEAD, STEPS};
use crate::perf::experiments::role::Source;
use crate::perf::process::liveness::{PATIENCE, Watch};
use crate::perf::process::shared_memory::Memory;
use crate::program::failure::Failure;

/// A way of working on resident data.
pub(super) trait Perform {
    /// Does the present work, and appends the reply.
    fn perform(&mut self, work: Present, job: Job, reply: &mut Vec<u8>, watch: &Watch)
    -> Result<(), Failure>;

    /// Reports the number of calls where only this endpoint knows it.
    fn settle(&mut self, calls: u64, watch: &Watch) -> Result<(), Failure>;

    /// Returns UCX's transports, if it reports them.
    fn lanes(&self) -> Option<String> {
        None
    }
}

/// Does the work, and checks the last reply after each measurement.
pub(super) struct WorkSource<W> {
    method: W,
    work: Present,
    jobs: Jobs,
    /// The last call, and the number of the next.
    job: Job,
    turn: usize,
    reply: Vec<u8>,
    calls: u64,
}

thread_local! {
    /// The number of this process's next call. All ways count on, so that no call reads what the previous one
    /// left in a cache.
    static TURN: Cell<usize> = const { Cell::new(0) };
}

impl<W: Perform> WorkSource<W> {
    pub(super) fn new(method: W) -> WorkSource<W> {
        let (jobs, job) = (Jobs::NONE, Jobs::NONE.nth(0));
        WorkSource { method, work: present(), jobs, job, turn: 0, reply: Vec::with_capacity(256), calls: 0 }
    }
}

impl<W: Perform> Source for WorkSource<W> {
    fn prepare(&mut self, _size: usize, _streams: bool) -> Result<(), Failure> {
        self.work = present();
        self.jobs = self.work.jobs();
        self.turn = TURN.get();
        self.calls = 0;
        Ok(())
    }

    #[inline]
    fn call(&mut self, watch: &Watch) -> Result<(), Failure> {
        self.reply.clear();
        self.calls += 1;
        self.job = self.jobs.nth(self.turn);
        self.turn = self.turn.wrapping_add(1);
        self.method.perform(self.work, self.job, &mut self.reply, watch)
    }

    fn send(&mut self, watch: &Watch) -> Result<(), Failure> {
        self.call(watch)
    }

    fn settle(&mut self, watch: &Watch) -> Result<(), Failure> {
        TURN.set(self.turn);
        self.method.settle(self.calls, watch)?;
        if self.calls == 0 || self.reply == self.job.result {
            return Ok(());
        }
        Err(Failure::new(format!(
            "`{}` gave a wrong result for {} B of resident data: {:02x?} instead of {:02x?}",
            self.work.query, self.work.size, self.reply, self.job.result
        )))
    }

    fn finish(&mut self, _memory: &Memory, _watch: &Watch) -> Result<(), Failure> {
        Ok(())
    }

    fn stream(&mut self, _count: u64, _memory: &Memory, _watch: &Watch) -> Result<Duration, Failure> {
        Err(Failure::new("work is called one call at a time"))
    }

    fn lanes(&self) -> Option<String> {
        self.method.lanes()
    }
}

struct Calls<'a> {
    link: &'a Link,
    library: &'a Library,
}

impl Perform for Calls<'_> {
    #[inline]
    fn perform(&mut self, _: Present, job: Job, reply: &mut Vec<u8>, _watch: &Watch) -> Result<(), Failure> {
        Ok(self.link.call_into(self.library, job.args, PATIENCE, reply)?)
    }

    fn settle(&mut self, _calls: u64, _watch: &Watch) -> Result<(), Failure> {
        Ok(())
    }
}

/// Returns the source's endpoint of injected functions.
pub(crate) fn injected<'a>(link: &'a Link, library: &'a Library) -> impl Source + 'a {
    WorkSource::new(Calls { link, library })
}

/// Computes where the data are mapped.
struct Loads {
    natives: Natives,
    store: &'static Store,
}

impl Perform for Loads {
    #[inline]
    fn perform(&mut self, _: Present, job: Job, reply: &mut Vec<u8>, _watch: &Watch) -> Result<(), Failure> {
        self.natives.call_here(job);
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
    Ok(Box::new(WorkSource::new(Loads { natives: Natives::place(task, store)?, store })))
}

/// Fetches the data, or node after node, and computes here.
#[cfg(feature = "ucx")]
struct Fetches<R> {
    remote: R,
    natives: Natives,
    store: &'static Store,
}

#[cfg(feature = "ucx")]
impl<R: Remote> Perform for Fetches<R> {
    #[inline]
    fn perform(
        &mut self,
        work: Present,
        job: Job,
        reply: &mut Vec<u8>,
        watch: &Watch,
    ) -> Result<(), Failure> {
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
    Ok(Box::new(WorkSource::new(Fetches { remote, natives: Natives::place(task, store)?, store })))
}
