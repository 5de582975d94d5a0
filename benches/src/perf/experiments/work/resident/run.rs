//! The experiment with resident data: each function with each length of data is a step.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use farjump::{Library, Link, Machine, Mode, Platform, WaitPolicy};

use super::present::set_present;
use super::query::{Query, STEPS};
use super::rows::{Call, overhead_us};
use super::source;
use super::target::{host, memory_len};
use super::{Method, Task};
use crate::perf::experiments::baselines::connect::{Endpoint, Paired};
use crate::perf::experiments::baselines::injection;
use crate::perf::experiments::baselines::ring::Layout;
use crate::perf::experiments::experiment::{self, Experiment, Measured};
use crate::perf::experiments::measurement::{self, LINE_SIZE, Measurement, STATE_CALLS, round_trips};
use crate::perf::experiments::role::Source;
use crate::perf::experiments::setting::Setting;
use crate::perf::process::child_protocol::EndpointSpec;
use crate::perf::process::counterpart::Counterpart;
use crate::perf::process::place;
use crate::perf::report::Report;
use crate::perf::report::key::Key;
use crate::perf::report::metric::{Against, Metric};
use crate::perf::report::row::Row;
use crate::perf::report::statistics::Round;
use crate::program::failure::Failure;

/// Data that the calls of a measurement go through, in bytes, unless a number of calls was requested.
const FEW_BYTES: usize = 256 << 20;
/// Least and most calls of a measurement, likewise.
const CALLS: (usize, usize) = (3, 2000);
/// Endpoint of the ring by which the machine's state is measured.
const RAW: usize = 0;

/// farjump over one transport, in one mode.
struct Injected<'a> {
    transport: &'a str,
    endpoint: usize,
    link: usize,
    mode: Mode,
}

/// Another way, with its endpoint in both processes.
#[derive(Clone, Copy)]
struct Baseline {
    against: Against,
    endpoint: usize,
}

/// All ways, set up.
struct Run<'a> {
    setting: &'a Setting<'a>,
    counterpart: Counterpart,
    links: Vec<Link>,
    endpoints: Vec<Endpoint>,
    injected: Vec<Injected<'a>>,
    /// The last one is `raw-fetch`, whose times the model takes for computing here.
    baselines: Vec<Baseline>,
    against: &'a [Against],
    /// The time of a call of each function without the function, for each of `injected`, once known.
    overheads: BTreeMap<(usize, usize), f64>,
    /// Reserved beforehand, so that nothing is allocated while calls are timed.
    times: Vec<Duration>,
}

/// A function and a length of data.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    /// The function, by its number among the libraries.
    number: usize,
    query: Query,
    size: usize,
}

/// Measures, and adds rows to the report, also those before a failure.
///
/// # Errors
/// A transport cannot be used, a measurement failed, or a way gave a wrong result.
pub(crate) fn run(
    setting: &Setting<'_>,
    modes: &[Mode],
    against: &[Against],
    report: &mut Report,
) -> Result<(), Failure> {
    let mut run = Run::set(setting, modes, against)?;
    run.run(report)?;
    // Before the other process ends: UCX would try to reach it again.
    drop((run.links, run.endpoints));
    run.counterpart.end()
}

