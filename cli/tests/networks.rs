//! Two machines as far as the network goes: network namespaces of a target and its sources, joined by a
//! cable.

use std::path::Path;
use std::process::Command;

use farjump_fixtures::namespaces::{DEVICE, Namespace, Namespaces};
use farjump_fixtures::workbench::built_beside;
use serde_json::Value;

use crate::inject::ECHO;
use crate::tcp_key::make_key;
use crate::workbench::{Done, Process, Workbench, finish, start_target, wait_for};

/// The side of the targets; sources are at the other one.
const TARGET: Namespace = Namespace::Right;
const SOURCE: Namespace = Namespace::Left;
/// Arguments that both sides get besides their own.
const KEYED: [&str; 4] = ["--key-file", "k", "--peer-timeout", "1s"];
/// The same arguments, with UCX choosing the transport.
const UCX: [&str; 7] = ["--transport", "ucx", "--ucx-tcp", "--key-file", "k", "--peer-timeout", "1s"];

/// A folder with a key, and two networks between which UCX has only TCP.
struct Networks {
    namespaces: Namespaces,
    bench: Workbench,
}

impl Networks {
    /// `None`, with a message, without UCX or namespaces.
    fn join() -> Option<Networks> {
        let bench = Workbench::with_transport("ucx-am")?;
        match Namespaces::new() {
            Ok(namespaces) => {
                make_key(&bench, "k");
                Some(Networks { namespaces, bench })
            }
            Err(why) => {
                println!("skipped: {why}");
                None
            }
        }
    }

    /// Returns a command of `farjump` on one side. Both sides run on one machine, whose memory UCX would recognise as
    /// shared.
    fn farjump(&self, side: Namespace, args: &[&str]) -> Command {
        let words = self.namespaces.launcher(side);
        let mut command = self.bench.program(&words[0]);
        command.args(&words[1..]).arg(env!("CARGO_BIN_EXE_farjump")).args(args);
        command.env("UCX_TLS", "tcp,self").env("UCX_NET_DEVICES", DEVICE);
        command
    }

    /// Returns a target with these arguments, and its address.
    fn serve(&self, more: &[&str]) -> (Process, String) {
        let listen = format!("tcp:{}:0", TARGET.address());
        start_target(&mut self.farjump(TARGET, &[&["serve", "--listen", &listen], more].concat()))
    }

    fn source(&self, args: &[&str]) -> Done {
        finish(&mut self.farjump(SOURCE, args))
    }

    /// Returns the bytes received by each side.
    fn received(&self) -> [u64; 2] {
        [TARGET, SOURCE].map(|side| self.namespaces.received(side).expect("the cable is there"))
    }
}

#[test]
fn a_source_on_another_machine_works_and_reports_a_cut_cable() {
    let Some(networks) = Networks::join() else { return };
    let bench = &networks.bench;
    bench.library("echo", ECHO);
    bench.library(
        "wait",
        "FARJUMP_COPY_ARGS(wait)\nFARJUMP_IFUNC void wait_main(void *p, size_t n, void *t) { for (;;) __asm__ volatile(\"\"); }",
    );
    let with_key = KEYED.to_vec();
    let (serving, address) = networks.serve(&with_key);

    let echo = ["inject", "libecho.so", "--to", &address, "--args", "hello"];
    assert_eq!(networks.source(&[&echo[..], &with_key].concat()).worked().text(), "hello");
    networks.source(&echo).fails(1, &["there is no key"]);

    let wait = ["inject", "libwait.so", "--to", &address, "--timeout", "60m"];
    let mut command = networks.farjump(SOURCE, &[&wait[..], &with_key].concat());
    let waiting = Process::start(&mut command);
    // A running function alone keeps a target of one thread from a reply.
    wait_for("the function to run", || {
        let stats = ["stats", "--to", &address, "--key-file", "k", "--timeout", "200ms"];
        (networks.source(&stats).code == 4).then_some(())
    });
    networks.namespaces.pull(TARGET).expect("it is there");
    let done = waiting.finish();
    let reported = done.error(5);
    assert!(reported.contains(&address) && reported.contains("did not answer for 1 s"), "{}", done.err);
    serving.kill();
}

