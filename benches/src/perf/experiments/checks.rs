//! Checks of the command line beyond clap's, and defaults that depend on several options.

use clap::ValueEnum;
use farjump::Mode;

#[cfg(feature = "ucx")]
use super::baselines::ucx;
use super::chase;
use super::work::resident::query;
use crate::perf::machine::perftest;
use crate::perf::options::Perf;
use crate::perf::options::remote_target;
use crate::perf::report::metric::{Against, Metric};
use crate::perf::report::payload_size::LONGEST_PAYLOAD;
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
        Some(_) => Err(Failure::new(format!("--ucx: {}", crate::perf::not_built_with("ucx")))),
        None => Ok(()),
    }
}

/// Returns the requested baselines, each once, or the default one.
pub(in crate::perf) fn references_of(arguments: &Perf) -> Result<Vec<Against>, Failure> {
    check_ucx(arguments)?;
    check_line(arguments).map_err(Failure::of_command_line)
}

/// Returns the requested baselines, if the command line makes sense.
fn check_line(arguments: &Perf) -> Result<Vec<Against>, Failure> {
    check_options(arguments)?;
    let metric = arguments.metric;
    if arguments.peer.is_some() {
        remote_target::check(arguments)?;
    }
    let mut against = Vec::new();
    for baseline in &arguments.against {
        if (*baseline == Against::FetchAm && !arguments.resident)
            || (*baseline == Against::Cached && arguments.resident)
        {
            let (name, instead) = (baseline.name(), if arguments.resident { "without" } else { "with" });
            return Err(Failure::new(format!(
                "{name} is a baseline for work {instead} --resident: leave it out"
            )));
        }
        check_baseline(metric, *baseline)?;
        if !against.contains(baseline) {
            against.push(*baseline);
        }
    }
    check_modes(arguments)?;
    if metric == Metric::Chase {
        chase::check(arguments)?;
    }
    if arguments.is_unpinned() {
        check_unpinned(arguments)?;
        return Ok(against);
    }
    if against.is_empty() {
        against = usual(arguments);
    }
    if arguments.slot.is_some() && !against.iter().any(|against| against.has_slots()) {
        return Err(Failure::new(
            "--slot is for the rings of raw, ucx-stores and ucx-put: name one of them with --against",
        ));
    }
    Ok(against)
}

/// Refuses options that need a processor for each process.
fn check_unpinned(arguments: &Perf) -> Result<(), Failure> {
    let metric = arguments.metric;
    if !metric.is_of_messages() {
        let name = metric.name();
        return Err(Failure::new(format!(
            "--cpus any is for latency, rate and bandwidth: name two processors for {name}"
        )));
    }
    match arguments.against.first() {
        None => Ok(()),
        Some(baseline) => Err(Failure::new(format!(
            "--cpus any: baselines poll without yielding, and {} would wait for a shared processor: leave --against out, or name two processors",
            baseline.name()
        ))),
    }
}

/// Returns the default baselines. Against a target elsewhere farjump itself is the only baseline.
fn usual(arguments: &Perf) -> Vec<Against> {
    let has_other_modes = arguments.modes.iter().any(|mode| *mode != Mode::Cached);
    match arguments.peer {
        _ if arguments.image.is_some() && has_other_modes => vec![Against::Cached],
        None if arguments.metric == Metric::Chase => vec![Against::UcxAm, Against::UcxGet, Against::Load],
        None if arguments.resident => {
            vec![Against::UcxAm, Against::Fetch, Against::FetchAm, Against::RawFetch]
        }
        None => perftest::usual(arguments.metric, &arguments.transports),
        Some(_) => Vec::new(),
    }
}

/// Returns the requested modes, each once, and cached where it is a baseline.
pub(in crate::perf) fn modes_of(arguments: &Perf, against: &[Against]) -> Vec<Mode> {
    let mut modes = Vec::new();
    let baseline = against.contains(&Against::Cached).then_some(Mode::Cached);
    for mode in arguments.modes.iter().copied().chain(baseline) {
        if !modes.contains(&mode) {
            modes.push(mode);
        }
    }
    modes
}

