//! The machine: its processors, those in use, and their distance.

pub(super) mod clock;
pub(super) mod external_tool;
pub(super) mod perftest;
pub(super) mod rdma_posts;
pub(super) mod ucx_perftest;

use std::collections::BTreeSet;
use std::fmt;
use std::fs;

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use serde::Serialize;

use crate::perf::process::child_protocol::Played;
use crate::program::failure::Failure;
use crate::program::procfs::{numbers, read};

/// The machine behind the figures.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Machine {
    pub(super) processor: String,
    pub(super) processors: usize,
    pub(super) kernel: String,
    pub(super) farjump: &'static str,
    /// Version, or `None` without UCX.
    pub(super) ucx: Option<String>,
    pub(super) ucx_tls: Option<String>,
    /// `None` where the system chooses.
    pub(super) source_cpu: Option<usize>,
    /// `None` where the system chooses, or the target is elsewhere.
    pub(super) target_cpu: Option<usize>,
    /// The target's address, if the target is elsewhere.
    pub(super) peer: Option<String>,
}

impl Machine {
    /// Describes the machine, with the processors that source and target are pinned to, and the address of a
    /// target elsewhere.
    pub(super) fn look(
        source_cpu: Option<usize>,
        target_cpu: Option<usize>,
        peer: Option<String>,
    ) -> Machine {
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = info.lines().find_map(|line| line.strip_prefix("model name\t: "));
        Machine {
            processor: model.unwrap_or("unknown processor").to_owned(),
            processors: allowed().len(),
            kernel: read("/proc/sys/kernel/osrelease").unwrap_or_default(),
            farjump: env!("CARGO_PKG_VERSION"),
            ucx: ucx_version(),
            ucx_tls: std::env::var("UCX_TLS").ok(),
            source_cpu,
            target_cpu,
            peer,
        }
    }
}

#[cfg(feature = "ucx")]
fn ucx_version() -> Option<String> {
    crate::perf::experiments::baselines::ucx::version().ok()
}

#[cfg(not(feature = "ucx"))]
fn ucx_version() -> Option<String> {
    None
}

/// The processors of source and target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Cpus {
    pub(super) source: usize,
    pub(super) target: usize,
}

/// Processors on which a measurement whose processes the system places has run.
#[derive(Clone, Default, Debug, Serialize)]
pub(super) struct Placement {
    /// Processors of the source, at the ends of its measurements.
    pub(super) source: BTreeSet<usize>,
    /// Processors of the target, likewise.
    pub(super) target: BTreeSet<usize>,
    /// Measurements at whose end both were on one processor.
    pub(super) together: u32,
    /// The number of times that the target yielded its processor to a source that might have been waiting for it.
    pub(super) yields: u64,
    /// Messages counted meanwhile.
    pub(super) messages: u64,
}

impl Placement {
    /// Adds the report of the target's process on a measurement.
    pub(super) fn add(&mut self, played: &Played) {
        let own = sched_getcpu();
        self.together += u32::from(own == played.processor);
        self.source.insert(own);
        self.target.insert(played.processor);
        self.yields += played.yields;
        self.messages += played.counted;
    }

    /// Returns whether source and target shared a processor for a considerable part: of calls over a shared
    /// one, each makes the target yield once at least.
    pub(super) fn is_shared(&self) -> bool {
        self.together != 0 && self.yields > self.messages / 10
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "source on {}, target on {}", self.source, self.target)
    }
}

/// The processors requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RequestedCpus {
    /// Those that the system chooses, again and again.
    Any,
    /// The source's: the target is elsewhere.
    One(usize),
    /// Those of source and target.
    Two(Cpus),
}

/// Reads the numbers of one or two processors.
///
/// # Errors
/// A sentence for the user.
pub(super) fn parse_cpus(text: &str) -> Result<RequestedCpus, String> {
    if text == "any" {
        return Ok(RequestedCpus::Any);
    }
    let number = |text: &str| {
        text.parse().map_err(|_| {
            format!(
                "`{text}`: write the numbers of two processors, for example 0,1, or with --to that of one, or `any` for no choice"
            )
        })
    };
    let Some((source, target)) = text.split_once(',') else {
        return Ok(RequestedCpus::One(number(text)?));
    };
    let (source, target) = (number(source)?, number(target)?);
    if source == target {
        return Err("source and target each poll, and need a processor each: name two, or `any`".to_owned());
    }
    Ok(RequestedCpus::Two(Cpus { source, target }))
}

/// The distance of two processors.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CoreDistance {
    Near,
    Middle,
    Far,
}

