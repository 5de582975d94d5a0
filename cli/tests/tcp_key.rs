//! Connecting over TCP: keys, admission, and the features of a Unix socket, over UCX between two processes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::Value;

use crate::inject::ECHO;
use crate::workbench::{Done, Process, Workbench, finish, start_target, wait_for};

/// Returns a command of `farjump` that connects over TCP. Frames go through UCX's shared memory, whatever the address.
fn over_tcp(bench: &Workbench, args: &[&str]) -> Command {
    let mut command = bench.farjump();
    command.args(args).env("UCX_TLS", "posix,sysv,self");
    command
}

pub(crate) fn make_key(bench: &Workbench, name: &str) {
    bench.run(["key", name]).worked();
}

/// Returns a target on a port that the system chooses, and its address.
fn serve(bench: &Workbench, more: &[&str]) -> (Process, String) {
    let listen = ["serve", "--listen", "tcp:127.0.0.1:0", "--transport", "ucx-am"];
    start_target(over_tcp(bench, &[&listen[..], more].concat()).env("FARJUMP_LOG", "info"))
}

fn inject(bench: &Workbench, address: &str, more: &[&str]) -> Done {
    let inject = ["inject", "libecho.so", "--to", address, "--transport", "ucx-am", "--args", "hello"];
    finish(&mut over_tcp(bench, &[&inject[..], more].concat()))
}

#[test]
fn a_key_goes_to_the_named_file_unshown_or_is_printed() {
    let bench = Workbench::new();
    let done = bench.run(["key", "a.key"]).worked();
    assert!(done.out.is_empty() && done.err.contains("--key-file"), "{}", done.err);
    let digits = fs::read_to_string(bench.path("a.key")).expect("it was written");
    assert!(digits.len() == 65 && !done.err.contains(digits.trim()));
    let printed = bench.run(["key"]).worked();
    assert!(printed.text().len() == 65 && printed.text() != digits);
}

#[test]
fn a_missing_or_open_key_and_wrong_tcp_options_are_refused() {
    let bench = Workbench::new();
    bench.library("echo", ECHO);
    make_key(&bench, "open.key");
    fs::set_permissions(bench.path("open.key"), fs::Permissions::from_mode(0o644)).expect("it is ours");
    let serve = |listen: &str, more: &[&str]| bench.run([&["serve", "--listen", listen], more].concat());
    let inject = |to: &str, more: &[&str]| bench.run([&["inject", "libecho.so", "--to", to], more].concat());
    for (done, part) in [
        (serve("tcp:0.0.0.0:0", &["--key-file", "open.key"]), "chmod 600 open.key"),
        (inject("tcp:127.0.0.1:1", &["--key-file", "open.key"]), "chmod 600 open.key"),
        (serve("tcp:0.0.0.0:0", &[]), "`farjump key FILE`"),
        (inject("tcp:192.0.2.1:7471", &[]), "`farjump key FILE`"),
    ] {
        assert!(done.error(1).contains(part), "{part}: {}", done.err);
    }
    serve("tcp:node7", &[]).fails(2, &["tcp:HOST:PORT"]);
    inject("tcp:127.0.0.1:1", &["--transport", "shm"]).fails(2, &["only a Unix socket carries"]);
    serve("tcp:127.0.0.1:0", &["--peer-timeout", "10ms"]).fails(2, &["1s to 32767s"]);
}

#[test]
fn calls_and_requests_work_over_tcp_with_a_key() {
    let Some(bench) = Workbench::with_transport("ucx-am") else { return };
    bench.library("echo", ECHO);
    make_key(&bench, "k");
    let (serving, address) = serve(&bench, &["--key-file", "k", "--peer-timeout", "5s"]);
    assert!(!address.ends_with(":0"), "{address}");
    let done =
        inject(&bench, &address, &["--key-file", "k", "--repeat", "100", "--peer-timeout", "5s", "--json"])
            .worked();
    assert_eq!(done.text(), "hello");
    let figures: Value = serde_json::from_str(&done.err).expect("it is JSON");
    assert_eq!((&figures["transport"], &figures["pid"]), (&"ucx-am".into(), &serving.pid().into()));

    // The key from the variable, with admin requests.
    let by_variable =
        |args: &[&str]| finish(bench.farjump().args(args).env("FARJUMP_KEY_FILE", "k")).worked();
    let stats = by_variable(&["stats", "--to", &address, "--json"]).json();
    assert_eq!(stats["calls"], 100);
    assert!(by_variable(&["store", "--to", &address]).text().contains("echo"));
    serving.stop().worked();
}