impl<'a> Run<'a> {
    fn set(setting: &'a Setting<'a>, modes: &[Mode], against: &'a [Against]) -> Result<Run<'a>, Failure> {
        let Setting { options, stage, cpus, transports, libraries } = *setting;
        let longest = options.sizes.longest();
        let layout = Layout::new(options.ring(), LINE_SIZE, None)?;
        let libraries =
            libraries.resident.iter().map(|(query, library)| (*query, library.path().to_owned())).collect();
        let task =
            |method| EndpointSpec::Resident(Task { method, libraries: Vec::clone(&libraries), longest });
        let mut specs = vec![EndpointSpec::Baseline(Against::Raw)];
        specs.extend(transports.iter().map(|transport| task(Method::Injected(transport.clone()))));
        let mut baselines = Vec::new();
        for (method, named) in [
            (Method::Messages, Against::UcxAm),
            (Method::Fetch, Against::Fetch),
            (Method::FetchMessages, Against::FetchAm),
            (Method::RawFetch, Against::RawFetch),
        ] {
            if named == Against::RawFetch || against.contains(&named) {
                baselines.push(Baseline { against: named, endpoint: specs.len() });
                specs.push(task(method));
            }
        }
        let Paired { pair, endpoints } = Paired::start(setting, &specs, layout, memory_len(longest))?;
        let mut counterpart = Counterpart::Pair(pair);
        let (mut links, mut injected) = (Vec::new(), Vec::new());
        for (number, transport) in transports.iter().enumerate() {
            let endpoint = RAW + 1 + number;
            if let Err(why) = &endpoints[endpoint] {
                return Err(Failure::new(format!("the target could not be made for {transport}: {why}")));
            }
            let link = place::link(stage.folder(), &host(transport), transport)?;
            let link = if cpus.is_some() { link.wait_policy(WaitPolicy::spin_only()) } else { link };
            links.push(counterpart.serve(endpoint, || link.connect())??);
            injected.extend(modes.iter().map(|mode| Injected {
                transport,
                endpoint,
                link: number,
                mode: *mode,
            }));
        }
        let (overheads, times) = (BTreeMap::new(), Vec::new());
        Ok(Run { setting, counterpart, links, endpoints, injected, baselines, against, overheads, times })
    }

    fn run(&mut self, report: &mut Report) -> Result<(), Failure> {
        let Setting { options, libraries, .. } = *self.setting;
        let mut sizes = options.sizes.0.clone();
        // The shortest data show the time of a call, which the later rows need.
        sizes.sort_unstable();
        let queries = libraries.resident.iter().enumerate();
        let step = |(number, (query, _)): (usize, &(Query, Library))| {
            let query = *query;
            sizes.iter().map(move |&size| Step { number, query, size })
        };
        let steps: Vec<_> = queries.flat_map(step).collect();
        experiment::run(self, &steps, options.rounds, report)
    }

    /// Returns the number of calls in one measurement of this size.
    fn iterations(&self, size: usize) -> u32 {
        let usual = || (FEW_BYTES / size).clamp(CALLS.0, CALLS.1) as u32;
        self.setting.options.iterations.unwrap_or_else(usual)
    }

    /// Returns the baseline of a contestant; `None` of farjump.
    fn baseline(&self, contestant: usize) -> Option<&Baseline> {
        self.baselines.get(contestant.checked_sub(self.injected.len())?)
    }

    /// Returns the bytes of a function's code in each message.
    fn code_len(&self, number: usize, mode: Mode) -> usize {
        let (_, library) = &self.setting.libraries.resident[number];
        let image = Machine::native().and_then(|machine| library.image_for(Platform::baseline(machine)).ok());
        match mode {
            Mode::Always | Mode::InPlace => image.map_or(0, |image| image.bytes().len()),
            _ => 0,
        }
    }
}

impl Experiment for Run<'_> {
    type Step = Step;

    fn contestants(&self) -> usize {
        self.injected.len() + self.baselines.len()
    }

    fn begin(&mut self, Step { query, size, .. }: Step) -> Result<Vec<Option<String>>, Failure> {
        self.times = vec![Duration::ZERO; self.iterations(size).max(STATE_CALLS) as usize];
        set_present(query, size, false);
        self.counterpart.pair()?.hold(query, size)?;
        let missing = |contestant| {
            let baseline = self.baseline(contestant)?;
            self.endpoints[baseline.endpoint].as_ref().err().cloned()
        };
        Ok((0..self.contestants()).map(missing).collect())
    }

    fn begin_round(&mut self, _step: Step, _round: u32) -> Result<Option<f64>, Failure> {
        measurement::line(self.counterpart.pair()?, &mut self.endpoints, &mut self.times).map(Some)
    }

