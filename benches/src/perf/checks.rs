//! Checks of the command line beyond clap's, and defaults that depend on several options.

use clap::ValueEnum;
use farjump::Mode;

#[cfg(feature = "ucx")]
use super::baselines::ucx;
use super::metric::{Against, Metric};
use super::options::Perf;
use super::work::Way;
use super::{perftest, remote_target};
use crate::program::failure::Failure;

/// # Errors
/// A UCX was named and cannot be used. Measuring another one would say nothing about it.
#[cfg(feature = "ucx")]
fn check_ucx(arguments: &Perf) -> Result<(), Failure> {
    match &arguments.ucx_library {
        Some(_) => ucx::version().map(drop).map_err(|why| Failure::new(format!("--ucx: {why}"))),
        None => Ok(()),
    }
}

/// # Errors
/// A UCX was named.
#[cfg(not(feature = "ucx"))]
fn check_ucx(arguments: &Perf) -> Result<(), Failure> {
    match &arguments.ucx_library {
        Some(_) => Err(Failure::new("--ucx: this program was built without UCX: build with --features ucx")),
        None => Ok(()),
    }
}

/// Returns the requested baselines, each once, or the default one.
pub(super) fn references_of(arguments: &Perf) -> Result<Vec<Against>, Failure> {
    check_ucx(arguments)?;
    check_image(arguments)?;
    check_work(arguments)?;
    let metric = arguments.metric;
    let mut against = Vec::new();
    match arguments.peer {
        Some(_) => remote_target::check(arguments)?,
        None if arguments.ucx.tcp => {
            return Err(Failure::new(
                "--ucx-tcp is for targets elsewhere: name one with --to; UCX's TCP is measured here by --against ucx-am-tcp",
            ));
        }
        None if arguments.clear.clear => {
            return Err(Failure::new(
                "--clear is for targets elsewhere: name one with --to; perf's own targets measure unencrypted frames by --transports tcp-clear",
            ));
        }
        None => {}
    }
    for baseline in &arguments.against {
        check_baseline(metric, *baseline)?;
        if !against.contains(baseline) {
            against.push(*baseline);
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
        // Against a target elsewhere farjump itself is the only baseline.
        let usual = || match arguments.peer {
            None => perftest::usual(metric, &arguments.transports),
            Some(_) => Vec::new(),
        };
        against.extend(usual_of_images(arguments).map_or_else(usual, |usual| vec![usual]));
    }
    check_slot(arguments, &against)?;
    check_sleep(arguments)?;
    Ok(against)
}

/// Returns the requested modes, each once, and cached where it is a baseline.
pub(super) fn modes_of(arguments: &Perf, against: &[Against]) -> Vec<Mode> {
    let mut modes = Vec::new();
    let baseline = against.contains(&Against::Cached).then_some(Mode::Cached);
    for mode in arguments.modes.iter().copied().chain(baseline) {
        if !modes.contains(&mode) {
            modes.push(mode);
        }
    }
    modes
}

/// # Errors
/// Slots were requested, and no measured case has a ring for them.
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
/// The metric has no target that can sleep, or is about sleeping itself.
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
/// This is no baseline for that metric.
fn check_baseline(metric: Metric, baseline: Against) -> Result<(), Failure> {
    let only_for = baseline.only_for();
    if let Some(program) = perftest::Program::of(baseline) {
        return program.check(metric);
    }
    if only_for.contains(&metric) || baseline.measures().contains(&metric) {
        return Ok(());
    }
    let (metric_name, name) = (metric.name(), baseline.name());
    let measured = [only_for, baseline.measures()].concat();
    if !measured.is_empty() {
        let others = measured.iter().map(|metric| metric.name()).collect::<Vec<_>>().join(" and ");
        return Err(Failure::new(format!(
            "{name} is the baseline for {others}, not for {metric_name}: leave it out"
        )));
    }
    let own = Against::value_variants().iter().filter(|against| against.only_for().contains(&metric));
    let own = own.map(|against| against.name()).collect::<Vec<_>>().join(" and ");
    match own.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(format!("{metric_name} has no baseline but {own}: leave {name} out"))),
    }
}

/// Refuses options of metric work for other metrics, and options unfit for work.
fn check_work(arguments: &Perf) -> Result<(), Failure> {
    let refused = |why: String| Err(Failure::new(why));
    if arguments.metric != Metric::Work {
        let name = arguments.metric.name();
        if arguments.functions.is_some() {
            return refused(format!("--functions is for work, not for {name}: leave it out"));
        }
        if let Some(against) =
            arguments.against.iter().find(|against| matches!(against, Against::Fetch | Against::RawFetch))
        {
            return refused(format!(
                "{} is a baseline for work, not for {name}: leave it out",
                against.name()
            ));
        }
        return Ok(());
    }
    if let Some(against) =
        arguments.against.iter().find(|against| Way::of(**against).is_none() && **against != Against::Cached)
    {
        return refused(format!(
            "{} does no work: the baselines for work are ucx-am, fetch, raw-fetch and cached",
            against.name()
        ));
    }
    match arguments.sizes.0.iter().find(|size| **size == 0 || **size % 8 != 0) {
        Some(size) => {
            refused(format!("{size} B: the sizes of work are multiples of 8 bytes, for sum has keys of 8"))
        }
        None => Ok(()),
    }
}

/// Refuses options that conflict with the length of an image.
fn check_image(arguments: &Perf) -> Result<(), Failure> {
    if arguments.image.is_none() {
        return Ok(());
    }
    if !matches!(arguments.metric, Metric::Latency | Metric::Rate) {
        let metric = arguments.metric.name();
        return Err(Failure::new(format!("--image is for latency and rate, not for {metric}: leave it out")));
    }
    match arguments.modes.contains(&Mode::Local) {
        true => Err(Failure::new("in mode local no code travels: leave it or --image out")),
        false => Ok(()),
    }
}

/// Returns the default baseline of images: mode cached, if other modes are measured.
fn usual_of_images(arguments: &Perf) -> Option<Against> {
    let others = arguments.modes.iter().any(|mode| *mode != Mode::Cached);
    (arguments.image.is_some() && others).then_some(Against::Cached)
}
