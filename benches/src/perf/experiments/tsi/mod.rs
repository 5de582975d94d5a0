//! `tsi`: the target-side increment of the papers, by native code and by bitcode that the target has compiled, beside
//! UCX's active messages. The code is at the target already, or travels in each message. Then the parts of a first
//! call.

mod first;
pub(in crate::perf) mod table;

use std::rc::Rc;
use std::time::Duration;

use farjump::core::frame::{Kind, Plan, PlanCode, Trailer};
use farjump::{Library, Link, Mode, WaitPolicy};
use indicatif::ProgressBar;

use super::baselines::connect::{Endpoint, Paired};
use super::baselines::injection::{self, Calls};
use super::baselines::ring::Layout;
use super::measurement::{self, LINE_SIZE, Measurement, STATE_CALLS};
use super::setting::Setting;
use crate::perf::options::ifuncs;
use crate::perf::process::child::Pair;
use crate::perf::process::child_protocol::{EndpointSpec, Order};
use crate::perf::process::place;
use crate::perf::report::metric::{Against, Metric};
use crate::perf::report::progress::progress;
use crate::perf::report::row::Row;
use crate::perf::report::statistics::{Round, Series, median};
use crate::perf::report::{Report, RoundState};
use crate::program::bundled_ifuncs::Source;
use crate::program::failure::Failure;

/// Default number of calls for latency, and of messages for the rate.
const USUAL_CALLS: (u32, u32) = (10_000, 200_000);
/// Calls with the code in each message take longer.
const USUAL_ALWAYS: (u32, u32) = (2_000, 20_000);
/// Time for optimised code to replace the first code that was compiled.
const SETTLE: Duration = Duration::from_millis(500);

/// The increment.
const COUNTER: &str = include_str!("../../../../embedded/samples/counter.c");

/// A form of the code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Native,
    Bitcode,
}

impl Form {
    fn name(self) -> &'static str {
        match self {
            Form::Native => "native",
            Form::Bitcode => "bitcode",
        }
    }

    /// Returns the code of a library in this form, as it travels.
    fn code(self, library: &Library) -> &[u8] {
        let images = library.images();
        images.get(usize::from(self == Form::Bitcode)).map_or(&[], |image| image.bytes())
    }
}

/// One way to increment.
struct Case<'a> {
    /// farjump's transport, form and mode; `None` for the baseline.
    own: Option<(&'a str, Form, Mode, Rc<Link>)>,
    endpoint: usize,
    frame: Option<usize>,
    latency: Series,
    rate: Series,
    missing: Option<String>,
}

/// Measures, and adds rows to the report, also those before a failure.
pub(in crate::perf) fn run(setting: &Setting<'_>, report: &mut Report) -> Result<(), Failure> {
    let Setting { options, stage, transports, .. } = *setting;
    let layout = Layout::new(options.ring(), options.sizes.longest().max(LINE_SIZE), None)?;
    // The raw ring is for the machine's state.
    let mut specs = vec![EndpointSpec::Baseline(Against::Raw), EndpointSpec::Baseline(Against::UcxAm)];
    for transport in transports {
        let socket = |form: Form| format!("{transport}-{}", form.name());
        let transport = transport.clone();
        specs.push(EndpointSpec::Farjump {
            transport: transport.clone(),
            socket: socket(Form::Native),
            sources: 1,
        });
        specs.push(EndpointSpec::Compiling { transport, socket: socket(Form::Bitcode) });
    }
    let library = ifuncs::build_with(&[Source { name: "counter", text: COUNTER }], &["--bitcode"], stage);
    let library =
        library.and_then(|mut built| built.pop().ok_or_else(|| Failure::new("`counter` was not built")))?;
    let mut paired = Paired::start(setting, &specs, layout, 0)?;
    let rounds = options.rounds as usize;
    let bar = progress(options.sizes.0.len() * rounds + first::STEPS * rounds);
    let measured = measure(setting, &library, &mut paired, &bar, report);
    let measured = measured.and(paired.end()).and_then(|()| first::run(setting, &bar, report));
    bar.finish_and_clear();
    measured
}

fn measure(
    setting: &Setting<'_>,
    library: &Library,
    paired: &mut Paired,
    bar: &ProgressBar,
    report: &mut Report,
) -> Result<(), Failure> {
    let Setting { options, .. } = *setting;
    for &size in &options.sizes.0 {
        let mut cases = cases(setting, library, size, paired)?;
        let mut rounds = |report: &mut Report| {
            for round in 1..=options.rounds {
                bar.set_message(format!("{size} B, round {round}"));
                let mut times = vec![Duration::ZERO; STATE_CALLS as usize];
                let line = measurement::line(&mut paired.pair, &mut paired.endpoints, &mut times)?;
                report.rounds.push(RoundState::of(size, round, Some(line)));
                for case in cases.iter_mut().filter(|case| case.missing.is_none()) {
                    case.measure(options.iterations, options.warmup, size, library, paired)?;
                }
                bar.inc(1);
            }
            Ok(())
        };
        let measured: Result<(), Failure> = rounds(report);
        add_rows(&cases, size, options.iterations, report);
        measured?;
    }
    Ok(())
}

