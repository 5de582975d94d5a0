//! Two machines, as far as the network goes: a target and its sources in network namespaces of their own, joined by a cable.

use std::process::{Command, Stdio, id};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::injecting::ECHO;
use crate::keyed::{has_ucx, make_key};
use crate::workbench::{Done, Serving, Watched, Workbench, finish, wait_for};

/// Two namespaces, of the target and of the sources, which are gone with the value.
struct Networks([String; 2]);

/// Address of the target's end of the cable; that of the sources' ends in 2.
const TARGET: &str = "10.77.0.1";
/// The cable's name at both ends.
const CABLE: &str = "cable";

impl Networks {
    /// `None`, which it says, where they cannot be made.
    fn join() -> Option<Networks> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let networks = Networks(["t", "s"].map(|part| format!("farjump-{}-{number}-{part}", id())));
        let [target, source] = &networks.0;
        for args in [
            format!("netns add {target}"),
            format!("netns add {source}"),
            format!("link add {CABLE} netns {target} type veth peer name {CABLE} netns {source}"),
            format!("-n {target} addr add {TARGET}/24 dev {CABLE}"),
            format!("-n {source} addr add 10.77.0.2/24 dev {CABLE}"),
            format!("-n {target} link set {CABLE} up"),
            format!("-n {source} link set {CABLE} up"),
        ] {
            if let Err(why) = ip(&args) {
                println!("skipped: no networks can be made: ip {args}: {why}");
                return None;
            }
        }
        // The system tells of a cable that came up when it finds the time for it, and UCX takes no device before.
        for network in &networks.0 {
            let show = format!("-n {network} -o link show {CABLE}");
            wait_for("the cable to be up", || ip(&show).ok().filter(|said| said.contains("state UP")));
        }
        Some(networks)
    }

    /// `farjump` in one of them.
    fn farjump(&self, bench: &Workbench, of: usize, args: &[&str]) -> Command {
        let mut command = bench.program("ip");
        command.args(["netns", "exec", &self.0[of], env!("CARGO_BIN_EXE_farjump")]).args(args);
        command.env("UCX_TLS", "tcp,self").env("UCX_NET_DEVICES", CABLE);
        command
    }

    fn source(&self, bench: &Workbench, args: &[&str]) -> Done {
        finish(&mut self.farjump(bench, 1, args))
    }

    fn cable(&self, state: &str) {
        ip(&format!("-n {} link set {CABLE} {state}", self.0[0])).expect("it is there");
    }
}

impl Drop for Networks {
    fn drop(&mut self) {
        for name in &self.0 {
            // One that was not made is no error. The cable goes with its namespace.
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

/// Runs `ip`: what it says.
fn ip(args: &str) -> Result<String, String> {
    let output = Command::new("ip").args(args.split(' ')).output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

#[test]
fn sources_on_another_machine_are_served_and_learn_that_the_cable_is_cut() {
    if !has_ucx() {
        return;
    }
    let Some(networks) = Networks::join() else { return };
    let bench = Workbench::new();
    bench.library("echo", ECHO);
    bench.library(
        "wait",
        "FARJUMP_COPY_ARGS(wait)\nFARJUMP_IFUNC void wait_main(void *p, size_t n, void *t) { for (;;) __asm__ volatile(\"\"); }",
    );
    make_key(&bench, "k");
    let listen = format!("tcp:{TARGET}:0");
    let with_key = ["--transport", "ucx-am", "--key", "k", "--peer-timeout", "1s"];
    let serve = [&["serve", "--listen", &listen], &with_key[..]].concat();
    let serving = Serving::start(&mut networks.farjump(&bench, 0, &serve));
    let address = serving.ready.split(' ').nth(1).expect("the address is in the line").to_owned();

    let echo = ["inject", "libecho.so", "--to", &address, "--args", "hello"];
    assert_eq!(networks.source(&bench, &[&echo[..], &with_key].concat()).worked().text(), "hello");
    let without = networks.source(&bench, &[&echo[..], &["--transport", "ucx-am"]].concat());
    assert!(without.error(1).contains("there is no key"), "{}", without.err);

    let wait = ["inject", "libwait.so", "--to", &address, "--timeout", "60m"];
    let mut command = networks.farjump(&bench, 1, &[&wait[..], &with_key].concat());
    let waiting = Watched::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    // It runs: nothing else keeps a target of one thread from an answer.
    wait_for("the function to run", || {
        let stats = ["stats", "--to", &address, "--key", "k", "--timeout", "200ms"];
        (networks.source(&bench, &stats).code == 4).then_some(())
    });
    networks.cable("down");
    let done = waiting.finish();
    let told = done.error(5);
    assert!(told.contains(&address) && told.contains("did not answer for 1 s"), "{}", done.err);
    // A new one says in time that it does not get through.
    let cut = networks.source(&bench, &[&echo[..], &with_key, &["--timeout", "200ms"]].concat());
    assert!(cut.error(4).contains("did not come in time"), "{}", cut.err);
    serving.kill();
}