    fn measure(&mut self, step: Step, contestant: usize) -> Result<Result<Round, String>, Failure> {
        let Step { number, query, size } = step;
        let iterations = self.iterations(size);
        let warmup = self.setting.options.warmup.min(iterations.div_ceil(2));
        let run = Measurement { metric: Metric::Work, size, iterations, warmup };
        let Run { counterpart, links, endpoints, injected, baselines, times, .. } = self;
        if let Some(Injected { endpoint, link, mode, .. }) = injected.get(contestant) {
            let (link, (_, library)) = (&links[*link], &self.setting.libraries.resident[number]);
            let args = query.jobs(size).nth(0).args;
            let attempted = injection::attempt_served(counterpart, *endpoint, link, library, *mode, args);
            if let Err(why) = attempted? {
                return Ok(Err(why));
            }
            let mut source = source::injected(link, library);
            let time = round_trips(counterpart, *endpoint, &mut source, &run, times)?;
            return Ok(Ok(Round::of(time / 1e3)));
        }
        let Baseline { against, endpoint } = baselines[contestant - injected.len()];
        let Ok(Some(own)) = &mut endpoints[endpoint] else { return Ok(Err("it is not set up".to_owned())) };
        let own: &mut dyn Source = own.source()?;
        let (mut time, mut trips) = (round_trips(counterpart, endpoint, own, &run, times)?, 1);
        if query == Query::List && matches!(against, Against::Fetch | Against::FetchAm) {
            set_present(query, size, true);
            let steps = round_trips(counterpart, endpoint, own, &run, times)?;
            set_present(query, size, false);
            if steps < time {
                (time, trips) = (steps, STEPS);
            }
        }
        Ok(Ok(Round::of(time / 1e3).with([(Key::ReferenceTrips, trips as f64)])))
    }

    fn described(&self, Step { query, size, .. }: Step, contestant: usize) -> Row {
        let (metric, unit) = (Metric::Work.name(), Metric::Work.unit());
        let row = Row { metric, unit, subject: "farjump", ..Row::default() };
        if let Some(Baseline { against, endpoint }) = self.baseline(contestant) {
            let own = self.endpoints[*endpoint].as_ref().ok().and_then(Option::as_ref);
            let lanes = own.and_then(|own| own.lanes());
            return Row { subject: against.name(), ..row }.with(Key::Lane, lanes);
        }
        let Injected { transport, link, mode, .. } = &self.injected[contestant];
        let link = &self.links[*link];
        row.with(Key::Function, query.name())
            .with(Key::Transport, *transport)
            .with(Key::Mode, mode.name())
            .with(Key::Arrival, link.arrival_rule().describe())
            .with(Key::Lane, place::lane(link))
            .with(Key::Size, size)
            .with(Key::Iterations, self.iterations(size))
            .with(Key::TargetSleeps, false)
            .with(Key::Ring, self.setting.options.ring())
    }

    /// Returns the rows as measured, and with the time of modelled networks added.
    fn rows(&mut self, step: Step, measured: &Measured) -> Result<Vec<Row>, Failure> {
        let Step { number, query, size } = step;
        let baselines = self.baselines.iter().map(|baseline| baseline.against).zip(self.injected.len()..);
        let asked: Vec<_> = baselines.filter(|(against, _)| self.against.contains(against)).collect();
        let outcomes = |(against, at): &(Against, usize)| (*against, &measured.outcomes[*at]);
        let outcomes: Vec<_> = asked.iter().map(outcomes).collect();
        let here = &measured.outcomes[self.contestants() - 1];
        let mut rows = Vec::new();
        for (at, injected) in self.injected.iter().enumerate() {
            let own = &measured.outcomes[at];
            if let (Entry::Vacant(unknown), Some(overhead)) =
                (self.overheads.entry((number, at)), overhead_us(size, own, here))
            {
                unknown.insert(overhead);
            }
            for (against, beside) in &asked {
                let trips = measured.outcomes[*beside].series.figure(Key::ReferenceTrips);
                let trips = trips.filter(|_| *against != Against::RawFetch);
                let is_stepwise = |trips: f64| trips > (1 + STEPS) as f64 / 2.0;
                let trips = trips.map(|trips| if is_stepwise(trips) { STEPS } else { 1 });
                let row = measured.row(at, Some((against.name(), *beside)));
                rows.push(row.with(Key::ReferenceTrips, trips));
            }
            let overhead_us = self.overheads.get(&(number, at)).copied();
            let code = self.code_len(number, injected.mode);
            let call = Call { query, size, code, own, here, overhead_us };
            let described = Row { state: measured.state, ..measured.described[at].clone() };
            rows.extend(call.rows(&described, &outcomes)?);
        }
        Ok(rows)
    }
}
