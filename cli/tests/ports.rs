//! Listening sockets of a target and its source: only the target's own socket, whatever the transport.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::workbench::{Process, Workbench, finish, start_target, wait_for};

fn sockets(pid: u32) -> BTreeSet<String> {
    let folder = fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs");
    folder
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .filter_map(|to| Some(to.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect()
}

/// Returns a process's sockets that wait for connections or datagrams, by proc(5): of TCP those that listen, of UDP and
/// raw IP all, of Unix those that accept.
fn listening(pid: u32) -> Vec<String> {
    let own = sockets(pid);
    let table = |name: &str| fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
    let mut found = Vec::new();
    for (name, states) in
        [("tcp", &["0A"][..]), ("tcp6", &["0A"]), ("udp", &[]), ("udp6", &[]), ("raw", &[]), ("raw6", &[])]
    {
        for line in table(name).lines().skip(1) {
            let row: Vec<_> = line.split_whitespace().collect();
            let is_meant = states.is_empty() || states.contains(&row[3]);
            if is_meant && own.contains(row[9]) {
                found.push(format!("{name} {}", row[1]));
            }
        }
    }
    for line in table("unix").lines().skip(1) {
        let row: Vec<_> = line.split_whitespace().collect();
        // __SO_ACCEPTCON.
        if row[3] == "00010000" && own.contains(row[6]) {
            found.push(format!("unix {}", row.get(7).unwrap_or(&"")));
        }
    }
    found
}

#[test]
fn a_target_listens_on_one_socket_and_a_source_on_none() {
    let bench = Workbench::new();
    let wait = bench.library(
        "wait",
        "FARJUMP_COPY_ARGS(wait)\nFARJUMP_IFUNC void wait_main(void *p, size_t n, void *t) { for (;;) __asm__ volatile(\"\"); }",
    );
    let crc32 = bench.sample("crc32");
    let usable = farjump::transports::available().into_iter().filter(|backend| match &backend.usable {
        Ok(_) => true,
        Err(why) => {
            println!("skipped: {}: {why}", backend.name);
            false
        }
    });
    let mut usable: Vec<_> = usable.map(|backend| backend.name).collect();
    let has_ucx = usable.contains(&"ucx-am");
    usable.extend(has_ucx.then_some("ucx"));
    for transport in usable {
        for over_tcp in [false, true] {
            if transport == "shm" && over_tcp {
                continue;
            }
            let own = bench.address();
            let listen = if over_tcp { "tcp:127.0.0.1:0" } else { &own };
            let mut command = bench.farjump();
            command.args(["serve", "--listen", listen, "--transport", transport]);
            let (serving, address) = start_target(&mut command);
            let one_of_its_own = || {
                let found = listening(serving.pid());
                assert_eq!(found.len(), 1, "{transport} at {address}: {found:?}");
                let is_own = match address.rsplit_once(':') {
                    Some((host, port)) if host.starts_with("tcp:") => {
                        let port: u16 = port.parse().expect("a port");
                        found[0] == format!("tcp 0100007F:{port:04X}")
                    }
                    _ => found[0].starts_with("unix "),
                };
                assert!(is_own, "{transport} at {address}: {found:?}");
            };
            one_of_its_own();
            let inject = |library: &Path| bench.injecting(library, &address, &["--transport", transport]);
            finish(&mut inject(&crc32)).worked();
            one_of_its_own();
            let source = Process::start(inject(&wait).args(["--timeout", "60m"]));
            // A running function alone keeps a target of one thread from a reply.
            wait_for("the function to run", || {
                let asked = bench.run(["stats", "--to", &address, "--timeout", "100ms"]);
                (asked.code == 4).then_some(())
            });
            one_of_its_own();
            assert_eq!(listening(source.pid()), [""; 0], "{transport} at {address}: the source listens");
            serving.kill();
            source.finish();
        }
    }
    if has_ucx {
        // With UCX's TCP allowed its listening sockets are found, so the search itself works.
        let address = bench.address();
        let ucx = ["--transport", "ucx-am", "--ucx-tcp"];
        let (serving, _) = start_target(bench.serving(&ucx).env("UCX_TLS", "tcp,self"));
        let mut command = bench.injecting(&wait, &address, &["--timeout", "60m"]);
        let source = Process::start(command.args(ucx).env("UCX_TLS", "tcp,self"));
        wait_for("UCX to listen", || (listening(serving.pid()).len() > 1).then_some(()));
        serving.kill();
        source.finish();
    }
}
