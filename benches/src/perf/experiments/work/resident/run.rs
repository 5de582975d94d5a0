//! The run: for each function and each length of data, rounds in which all ways are measured one after the
//! other.

use std::time::Duration;

use farjump::{Link, Machine, Mode, Platform, WaitPolicy};
use indicatif::ProgressBar;

use super::present::set_present;
use super::query::Query;
use super::rows::{About, Measured};
use super::source;
use super::target::{host, memory_len};
use super::{Method, Task};
use crate::perf::experiments::baselines::connect::{Endpoint, Paired};
use crate::perf::experiments::baselines::injection;
use crate::perf::experiments::baselines::ring::Layout;
use crate::perf::experiments::measurement::{self, LINE_SIZE, Measurement, STATE_CALLS, round_trips};
use crate::perf::experiments::role::Source;
use crate::perf::experiments::setting::Setting;
use crate::perf::process::child_protocol::EndpointSpec;
use crate::perf::process::counterpart::Counterpart;
use crate::perf::process::place;
use crate::perf::report::metric::{Against, Metric};
use crate::perf::report::progress::progress;
use crate::perf::report::{Report, RoundState};
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
        Ok(Run { setting, counterpart, links, endpoints, injected, baselines, against })
    }

    fn run(&mut self, report: &mut Report) -> Result<(), Failure> {
        let mut sizes = self.setting.options.sizes.0.clone();
        // The shortest data show the time of a call, which the later rows need.
        sizes.sort_unstable();
        let rounds = self.setting.options.rounds;
        let resident = &self.setting.libraries.resident;
        let bar = progress(resident.len() * sizes.len() * rounds as usize);
        let mut measured = Ok(());
        'all: for number in 0..resident.len() {
            let mut overheads = vec![None; self.injected.len()];
            for size in &sizes {
                let mut step = Measured::new(self.injected.len(), self.baselines.len())?;
                measured = self.rounds(number, *size, &mut step, &mut report.rounds, &bar);
                self.add_rows(number, *size, &step, &mut overheads, report)?;
                if measured.is_err() {
                    break 'all;
                }
            }
        }
        bar.finish_and_clear();
        measured
    }

    fn rounds(
        &mut self,
        number: usize,
        size: usize,
        step: &mut Measured,
        states: &mut Vec<RoundState>,
        bar: &ProgressBar,
    ) -> Result<(), Failure> {
        let libraries = self.setting.libraries;
        let (query, library) = &libraries.resident[number];
        let iterations = self.iterations(size);
        let warmup = self.setting.options.warmup.min(iterations.div_ceil(2));
        let run = Measurement { metric: Metric::Work, size, iterations, warmup };
        // Allocated beforehand, so that nothing is allocated while calls are timed.
        let mut times = vec![Duration::ZERO; iterations.max(STATE_CALLS) as usize];
        set_present(*query, size, false);
        self.counterpart.pair()?.hold(*query, size)?;
        for (at, baseline) in self.baselines.iter().enumerate() {
            if let Err(why) = &self.endpoints[baseline.endpoint] {
                step.baselines[at].missing = Some(why.clone());
            }
        }
        for round in 1..=self.setting.options.rounds {
            bar.set_message(format!("{query}, {size} B, round {round}"));
            let line = measurement::line(self.counterpart.pair()?, &mut self.endpoints, &mut times)?;
            step.lines.push(line);
            states.push(RoundState::of(size, round, Some(line)));
            for (at, Injected { endpoint, link, mode, .. }) in self.injected.iter().enumerate() {
                if step.injected[at].missing.is_some() {
                    continue;
                }
                let link = &self.links[*link];
                let attempt = || injection::attempt(link, library, *mode, query.jobs(size).nth(0).args);
                match self.counterpart.serve(*endpoint, attempt)? {
                    Ok(()) => {}
                    Err(error @ farjump::Error::Wait(farjump::WaitError::PeerGone { .. })) => {
                        return Err(error.into());
                    }
                    Err(error) => {
                        step.injected[at].missing = Some(error.to_string());
                        continue;
                    }
                }
                let mut source = source::injected(link, library);
                let time = round_trips(&mut self.counterpart, *endpoint, &mut source, &run, &mut times)?;
                step.injected[at].add(time, false);
            }
            for (at, Baseline { against, endpoint }) in self.baselines.iter().enumerate() {
                let Ok(Some(own)) = &mut self.endpoints[*endpoint] else { continue };
                let own: &mut dyn Source = own.source()?;
                let mut time = round_trips(&mut self.counterpart, *endpoint, own, &run, &mut times)?;
                let mut is_stepwise = false;
                if *query == Query::List && matches!(against, Against::Fetch | Against::FetchAm) {
                    set_present(*query, size, true);
                    let steps = round_trips(&mut self.counterpart, *endpoint, own, &run, &mut times)?;
                    set_present(*query, size, false);
                    is_stepwise = steps < time;
                    time = time.min(steps);
                }
                step.baselines[at].add(time, is_stepwise);
            }
            bar.inc(1);
        }
        Ok(())
    }

    /// Returns the number of calls in one measurement of this size.
    fn iterations(&self, size: usize) -> u32 {
        let usual = || (FEW_BYTES / size).clamp(CALLS.0, CALLS.1) as u32;
        self.setting.options.iterations.unwrap_or_else(usual)
    }

    fn add_rows(
        &self,
        number: usize,
        size: usize,
        step: &Measured,
        overheads: &mut [Option<f64>],
        report: &mut Report,
    ) -> Result<(), Failure> {
        let Setting { options, libraries, .. } = *self.setting;
        let (query, library) = &libraries.resident[number];
        let machine = Machine::native();
        let code = machine
            .and_then(|machine| library.image_for(Platform::baseline(machine)).ok())
            .map(|image| image.bytes().len());
        for (at, injected) in self.injected.iter().enumerate() {
            let link = &self.links[injected.link];
            let about = About {
                query: *query,
                size,
                transport: injected.transport,
                mode: injected.mode,
                arrival: link.arrival_rule().describe(),
                lane: place::lane(link),
                iterations: self.iterations(size),
                ring: options.ring(),
                code: match injected.mode {
                    Mode::Always | Mode::InPlace => code.unwrap_or(0),
                    _ => 0,
                },
            };
            let baselines: Vec<_> = self
                .baselines
                .iter()
                .map(|Baseline { against, endpoint }| {
                    let lanes = match &self.endpoints[*endpoint] {
                        Ok(Some(own)) => own.lanes(),
                        _ => None,
                    };
                    (*against, lanes)
                })
                .collect();
            report.rows.extend(step.rows(at, &about, &baselines, self.against, &mut overheads[at])?);
        }
        Ok(())
    }
}