/// Returns all ways, connected, with the code at its target. Bitcode is optimised there.
fn cases<'a>(
    setting: &Setting<'a>,
    library: &Library,
    size: usize,
    paired: &mut Paired,
) -> Result<Vec<Case<'a>>, Failure> {
    let mut cases = Vec::new();
    let args = vec![7; size];
    for (number, transport) in setting.transports.iter().enumerate() {
        for form in [Form::Native, Form::Bitcode] {
            let endpoint = 2 + 2 * number + usize::from(form == Form::Bitcode);
            let socket = format!("{transport}-{}", form.name());
            let link = match &paired.endpoints[endpoint] {
                Err(why) => Err(why.clone()),
                Ok(_) => {
                    let link = place::link(setting.stage.folder(), &socket, transport)?;
                    let link = link.wait_policy(WaitPolicy::spin_only());
                    let connected = serve(&mut paired.pair, endpoint, || {
                        let link = link.connect()?;
                        injection::attempt(&link, library, Mode::Cached, &args)?;
                        if form == Form::Bitcode {
                            std::thread::sleep(SETTLE);
                        }
                        Ok(link)
                    })?;
                    connected.map(Rc::new).map_err(|error: farjump::Error| error.to_string())
                }
            };
            for mode in [Mode::Cached, Mode::Always] {
                let (own, missing) = match &link {
                    Ok(link) => (Some((&**transport, form, mode, Rc::clone(link))), None),
                    Err(why) => (None, Some(format!("{transport}, {}: {why}", form.name()))),
                };
                let frame = Some(frame_len(form.code(library), mode, size));
                cases.push(Case {
                    own,
                    endpoint,
                    frame,
                    latency: Series::new()?,
                    rate: Series::new()?,
                    missing,
                });
            }
        }
    }
    let missing = paired.endpoints[1].as_ref().err().cloned();
    cases.push(Case {
        own: None,
        endpoint: 1,
        frame: None,
        latency: Series::new()?,
        rate: Series::new()?,
        missing,
    });
    Ok(cases)
}

/// Makes an endpoint's target serve while `attempt` runs.
fn serve<T>(pair: &mut Pair, endpoint: usize, attempt: impl FnOnce() -> T) -> Result<T, Failure> {
    let order = Order::Play { endpoint, size: 0, streams: true, expected: u64::MAX };
    pair.play(&order, |_, _| Ok(attempt())).map(|(attempted, _)| attempted)
}

/// Returns the bytes of the frame of a call in a mailbox without trailers.
fn frame_len(code: &[u8], mode: Mode, size: usize) -> usize {
    let plan = Plan { wants_reply: true, ..Plan::of(Kind::Call) };
    if mode == Mode::Cached {
        return plan.layout(0, size, Trailer::Never).frame_len;
    }
    let id = farjump::CodeId([0; 16]);
    let code = PlanCode { image: code, id, epoch: 0, name: "counter", family: None };
    Plan { kind: Kind::CallCode, code: Some(code), ..plan }.layout(0, size, Trailer::Never).frame_len
}

impl Case<'_> {
    /// Returns the numbers of calls for latency, and of messages for the rate.
    fn calls(&self, asked: Option<u32>) -> [u32; 2] {
        let always = self.own.as_ref().is_some_and(|(_, _, mode, _)| *mode == Mode::Always);
        let (latency, rate) = if always { USUAL_ALWAYS } else { USUAL_CALLS };
        [asked.unwrap_or(latency), asked.unwrap_or(rate)]
    }

    fn measure(
        &mut self,
        asked: Option<u32>,
        warmup: u32,
        size: usize,
        library: &Library,
        paired: &mut Paired,
    ) -> Result<(), Failure> {
        let [latency, rate] = self.calls(asked);
        for (metric, iterations) in [(Metric::Latency, latency), (Metric::Rate, rate)] {
            let run = Measurement { metric, size, iterations, warmup: warmup.min(iterations) };
            let round = self.round(&run, library, paired)?;
            let series = if metric == Metric::Latency { &mut self.latency } else { &mut self.rate };
            series.add(round);
        }
        Ok(())
    }

    fn round(&self, run: &Measurement, library: &Library, paired: &mut Paired) -> Result<Round, Failure> {
        let Paired { pair, endpoints } = paired;
        let mut times = vec![Duration::ZERO; run.iterations as usize];
        match &self.own {
            Some((_, _, mode, link)) => {
                link.set_mode(*mode);
                let mut calls = Calls::new(link, library, vec![7; run.size], 1);
                run.measure(pair, self.endpoint, &mut calls, &mut times)
            }
            None => {
                let own: Option<&mut Endpoint> = endpoints.get_mut(self.endpoint);
                let Some(Ok(Some(own))) = own else { return Err(Failure::new("ucx-am is not set up")) };
                run.measure(pair, self.endpoint, own.source()?, &mut times)
            }
        }
    }
}

fn add_rows(cases: &[Case<'_>], size: usize, asked: Option<u32>, report: &mut Report) {
    let of_size = report.rounds.iter().filter(|round| round.size == size);
    let lines: Vec<f64> = of_size.filter_map(|round| round.line_ns).collect();
    let state = median(&lines).map(crate::perf::machine::CoreDistance::of);
    let Some((baseline, own)) = cases.split_last() else { return };
    for case in own {
        for (number, (metric, unit)) in
            [("tsi-latency", "us"), ("tsi-rate", "million/s")].into_iter().enumerate()
        {
            let [of, beside] =
                [case, baseline].map(|case| if number == 0 { &case.latency } else { &case.rate });
            report.rows.push(Row {
                metric,
                unit,
                subject: "farjump",
                transport: case.own.as_ref().map(|(transport, ..)| (*transport).to_owned()),
                mode: case.own.as_ref().map(|(_, _, mode, _)| mode.name()),
                form: case.own.as_ref().map(|(_, form, ..)| form.name()),
                frame_bytes: case.frame,
                arrival: case.own.as_ref().map(|(.., link)| link.arrival_rule().describe()),
                lane: case.own.as_ref().and_then(|(.., link)| place::lane(link)),
                size,
                iterations: case.calls(asked)[number],
                reference: Some(Against::UcxAm.name()),
                state,
                missing: case.missing.clone().or_else(|| baseline.missing.clone()),
                ..Row::beside(of, Some(beside))
            });
        }
    }
}
