//! Processors: the number this process may use, the cores they share, and their speed.

use std::collections::BTreeSet;

use super::finding::{Finding, Verdict};
use farjump_cli::program::procfs::{field, numbers, read};
use farjump_os::resources;

const CPUS: &str = "/sys/devices/system/cpu";
const NODES: &str = "/sys/devices/system/node";

pub(super) fn look() -> Vec<Finding> {
    let allowed = read("/proc/self/status")
        .and_then(|status| numbers(field(&status, "Cpus_allowed_list")?))
        .unwrap_or_default();
    let online = read(format!("{CPUS}/online")).and_then(|list| numbers(&list)).unwrap_or_default();
    let siblings: Vec<_> = allowed
        .iter()
        .filter_map(|cpu| numbers(&read(format!("{CPUS}/cpu{cpu}/topology/thread_siblings_list"))?))
        .collect();
    let nodes = read(format!("{NODES}/online")).and_then(|list| numbers(&list)).unwrap_or_default();
    let nodes: Vec<_> = nodes
        .iter()
        .filter_map(|node| Some((*node, numbers(&read(format!("{NODES}/node{node}/cpulist"))?)?)))
        .collect();
    let governors: BTreeSet<_> = allowed
        .iter()
        .filter_map(|cpu| read(format!("{CPUS}/cpu{cpu}/cpufreq/scaling_governor")))
        .filter(|governor| !governor.is_empty())
        .collect();
    vec![
        cores(&allowed, &online, resources::processor_time()),
        siblings_of(&allowed, siblings),
        numa(&allowed, &nodes),
        governor(&governors),
        boost(read(format!("{CPUS}/cpufreq/boost")), read(format!("{CPUS}/intel_pstate/no_turbo"))),
    ]
}

fn cores(allowed: &BTreeSet<u32>, online: &BTreeSet<u32>, quota: Option<f64>) -> Finding {
    const NAME: &str = "cores";
    if allowed.is_empty() {
        let means = "source and target need one processor each to reply without waiting for the scheduler";
        return Finding::new(NAME, Verdict::Note, "/proc does not show how many", means);
    }
    let (count, all) = (allowed.len(), online.len().max(allowed.len()));
    let mut found = match count == all {
        true => format!("{count}"),
        false => format!("{count} of {all} allowed (affinity)"),
    };
    if let Some(quota) = quota {
        found += &format!(", time for {quota:.1} (control group)");
    }
    let short_of_time = quota.is_some_and(|quota| quota < 2.0);
    let finding = if count == 1 {
        let means =
            "source and target take turns: every call waits for the scheduler, and spinning is left out";
        let finding = Finding::new(NAME, Verdict::Slow, found, means);
        // There is no second processor to put into the command.
        if all == 1 {
            finding
        } else {
            let list: Vec<_> = online.iter().map(u32::to_string).collect();
            finding.mend(format!("taskset -c {} farjump serve --listen unix:PATH", list.join(",")))
        }
    } else if short_of_time {
        let means =
            "two polling processes use up their time, and stand still for the rest of each period (100 ms)";
        let mend =
            "sudo systemctl set-property --runtime UNIT CPUQuota=200%   # docker update --cpus 2 CONTAINER";
        Finding::new(NAME, Verdict::Slow, found, means).mend(mend)
    } else {
        Finding::new(NAME, Verdict::Ok, found, "source and target can each poll on a processor of their own")
    };
    let finding = finding.figure("allowed", count).figure("online", all);
    match quota {
        Some(quota) => finding.figure("quota", quota),
        None => finding,
    }
}

