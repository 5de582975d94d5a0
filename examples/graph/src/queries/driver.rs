//! Runs hops: some here on fetched lists, some by calls at the shards that have them.

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

use farjump::placement::{Chooser, Hop, Place, Sample, Traffic};
use farjump::{Error, InjectError, Pending, Reply};

use crate::Failed;
use crate::costs::{Costs, Samples};
use crate::queries::work::{FetchStage, Item, Strategy, Work};
use crate::shard::BATCH;
use crate::source::Source;
use crate::wire::{Line, graph_now};

/// Number of hops to begin, and of fetched hops to run, between two looks for replies.
const BEGUN: usize = 64;
const DONE: usize = 16;
/// Fetches that wait for their lists or for this processor.
const FETCHES: usize = 256;
/// Calls under way at each shard, and hops in one.
const CALLS: usize = 16;
const HOPS: usize = 256;
/// Units of work after which a call gets no more hops.
const UNITS: usize = 4 * BATCH;
/// Time without any progress after which a run fails.
const PATIENCE: Duration = Duration::from_secs(10);

/// A fetch under way.
struct Fetch {
    item: Item,
    /// The fetch to request when this one has come.
    then: FetchStage,
    due: u64,
    units: usize,
    here_us: f64,
}

/// Hops for a shard that are not sent yet.
#[derive(Default)]
struct Batch {
    items: Vec<Item>,
    words: usize,
    units: usize,
    bytes: usize,
    there_us: f64,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.has(1)
    }

    /// Returns whether a call for a shard that waits is worth its cost.
    fn is_large(&self) -> bool {
        self.has(8)
    }

    /// Returns whether it is full to this part.
    fn has(&self, part: usize) -> bool {
        self.items.len() >= HOPS / part || self.words >= BATCH / part || self.units >= UNITS / part
    }
}

/// A call under way.
struct Sent<'s> {
    pending: Pending<'s>,
    hops: usize,
    units: usize,
    there_us: f64,
    /// The reply, once it has come, and the time at which it counts as arrived.
    reply: Option<(Reply, u64)>,
}

/// A run.
pub(crate) struct Driver<'s> {
    source: &'s Source,
    strategy: Strategy,
    line: Line,
    chooser: Chooser,
    costs: Costs,
    requested: VecDeque<Fetch>,
    fetched: VecDeque<Fetch>,
    batches: Vec<Batch>,
    sent: Vec<VecDeque<Sent<'s>>>,
    /// Calls under way.
    calls: usize,
    /// Whether a full batch could not be sent.
    is_stuck: bool,
    arguments: Vec<u8>,
    /// Hops so far, and those of them at the data.
    pub(crate) hops: [usize; 2],
    pub(crate) samples: Samples,
}

/// The work of one iteration of the loop.
#[derive(Default)]
struct Done {
    anything: bool,
    /// Whether it ended with fetched lists left.
    was_busy: bool,
    estimated_us: f64,
    /// Hops here and their units.
    here: [usize; 2],
    /// Hops that were sent or replied.
    calls: usize,
}