#[test]
fn a_missing_or_wrong_key_is_rejected_and_logged() {
    let Some(bench) = Workbench::with_transport("ucx-am") else { return };
    bench.library("echo", ECHO);
    make_key(&bench, "right.key");
    make_key(&bench, "wrong.key");
    let (serving, address) = serve(&bench, &["--key-file", "right.key"]);
    inject(&bench, &address, &["--key-file", "wrong.key"]).fails(3, &["another key"]);
    inject(&bench, &address, &[]).fails(3, &["wants a key"]);
    bench.run(["stats", "--to", &address]).fails(3, &["wants a key"]);
    inject(&bench, &address, &["--key-file", "right.key"]).worked();
    let log = serving.stop().worked().err;
    assert!(
        log.contains("(127.0.0.1:") && log.contains("another key") && log.contains("has no key"),
        "{log}"
    );

    let (open, address) = serve(&bench, &[]);
    inject(&bench, &address, &["--key-file", "right.key"]).fails(3, &["has no key"]);
    assert_eq!(inject(&bench, &address, &[]).worked().text(), "hello");
    open.stop().worked();
}

/// Copies the line of this key to a file of its own.
fn hand_over(bench: &Workbench, file: &str, name: &str) {
    let text = fs::read_to_string(bench.path(file)).expect("it is there");
    let line = text.lines().find(|line| line.contains(&format!(" {name}"))).expect("its line");
    fs::write(bench.path(name), line).expect("the folder can be written");
    fs::set_permissions(bench.path(name), fs::Permissions::from_mode(0o600)).expect("it is ours");
}

#[test]
fn each_key_has_its_rights_and_removing_one_ends_its_links() {
    let Some(bench) = Workbench::with_transport("ucx-am") else { return };
    bench.library("echo", ECHO);
    bench.run(["key", "farm", "--name", "maker"]).worked();
    let done = bench.run(["key", "farm", "--name", "caller", "--allow", "-inject"]).worked();
    assert!(done.err.contains("added `caller`"), "{}", done.err);
    bench.run(["key", "farm", "--name", "caller"]).fails(1, &["`caller` already"]);
    hand_over(&bench, "farm", "maker");
    hand_over(&bench, "farm", "caller");
    let ambiguous = bench.run(["stats", "--to", "tcp:127.0.0.1:1", "--key-file", "farm"]);
    ambiguous.fails(1, &["farm cannot be used as a key: it holds 2 of them"]);

    let (serving, address) = serve(&bench, &["--key-file", "farm"]);
    inject(&bench, &address, &["--key-file", "caller"])
        .fails(3, &["the right `inject`", "add `+inject` behind this key in its key file (`allow=`)"]);
    let repeat = ["--args", "x", "--repeat", "10000000", "--transport", "ucx-am", "--key-file", "maker"];
    let repeated = [&["inject", "libecho.so", "--to", &address], &repeat[..]].concat();
    let source = Process::start(&mut over_tcp(&bench, &repeated));
    let stats = || -> Value { bench.json(["stats", "--to", &address, "--key-file", "caller", "--json"]) };
    wait_for("calls", || (stats()["calls"].as_u64() > Some(0)).then_some(()));
    assert_eq!(stats()["sources"][0]["key"], "maker");

    fs::copy(bench.path("caller"), bench.path("farm")).expect("it can be written");
    source.finish().fails(5, &["its key `maker` was taken out of the target's key file"]);
    let log = serving.stop().worked().err;
    for words in [
        "key `maker`) has connected",
        "key `caller`) has connected",
        "keys that count from now on (1): caller",
    ] {
        assert!(log.contains(words), "{words}: {log}");
    }
}

#[test]
fn the_demo_works_over_tcp() {
    let Some(bench) = Workbench::with_transport("ucx-am") else { return };
    let demo = ["demo", "--json", "--listen", "tcp:127.0.0.1:0", "--transport", "ucx-am"];
    let report = finish(&mut over_tcp(&bench, &demo)).worked().json();
    assert_eq!(report["transport"], "ucx-am");
    assert_eq!(report["functions"].as_array().map(Vec::len), Some(3));
    bench.is_clean();
}

#[test]
fn code_is_forwarded_over_tcp_without_a_named_transport() {
    let Some(bench) = Workbench::with_transport("ucx-am") else { return };
    let chain = bench.sample("chain");
    make_key(&bench, "k");
    bench.write("far", "x".repeat(11));
    bench.write("near", "x");
    let far = ["serve", "--listen", "tcp:127.0.0.1:0", "--key-file", "k", "--data", "far"];
    let (far, address) = start_target(&mut over_tcp(&bench, &far));
    let (listen, peer) = (bench.address(), format!("next={address}"));
    let near = ["serve", "--listen", &listen, "--key-file", "k", "--data", "near", "--destination", &peer];
    let (near, _) = start_target(&mut over_tcp(&bench, &near));
    let done = bench.inject(&chain, &["--args", "2"]).worked();
    assert_eq!(done.out, [1_usize, 11].map(usize::to_le_bytes).concat());
    near.stop().worked();
    far.stop().worked();
}
