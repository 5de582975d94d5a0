//! `--ucx-tcp`: the way in which UCX's ports are closed is shown, and the option is refused where there is none.

use std::thread;

use farjump_fixtures::seccomp::refuse_socket_options;

use crate::workbench::{Workbench, finish};

/// Options of a process that allows UCX's TCP.
const ALLOWED: [&str; 3] = ["--transport", "ucx-am", "--ucx-tcp"];

/// Runs `body`, whose children may not set these options of sockets. Returns whether it ran.
fn without(options: &[libc::c_int], body: impl FnOnce() + Send) -> bool {
    let run = || {
        refuse_socket_options(options)
            .map(|()| body())
            .inspect_err(|error| println!("skipped: no filter of system calls: {error}"))
            .is_ok()
    };
    thread::scope(|scope| scope.spawn(run).join()).expect("it does not fail")
}

#[test]
fn transports_and_stats_show_how_ports_are_closed() {
    let Some(bench) = Workbench::with_transport("ucx-am") else { return };
    without(&[libc::SO_ATTACH_FILTER], || {
        let shown = bench.json([&["transports", "--json"], &ALLOWED[..]].concat());
        assert_eq!(shown[0]["ucx"]["ports_closed_by"], "device", "{shown}");
        let text = bench.run([&["transports"], &ALLOWED[..]].concat()).worked();
        assert!(text.text().contains("before they are closed (device)"), "{}", text.text());
        let off = bench.json(["transports", "--json", "--transport", "ucx-am"]);
        assert!(off[0]["ucx"]["ports_closed_by"].is_null(), "{off}");
        let serving = bench.serve(&ALLOWED);
        let stats = bench.json(["stats", "--json", "--to", &bench.address()]);
        assert_eq!((&stats["ucx_tcp"], &stats["ucx_ports_closed_by"]), (&true.into(), &"device".into()));
        let stopped = serving.stop().worked();
        assert!(stopped.err.contains("they are closed (device)"), "{}", stopped.err);
    });
}

#[test]
fn where_nothing_closes_ports_the_option_is_refused_and_other_transports_work() {
    let Some(bench) = Workbench::with_transport("ucx-am") else { return };
    without(&[libc::SO_ATTACH_FILTER, libc::SO_BINDTOIFINDEX], || {
        let shown = bench.json([&["transports", "--json"], &ALLOWED[..]].concat());
        let why = shown[0]["why"].as_str().expect("a reason");
        assert!(why.starts_with("--ucx-tcp is refused here") && why.contains("SO_BINDTOIFINDEX: "), "{why}");
        assert_eq!(
            finish(&mut bench.serving(&ALLOWED)).error(1),
            format!("transport `ucx-am` cannot be used: {why}")
        );
        let serving = bench.serve(&["--ucx-tcp"]);
        bench.inject(&bench.sample("crc32"), &["--ucx-tcp"]).worked();
        let stats = bench.run(["stats", "--to", &bench.address()]).worked();
        assert!(stats.text().contains("allowed (serve --ucx-tcp) and not used"), "{}", stats.text());
        serving.stop().worked();
    });
}
