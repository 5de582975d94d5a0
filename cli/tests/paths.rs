//! `transports --to` and `--transport ucx`: the path between two processes, and its report.

use farjump::{Cpu, Level, Link};
use serde_json::{Value, json};

use crate::workbench::{Done, Process, Workbench, documented, finish, keys, start_target};

/// Returns a target with `transport`, under this setting of UCX_TLS.
fn serve(bench: &Workbench, transport: &str, tls: Option<&str>) -> Process {
    serve_with(bench, &["--transport", transport], tls)
}

fn serve_with(bench: &Workbench, more: &[&str], tls: Option<&str>) -> Process {
    let mut command = bench.serving(more);
    command.envs(tls.map(|tls| ("UCX_TLS", tls)));
    start_target(&mut command).0
}

/// Returns the report on the path to it.
fn path(bench: &Workbench, more: &[&str], tls: Option<&str>) -> Done {
    let mut command = bench.farjump();
    command.args(["transports", "--to", &bench.address()]).args(more).env("UCX_LOG_LEVEL", "fatal");
    finish(command.envs(tls.map(|tls| ("UCX_TLS", tls))))
}

#[test]
fn the_path_to_a_target_explains_its_arrival_rule() {
    let bench = Workbench::new();
    let _target = serve(&bench, "shm", None);
    let shown = path(&bench, &[], None).worked();
    for part in ["transport   shm\n", "arrives by  stores: plain stores", "mailbox     frames of up to 4 MiB"]
    {
        assert!(shown.text().contains(part), "{part}: {}", shown.text());
    }
    let shown = path(&bench, &["--json"], None).worked().json();
    assert_eq!((&shown["transport"], &shown["arrives_by"]), (&"shm".into(), &"stores".into()));
    assert_eq!(shown["mailbox_frame_bytes"], 4 << 20);
}

#[test]
fn a_targets_cpu_is_shown_as_detected_or_as_claimed() {
    let bench = Workbench::new();
    let detected = farjump_os::cpu::detected();
    let machine = detected.machine();
    let lowest = Cpu::of_level(machine, Level::BASELINE);
    let claims: [(&[&str], &Cpu); 2] = [(&[], &detected), (&["--cpu-level", "baseline"], &lowest)];
    for (options, cpu) in claims {
        let serving = bench.serve(options);
        let link = Link::connect(&bench.address()).expect("it serves");
        assert_eq!(link.peer_cpu(), *cpu);
        drop(link);
        let name = Some(cpu.name()).filter(|name| !name.is_empty());
        let expected = json!({
            "machine": machine.triple(),
            "level": cpu.level().to_string(),
            "name": name,
            "features": cpu.features(),
            "takes": ["images"],
        });
        let stats = ["stats", "--to", &bench.address()];
        let shown =
            [path(&bench, &["--json"], None).worked().json(), bench.json([&stats[..], &["--json"]].concat())];
        for shown in &shown {
            assert_eq!(shown["cpu"], expected);
        }
        assert_eq!(
            keys(&shown[0]),
            documented("reference/json.md", "`farjump transports --to ADDRESS --json` prints")
        );
        assert_eq!(keys(&shown[1]["cpu"]), documented("reference/json.md", "`cpu` has"));
        let row =
            |text: &str| text.lines().find_map(|line| Some(line.strip_prefix("cpu ")?.trim().to_owned()));
        for text in [path(&bench, &[], None).worked().text(), bench.run(stats).worked().text()] {
            assert_eq!(row(text), Some(cpu.to_string()), "{text}");
        }
        serving.stop().worked();
    }
}

#[test]
fn a_source_that_names_no_transport_takes_what_the_target_has() {
    let Some(bench) = Workbench::with_transport("ucx-am") else { return };
    let _target = serve(&bench, "ucx-am", None);
    assert_eq!(path(&bench, &["--json"], None).worked().json()["transport"], "ucx-am");
}

#[test]
fn ucx_takes_puts_where_memory_is_shared() {
    let Some(bench) = Workbench::with_transport("ucx-put") else { return };
    let _target = serve(&bench, "ucx", None);
    let shown = path(&bench, &["--transport", "ucx", "--json"], None).worked().json();
    assert_eq!((&shown["transport"], &shown["arrives_by"]), (&"ucx-put".into(), &"stores".into()));
    assert!(shown["over"].as_str().is_some_and(|over| over.contains("shared memory")), "{shown}");
    assert_eq!(shown["passed_over"], Value::Array(vec![]));
}