impl CoreDistance {
    /// Classifies the nanoseconds that a line takes one way.
    pub(super) fn of(line_ns: f64) -> CoreDistance {
        match line_ns {
            ns if ns < 40.0 => CoreDistance::Near,
            ns if ns > 150.0 => CoreDistance::Far,
            _ => CoreDistance::Middle,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            CoreDistance::Near => "near",
            CoreDistance::Middle => "middle",
            CoreDistance::Far => "far",
        }
    }
}

/// Returns the two processors to use, or `None` if the system is to choose.
///
/// # Errors
/// There are not two, or the requested ones are not allowed.
pub(super) fn choose(asked: Option<RequestedCpus>) -> Result<Option<Cpus>, Failure> {
    let allowed = allowed();
    match asked {
        Some(RequestedCpus::Any) => return Ok(None),
        Some(RequestedCpus::Two(Cpus { source, target })) => {
            return Ok(Some(Cpus { source: usable(source, &allowed)?, target: usable(target, &allowed)? }));
        }
        Some(RequestedCpus::One(source)) => {
            return Err(Failure::usage(format!(
                "--cpus {source}: source and target need a processor each: name two"
            )));
        }
        None => {}
    }
    let mut by_number = allowed.iter().copied();
    let (Some(source), Some(second)) = (by_number.next(), by_number.next()) else {
        return Err(Failure::new(format!(
            "source and target each poll and need a processor each, and there is only {}: allow more (taskset), measure elsewhere, or have them share it (--cpus any)",
            list(&allowed)
        )));
    };
    let siblings = read(format!("/sys/devices/system/cpu/cpu{source}/topology/thread_siblings_list"))
        .and_then(|list| numbers(&list))
        .unwrap_or_default();
    let apart = allowed.iter().copied().find(|cpu| *cpu != source && !siblings.contains(&(*cpu as u32)));
    Ok(Some(Cpus { source, target: apart.unwrap_or(second) }))
}

/// Returns the processor of a source alone, or `None` if the system is to choose.
///
/// # Errors
/// The requested one is not allowed, or two were requested.
pub(super) fn choose_one(asked: Option<RequestedCpus>) -> Result<Option<usize>, Failure> {
    let allowed = allowed();
    match asked {
        Some(RequestedCpus::Any) => Ok(None),
        Some(RequestedCpus::One(source)) => usable(source, &allowed).map(Some),
        Some(RequestedCpus::Two(Cpus { source, target })) => Err(Failure::usage(format!(
            "--cpus {source},{target}: with --to the target has a processor of its own elsewhere: name one, the source's"
        ))),
        None => {
            let first = allowed.first().copied();
            first
                .map(Some)
                .ok_or_else(|| Failure::new("the system does not say which processors may be used"))
        }
    }
}

fn usable(cpu: usize, allowed: &BTreeSet<usize>) -> Result<usize, Failure> {
    match allowed.contains(&cpu) {
        true => Ok(cpu),
        false => Err(Failure::new(format!(
            "processor {cpu} is not there, or may not be used (see taskset -p $$): there are {}",
            list(allowed)
        ))),
    }
}

fn list(allowed: &BTreeSet<usize>) -> String {
    allowed.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

fn allowed() -> BTreeSet<usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

/// Pins this thread to a processor.
pub(super) fn pin(cpu: usize) -> Result<(), Failure> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set)
        .map_err(|error| Failure::new(format!("cannot run on processor {cpu} alone: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_near_below_40_ns_and_far_beyond_150() {
        assert_eq!([CoreDistance::of(25.0), CoreDistance::of(39.9)], [CoreDistance::Near; 2]);
        assert_eq!(
            [CoreDistance::of(40.0), CoreDistance::of(60.0), CoreDistance::of(150.0)],
            [CoreDistance::Middle; 3]
        );
        assert_eq!(CoreDistance::of(250.0), CoreDistance::Far);
    }

    #[test]
    fn a_disallowed_processor_is_refused_naming_the_allowed_ones() {
        let first = *allowed().first().expect("this runs on one");
        let two = RequestedCpus::Two(Cpus { source: first, target: 1023 });
        let one = RequestedCpus::One(1023);
        for error in [choose(Some(two)).map(drop), choose_one(Some(one)).map(drop)] {
            let text = error.expect_err("there is no such processor").to_string();
            assert!(text.contains("processor 1023") && text.contains(&first.to_string()), "{text}");
        }
    }

    #[test]
    fn processors_are_two_numbers_that_differ_or_one_or_any() {
        assert_eq!(parse_cpus("3,0"), Ok(RequestedCpus::Two(Cpus { source: 3, target: 0 })));
        assert_eq!(parse_cpus("3"), Ok(RequestedCpus::One(3)));
        assert_eq!(parse_cpus("any"), Ok(RequestedCpus::Any));
        for wrong in ["", "any,1", "1,", "1,1", "0,1,2", "a,b", "-1,2"] {
            assert!(parse_cpus(wrong).is_err(), "{wrong}");
        }
    }
}
