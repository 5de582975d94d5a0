//! `perf --against iceoryx2`: the message of a program without it; with it, the rows and no leftovers.

use serde_json::Value;

use crate::measuring::{check_measured, has_processors, json, perf, rows};
use crate::workbench::Workbench;

#[cfg(not(feature = "iceoryx2"))]
#[test]
fn a_program_without_iceoryx2_says_how_to_build_one_that_has_it() {
    if !has_processors() {
        return;
    }
    let report = json(&mut perf(&Workbench::new(), &["latency", "--against", "iceoryx2,raw"]));
    let [samples, raw] = &rows(&report)[..] else { panic!("{report:#}") };
    assert!(samples["missing"].as_str().is_some_and(|why| why.contains("--features iceoryx2")), "{samples}");
    assert_eq!((&samples["reference"], &samples["reference_median"]), (&"iceoryx2".into(), &Value::Null));
    check_measured(raw);
}

#[cfg(feature = "iceoryx2")]
mod with_it {
    use std::fs;

    use rustix::process::Signal;

    use super::*;
    use crate::workbench::{Process, children_of, installed, kill, runs, wait_for};

    #[test]
    fn samples_of_every_size_are_counted_one_by_one_and_in_streams() {
        if !has_processors() {
            return;
        }
        for metric in ["latency", "rate", "bandwidth"] {
            let args = [metric, "--sizes", "0,1,4K,1M", "--against", "iceoryx2"];
            let report = json(&mut perf(&Workbench::new(), &args));
            assert_eq!(rows(&report).len(), 4);
            for row in rows(&report) {
                assert_eq!((&row["reference"], &row["missing"]), (&"iceoryx2".into(), &Value::Null));
                if (&row["size"], metric) != (&0.into(), "bandwidth") {
                    check_measured(row);
                }
            }
        }
    }

    /// Returns the shared memory whose name begins with `name`.
    fn shared(name: &str) -> Vec<String> {
        let entries = fs::read_dir("/dev/shm").expect("it is there");
        let names =
            entries.map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned());
        names.filter(|entry| entry.starts_with(name)).collect()
    }

    /// Returns a run of so many rounds that has samples, its other process, and the name of its folder.
    fn start_run(bench: &Workbench, rounds: &str) -> (Process, u32, String) {
        let mut command = bench.program(installed(bench));
        command.args(["rate", "--against", "iceoryx2", "--rounds", rounds, "--iterations", "5000"]);
        let run = Process::start(&mut command);
        let name = wait_for("the samples", || {
            let folder = bench.leftovers().into_iter().next()?;
            let name = folder.file_name()?.to_str()?.to_owned();
            // The data of two services in each direction.
            let data = shared(&name).iter().filter(|name| name.ends_with(".data")).count();
            (data >= 4).then_some(name)
        });
        let other = children_of(run.pid())[0];
        (run, other, name)
    }

    #[test]
    fn a_finished_interrupted_or_failed_run_leaves_no_shared_memory() {
        if !has_processors() {
            return;
        }
        for signal in [None, Some(Signal::TERM), Some(Signal::KILL)] {
            let bench = Workbench::new();
            let (run, other, name) = start_run(&bench, if signal.is_some() { "10000" } else { "3" });
            if let Some(signal) = signal {
                run.signal(signal);
            }
            let done = run.finish();
            assert_eq!(done.code, signal.map_or(0, |signal| 128 + signal.as_raw()), "{}", done.err);
            wait_for("the other process to end", || (!runs(other)).then_some(()));
            assert_eq!(shared(&name), [""; 0]);
            bench.is_clean();
        }
        let bench = Workbench::new();
        let (run, other, name) = start_run(&bench, "10000");
        kill(other, Signal::KILL);
        let done = run.finish();
        done.error(1);
        assert_eq!(shared(&name), [""; 0]);
        bench.is_clean();
    }
}
