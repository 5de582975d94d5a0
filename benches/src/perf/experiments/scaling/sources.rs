//! A target with many sources: a few, each in a process of its own, or all in this process.
//!
//! The target has a processor to itself, and all sources share another one. Their work is the same as
//! processes or as links. Processes take turns of milliseconds, the links of this process turns of one
//! message.

use std::time::{Duration, Instant};

use farjump::{Library, Link};

use super::rss::Resident;
use super::sender::{connect, send_in_turn};
use crate::perf::experiments::baselines::injection::Calls;
use crate::perf::experiments::baselines::ring::Layout;
use crate::perf::experiments::measurement::{Measurement, round_trips};
use crate::perf::experiments::setting::Setting;
use crate::perf::process::child::Pair;
use crate::perf::process::child_protocol::Played;
use crate::perf::process::liveness::PATIENCE;
use crate::perf::process::place;
use crate::perf::report::key::Key;
use crate::perf::report::metric::Metric;
use crate::perf::report::statistics::{Round, median};
use crate::program::failure::Failure;

/// Time for which a source is idle before a call that finds it idle: many times longer than a target needs.
const IDLE: Duration = Duration::from_millis(1);

/// Time of polling, for each source, until those that have sent count as idle: more than twice 4,096 polls.
const SETTLE: Duration = Duration::from_micros(300);

/// The processes of sources.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Home {
    /// One in this process, each other in one of its own.
    Processes,
    /// All in this process, each with a link.
    Here,
}

/// Sources, and the endpoint number of their target.
pub(super) struct Crowd<'a> {
    setting: &'a Setting<'a>,
    transport: &'a str,
    socket: String,
    endpoint: usize,
    home: Home,
    links: Vec<Link>,
    others: Vec<Pair>,
    /// Memory of the target's process with one source.
    at_first: Option<Resident>,
    args: Vec<u8>,
}

