//! The run: for each size, rounds in which everything is measured one after the other.

use std::borrow::Cow;
use std::time::Duration;

use farjump::{Link, Mode};
use indicatif::ProgressBar;

use super::code::{Code, Libraries};
use super::copy::Copy;
use super::figures::{Round, Series, median};
use super::first;
use super::injecting::{self, Calls, PATIENCE};
use super::joining::{Host, Sides, alike, hosts, join, subject_for, wanted};
use super::machine::State;
use super::measurement::{self, Measurement, STATE_CALLS};
use super::message::{Order, Set, Subject};
use super::options::{Against, Cpus, Metric, Perf};
use super::pair::Pair;
use super::perftest;
use super::progress::progress;
use super::references::Joined;
use super::report::{Report, RoundState, Row};
use super::ring::region_len;
use super::side::Source;
use super::work::{Function, asking, injected, store_len};
use crate::failure::Failure;
use crate::stage::Stage;

/// Payload of a measurement, in bytes, unless a number of calls was asked for; of work, a sixteenth.
const FEW_BYTES: usize = 256 << 20;
/// Least calls of a measurement, likewise.
const FEWEST: usize = 20;

/// One thing that is measured.
enum Contestant<'a> {
    /// farjump over a transport, with its number at the other process.
    Farjump {
        subject: usize,
        transport: &'a str,
        mode: Mode,
        link: usize,
        code: &'a Code,
    },
    /// A reference with a side in each process.
    Both {
        subject: usize,
        against: Against,
        /// What it does, where it works.
        function: Option<Function>,
    },
    /// A reference that is in this process alone.
    Copy(Copy),
    Perftest,
    Dlopen,
    /// A reference that is not there.
    Missing {
        against: Against,
        why: String,
        function: Option<Function>,
    },
}

/// What came of one for one size.
struct Outcome {
    series: Series,
    /// Why it was given up.
    missing: Option<String>,
}

/// Everything that is measured, set up.
pub(super) struct Bench<'a> {
    options: &'a Perf,
    stage: &'a Stage,
    cpus: Cpus,
    libraries: &'a Libraries,
    /// Each once, cached among them where it is a reference.
    modes: Vec<Mode>,
    pair: Pair,
    links: Vec<Link>,
    /// This process's sides of references, by their number at the other process.
    sides: Vec<Option<Joined>>,
    against: &'a [Against],
    contestants: Vec<Contestant<'a>>,
}

