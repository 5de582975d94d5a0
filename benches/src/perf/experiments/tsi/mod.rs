//! `tsi`: the target-side increment of the papers, by native code and by bitcode that the target has compiled, beside
//! UCX's active messages. The code is at the target already, or travels in each message. Then the parts of a first
//! call.

mod first;

use std::rc::Rc;
use std::time::Duration;

use farjump::core::frame::{Kind, Plan, PlanCode, Trailer};
use farjump::{Library, Link, Mode, WaitPolicy};

use super::baselines::connect::Paired;
use super::baselines::injection::{self, Calls};
use super::baselines::ring::Layout;
use super::experiment::{self, Experiment, Measured};
use super::measurement::{self, LINE_SIZE, Measurement, STATE_CALLS};
use super::setting::Setting;
use crate::perf::options::ifuncs;
use crate::perf::process::child_protocol::EndpointSpec;
use crate::perf::process::place;
use crate::perf::report::Report;
use crate::perf::report::key::Key;
use crate::perf::report::metric::{Against, Metric};
use crate::perf::report::progress::progress;
use crate::perf::report::row::Row;
use crate::perf::report::statistics::Round;
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

/// farjump over a transport, in a form and a mode.
struct Case<'a> {
    transport: &'a str,
    form: Form,
    mode: Mode,
    endpoint: usize,
    /// The link, or the reason why there is none.
    link: Result<Rc<Link>, String>,
}

/// The experiment: all cases, and after them UCX's active messages. Each contestant is measured in two metrics.
struct Increment<'a> {
    setting: &'a Setting<'a>,
    library: Library,
    paired: Paired,
    /// The cases of the step under way.
    cases: Vec<Case<'a>>,
    /// Reserved beforehand, so that nothing is allocated while calls are timed.
    times: Vec<Duration>,
}

const METRICS: [(&str, Metric); 2] = [("tsi-latency", Metric::Latency), ("tsi-rate", Metric::Rate)];
/// Endpoint of the baseline, after that of the ring by which the machine's state is measured.
const MESSAGES: usize = 1;

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
    let paired = Paired::start(setting, &specs, layout, 0)?;
    let mut increment = Increment { setting, library, paired, cases: Vec::new(), times: Vec::new() };
    let (sizes, rounds) = (&options.sizes.0, options.rounds);
    let all = experiment::measurements(&increment, sizes, rounds) + first::STEPS * rounds as usize;
    let bar = progress(all);
    let measured = experiment::run_beside(&mut increment, sizes, rounds, &bar, report);
    // Before the other process ends: UCX would try to reach it again.
    drop(increment.cases);
    let measured = measured.and(increment.paired.end()).and_then(|()| first::run(setting, &bar, report));
    bar.finish_and_clear();
    measured
}

/// Returns all cases, connected, with the code at its target. Bitcode is optimised there.
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
            let endpoint = MESSAGES + 1 + 2 * number + usize::from(form == Form::Bitcode);
            let socket = format!("{transport}-{}", form.name());
            let link = match &paired.endpoints[endpoint] {
                Err(why) => Err(why.clone()),
                Ok(_) => {
                    let link = place::link(setting.stage.folder(), &socket, transport)?;
                    let link = link.wait_policy(WaitPolicy::spin_only());
                    let connect = || {
                        let link = link.connect()?;
                        injection::attempt(&link, library, Mode::Cached, &args)?;
                        if form == Form::Bitcode {
                            std::thread::sleep(SETTLE);
                        }
                        Ok(link)
                    };
                    let (connected, _) = paired.pair.serve(endpoint, 0, || Ok(connect()))?;
                    connected.map(Rc::new).map_err(|error: farjump::Error| error.to_string())
                }
            };
            let link = link.map_err(|why| format!("{transport}, {}: {why}", form.name()));
            for mode in [Mode::Cached, Mode::Always] {
                cases.push(Case { transport, form, mode, endpoint, link: link.clone() });
            }
        }
    }
    Ok(cases)
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