#[test]
fn between_machines_tcp_is_taken_by_default_with_reasons_against_others() {
    let Some(networks) = Networks::join() else { return };
    let (serving, address) = networks.serve(&KEYED);
    let path = [&["transports", "--to", &address, "--json"], &KEYED[..2]].concat();
    let shown = networks.source(&path).worked().json();
    let passed = shown["passed_over"].as_array().expect("a list");
    if Path::new("/sys/class/infiniband").exists() {
        println!("skipped: there is an RDMA device, over which others may be tried first");
    } else {
        assert_eq!(shown["transport"], "tcp");
        let shm = passed.iter().find(|one| one["transport"] == "shm").expect("it is named");
        assert!(shm["why"].to_string().contains("Unix socket"), "{shown}");
        // On the target's own machine the path is the same, with advice on how to get another one.
        let near = finish(&mut networks.farjump(TARGET, &path)).worked();
        let near: Value = near.json();
        assert_eq!(near["transport"], "tcp");
        let ucx = |shown: &Value| {
            let passed = shown["passed_over"].as_array().expect("a list");
            passed
                .iter()
                .filter(|one| one["transport"] == "ucx-am")
                .map(|one| one["why"].to_string())
                .collect()
        };
        let (near, far): (String, String) = (ucx(&near), ucx(&shown));
        assert!(near.contains("listen at unix:PATH") && !far.contains("listen at"), "{near}; {far}");
        // The target tried neither.
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", serving.pid())).expect("it runs");
        assert!(!maps.contains("libucp") && !maps.contains("libibverbs"), "{maps}");
    }
    serving.stop().worked();
}

#[test]
fn between_machines_ucx_takes_tcp_with_a_reason() {
    let Some(networks) = Networks::join() else { return };
    let (serving, address) = networks.serve(&UCX);
    let path = [&["transports", "--to", &address, "--json"], &UCX[..3], &KEYED[..2]].concat();
    let shown = networks.source(&path).worked().json();
    assert_eq!((&shown["transport"], &shown["arrives_by"]), (&"ucx-am".into(), &"delivered".into()));
    assert_eq!(shown["over"], format!("tcp over {DEVICE}"));
    assert!(shown["target"].as_str().is_some_and(|target| target.contains(TARGET.address())), "{shown}");
    let notes = shown["notes"].to_string();
    assert!(notes.contains("TCP, because nothing faster connects both processes"), "{shown}");
    assert!(notes.contains("UCX_TLS=tcp,self"), "{shown}");
    let passed = &shown["passed_over"][0];
    assert_eq!(passed["transport"], "ucx-put");
    assert!(passed["why"].as_str().is_some_and(|why| why.contains("emulates writes")), "{shown}");
    serving.stop().worked();
}

#[test]
fn the_demo_works_between_machines() {
    let Some(networks) = Networks::join() else { return };
    let (listen, launch) =
        (format!("tcp:{}:0", TARGET.address()), networks.namespaces.launcher(TARGET).join(" "));
    let where_to = ["demo", "--json", "--listen", &listen, "--launch", &launch];
    let demo = [&where_to[..], &UCX[..3], &KEYED[..2]].concat();
    let before = networks.received();
    let done = networks.source(&demo).worked();
    let report = done.json();
    assert_eq!(report["transport"], "ucx-am");
    let functions = report["functions"].as_array().expect("a list");
    assert_eq!(functions.len(), 3);
    let code: u64 = functions.iter().filter_map(|function| function["code_bytes"].as_u64()).sum();
    for function in functions {
        assert_eq!(function["answer"], function["expected"]);
    }
    let [to_target, to_source] = networks.received();
    assert!(code > 0 && to_target - before[0] > code && to_source > before[1], "the code went another way");
    assert!(networks.bench.leftovers().is_empty());
}

#[test]
fn a_target_on_another_machine_is_measured_across_the_cable() {
    if built_beside(env!("CARGO_BIN_EXE_farjump"), "farjump-perf").is_none() {
        return;
    }
    let Some(networks) = Networks::join() else { return };
    let (_serving, address) = networks.serve(&UCX);
    let host = address.strip_prefix("tcp:").expect("it is one of TCP");
    let perf = ["perf", "bandwidth", "--sizes", "64K", "--to", host, "--transports", "ucx-am", "--json"];
    let few = ["--ucx-tcp", "--rounds", "2", "--iterations", "100", "--warmup", "3"];
    let before = networks.received();
    let done = networks.source(&[&perf[..], &few, &KEYED].concat()).worked();
    let report = done.json();
    let row = &report["rows"][0];
    assert!(row["median"].as_f64().is_some_and(|number| number > 0.0) && row["reference"].is_null(), "{row}");
    assert_eq!((&row["transport"], &row["lane"]), (&"ucx-am".into(), &format!("tcp over {DEVICE}").into()));
    let came = networks.received()[0] - before[0];
    assert!(came >= 2 * 100 * 65_536, "{came} B came: the payload went another way");
}