impl<'a> Bench<'a> {
    /// Sets both processes up.
    ///
    /// # Errors
    /// When a transport cannot be used. References that cannot are said to be missing in their rows.
    pub(super) fn set(
        options: &'a Perf,
        stage: &'a Stage,
        cpus: Cpus,
        transports: &'a [String],
        modes: Vec<Mode>,
        against: &'a [Against],
        libraries: &'a Libraries,
    ) -> Result<Bench<'a>, Failure> {
        let longest = options.sizes.longest();
        let region = region_len(options.ring(), longest);
        let store = if options.metric == Metric::Work { store_len(longest) } else { 0 };
        let mut pair = Pair::start(stage, region, store)?;
        let wanted = wanted(against);
        let hosts = hosts(transports, &libraries.codes, longest);
        // The raw one is there in any case: the machine's state is told by it.
        let mut subjects = vec![Subject::Raw];
        subjects.extend(hosts.iter().map(|host| host.subject.clone()));
        let references = || {
            wanted.iter().flat_map(|against| alike(&libraries.codes).map(move |codes| (*against, &codes[0])))
        };
        subjects.extend(
            references()
                .filter_map(|(against, code)| subject_for(against, code, longest))
                .filter(|subject| *subject != Subject::Raw),
        );
        let theirs = pair.set(Set {
            subjects: subjects.clone(),
            cpu: cpus.target,
            ring: options.ring(),
            region,
            longest,
            folder: stage.folder().to_owned(),
            counter: libraries.counter.clone(),
        })?;
        let Sides { sides, whys } = join(&mut pair, &subjects, theirs, region, longest)?;
        let mut links = Vec::new();
        let mut contestants = Vec::new();
        let number_of = |wanted: Option<&Subject>| {
            subjects.iter().position(|subject| Some(subject) == wanted).unwrap_or_default()
        };
        for Host { transport, name, codes, subject } in &hosts {
            let subject = number_of(Some(subject));
            if let Some(why) = &whys[subject] {
                return Err(Failure::new(format!("the target could not be made for {transport}: {why}")));
            }
            let order = Order::Play { subject, size: 0, streams: true, expected: u64::MAX };
            let address = injecting::address(stage.folder(), name);
            let (link, _) = pair.play(&order, |_, _| Ok(injecting::connect(&address, transport)?))?;
            let number = links.len();
            links.push(link);
            contestants.extend(codes.iter().flat_map(|code| {
                modes.iter().map(move |mode| Contestant::Farjump {
                    subject,
                    transport,
                    mode: *mode,
                    link: number,
                    code,
                })
            }));
        }
        for (against, code) in references().filter(|(against, _)| *against != Against::Cached) {
            contestants.push(match against {
                Against::Memcpy => Contestant::Copy(Copy::new(region, longest)?),
                Against::Perftest => Contestant::Perftest,
                Against::Dlopen => Contestant::Dlopen,
                against => {
                    let subject = number_of(subject_for(against, code, longest).as_ref());
                    match whys[subject].clone() {
                        Some(why) => Contestant::Missing { against, why, function: code.function },
                        None => Contestant::Both { subject, against, function: code.function },
                    }
                }
            });
        }
        Ok(Bench { options, stage, cpus, libraries, modes, pair, links, sides, against, contestants })
    }

    /// Measures, and adds to the report what was measured, also if it fails in the middle.
    pub(super) fn run(&mut self, report: &mut Report) -> Result<(), Failure> {
        let sizes = &self.options.sizes.0;
        let steps = sizes.len() * self.options.rounds as usize * self.contestants.len();
        let bar = progress(steps);
        let mut first = 0;
        for size in sizes {
            let mut outcomes = Vec::new();
            for contestant in &self.contestants {
                let missing = match contestant {
                    Contestant::Missing { why, .. } => Some(why.clone()),
                    _ => None,
                };
                outcomes.push(Outcome { series: Series::new()?, missing });
            }
            let measured = self.rounds(*size, &mut outcomes, &mut report.rounds, &mut first, &bar);
            self.add_rows(*size, &outcomes, report);
            if measured.is_err() {
                bar.finish_and_clear();
                return measured;
            }
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Ends the other process.
    pub(super) fn end(self) -> Result<(), Failure> {
        // Before the other process goes: UCX would try to reach it again.
        drop((self.links, self.sides));
        self.pair.end()
    }

    fn rounds(
        &mut self,
        size: usize,
        outcomes: &mut [Outcome],
        states: &mut Vec<RoundState>,
        first: &mut usize,
        bar: &ProgressBar,
    ) -> Result<(), Failure> {
        // The times of calls are written here while they are taken: nothing is allocated then.
        let mut times = vec![Duration::ZERO; self.iterations(size).max(STATE_CALLS) as usize];
        let mut contestants = std::mem::take(&mut self.contestants);
        let mut measured = Ok(());
        'rounds: for round in 1..=self.options.rounds {
            let line_ns = match self.line(&mut times) {
                Ok(line_ns) => line_ns,
                Err(failure) => {
                    measured = Err(failure);
                    break;
                }
            };
            states.push(RoundState { size, round, line_ns, state: State::of(line_ns) });
            let firsts = *first;
            for (contestant, outcome) in contestants.iter_mut().zip(&mut *outcomes) {
                bar.set_message(format!("{} B, round {round}: {}", size, contestant.name()));
                bar.inc(1);
                if outcome.missing.is_some() {
                    continue;
                }
                match self.one(contestant, size, firsts, &mut times) {
                    Ok(Ok(round)) => outcome.series.add(round),
                    Ok(Err(why)) => outcome.missing = Some(why),
                    Err(failure) => {
                        measured = Err(failure);
                        break 'rounds;
                    }
                }
            }
            *first += self.modes.len();
        }
        self.contestants = contestants;
        measured
    }

    /// How long a line takes one way, in nanoseconds.
    fn line(&mut self, times: &mut [Duration]) -> Result<f64, Failure> {
        measurement::line(&mut self.pair, &mut self.sides, times)
    }

    /// One contestant's figure in one round, or why it has none.
    fn one(
        &mut self,
        contestant: &mut Contestant<'a>,
        size: usize,
        first: usize,
        times: &mut [Duration],
    ) -> Result<Result<Round, String>, Failure> {
        let iterations = self.iterations(size);
        let run = Measurement {
            metric: self.options.metric,
            size,
            iterations,
            warmup: self.options.warmup.min(iterations),
        };
        match contestant {
            Contestant::Farjump { subject, mode, link, .. } if run.metric == Metric::FirstCall => {
                let number = first + self.modes.iter().position(|other| other == mode).unwrap_or_default();
                self.first_call(*subject, *link, *mode, number, size).map(Ok)
            }
            Contestant::Farjump { subject, mode, link, code, .. } => {
                let link = &self.links[*link];
                let order = Order::Play { subject: *subject, size, streams: true, expected: u64::MAX };
                let args = match code.function {
                    None => Cow::Owned(vec![7; size]),
                    Some(function) => Cow::Borrowed(asking::args(function, size)),
                };
                let attempt = |_: &_, _: &_| Ok(injecting::attempt(link, &code.library, *mode, &args));
                if let (Err(error), _) = self.pair.play(&order, attempt)? {
                    return Ok(Err(error.to_string()));
                }
                let mut source: Box<dyn Source> = match code.function {
                    None => Box::new(Calls::new(link, &code.library, args.into_owned(), self.options.batch)),
                    Some(function) => injected::source(link, function, &code.library, size),
                };
                run.measure(&mut self.pair, *subject, &mut *source, times).map(Ok)
            }
            Contestant::Both { subject, .. } => {
                let Some(Some(side)) = self.sides.get_mut(*subject) else {
                    return Ok(Err("it is not set up".to_owned()));
                };
                run.measure(&mut self.pair, *subject, side.source()?, times).map(Ok)
            }
            Contestant::Copy(copy) => run.measure_alone(&self.pair, copy, times).map(Ok),
            Contestant::Perftest => {
                let (metric, stage, cpus) = (run.metric, self.stage, self.cpus);
                let figure = perftest::run(stage, metric, size, iterations, run.warmup, cpus);
                Ok(figure.map(Round::of).map_err(|failure| failure.to_string()))
            }
            Contestant::Dlopen => {
                let Some((_, path)) = self.libraries.firsts.get(first) else {
                    return Ok(Err("there is no library to load".to_owned()));
                };
                let time = self.pair.time_load(path, first::symbol(first), first::adds(first))?;
                Ok(Ok(Round { figure: time / 1e3, singles: vec![time as u64] }))
            }
            Contestant::Missing { why, .. } => Ok(Err(why.clone())),
        }
    }

    fn first_call(
        &mut self,
        subject: usize,
        link: usize,
        mode: Mode,
        number: usize,
        size: usize,
    ) -> Result<Round, Failure> {
        let link = &self.links[link];
        let Some((library, _)) = self.libraries.firsts.get(number) else {
            return Err(Failure::new("there is no code left that the target has not seen"));
        };
        let args = vec![7; size];
        let order = Order::First { subject, adds: first::adds(number) };
        let time = self.pair.time(&order, || {
            link.set_mode(mode);
            Ok(link.inject(library, &args)?.wait(PATIENCE).map(drop)?)
        })?;
        Ok(Round { figure: time / 1e3, singles: vec![time as u64] })
    }

    /// Calls in one measurement of this size.
    fn iterations(&self, size: usize) -> u32 {
        match (self.options.iterations, self.options.metric) {
            (_, Metric::FirstCall) => 1,
            (Some(asked), _) => asked,
            (None, metric) => {
                let usual = if metric.streams() { 200_000 } else { 10_000 };
                let few = if metric == Metric::Work { FEW_BYTES / 16 } else { FEW_BYTES };
                usual.min((few / size.max(1)).max(FEWEST)) as u32
            }
        }
    }

    /// A row for everything of farjump's beside each reference, and one that holds UCX's messages against its own tool.
    fn add_rows(&self, size: usize, outcomes: &[Outcome], report: &mut Report) {
        let lines: Vec<f64> =
            report.rounds.iter().filter(|round| round.size == size).map(|round| round.line_ns).collect();
        let state = median(&lines).map(State::of);
        let all = || self.contestants.iter().zip(outcomes);
        let row = |own: (&Contestant<'_>, &Outcome), reference: (&Contestant<'_>, &Outcome)| {
            let metric = self.options.metric;
            Row {
                metric: metric.name(),
                unit: metric.unit(),
                subject: own.0.name(),
                transport: own.0.transport(),
                mode: own.0.mode(),
                arrival: self.arrival(own.0),
                lane: self.lanes(own.0),
                size,
                iterations: self.iterations(size),
                reference: reference.0.name_as_reference(),
                reference_lane: self.lanes(reference.0),
                state,
                missing: own.1.missing.clone().or_else(|| reference.1.missing.clone()),
                batch: (own.0.is_farjump() && metric.streams()).then_some(self.options.batch),
                image: own.0.image(),
                function: own.0.function().map(Function::name),
                ..Row::beside(&own.1.series, &reference.1.series)
            }
        };
        let cached = self.against.contains(&Against::Cached);
        for own in all().filter(|(contestant, _)| contestant.is_farjump()) {
            let references = all().filter(|(contestant, _)| own.0.is_held_against(contestant, cached));
            report.rows.extend(references.map(|reference| row(own, reference)));
        }
        let messages = all().find(|(contestant, _)| contestant.name() == Against::UcxAm.name());
        let tool = all().find(|(contestant, _)| matches!(contestant, Contestant::Perftest));
        if let (Some(messages), Some(tool)) = (messages, tool) {
            let mut row = row(messages, tool);
            row.agrees = row.ratio.map(|ratio| (0.85..=1.15).contains(&ratio));
            report.rows.push(row);
        }
    }

    fn arrival(&self, contestant: &Contestant<'_>) -> Option<String> {
        match contestant {
            Contestant::Farjump { link, .. } => Some(self.links[*link].rule().describe()),
            _ => None,
        }
    }

    fn lanes(&self, contestant: &Contestant<'_>) -> Option<String> {
        match contestant {
            Contestant::Both { subject, .. } => self.sides.get(*subject)?.as_ref()?.lanes(),
            Contestant::Farjump { link, .. } => {
                Some(self.links[*link].path().route.over).filter(|over| !over.is_empty())
            }
            _ => None,
        }
    }
}