/// Refuses options of other metrics, and of targets elsewhere.
fn check_options(arguments: &Perf) -> Result<(), Failure> {
    let metric = arguments.metric;
    let of_images = matches!(metric, Metric::Latency | Metric::Rate);
    let of_messages = "latency, rate and bandwidth";
    // The functions of these differ from run to run.
    let builds_others = matches!(metric, Metric::FirstCall | Metric::Work);
    for (option, is_set, metrics, is_for) in [
        ("--image", arguments.image.is_some(), "latency and rate", of_images),
        ("--functions", arguments.functions.is_some(), "work", metric == Metric::Work),
        ("--resident", arguments.resident, "work", metric == Metric::Work),
        ("--slot", arguments.slot.is_some(), of_messages, metric.is_of_messages()),
        ("--target-sleeps", arguments.target_sleeps, of_messages, metric.is_of_messages()),
        ("--counter", arguments.counter.is_some(), "the other metrics", !builds_others),
        ("--plot", arguments.plot.is_some(), "the other metrics", metric != Metric::Tsi),
        ("--warm", arguments.warm, "first-call", metric == Metric::FirstCall),
        ("--shards", arguments.chase.shards.is_some(), "chase", metric == Metric::Chase),
        ("--depth", arguments.chase.depths.is_some(), "chase", metric == Metric::Chase),
        ("--wire", arguments.chase.wires.is_some(), "chase", metric == Metric::Chase),
        ("--outstanding", arguments.chase.outstanding.is_some(), "chase", metric == Metric::Chase),
        ("--table", arguments.chase.table.is_some(), "chase", metric == Metric::Chase),
    ] {
        if is_set && !is_for {
            let metric = metric.name();
            return Err(Failure::new(format!("{option} is for {metrics}: leave it out for {metric}")));
        }
    }
    for (option, instead) in [
        ("ucx-tcp", "UCX's TCP is measured here by --against ucx-am-tcp"),
        ("clear", "perf's own targets measure unencrypted frames by --transports tcp-clear"),
    ] {
        let is_set =
            arguments.link.text(option).is_some_and(|text| !["no", "false", "off", "0"].contains(&text));
        if is_set && arguments.peer.is_none() {
            return Err(Failure::new(format!(
                "--{option} is for targets elsewhere: name one with --to; {instead}"
            )));
        }
    }
    if let Some(stranger) =
        arguments.functions.as_ref().and_then(|functions| functions.stranger(arguments.resident))
    {
        let instead = if arguments.resident { "leave --resident out" } else { "add --resident" };
        return Err(Failure::new(format!("{stranger} works on other data: {instead}")));
    }
    if arguments.resident {
        return arguments.sizes.0.iter().try_for_each(|size| query::check_size(*size));
    }
    if let Some(size) = arguments.sizes.0.iter().find(|size| **size > LONGEST_PAYLOAD) {
        return Err(Failure::new(format!("{size} B: a target takes payloads of 64M at most")));
    }
    let is_unfit = |size: &&usize| metric == Metric::Work && (**size == 0 || !size.is_multiple_of(8));
    match arguments.sizes.0.iter().find(is_unfit) {
        Some(size) => Err(Failure::new(format!(
            "{size} B: the sizes of work are multiples of 8 bytes, for sum has keys of 8"
        ))),
        None => Ok(()),
    }
}

/// # Errors
/// The metric, or the length of an image, says nothing about one of the modes.
fn check_modes(arguments: &Perf) -> Result<(), Failure> {
    let metric = arguments.metric;
    let is_local = arguments.modes.contains(&Mode::Local);
    let why = match metric {
        Metric::FirstCall if is_local => {
            "in mode local no code comes to the target: first-call has nothing to measure".to_owned()
        }
        Metric::Scaling | Metric::WakeUp | Metric::Idle if arguments.modes != [Mode::Cached] => {
            format!("{} is measured in mode cached: leave --mode out", metric.name())
        }
        Metric::Tsi if arguments.modes != [Mode::Cached] => {
            "tsi measures modes cached and always: leave --mode out".to_owned()
        }
        Metric::Chase if arguments.modes.iter().any(|mode| !matches!(mode, Mode::Cached | Mode::Always)) => {
            "functions send themselves on in modes cached and always alone: name these for chase".to_owned()
        }
        _ if arguments.image.is_some() && is_local => {
            "in mode local no code travels: leave it or --image out".to_owned()
        }
        _ => return Ok(()),
    };
    Err(Failure::new(why))
}

/// # Errors
/// This is no baseline for that metric.
fn check_baseline(metric: Metric, baseline: Against) -> Result<(), Failure> {
    if baseline.metrics().contains(&metric) {
        return Ok(());
    }
    let (metric_name, name) = (metric.name(), baseline.name());
    if metric.is_of_messages() || baseline.metrics().len() < 3 {
        let others = baseline.metrics().iter().map(|metric| metric.name()).collect::<Vec<_>>().join(" and ");
        return Err(Failure::new(format!(
            "{name} is the baseline for {others}, not for {metric_name}: leave it out"
        )));
    }
    let own = Against::value_variants().iter().filter(|against| against.metrics().contains(&metric));
    let own: Vec<_> = own.map(|against| against.name()).collect();
    Err(Failure::new(match metric {
        Metric::Work => format!("{name} does no work: the baselines for work are {}", own.join(", ")),
        _ => format!("{metric_name} has no baseline but {}: leave {name} out", own.join(" and ")),
    }))
}