impl<'a> Crowd<'a> {
    /// Makes a crowd without sources, for the target with number `endpoint`, which listens on `socket`.
    pub(super) fn new(
        setting: &'a Setting<'a>,
        transport: &'a str,
        endpoint: usize,
        socket: String,
        home: Home,
    ) -> Crowd<'a> {
        let args = vec![7; setting.options.sizes.longest()];
        let (links, others) = (Vec::new(), Vec::new());
        Crowd { setting, transport, socket, endpoint, home, links, others, at_first: None, args }
    }

    fn len(&self) -> usize {
        self.links.len() + self.others.len()
    }

    fn library(&self) -> &'a Library {
        &self.setting.libraries.codes[0].library
    }

    /// Connects sources until there are this many.
    ///
    /// # Errors
    /// One could not connect; the earlier ones stay connected.
    pub(super) fn grow(&mut self, pair: &mut Pair, sources: usize) -> Result<(), Failure> {
        if self.len() == 0 {
            self.add(pair, 1)?;
            self.at_first = Resident::of(pair.pid());
        }
        self.add(pair, sources)
    }

    fn add(&mut self, pair: &mut Pair, sources: usize) -> Result<(), Failure> {
        let ((), _) = pair.serve(self.endpoint, 0, || {
            while self.len() < sources {
                if self.home == Home::Processes && !self.links.is_empty() {
                    self.others.push(self.process()?);
                } else {
                    let mailbox = self.setting.options.ring();
                    let folder = self.setting.stage.folder();
                    let link = connect(folder, &self.socket, self.transport, mailbox, self.library())?;
                    self.links.push(link);
                }
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Starts a source in a process of its own.
    fn process(&self) -> Result<Pair, Failure> {
        let Setting { options, stage, cpus, .. } = *self.setting;
        let mut pair = Pair::start(stage, 0, 0, None)?;
        let layout = Layout::without_rings(options.sizes.longest());
        pair.set(self.setting.set(&[], cpus.map(|cpus| cpus.source), layout))?;
        pair.connect(&self.socket, self.transport)?;
        Ok(pair)
    }

    /// Returns the arrival rule, and the carrier of the frames.
    pub(super) fn rule_and_lane(&self) -> (Option<String>, Option<String>) {
        let link = self.links.first();
        let lane = link.and_then(place::lane);
        (link.map(|link| link.arrival_rule().describe()), lane)
    }

    /// Returns the target's memory for each source after the first.
    pub(super) fn memory(&self, pair: &Pair) -> Option<Resident> {
        let further = self.len().checked_sub(1)? as u64;
        Resident::of(pair.pid())?.each(&self.at_first?, further)
    }

    /// Makes the target poll until all sources that have sent before count as idle.
    pub(super) fn settle(&self, pair: &mut Pair) -> Result<(), Failure> {
        pair.serve(self.endpoint, 0, || {
            std::thread::sleep(SETTLE * self.len() as u32);
            Ok(())
        })?;
        Ok(())
    }

    /// Returns the one-way time of one source, while all others are connected and idle.
    pub(super) fn latency(
        &self,
        pair: &mut Pair,
        calls: &Measurement,
        times: &mut [Duration],
    ) -> Result<Round, Failure> {
        calls.measure(pair, self.endpoint, &mut self.calls()?, times)
    }

    fn calls(&self) -> Result<Calls<'_>, Failure> {
        let first = self.links.first().ok_or_else(|| Failure::new("no source is connected"))?;
        Ok(Calls::new(first, self.library(), self.args.clone(), 1))
    }

    /// Returns the one-way time of one source that was idle as well, over so many calls. `back` is the time
    /// of a reply in nanoseconds.
    pub(super) fn turn(
        &self,
        pair: &mut Pair,
        size: usize,
        times: &mut [Duration],
        back: f64,
    ) -> Result<Round, Failure> {
        let first = self.links.first().ok_or_else(|| Failure::new("no source is connected"))?;
        let sent = times.len() as u64;
        let ((), Played { counted, .. }) = pair.serve(self.endpoint, size, || {
            for time in &mut *times {
                let since = Instant::now();
                while since.elapsed() < IDLE {
                    std::hint::spin_loop();
                }
                let start = Instant::now();
                first.inject(self.library(), &self.args[..size])?.wait(PATIENCE)?;
                *time = start.elapsed();
            }
            Ok(())
        })?;
        check_count(counted, sent, size)?;
        let one_way: Vec<f64> =
            times.iter().map(|time| time.as_nanos() as f64).map(|trip| trip - back.min(trip / 2.0)).collect();
        let value = median(&one_way).unwrap_or_default() / 1e3;
        Ok(Round::timed(value, one_way.into_iter().map(|time| time as u64).collect()))
    }

    /// Returns the time of a reply in nanoseconds.
    pub(super) fn back(
        &self,
        pair: &mut Pair,
        iterations: u32,
        times: &mut [Duration],
    ) -> Result<f64, Failure> {
        let empty =
            Measurement { metric: Metric::Latency, size: 0, iterations, warmup: iterations.div_ceil(8) };
        Ok(round_trips(pair, self.endpoint, &mut self.calls()?, &empty, times)? / 2.0)
    }

    /// Measures the rate of `active` sources in million messages a second, with `size` bytes and about `messages`
    /// messages, equally shared. Further figures are the processor time of the target and of all sources for each
    /// message, in nanoseconds.
    pub(super) fn stream(
        &mut self,
        pair: &mut Pair,
        size: usize,
        active: usize,
        messages: u32,
    ) -> Result<Round, Failure> {
        let each = (u64::from(messages) / active as u64).max(1);
        let all = each * active as u64;
        let library = self.library();
        let (sent, Played { counted, cpu, .. }) = pair.serve(self.endpoint, size, || {
            // Other processes start first: the code below keeps this one's processor busy.
            let others = &mut self.others[..active.saturating_sub(self.links.len())];
            for other in &mut *others {
                other.send(size, each)?;
            }
            let here = &self.links[..active.min(self.links.len())];
            let mut sent = send_in_turn(here, library, &self.args[..size], each)?;
            for other in others {
                let theirs = other.sent()?;
                sent.start = sent.start.min(theirs.start);
                sent.end = sent.end.max(theirs.end);
                sent.cpu += theirs.cpu;
            }
            Ok(sent)
        })?;
        check_count(counted, all, size)?;
        let (time, all) = ((sent.end - sent.start).max(1), all as f64);
        let cpu = [(Key::CpuNsTarget, cpu as f64 / all), (Key::CpuNsSource, sent.cpu as f64 / all)];
        Ok(Round::of(all * 1e3 / time as f64).with(cpu))
    }

    /// Ends the links and the processes.
    pub(super) fn end(self) -> Result<(), Failure> {
        drop(self.links);
        self.others.into_iter().try_for_each(Pair::end)
    }
}

fn check_count(counted: u64, sent: u64, size: usize) -> Result<(), Failure> {
    match counted == sent {
        true => Ok(()),
        false => Err(Failure::new(format!(
            "{sent} messages of {size} B were sent, and the target counted {counted}"
        ))),
    }
}
