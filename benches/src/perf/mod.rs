//! `perf`: farjump measured on this machine, beside what would be used otherwise.
//!
//! A measurement has two processes, a source and a target, each on a processor of its own (`child`, `child_main`). Each
//! case and each baseline has a role in both (`role`): farjump (`baselines::injection`) and what it is compared with
//! (`baselines`). `run` goes through sizes and rounds, `report` shows the result, and `plot` draws it. With a target on
//! another machine there is one process, and farjump is the only baseline (`remote_target`).

mod across;
mod baselines;
mod case;
mod child;
mod child_main;
mod child_protocol;
mod clock;
mod counterpart;
mod external_tool;
mod first_call;
mod ifuncs;
mod image;
mod liveness;
mod machine;
mod measurement;
mod options;
mod payload_size;
mod perftest;
mod place;
mod plot;
mod ports;
mod progress;
mod rdma_posts;
mod remote_target;
mod report;
mod role;
mod run;
mod scaling;
mod shared_memory;
mod statistics;
mod ucx_perftest;
mod wake_up;
mod work;

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use clap::ValueEnum;
use farjump::Mode;
use farjump_transports::make_with;
use rustix::stdio::dup2_stdout;

use crate::program::failure::Failure;
use crate::program::output;
use crate::program::workspace::Stage;
use across::Across;
use baselines::ring::Layout;
pub use child_main::run as run_other;
use child_protocol::{Set, Subject};
use ifuncs::Libraries;
use machine::Machine;
use options::{Against, Cpus, Metric};
pub use options::{Perf, PerfOther};
use plot::Plot;
use report::Report;
use run::Bench;

/// Measures, and shows what came of it; if it failed in the middle, what was measured before that, and then why.
///
/// # Errors
/// The command line makes no sense, this machine cannot measure that, or a measurement failed.
///
/// # Safety
/// This process is the program `farjump`: it starts its own file again, as `farjump build` and `farjump perf-other`. The
/// libraries that the command line names, of functions and of UCX, are loaded.
pub unsafe fn run(arguments: &Perf) -> Result<(), Failure> {
    check_ucx(arguments)?;
    image::check(arguments)?;
    work::check(arguments)?;
    let against = references_of(arguments)?;
    arguments.plot.as_ref().map_or(Ok(()), Plot::check)?;
    let aside = Aside::put()?;
    let transports = transports_of(arguments)?;
    let (source, cpus) = match arguments.peer {
        Some(_) => (machine::choose_one(arguments.cpus)?, None),
        None => machine::choose(arguments.cpus).map(|cpus| (cpus.source, Some(cpus)))?,
    };
    let stage = Stage::set("perf")?;
    let modes = modes_of(arguments, &against);
    place::draw_key(stage.folder(), &transports)?;
    let libraries = Libraries::build(arguments, modes.len(), &stage)?;
    let machine = Machine::look(source, cpus.map(|cpus| cpus.target), arguments.peer.clone());
    let mut report = Report { machine, rounds: Vec::new(), rows: Vec::new() };
    machine::pin(source)?;
    let ended = match cpus {
        Some(cpus) => {
            let setting = Setting {
                options: arguments,
                stage: &stage,
                cpus,
                transports: &transports,
                libraries: &libraries,
            };
            match arguments.metric {
                Metric::Scaling => scaling::run(&setting, &mut report),
                Metric::WakeUp | Metric::Idle => wake_up::run(&setting, &against, &mut report),
                _ => Bench::set(&setting, modes, &against)?.measure(&mut report),
            }
        }
        None => {
            let bench = Bench::reach(arguments, &stage, &transports, modes, &against, &libraries)?;
            bench.measure(&mut report)
        }
    };
    aside.restore()?;
    let printed = report.print(arguments);
    // Of a run that failed at its beginning there is nothing to draw, and what failed says why.
    let plotted = match &arguments.plot {
        Some(plot) if ended.is_ok() || !report.rows.is_empty() => plot.write(&report, arguments.rounds),
        _ => Ok(()),
    };
    if let (Err(_), Err(also)) = (&ended, &plotted) {
        output::note(format_args!("error: {also}"));
    }
    ended.and(printed).and(plotted)
}