impl Contestant<'_> {
    fn name(&self) -> &'static str {
        match self {
            Contestant::Farjump { .. } => "farjump",
            Contestant::Both { against, .. } | Contestant::Missing { against, .. } => against.name(),
            Contestant::Copy(_) => Against::Memcpy.name(),
            Contestant::Perftest => Against::Perftest.name(),
            Contestant::Dlopen => Against::Dlopen.name(),
        }
    }

    fn transport(&self) -> Option<String> {
        match self {
            Contestant::Farjump { transport, .. } => Some((*transport).to_owned()),
            _ => None,
        }
    }

    fn mode(&self) -> Option<&'static str> {
        match self {
            Contestant::Farjump { mode, .. } => Some(mode.name()),
            _ => None,
        }
    }

    fn image(&self) -> Option<usize> {
        match self {
            Contestant::Farjump { code, .. } => code.image,
            _ => None,
        }
    }

    fn function(&self) -> Option<Function> {
        match self {
            Contestant::Farjump { code, .. } => code.function,
            Contestant::Both { function, .. } | Contestant::Missing { function, .. } => *function,
            _ => None,
        }
    }

    fn is_farjump(&self) -> bool {
        matches!(self, Contestant::Farjump { .. })
    }

    /// The name of what farjump is held against. Of farjump itself there is one: mode cached.
    fn name_as_reference(&self) -> &'static str {
        if self.is_farjump() { Against::Cached.name() } else { self.name() }
    }

    /// Whether this, farjump, has a row beside `other`: all other references for the same function, but `ucx_perftest`, which is one for UCX alone;
    /// and, if `cached`, the same code over the same link in mode cached.
    fn is_held_against(&self, other: &Contestant<'_>, cached: bool) -> bool {
        match (self, other) {
            (
                Contestant::Farjump { link, mode, code, .. },
                Contestant::Farjump { link: of_other, mode: Mode::Cached, code: other, .. },
            ) => cached && *mode != Mode::Cached && link == of_other && std::ptr::eq(*code, *other),
            (_, Contestant::Farjump { .. } | Contestant::Perftest) => false,
            _ => self.function() == other.function(),
        }
    }
}