#[test]
fn ucx_takes_messages_over_tcp_and_says_why_not_puts() {
    let Some(bench) = Workbench::with_transport("ucx-am") else { return };
    let _target = serve_with(&bench, &["--transport", "ucx", "--ucx-tcp"], None);
    let shown = path(&bench, &["--transport", "ucx", "--ucx-tcp", "--json"], Some("tcp")).worked().json();
    assert_eq!((&shown["transport"], &shown["arrives_by"]), (&"ucx-am".into(), &"delivered".into()));
    assert!(shown["over"].as_str().is_some_and(|over| over.starts_with("tcp over ")), "{shown}");
    let notes = shown["notes"].to_string();
    assert!(notes.contains("TCP, because") && notes.contains("UCX_TLS=tcp"), "{shown}");
    let passed = &shown["passed_over"][0];
    assert_eq!(passed["transport"], "ucx-put");
    let why = passed["why"].as_str().unwrap_or_default();
    assert!(why.contains("emulates writes") && why.contains("write anywhere"), "{shown}");
}

#[test]
fn processes_without_shared_memory_connect_again_over_messages_and_say_why() {
    let Some(bench) = Workbench::with_transport("ucx-put") else { return };
    let _target = serve_with(&bench, &["--transport", "ucx", "--ucx-tcp"], Some("posix,tcp"));
    let shown = path(&bench, &["--transport", "ucx", "--ucx-tcp"], Some("sysv,tcp")).worked();
    for part in [
        "transport   ucx-am\n",
        "over        tcp over ",
        "not by      ucx-put: connecting ",
        "UCX_TLS=sysv,tcp",
    ] {
        assert!(shown.text().contains(part), "{part}: {}", shown.text());
    }
    // Where only puts are wanted the same is an error.
    path(&bench, &["--transport", "ucx-put"], Some("sysv,tcp"))
        .fails(1, &["no way to write the peer's memory", "use transport tcp"]);
}

#[test]
fn path_lists_the_reason_of_every_transport_if_none_connects() {
    let Some(bench) = Workbench::with_transport("ucx-put") else { return };
    let _target = serve(&bench, "ucx", Some("posix"));
    path(&bench, &["--transport", "ucx"], Some("sysv"))
        .fails(1, &["ucx-am: connecting", "tried before: ucx-put: connecting"]);
}

#[test]
fn a_put_over_tcp_alone_is_refused_before_anything_is_opened() {
    let Some(bench) = Workbench::with_transport("ucx-put") else { return };
    let mut command = bench.serving(&["--transport", "ucx-put"]);
    finish(command.env("UCX_TLS", "tcp")).fails(1, &["UCX_TLS=tcp", "write anywhere"]);
}

#[test]
fn a_named_transport_is_listed_alone_or_refused_as_unknown() {
    let bench = Workbench::new();
    let names = |args: &[&str]| {
        let done = finish(
            bench.farjump().arg("transports").arg("--json").args(args).env("FARJUMP_TRANSPORT", "shm"),
        );
        let rows = done.worked().json();
        let rows =
            rows.as_array().expect("a list").iter().map(|row| row["transport"].as_str().map(String::from));
        rows.collect::<Option<Vec<_>>>().expect("each has a name")
    };
    // The variable chooses the transport to use, not those to list.
    assert_eq!(names(&[]), ["shm", "ucx-put", "ucx-am", "verbs-write", "verbs-send", "tcp"]);
    assert_eq!(names(&["--transport", "verbs-send"]), ["verbs-send"]);
    assert_eq!(names(&["--transport", "ucx"]), ["ucx-put", "ucx-am"]);
    bench.run(["transports", "--transport", "pigeon"]).fails(2, &["no transport `pigeon`", "shm, ucx-put"]);
}

#[test]
fn a_device_transport_lists_its_ports_or_why_it_has_none() {
    let bench = Workbench::new();
    let listed = bench.json(["transports", "--json", "--transport", "verbs-write"]);
    let row = &listed[0];
    match &**row["ports"].as_array().expect("a list") {
        [] => {
            assert_eq!(row["usable"], false);
            let why = row["why"].as_str().unwrap_or_default();
            assert!(why.contains("no RDMA device") || why.contains("not installed"), "{row}");
        }
        ports => {
            let used = ports.iter().filter(|port| port["used"] == true).collect::<Vec<_>>();
            assert!(used.len() <= 1, "{row}");
            assert_eq!(row["usable"], used.iter().any(|port| port["usable"] == true), "{row}");
        }
    }
    assert_eq!(bench.json(["transports", "--json", "--transport", "shm"])[0]["ports"], Value::Null);
}
