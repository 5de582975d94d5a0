//! `examples/epoll`: programs in C that own their event loop, have UCX traffic of their own, and include
//! farjump in the loop.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use farjump_tools::all_work;

use crate::common::{ifunc_library, package};
use crate::installation::prefix;
use crate::packages::pkg_config_words;
use crate::programs::{Process, finish, start};

/// Ticks of the service's clock in an idle period: two seconds.
const TICKS: u64 = 40;
/// Numbers that go back and forth, and sums that are computed, at the same time.
const ROUNDS: u64 = 300;

/// Compiler flags for farjump and UCX. `None`, with a message, where UCX's headers are missing.
fn flags() -> Option<Vec<OsString>> {
    if !all_work(&["pkg-config", "cc"]) {
        return None;
    }
    match pkg_config_words(&["--cflags", "--libs", "farjump", "ucx"]) {
        Ok(mut flags) => {
            flags.push(format!("-Wl,-rpath,{}", prefix().join("lib").display()).into());
            Some(flags)
        }
        Err(why) => {
            println!("skipped: pkg-config finds no UCX (libucx-dev): {why}");
            None
        }
    }
}

fn compile(name: &str, flags: &[OsString], folder: &Path) -> PathBuf {
    let program = folder.join(name);
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror"]);
    cc.arg(package().join(format!("examples/epoll/{name}.c"))).arg("-o").arg(&program).args(flags);
    finish(&mut cc).worked();
    program
}

/// Returns the service's counters so far, by name.
fn counts(service: &mut Process) -> HashMap<String, u64> {
    service.write_line("and now?");
    let said = service.line();
    let words: Vec<&str> = said.split(' ').collect();
    words.chunks(2).map(|pair| (pair[0].to_owned(), pair[1].parse().unwrap())).collect()
}

#[test]
fn c_programs_serve_farjump_and_ucx_in_one_sleeping_event_loop() {
    let Some(flags) = flags() else { return };
    let folder = farjump_fixtures::folder();
    let library = folder.path().join("libsum.so");
    let sum = package().join("../farjump/examples/sum.c");
    ifunc_library(sum, &library, &[]).unwrap();
    let [service, client] = ["service", "client"].map(|name| compile(name, &flags, folder.path()));
    for transport in ["ucx-put", "ucx-am", "shm", "tcp"] {
        let address = format!("unix:{}", folder.path().join("t.sock").display());
        let mut service = start(&service, [&*address, transport], folder.path());
        let ready = service.line();
        let own = ready.strip_prefix("ready ").unwrap_or_else(|| panic!("{ready}"));
        let mut client = start(
            &client,
            [address.as_ref(), transport.as_ref(), library.as_os_str(), own.as_ref()],
            folder.path(),
        );
        assert_eq!(client.line(), "connected");

        // Both are connected in both ways, and only ticks of the clock and this test's queries come.
        let (before, mut asked) = (counts(&mut service), 0);
        let after = loop {
            thread::sleep(Duration::from_millis(200));
            let now = counts(&mut service);
            asked += 1;
            if now["ticks"] - before["ticks"] >= TICKS {
                break now;
            }
            assert!(asked < 1000, "the clock of the service does not tick");
        };
        let (turns, ticks) = (after["turns"] - before["turns"], after["ticks"] - before["ticks"]);
        assert!(
            turns <= 2 * ticks + 4 * asked + 20,
            "{transport}: {turns} turns of an idle loop in {ticks} ticks"
        );

        for round in 1..=3 {
            client.write_line(&ROUNDS.to_string());
            assert_eq!(client.line(), format!("done {}", ROUNDS * round), "{transport}");
        }
        let all = 3 * ROUNDS;
        let done = counts(&mut service);
        assert_eq!([done["pings"], done["calls"]], [all, all], "{transport}");
        let done = client.finish().worked();
        let (did, turns) = done.text().trim_end().split_once(", in ").unwrap();
        assert_eq!(did, format!("{all} numbers came back and {all} sums were right"), "{transport}");
        let turns: u64 = turns.strip_suffix(" turns").unwrap().parse().unwrap();
        assert!(
            turns <= 10 * all,
            "{transport}: the client took {turns} turns for {all} answers of each kind"
        );
        service.finish().worked();
    }
}