impl<'s> Driver<'s> {
    pub(crate) fn new(source: &'s Source, strategy: Strategy, mut line: Line, costs: Costs) -> Driver<'s> {
        let shards = source.links.len();
        let wire = line.measure();
        Driver {
            source,
            strategy,
            // One thread polls all shards.
            chooser: Chooser::new(wire, line.window(), 1),
            line,
            costs,
            requested: VecDeque::new(),
            fetched: VecDeque::new(),
            batches: (0..shards).map(|_| Batch::default()).collect(),
            sent: (0..shards).map(|_| VecDeque::new()).collect(),
            calls: 0,
            is_stuck: false,
            arguments: Vec::new(),
            hops: [0; 2],
            samples: Samples::default(),
        }
    }

    /// Runs these hops, until all are done.
    ///
    /// # Errors
    /// A shard has failed, or no hop makes progress.
    pub(crate) fn run(&mut self, work: &mut impl Work, items: &[Item]) -> Result<(), Failed> {
        let mut items = items.iter();
        let mut since = Instant::now();
        loop {
            let began = graph_now();
            let mut done = Done::default();
            for shard in 0..self.sent.len() {
                self.take_replies(work, shard, began, &mut done)?;
            }
            self.run_fetched(work, began, &mut done);
            for _ in 0..BEGUN {
                if !self.has_capacity() {
                    break;
                }
                let Some(item) = items.next() else { break };
                self.begin(work, *item, began, &mut done)?;
            }
            self.send_left(work, items.len() == 0, &mut done)?;
            if items.len() == 0 && self.is_idle() && !self.is_stuck {
                return Ok(());
            }
            if done.anything {
                self.learn(&done, (graph_now() - began) as f64 / 1e3);
                since = Instant::now();
            } else {
                self.wait(since)?;
            }
        }
    }

    fn wait(&self, since: Instant) -> Result<(), Failed> {
        self.source.shards.check()?;
        if since.elapsed() > PATIENCE {
            return Err(format!("no shard has replied for {} s", PATIENCE.as_secs()).into());
        }
        if self.source.is_shared {
            thread::yield_now();
        }
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.requested.is_empty() && self.fetched.is_empty() && self.calls == 0
    }

    fn has_capacity(&self) -> bool {
        let may_fetch = self.requested.len() + self.fetched.len() < FETCHES;
        let may_call = self.calls < CALLS * self.sent.len() && !self.is_stuck;
        match self.strategy {
            Strategy::Fetch => may_fetch,
            Strategy::Call => may_call,
            Strategy::Choose => may_fetch && may_call,
        }
    }

    fn begin(&mut self, work: &impl Work, item: Item, now: u64, done: &mut Done) -> Result<(), Failed> {
        let graph = &self.source.graph;
        let units = work.units(graph, item);
        let fetch_stages = work.fetch_stages(graph, item);
        let here_us = self.costs.here.of(units as f64);
        let (bytes, there_us) = match self.strategy {
            Strategy::Fetch => (0, 0.0),
            _ => (work.call_bytes(graph, item), self.costs.there.of(units as f64)),
        };
        let place = match self.strategy {
            Strategy::Fetch => Place::Here,
            Strategy::Call => Place::AtData,
            Strategy::Choose => {
                let round_trips = 1 + usize::from(fetch_stages[1].requests > 0);
                let hop = Hop {
                    owner: 0,
                    fetch: Traffic { round_trips, bytes: fetch_stages[0].bytes + fetch_stages[1].bytes },
                    requests: fetch_stages[0].requests + fetch_stages[1].requests,
                    call: Traffic { round_trips: 1, bytes },
                    here_us,
                    call_us: self.costs.call_us,
                    there_us,
                };
                self.chooser.choose(now as f64 / 1e3, &hop).place
            }
        };
        done.anything = true;
        self.hops[0] += 1;
        if place == Place::Here {
            let due = self.line.fetch(now, fetch_stages[0].requests, fetch_stages[0].bytes);
            let then = fetch_stages[1];
            let stage = if then.requests > 0 { &mut self.requested } else { &mut self.fetched };
            stage.push_back(Fetch { item, then, due, units, here_us });
            return Ok(());
        }
        self.hops[1] += 1;
        let owner = graph.owner(item.vertex);
        let words = work.words(graph, item);
        let batch = &mut self.batches[owner];
        batch.items.push(item);
        batch.words += words;
        batch.units += units;
        batch.bytes += bytes;
        batch.there_us += there_us;
        if batch.is_full() {
            self.send(work, owner, done)?;
        }
        Ok(())
    }

    /// Sends the full batches that are left, all others at the end, and large ones while the shards have nothing to do.
    fn send_left(&mut self, work: &impl Work, is_end: bool, done: &mut Done) -> Result<(), Failed> {
        let is_wanted = self.calls == 0;
        if !is_end && !is_wanted && !self.is_stuck {
            return Ok(());
        }
        self.is_stuck = false;
        for owner in 0..self.batches.len() {
            let batch = &self.batches[owner];
            if batch.is_full() || is_wanted && batch.is_large() || is_end && !batch.items.is_empty() {
                self.send(work, owner, done)?;
            }
        }
        Ok(())
    }

    /// Sends a batch, if there is credit at the shard. Waiting for credit would mean waiting for one shard. That shard
    /// may itself wait until this thread takes the replies of another one.
    fn send(&mut self, work: &impl Work, owner: usize, done: &mut Done) -> Result<(), Failed> {
        let batch = &mut self.batches[owner];
        let due = self.line.send(graph_now(), batch.bytes);
        self.arguments.clear();
        work.arguments(&batch.items, due, &mut self.arguments);
        let link = &self.source.links[owner];
        let pending = match link.try_inject(work.library(self.source), &self.arguments) {
            Err(Error::Inject(InjectError::Full)) => {
                self.is_stuck = true;
                return Ok(());
            }
            sent => sent?,
        };
        let Batch { units, there_us, .. } = *batch;
        self.sent[owner].push_back(Sent { pending, hops: batch.items.len(), units, there_us, reply: None });
        self.calls += 1;
        self.chooser.sent(0, there_us);
        done.anything = true;
        *batch = Batch { items: std::mem::take(&mut batch.items), ..Batch::default() };
        batch.items.clear();
        Ok(())
    }

    fn take_replies(
        &mut self,
        work: &mut impl Work,
        owner: usize,
        now: u64,
        done: &mut Done,
    ) -> Result<(), Failed> {
        while let Some(first) = self.sent[owner].front_mut() {
            if first.reply.is_none() {
                let Some(reply) = first.pending.poll()? else { return Ok(()) };
                let stamps = work.stamps(&reply)?;
                let due = stamps.iter().map(|stamp| self.line.reply(stamp.sent, stamp.hops, reply.len()));
                let due = due.max().unwrap_or_default();
                let us = stamps.iter().map(|stamp| stamp.took).sum::<u64>() as f64 / 1e3;
                if self.strategy == Strategy::Call {
                    let sample = Sample { calls: first.hops as f64, units: first.units as f64, us };
                    self.samples.there.push(sample);
                }
                first.reply = Some((reply, due));
            }
            if first.reply.as_ref().is_some_and(|(_, due)| *due > now) {
                return Ok(());
            }
            let Some(Sent { hops, there_us, reply: Some((reply, _)), .. }) = self.sent[owner].pop_front()
            else {
                return Ok(());
            };
            self.calls -= 1;
            work.take(&reply);
            done.anything = true;
            done.calls += hops;
            if self.strategy == Strategy::Choose {
                done.estimated_us += hops as f64 * self.costs.call_us;
                self.chooser.ended_there(now as f64 / 1e3, 0, there_us);
            }
        }
        Ok(())
    }

    fn run_fetched(&mut self, work: &mut impl Work, now: u64, done: &mut Done) {
        while let Some(first) = pop_due(&mut self.requested, now) {
            let due = self.line.fetch(now, first.then.requests, first.then.bytes);
            self.fetched.push_back(Fetch { due, ..first });
        }
        for _ in 0..DONE {
            let Some(first) = pop_due(&mut self.fetched, now) else { return };
            work.here(&self.source.graph, first.item);
            done.anything = true;
            done.estimated_us += first.here_us;
            done.here[0] += 1;
            done.here[1] += first.units;
        }
        done.was_busy = self.fetched.front().is_some_and(|first| first.due <= now);
    }

    /// Learns from the time of an iteration.
    fn learn(&mut self, done: &Done, took_us: f64) {
        match self.strategy {
            Strategy::Fetch => {
                let [calls, units] = done.here.map(|number| number as f64);
                self.samples.here.push(Sample { calls, units, us: took_us });
            }
            Strategy::Call => {
                self.samples.calls.hops += done.calls as f64;
                self.samples.calls.us += took_us;
            }
            Strategy::Choose => {
                self.chooser.ended_here(done.estimated_us, done.was_busy.then_some(took_us));
            }
        }
    }
}

fn pop_due(fetches: &mut VecDeque<Fetch>, now: u64) -> Option<Fetch> {
    if fetches.front()?.due <= now { fetches.pop_front() } else { None }
}