/// Judges SMT. `siblings` holds, for each allowed processor, all processors of its core, itself included.
fn siblings_of(allowed: &BTreeSet<u32>, siblings: Vec<BTreeSet<u32>>) -> Finding {
    const NAME: &str = "smt";
    let cores: BTreeSet<_> = siblings.into_iter().filter(|core| !core.is_empty()).collect();
    let Some(threads) = cores.iter().map(|core| core.intersection(allowed).count()).max() else {
        let means = "source and target on one core would slow each other down";
        return Finding::new(NAME, Verdict::Note, "/sys does not show which processors share a core", means);
    };
    let finding = if threads < 2 {
        let found = match cores.len() {
            1 => "1 core, one allowed processor on it".to_owned(),
            several => format!("{several} cores, one allowed processor on each"),
        };
        Finding::new(NAME, Verdict::Ok, found, "no two pollers share a core")
    } else if cores.len() == 1 {
        let found = format!("1 core, {threads} processors on it");
        let means = "source and target share the core: one that polls takes from the other";
        Finding::new(NAME, Verdict::Slow, found, means)
            .mend("farjump serve --wait-policy never --listen unix:PATH")
    } else {
        let found = format!("{} cores, up to {threads} processors on each", cores.len());
        let means = "one that polls takes from its sibling: put source and target on different cores";
        let mut firsts = cores.iter().filter_map(|core| core.intersection(allowed).next());
        let finding = Finding::new(NAME, Verdict::Note, found, means);
        match firsts.next() {
            Some(first) => finding.mend(format!("taskset -c {first} farjump serve --listen unix:PATH")),
            None => finding,
        }
    };
    finding.figure("cores", cores.len()).figure("threads", threads)
}

fn numa(allowed: &BTreeSet<u32>, nodes: &[(u32, BTreeSet<u32>)]) -> Finding {
    const NAME: &str = "numa";
    let used: Vec<u32> =
        nodes.iter().filter(|(_, cpus)| !cpus.is_disjoint(allowed)).map(|(node, _)| *node).collect();
    match used[..] {
        [] => Finding::new(NAME, Verdict::Note, "/sys does not show it", "memory of another node is slower"),
        [_] => Finding::new(NAME, Verdict::Ok, "1 node", "all memory is equally near").figure("nodes", 1),
        [first, ..] => {
            let found = format!("{} nodes", used.len());
            let means =
                "a line that goes from one node to another takes longer: keep source and target on one";
            let mend =
                format!("numactl --cpunodebind={first} --membind={first} farjump serve --listen unix:PATH");
            Finding::new(NAME, Verdict::Note, found, means).mend(mend).figure("nodes", used.len())
        }
    }
}

fn governor(governors: &BTreeSet<String>) -> Finding {
    const NAME: &str = "governor";
    let found = governors.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    if governors.is_empty() {
        let means = "the host or the firmware sets the clock";
        return Finding::new(NAME, Verdict::Note, "/sys does not show it", means);
    }
    if governors.iter().all(|governor| governor == "performance") {
        return Finding::new(NAME, Verdict::Ok, found, "processors are at full speed when a frame comes");
    }
    let means = "a processor that slept runs slowly at first: the first calls after a pause take longer";
    Finding::new(NAME, Verdict::Slow, found, means).mend("sudo cpupower frequency-set -g performance")
}