impl Increment<'_> {
    /// Returns the case of a contestant; `None` for the baseline.
    fn case(&self, contestant: usize) -> Option<&Case<'_>> {
        self.cases.get(contestant / METRICS.len())
    }

    /// Returns the number of a contestant's calls or messages.
    fn iterations(&self, contestant: usize) -> u32 {
        let is_always = self.case(contestant).is_some_and(|case| case.mode == Mode::Always);
        let (latency, rate) = if is_always { USUAL_ALWAYS } else { USUAL_CALLS };
        self.setting.options.iterations.unwrap_or(if contestant.is_multiple_of(METRICS.len()) {
            latency
        } else {
            rate
        })
    }
}

impl Experiment for Increment<'_> {
    /// Bytes of payload.
    type Step = usize;

    fn contestants(&self) -> usize {
        // Each transport has two forms and two modes.
        METRICS.len() * (4 * self.setting.transports.len() + 1)
    }

    fn begin(&mut self, size: usize) -> Result<Vec<Option<String>>, Failure> {
        // A target takes one source.
        self.cases.clear();
        self.cases = cases(self.setting, &self.library, size, &mut self.paired)?;
        let most = (0..self.contestants()).map(|contestant| self.iterations(contestant)).max();
        self.times = vec![Duration::ZERO; most.unwrap_or_default().max(STATE_CALLS) as usize];
        let missing = |contestant| match self.case(contestant) {
            Some(case) => case.link.as_ref().err().cloned(),
            None => self.paired.endpoints[MESSAGES].as_ref().err().cloned(),
        };
        Ok((0..self.contestants()).map(missing).collect())
    }

    fn begin_round(&mut self, _size: usize, _round: u32) -> Result<Option<f64>, Failure> {
        let Paired { pair, endpoints } = &mut self.paired;
        measurement::line(pair, endpoints, &mut self.times).map(Some)
    }

    fn measure(&mut self, size: usize, contestant: usize) -> Result<Result<Round, String>, Failure> {
        let (iterations, warmup) = (self.iterations(contestant), self.setting.options.warmup);
        let (_, metric) = METRICS[contestant % METRICS.len()];
        let run = Measurement { metric, size, iterations, warmup: warmup.min(iterations) };
        let Increment { paired: Paired { pair, endpoints }, cases, times, library, .. } = self;
        let measured = match cases.get(contestant / METRICS.len()) {
            Some(Case { mode, endpoint, link: Ok(link), .. }) => {
                link.set_mode(*mode);
                let mut calls = Calls::new(link, library, vec![7; size], 1);
                run.measure(pair, *endpoint, &mut calls, times)
            }
            Some(Case { link: Err(why), .. }) => return Ok(Err(why.clone())),
            None => match &mut endpoints[MESSAGES] {
                Ok(Some(own)) => run.measure(pair, MESSAGES, own.source()?, times),
                _ => return Ok(Err("ucx-am is not set up".to_owned())),
            },
        };
        measured.map(Ok)
    }

    fn described(&self, size: usize, contestant: usize) -> Row {
        let (name, metric) = METRICS[contestant % METRICS.len()];
        let row = Row { metric: name, unit: metric.unit(), subject: "farjump", ..Row::default() };
        let Some(Case { transport, form, mode, link, .. }) = self.case(contestant) else {
            return Row { subject: Against::UcxAm.name(), ..row };
        };
        let link = link.as_ref().ok();
        row.with(Key::Form, form.name())
            .with(Key::Transport, *transport)
            .with(Key::Mode, mode.name())
            .with(Key::Arrival, link.map(|link| link.arrival_rule().describe()))
            .with(Key::Lane, link.and_then(|link| place::lane(link)))
            .with(Key::Size, size)
            .with(Key::FrameBytes, frame_len(form.code(&self.library), *mode, size))
            .with(Key::Iterations, self.iterations(contestant))
    }

    fn rows(&mut self, _size: usize, measured: &Measured) -> Result<Vec<Row>, Failure> {
        let baseline = METRICS.len() * self.cases.len();
        let row = |contestant: usize| {
            let reference = (Against::UcxAm.name(), baseline + contestant % METRICS.len());
            measured.row(contestant, Some(reference))
        };
        Ok((0..baseline).map(row).collect())
    }
}