/// What a run is made of, whatever it measures.
struct Setting<'a> {
    options: &'a Perf,
    stage: &'a Stage,
    cpus: Cpus,
    /// Names, each once.
    transports: &'a [String],
    libraries: &'a Libraries,
}

impl Setting<'_> {
    /// What a process on processor `cpu` is told that has the other side of these subjects.
    fn set(&self, subjects: &[Subject], cpu: usize, layout: Layout) -> Set {
        Set {
            subjects: subjects.to_vec(),
            cpu,
            ring: self.options.ring(),
            sleeps: self.options.target_sleeps,
            layout,
            folder: self.stage.folder().to_owned(),
            host: Across::host(self.options.across.as_ref()).to_owned(),
            counter: self.libraries.counter.clone(),
        }
    }
}

/// Standard output, while standard error is in its place: UCX writes there what it has to say, and that is no part of a report.
struct Aside(OwnedFd);

impl Aside {
    fn put() -> Result<Aside, Failure> {
        let aside = || {
            let out = io::stdout().as_fd().try_clone_to_owned()?;
            dup2_stdout(io::stderr())?;
            Ok(Aside(out))
        };
        aside().map_err(cannot_put)
    }

    fn restore(self) -> Result<(), Failure> {
        // Nothing of this process's own was written meanwhile; what C libraries hold back goes where it was meant to go.
        // SAFETY: flushing every stream is what a null one asks for.
        unsafe { libc::fflush(std::ptr::null_mut()) };
        dup2_stdout(&self.0).map_err(|error| cannot_put(error.into()))
    }
}

fn cannot_put(error: io::Error) -> Failure {
    Failure::new(format!("standard output cannot be kept from what UCX says: {error}"))
}

/// # Errors
/// When a UCX was named and cannot be used: measuring another one instead would say nothing of it.
#[cfg(feature = "ucx")]
fn check_ucx(arguments: &Perf) -> Result<(), Failure> {
    match &arguments.ucx_library {
        Some(_) => baselines::ucx::version().map(drop).map_err(|why| Failure::new(format!("--ucx: {why}"))),
        None => Ok(()),
    }
}

/// # Errors
/// When a UCX was named.
#[cfg(not(feature = "ucx"))]
fn check_ucx(arguments: &Perf) -> Result<(), Failure> {
    match &arguments.ucx_library {
        Some(_) => Err(Failure::new("--ucx: this program was built without UCX: build with --features ucx")),
        None => Ok(()),
    }
}

/// The references asked for, each once, or the usual one.
fn references_of(arguments: &Perf) -> Result<Vec<Against>, Failure> {
    let metric = arguments.metric;
    let mut against = Vec::new();
    match arguments.peer {
        Some(_) => remote_target::check(arguments)?,
        None if arguments.ucx.tcp => {
            return Err(Failure::new(
                "--ucx-tcp is for targets elsewhere: name one with --peer; UCX's TCP is measured here by --against ucx-am-tcp",
            ));
        }
        None if arguments.clear.clear => {
            return Err(Failure::new(
                "--clear is for targets elsewhere: name one with --peer; what is clear is measured here by --transports tcp-clear",
            ));
        }
        None => {}
    }
    for reference in &arguments.against {
        check_reference(metric, *reference)?;
        if !against.contains(reference) {
            against.push(*reference);
        }
    }
    if metric == Metric::FirstCall && arguments.modes.contains(&Mode::Local) {
        return Err(Failure::new(
            "in mode local no code comes to the target: first-call has nothing to measure",
        ));
    }
    if matches!(metric, Metric::Scaling | Metric::WakeUp | Metric::Idle) && arguments.modes != [Mode::Cached]
    {
        return Err(Failure::new(format!("{} is measured in mode cached: leave --mode out", metric.name())));
    }
    if against.is_empty() {
        // With a target elsewhere there is none but farjump itself.
        let usual = || match arguments.peer {
            None => perftest::usual(metric, &arguments.transports),
            Some(_) => Vec::new(),
        };
        against.extend(image::usual(arguments).map_or_else(usual, |usual| vec![usual]));
    }
    check_slot(arguments, &against)?;
    check_sleep(arguments)?;
    Ok(against)
}