/// Judges boost. `boost` is 1 where boost is on, `no_turbo` is 1 where it is off.
fn boost(boost: Option<String>, no_turbo: Option<String>) -> Finding {
    const NAME: &str = "boost";
    let on = match (boost.as_deref(), no_turbo.as_deref()) {
        (Some("1"), _) | (_, Some("0")) => true,
        (Some("0"), _) | (_, Some("1")) => false,
        _ => {
            let means = "the host or the firmware sets the clock";
            return Finding::new(NAME, Verdict::Note, "/sys does not show it", means);
        }
    };
    if on {
        let means = "fast; for measuring, runs vary less without it";
        return Finding::new(NAME, Verdict::Ok, "on", means).figure("on", true);
    }
    let mend = match boost {
        Some(_) => "echo 1 | sudo tee /sys/devices/system/cpu/cpufreq/boost",
        None => "echo 0 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo",
    };
    let means = "processors stay at their base clock: steady for measuring, slower for the rest";
    Finding::new(NAME, Verdict::Note, "off", means).mend(mend).figure("on", false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(list: &str) -> BTreeSet<u32> {
        numbers(list).expect("a list")
    }

    #[test]
    fn one_core_or_too_little_time_is_slow_and_two_are_not() {
        let look = |allowed, online, quota| cores(&set(allowed), &set(online), quota);
        assert_eq!(look("0-1", "0-1", None).verdict, Verdict::Ok);
        assert_eq!(look("0-1", "0-1", Some(2.0)).verdict, Verdict::Ok);
        let pinned = look("3", "0-3", None);
        assert_eq!((pinned.verdict, &*pinned.found), (Verdict::Slow, "1 of 4 allowed (affinity)"));
        assert!(pinned.mend.is_some_and(|mend| mend.starts_with("taskset -c 0,1,2,3 ")));
        assert_eq!(look("0", "0", None).mend, None);
        let quota = look("0-7", "0-7", Some(1.5));
        assert_eq!((quota.verdict, &*quota.found), (Verdict::Slow, "8, time for 1.5 (control group)"));
        assert_eq!((&quota.figures["allowed"], &quota.figures["quota"]), (&8.into(), &1.5.into()));
        assert_eq!(look("", "", None).verdict, Verdict::Note);
        // Processors allowed beyond those listed as online still count.
        assert_eq!(look("0-1", "", None).figures["online"], 2);
    }

    #[test]
    fn siblings_count_where_both_are_allowed() {
        let look = |allowed, cores: &[&str]| {
            siblings_of(&set(allowed), cores.iter().map(|core| set(core)).collect())
        };
        assert_eq!(look("0-1", &["0", "1"]).verdict, Verdict::Ok);
        assert_eq!(look("0-1", &["0,4", "1,5"]).verdict, Verdict::Ok);
        let both = look("0-1,4-5", &["0,4", "1,5", "0,4", "1,5"]);
        assert_eq!((both.verdict, &both.figures["cores"]), (Verdict::Note, &2.into()));
        assert_eq!(look("0-1", &["0-1", "0-1"]).verdict, Verdict::Slow);
        assert_eq!(look("0-1", &[]).verdict, Verdict::Note);
        assert_eq!(look("0-1", &[""]).verdict, Verdict::Note);
    }

    #[test]
    fn only_nodes_of_allowed_processors_count() {
        let nodes = [(0, set("0-3")), (1, set("4-7")), (2, set(""))];
        assert_eq!(numa(&set("0-1"), &nodes).verdict, Verdict::Ok);
        let across = numa(&set("3-4"), &nodes);
        assert_eq!((across.verdict, &across.figures["nodes"]), (Verdict::Note, &2.into()));
        assert!(across.mend.is_some_and(|mend| mend.contains("--cpunodebind=0")));
        assert_eq!(numa(&set("0-1"), &[]).found, "/sys does not show it");
    }

    #[test]
    fn every_governor_but_performance_is_slow() {
        let look = |names: &[&str]| governor(&names.iter().map(|name| (*name).to_owned()).collect()).verdict;
        assert_eq!(look(&["performance"]), Verdict::Ok);
        assert_eq!(look(&["performance", "powersave"]), Verdict::Slow);
        assert_eq!(look(&["schedutil"]), Verdict::Slow);
        assert_eq!(look(&[]), Verdict::Note);
    }

    #[test]
    fn either_sysfs_file_shows_whether_boost_is_on() {
        let look = |a: Option<&str>, b: Option<&str>| boost(a.map(String::from), b.map(String::from));
        assert_eq!(look(Some("1"), None).found, "on");
        assert_eq!(look(None, Some("0")).found, "on");
        assert_eq!(look(Some("0"), None).found, "off");
        assert!(look(None, Some("1")).mend.is_some_and(|mend| mend.ends_with("no_turbo")));
        assert_eq!(look(None, None).found, "/sys does not show it");
        assert_eq!(look(Some("?"), None).found, "/sys does not show it");
    }
}
