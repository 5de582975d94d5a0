//! `perf scaling`: each number of sources is measured beside a single one, as processes or not, and leaves
//! nothing behind. Speed is not checked.

use std::fs;

use crate::measuring::{begin, check_measured, has_processors, json, measuring, measuring_ucx, perf, rows};
use crate::workbench::{Process, Workbench, children_of, installed, kill, process_fields, runs, wait_for};
use rustix::process::Signal;

#[test]
fn each_number_of_sources_is_compared_with_one_source() {
    let Some(bench) = measuring() else { return };
    // Up to 8 are processes, and 12 are not.
    let args = ["scaling", "--sources", "12,1..2,3", "--active", "2"];
    let report = json(&mut begin(bench.program(installed(&bench)), &args));
    let mut found = Vec::new();
    for row in rows(&report) {
        check_measured(row);
        let metric = row["metric"].as_str().expect("a name");
        let sources = row["sources"].as_u64().expect("a number");
        found.push((sources, metric));
        assert_eq!((&row["reference"], &row["transport"]), (&"alone".into(), &"shm".into()));
        let is_rate = metric == "scaling-rate";
        assert_eq!(row["unit"], if is_rate { "million/s" } else { "us" });
        for cpu in ["cpu_ns_target", "cpu_ns_source"] {
            assert_eq!(row[cpu].as_f64().is_some_and(|time| time > 0.0), is_rate, "{row}");
        }
        // Memory of further sources, absent for one. A mailbox has at least one page that was written.
        assert_eq!(row["peer_bytes"].is_number(), sources > 1, "{row}");
        assert_eq!(row["mailbox_bytes"].as_u64().is_some_and(|bytes| bytes >= 4096), sources > 1, "{row}");
    }
    let metrics = ["scaling-latency", "scaling-rate", "scaling-turn"];
    let all = [1, 2, 3, 12].into_iter().flat_map(|sources| metrics.map(|metric| (sources, metric)));
    assert_eq!(found, all.collect::<Vec<_>>());
    bench.is_clean();
}

#[test]
fn sources_scale_over_messages_of_ucx_too() {
    let Some(bench) = measuring_ucx() else { return };
    let args = ["scaling", "--sources", "2,9", "--transports", "ucx-am"];
    let report = json(perf(&bench, &args).env("UCX_TLS", "posix"));
    assert_eq!(rows(&report).len(), 2 * 3);
    for row in rows(&report) {
        check_measured(row);
        assert_eq!(row["transport"], "ucx-am");
        assert!(row["lane"].as_str().is_some_and(|lane| lane.contains("posix")), "{row}");
    }
}

/// Returns a run with four sources that has no end, and its processes once all are there.
fn start_run(bench: &Workbench) -> (Process, Vec<u32>) {
    let mut command = bench.program(installed(bench));
    command.args(["scaling", "--sources", "4", "--json", "--rounds", "10000", "--iterations", "5"]);
    let run = Process::start(&mut command);
    let pid = run.pid();
    let children = wait_for("the rounds", || {
        assert!(runs(pid), "it has ended");
        let children = children_of(pid);
        let waited = |pid: &u32| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?.trim().parse().ok()
        };
        // Each waits for commands, of which a round has some.
        let waited: Option<Vec<u32>> = children.iter().map(waited).collect();
        let rounds = waited.is_some_and(|waited| waited.iter().all(|waits| *waits > 7));
        (children.len() == 4 && rounds).then_some(children)
    });
    (run, children)
}

#[test]
fn killing_a_source_ends_the_run_with_rows_so_far() {
    let Some(bench) = measuring() else { return };
    let (run, children) = start_run(&bench);
    // The target was started first, but process ids may wrap around, so its work identifies it.
    let worked = |pid: &u32| {
        let fields = process_fields(*pid).unwrap_or_default();
        fields.get(11).and_then(|ticks| ticks.parse::<u64>().ok()).unwrap_or_default()
    };
    let source = children.iter().copied().min_by_key(worked).expect("there are four");
    kill(source, Signal::KILL);
    let done = run.finish();
    assert_eq!(done.code, 1, "{}", done.err);
    assert!(done.err.contains("process"), "{}", done.err);
    let report = done.json();
    assert_eq!(rows(&report).len(), 3);
    rows(&report).iter().for_each(check_measured);
    for child in children {
        wait_for("the other processes to end", || (!runs(child)).then_some(()));
    }
    bench.is_clean();
}

#[test]
fn an_interrupted_or_killed_scaling_run_leaves_no_process_or_folder() {
    if !has_processors() {
        return;
    }
    for (signal, code) in [(Signal::TERM, 143), (Signal::KILL, 137)] {
        let bench = Workbench::new();
        let (run, children) = start_run(&bench);
        run.signal(signal);
        assert_eq!(run.finish().code, code);
        for child in children {
            wait_for("the other processes to end", || (!runs(child)).then_some(()));
        }
        wait_for("the folder to go", || bench.leftovers().is_empty().then_some(()));
    }
}