/// The modes asked for, each once, and cached where that is a reference.
fn modes_of(arguments: &Perf, against: &[Against]) -> Vec<Mode> {
    let mut modes = Vec::new();
    let reference = against.contains(&Against::Cached).then_some(Mode::Cached);
    for mode in arguments.modes.iter().copied().chain(reference) {
        if !modes.contains(&mode) {
            modes.push(mode);
        }
    }
    modes
}

/// # Errors
/// When slots were asked for, and nothing that is measured has a ring for them.
fn check_slot(arguments: &Perf, against: &[Against]) -> Result<(), Failure> {
    let metric = arguments.metric;
    if arguments.slot.is_none() {
        return Ok(());
    }
    if !matches!(metric, Metric::Latency | Metric::Rate | Metric::Bandwidth) {
        return Err(Failure::new(format!(
            "--slot is for latency, rate and bandwidth: for {} there is no ring, leave it out",
            metric.name()
        )));
    }
    match against.iter().any(|against| against.has_slots()) {
        true => Ok(()),
        false => Err(Failure::new(
            "--slot is for the rings of raw, ucx-stores and ucx-put: name one of them with --against",
        )),
    }
}

/// # Errors
/// When the target is to sleep in what has no such target, or is about sleeping itself.
fn check_sleep(arguments: &Perf) -> Result<(), Failure> {
    let metric = arguments.metric;
    match !arguments.target_sleeps || matches!(metric, Metric::Latency | Metric::Rate | Metric::Bandwidth) {
        true => Ok(()),
        false => Err(Failure::new(format!(
            "--target-sleeps is for latency, rate and bandwidth: leave it out for {}",
            metric.name()
        ))),
    }
}

/// # Errors
/// When this is no reference for that metric.
fn check_reference(metric: Metric, reference: Against) -> Result<(), Failure> {
    let only_for = reference.only_for();
    if let Some(program) = perftest::Program::of(reference) {
        return program.check(metric);
    }
    if only_for.contains(&metric) || reference.measures().contains(&metric) {
        return Ok(());
    }
    let (metric_name, name) = (metric.name(), reference.name());
    let measured = [only_for, reference.measures()].concat();
    if !measured.is_empty() {
        let others = measured.iter().map(|metric| metric.name()).collect::<Vec<_>>().join(" and ");
        return Err(Failure::new(format!(
            "{name} is the reference for {others}, not for {metric_name}: leave it out"
        )));
    }
    let own = Against::value_variants().iter().filter(|against| against.only_for().contains(&metric));
    let own = own.map(|against| against.name()).collect::<Vec<_>>().join(" and ");
    match own.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(format!("{metric_name} has no reference but {own}: leave {name} out"))),
    }
}

/// The transports asked for, each once.
fn transports_of(arguments: &Perf) -> Result<Vec<String>, Failure> {
    let mut names: Vec<String> = Vec::new();
    let mut add = |name: &str| {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    };
    for name in &arguments.transports {
        match &**name {
            "all" => farjump::available()
                .iter()
                .filter(|backend| backend.usable.is_ok())
                .for_each(|backend| add(backend.name)),
            place::TCP_CLEAR => {
                farjump_transports::make(place::TCP).map_err(farjump::Error::from)?;
                add(place::TCP_CLEAR);
            }
            name => add(make_with(name, arguments.ucx.options()).map_err(farjump::Error::from)?.name()),
        }
    }
    if arguments.peer.is_some() && arguments.transports.is_empty() {
        // The target has a say, too.
        return Ok(names);
    }
    if names.is_empty() {
        let preferred = farjump::preferred();
        names.extend(preferred.map(|transport| transport.name().to_owned()));
    }
    if names.is_empty() {
        return Err(Failure::new("no transport can be used here: see farjump transports"));
    }
    Ok(names)
}
