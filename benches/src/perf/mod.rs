//! `perf`: measures farjump on this machine, beside its alternatives.
//!
//! A measurement has two processes, a source and a target, each on a processor of its own (`child`,
//! `child_main`). Each case and each baseline has a role in both (`role`): farjump (`crate::perf::experiments::baselines::injection`)
//! and its alternatives (`baselines`). `run` goes through sizes and rounds, `report` shows the result, and
//! `plot` draws it. With a target on another machine there is one process, and farjump is the only baseline
//! (`remote_target`).

mod experiments;
mod machine;
mod options;
mod process;
mod report;

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use farjump_transports::{BackendOptions, make_with};
use rustix::stdio::dup2_stdout;

use crate::perf::experiments::run::Bench;
use crate::perf::experiments::setting::Setting;
use crate::perf::experiments::work::resident;
use crate::perf::experiments::{chase, scaling, tsi};
use crate::perf::options::ifuncs::Libraries;
pub use crate::perf::process::child_main::run as run_other;
use crate::perf::report::metric::Metric;
use crate::perf::report::picture_file::PictureFile;
use crate::program::failure::Failure;
use crate::program::link_options::choose_device;
use crate::program::output;
use crate::program::signals;
use crate::program::workspace::Stage;
use machine::Machine;
pub use options::{Perf, PerfOther};
use report::Report;

/// Measures, and shows the results; after a failure, the results before it and then its cause.
///
/// # Errors
/// The command line makes no sense, this machine cannot measure that, or a measurement failed.
///
/// # Safety
/// This process is the program `farjump-perf`: it starts its own file again, as `farjump-perf build` and
/// `farjump-perf perf-other`. The libraries that the command line names, of functions and of UCX, are loaded.
pub unsafe fn run(mut arguments: Perf) -> Result<(), Failure> {
    let variable = arguments.take_variable()?;
    let arguments = &arguments;
    let link = arguments.link.resolve()?;
    choose_device(&link)?;
    let against = crate::perf::experiments::checks::references_of(arguments)?;
    arguments.plot.as_ref().map_or(Ok(()), PictureFile::check)?;
    let aside = Aside::put()?;
    let transports = transports_of(arguments, link.config.ucx_tcp).map_err(|failure| match &variable {
        Some(words) => failure.blaming(options::TRANSPORTS, words),
        None => failure,
    })?;
    let (source, cpus) = match arguments.peer {
        Some(_) => (machine::choose_one(arguments.cpus)?, None),
        None => machine::choose(arguments.cpus).map(|cpus| (cpus.map(|cpus| cpus.source), cpus))?,
    };
    let stage = Stage::set("perf")?;
    let modes = crate::perf::experiments::checks::modes_of(arguments, &against);
    crate::perf::process::place::draw_key(stage.folder(), &transports)?;
    let libraries = Libraries::build(arguments, modes.len(), &stage)?;
    let machine = Machine::look(source, cpus.map(|cpus| cpus.target), arguments.peer.clone());
    let mut report = Report { machine, rounds: Vec::new(), rows: Vec::new() };
    source.map_or(Ok(()), machine::pin)?;
    let (transports, libraries) = (&*transports, &libraries);
    let setting = Setting { options: arguments, stage: &stage, cpus, transports, libraries };
    let ended = match arguments.metric {
        _ if arguments.peer.is_some() => Bench::reach(&setting, modes, &against)?.measure(&mut report),
        Metric::Work if arguments.resident => resident::run::run(&setting, &modes, &against, &mut report),
        Metric::Chase => chase::run(&setting, &modes, &against, &mut report),
        Metric::Scaling => scaling::run(&setting, &mut report),
        Metric::Tsi => tsi::run(&setting, &mut report),
        Metric::WakeUp | Metric::Idle => Bench::of_sleepers(&setting, modes, &against)?.measure(&mut report),
        _ => Bench::set(&setting, modes, &against)?.measure(&mut report),
    };
    aside.restore()?;
    let printed = report.print(arguments);
    // A run that failed at its start has nothing to draw, and its error says why.
    let plotted = match &arguments.plot {
        Some(plot) if ended.is_ok() || !report.rows.is_empty() => {
            crate::perf::report::plot::draw(&report, arguments.rounds, plot.kind())
                .and_then(|picture| plot.write(&picture))
        }
        _ => Ok(()),
    };
    if let (Err(_), Err(also)) = (&ended, &plotted) {
        output::note(format_args!("error: {also}"));
    }
    // Its folder is gone then, also if the thread of the signals removes it.
    drop(stage);
    signals::end_interrupted();
    ended.and(printed).and(plotted)
}

/// Standard output, kept aside while UCX's messages to it go to standard error: they are no part of a report.
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
        // This process itself wrote nothing meanwhile. Text buffered by C libraries goes to standard error,
        // as meant.
        // SAFETY: fflush(3) takes a null stream, and flushes all.
        unsafe { libc::fflush(std::ptr::null_mut()) };
        dup2_stdout(&self.0).map_err(|error| cannot_put(error.into()))
    }
}

/// Returns the reason why a measurement cannot be taken whose feature is not built in.
pub(crate) fn not_built_with(feature: &str) -> String {
    format!(
        "this build of farjump-perf lacks it (in a clone, `cargo build --release -p farjump-benches --bin farjump-perf \
         --features {feature}` makes one that has it)"
    )
}

fn cannot_put(error: io::Error) -> Failure {
    Failure::new(format!("standard output cannot be kept free of UCX's log: {error}"))
}

/// Returns the requested transports, each once.
fn transports_of(arguments: &Perf, ucx_tcp: bool) -> Result<Vec<String>, Failure> {
    let mut names: Vec<String> = Vec::new();
    let mut add = |name: &str| {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    };
    for name in &arguments.transports {
        match &**name {
            "all" => farjump::transports::available()
                .iter()
                .filter(|backend| backend.usable.is_ok())
                .for_each(|backend| add(backend.name)),
            crate::perf::process::place::TCP_CLEAR => {
                farjump_transports::make(crate::perf::process::place::TCP).map_err(farjump::Error::from)?;
                add(crate::perf::process::place::TCP_CLEAR);
            }
            name => add(make_with(name, BackendOptions::new().with_ucx_tcp(ucx_tcp))
                .map_err(farjump::Error::from)?
                .name()),
        }
    }
    if arguments.peer.is_some() && arguments.transports.is_empty() {
        // The target chooses, too.
        return Ok(names);
    }
    if names.is_empty() {
        let preferred = farjump::transports::preferred();
        names.extend(preferred.map(|transport| transport.name().to_owned()));
    }
    if names.is_empty() {
        return Err(Failure::new("no transport can be used here: see farjump transports"));
    }
    Ok(names)
}
