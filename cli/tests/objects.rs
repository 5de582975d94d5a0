//! `serve --objects`, `put`, `get` and `evict`, and the objects in the report of `store`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use farjump_handles::{Client, Handle, Patience};
use rustix::process::Signal;
use serde_json::Value;

use crate::workbench::{Done, Process, Workbench, documented, finish, keys, wait_for};
use farjump_fixtures::terminal::Terminal;

const WAIT: std::time::Duration = std::time::Duration::from_secs(60);

fn store(bench: &Workbench) -> Value {
    bench.json(["store", "--to", &bench.address(), "--json"])
}

fn put(bench: &Workbench, file: &str, more: &[&str]) -> Done {
    bench.run([&["put", file, "--to", &bench.address()], more].concat())
}

fn client(bench: &Workbench) -> Client {
    Client::connect(&bench.address()).expect("it serves")
}

#[test]
fn a_file_becomes_an_object_read_and_evicted_by_its_handle() {
    let bench = Workbench::new();
    let contents: Vec<u8> = (0..300_000_u32).map(|at| (at * 7) as u8).collect();
    bench.write("table", &contents);
    bench.write("handle", "older");
    let serving = bench.serve(&["--objects", "1M"]);
    assert_eq!(put(&bench, "table", &["--handle", "handle", "--type", "f32"]).worked().text(), "");
    let mode = fs::metadata(bench.path("handle")).expect("it was written").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let got = bench.json(["get", "handle", "--out", "copy", "--json"]);
    assert_eq!(
        (&got["number"], &got["bytes"], &got["access"]),
        (&1.into(), &300_000.into(), &"mapped".into())
    );
    assert_eq!(keys(&got), documented("reference/json.md", "`farjump get --json` prints"));
    // Standard output has the bytes.
    let got = bench.run(["get", "handle", "--json"]).worked();
    let figures: Value = serde_json::from_str(&got.err).expect("it is JSON");
    assert_eq!((&got.out, &figures["file"]), (&contents, &Value::Null));
    assert_eq!(fs::read(bench.path("copy")).expect("it was written"), contents);

    // The handle as its bytes, which other programs store, and an address that the handle does not have.
    let digits = fs::read(bench.path("handle")).expect("it was written");
    let digit = |digit: u8| char::from(digit).to_digit(16).expect("it is one") as u8;
    let bytes: Vec<u8> =
        digits.trim_ascii().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect();
    let handle = Handle::from_bytes(&bytes).expect("it is one");
    assert_eq!((handle.type_name(), handle.len()), ("f32", 300_000));
    bench.write("bytes", &bytes);
    let copied = bench.run(["get", "bytes", "--to", &bench.address()]).worked();
    assert_eq!(copied.out, contents);

    // By standard input, as in a pipe.
    let from = |file: &str, args: &[&str]| {
        let input = fs::File::open(bench.path(file)).expect("it was written");
        finish(bench.farjump().args(args).stdin(input)).worked()
    };
    let piped = from("table", &["put", "-", "--to", &bench.address()]);
    bench.write("piped", piped.text());
    assert_eq!(from("piped", &["get", "-"]).out, contents);
    assert_eq!(from("piped", &["evict", "-"]).text(), "object 2 is evicted\n");

    let made = put(&bench, "table", &["--json"]).worked().json();
    assert_eq!((&made["number"], &made["bytes"], &made["file"]), (&3.into(), &300_000.into(), &Value::Null));
    assert_eq!(keys(&made), documented("reference/json.md", "`farjump put --json` prints"));
    bench.write("made", made["handle"].as_str().expect("the digits"));
    assert_eq!(bench.json(["evict", "made", "--json"])["evicted"], true);
    assert_eq!(bench.json(["evict", "made", "--json"])["evicted"], false);

    assert_eq!(bench.run(["evict", "handle"]).worked().text(), "object 1 is evicted\n");
    assert_eq!(bench.run(["evict", "bytes"]).worked().text(), "object 1 was gone already\n");
    bench.run(["get", "handle"]).fails(1, &["object 1 is gone"]);
    serving.stop().worked();
    bench.run(["get", "handle"]).fails(5, &["no target listens on"]);
    bench.is_clean();
}

#[test]
fn a_terminal_gets_text_and_progress_but_no_binary_object() {
    let bench = Workbench::new();
    let serving = bench.serve(&["--objects", "1M"]);
    let get = |handle: &str, more: &[&str]| {
        let terminal = Terminal::new();
        let mut command = bench.farjump();
        command.args(["get", handle]).args(more).stdout(terminal.end()).stderr(Stdio::piped());
        let done = Process::spawn(&mut command).finish();
        (done, terminal.shown(command))
    };
    for (name, bytes) in
        [("text", &b"plain\ttext, \xc3\xa4\n"[..]), ("escape", b"\x1b[2J"), ("bytes", b"\xff\x00")]
    {
        bench.write(name, bytes);
        put(&bench, name, &["--handle", &format!("{name}.handle")]).worked();
    }
    let (done, shown) = get("text.handle", &[]);
    assert_eq!((done.worked().err, &*shown), (String::new(), "plain\ttext, ä\r\n"));
    for name in ["escape.handle", "bytes.handle"] {
        let (done, shown) = get(name, &[]);
        done.fails(1, &["write them to a file (--out FILE)"]);
        assert_eq!(shown, "");
        get(name, &["--out", "copy"]).0.worked();
    }
    // A stopped target makes a command take long.
    serving.signal(Signal::STOP);
    let terminal = Terminal::new();
    let mut command = bench.farjump();
    command.args(["put", "text", "--to", &bench.address(), "--timeout", "60m"]);
    command.stdout(Stdio::piped()).stderr(terminal.end());
    let putting = Process::spawn(&mut command);
    wait_for("its progress", || terminal.has("sending: ").then_some(()));
    serving.signal(Signal::CONT);
    putting.finish().worked();
    let shown = terminal.shown(command);
    // The file was read at once, which is no part of the transfer.
    assert!(!shown.contains("15 of 15 B"), "{shown}");
    assert!(shown.contains("put 15 B in ") && shown.ends_with(" MB/s)\r\n"), "{shown}");

    // The object's text stays on a terminal that has both.
    serving.signal(Signal::STOP);
    let terminal = Terminal::new();
    let mut command = bench.farjump();
    command.args(["get", "text.handle", "--timeout", "60m"]).stdout(terminal.end()).stderr(terminal.end());
    let getting = Process::spawn(&mut command);
    wait_for("its progress", || terminal.has("fetching: ").then_some(()));
    serving.signal(Signal::CONT);
    getting.finish().worked();
    let shown = terminal.shown(command);
    assert!(shown.contains("got 15 B in ") && shown.ends_with(" MB/s)\r\nplain\ttext, ä\r\n"), "{shown}");
    serving.stop().worked();
}

#[test]
fn objects_are_listed_behind_the_code_for_people_and_for_programs() {
    let bench = Workbench::new();
    bench.write("table", [1; 5000]);
    let serving = bench.serve(&["--objects", "1M"]);
    let text = bench.run(["store", "--to", &bench.address()]).worked();
    assert!(
        text.text().ends_with("\n0 objects in 0 B of 1 048 576 B; 0 claims, 0 spilled\n"),
        "{}",
        text.text()
    );
    let printed = put(&bench, "table", &["--type", "f32"]).worked();
    assert!(printed.text().starts_with("464a4801") && printed.text().ends_with('\n'), "{}", printed.text());
    let client = client(&bench);
    let evicted = client.put(&[2; 70]).expect("there is memory");
    let view = client.get(&evicted).expect("it is there");
    assert!(client.evict(&evicted).expect("it may"));
    let reserved = client.reserve("later").expect("there is memory");
    client.lease(&reserved, Some(WAIT)).expect("it is there");
    let referenced = client.put_parts("", &[&[3; 10]], &mut Patience::of(WAIT)).expect("there is memory");
    assert_eq!(client.count(&referenced, 2).expect("it is there"), 2);

    let listing = store(&bench);
    let objects = &listing["objects"];
    assert_eq!(keys(&listing), documented("reference/json.md", "`farjump store --json` prints"));
    assert_eq!(keys(objects), documented("reference/json.md", "The store of `objects` has"));
    assert_eq!(keys(&objects["listed"][0]), documented("reference/json.md", "Each of `listed` has"));
    assert_eq!((&objects["left_out"], &objects["capacity_bytes"]), (&0.into(), &(1 << 20).into()));
    assert!(objects["used_bytes"].as_u64().is_some_and(|used| used >= 5080), "{objects}");
    let listed = objects["listed"].as_array().expect("a list");
    let find = |number: u64| listed.iter().find(|one| one["number"] == number).expect("it is listed");
    let first = find(1);
    assert_eq!(
        (&first["bytes"], &first["type"], &first["state"]),
        (&5000.into(), &"f32".into(), &"present".into())
    );
    assert_eq!(
        (&first["claims"], &first["references"], &first["lease_us"]),
        (&0.into(), &0.into(), &Value::Null)
    );
    let gone = find(evicted.number());
    assert_eq!((&gone["state"], &gone["claims"]), (&"evicted".into(), &1.into()));
    let later = find(reserved.number());
    assert_eq!((&later["state"], &later["type"]), (&"reserved".into(), &"later".into()));
    assert!(later["lease_us"].as_f64().is_some_and(|left| left > 0.0 && left <= 60e6), "{later}");
    assert_eq!(find(referenced.number())["references"], 2);
    let text = bench.run(["store", "--to", &bench.address()]).worked();
    for part in ["5 000", "f32", "evicted", "reserved", "4 objects in "] {
        assert!(text.text().contains(part), "{part} in {}", text.text());
    }
    let stats = bench.json(["stats", "--to", &bench.address(), "--json"]);
    let counted = &stats["objects"];
    assert_eq!(keys(counted), documented("reference/json.md", "The count of `objects` has"));
    for (key, value) in [("count", 4), ("claims", 1), ("spilled", 0), ("left_out", 0)] {
        assert_eq!(counted[key], value, "{key} in {counted}");
    }
    assert_eq!(counted["used_bytes"], objects["used_bytes"]);
    let text = bench.run(["stats", "--to", &bench.address()]).worked();
    assert!(text.text().contains("\nobjects  4 objects in "), "{}", text.text());
    drop((view, client));
    serving.stop().worked();
}

#[test]
fn a_target_without_a_store_lists_no_objects_and_refuses_puts() {
    let bench = Workbench::new();
    bench.write("table", [1; 5000]);
    let serving = bench.serve(&[]);
    assert_eq!(store(&bench)["objects"], Value::Null);
    assert_eq!(bench.run(["store", "--to", &bench.address()]).worked().text().lines().count(), 1);
    let stats = ["stats", "--to", &bench.address()];
    assert_eq!(bench.json([&stats[..], &["--json"]].concat())["objects"], Value::Null);
    assert!(!bench.run(stats).worked().text().contains("objects"));
    put(&bench, "table", &[]).fails(3, &["--objects"]);
    serving.stop().worked();
}

#[test]
fn a_full_store_refuses_unless_it_may_spill() {
    let bench = Workbench::new();
    for name in ["a", "b"] {
        bench.write(name, [name.as_bytes()[0]; 40_000]);
    }
    let serving = bench.serve(&["--objects", "64K"]);
    put(&bench, "a", &["--handle", "h"]).worked();
    put(&bench, "b", &[]).fails(1, &["no memory for 40000 bytes", "--objects"]);
    serving.stop().worked();

    let folder = bench.path("tmp");
    let folder = folder.to_str().expect("a path in UTF-8");
    let spilling = ["--objects", "64K", "--objects-spill-folder", folder, "--objects-spill-bytes", "1M"];
    let serving = bench.serve(&spilling);
    for name in ["a", "b"] {
        put(&bench, name, &["--handle", &format!("{name}.handle")]).worked();
    }
    let states: Vec<_> = store(&bench)["objects"]["listed"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|object| object["state"].as_str().expect("a text").to_owned())
        .collect();
    assert_eq!(states, ["present", "spilled"]);
    for name in ["a", "b"] {
        let got = bench.run(["get", &format!("{name}.handle")]).worked();
        assert_eq!(got.out, [name.as_bytes()[0]; 40_000]);
    }
    serving.stop().worked();
    bench.is_clean();
}

#[test]
fn each_invalid_or_outdated_handle_is_refused_with_its_fault() {
    let bench = Workbench::new();
    bench.write("table", [1; 5000]);
    let serving = bench.serve(&["--objects", "64K"]);
    let digits = put(&bench, "table", &[]).worked();
    let digits = digits.text().trim_end();
    for (name, text, words) in [
        ("empty", String::new(), "holds no handle"),
        ("words", "a handle".to_owned(), "holds no handle"),
        ("odd", digits[1..].to_owned(), "holds no handle"),
        ("cut", digits[..100].to_owned(), "cut off after 50 bytes"),
        ("longer", format!("{digits}00"), "1 more bytes follow the end"),
        ("version", digits.replacen("464a4801", "464a4802", 1), "version 2"),
        ("other-key", format!("{}00ff{}", &digits[..56], &digits[60..]), "has not the object's key"),
        ("large", "0".repeat(100_000), "holds no handle"),
    ] {
        bench.write(name, text);
        bench.run(["get", name]).fails(1, &[words]);
    }
    bench.run(["get", "nowhere"]).fails(1, &["cannot read `nowhere`"]);
    bench.write("handle", digits);
    serving.stop().worked();
    let serving = bench.serve(&["--objects", "64K"]);
    bench.run(["get", "handle"]).fails(1, &["has restarted"]);
    assert_eq!(bench.run(["evict", "handle"]).worked().text(), "object 1 was gone already\n");
    serving.stop().worked();
}

#[cfg(feature = "tcp")]
#[test]
fn objects_are_put_and_read_over_tcp_only_with_the_key() {
    let bench = Workbench::new();
    let contents: Vec<u8> = (0..700_000_u32).map(|at| (at / 3) as u8).collect();
    bench.write("table", &contents);
    bench.run(["key", "farm.key"]).worked();
    let mut serving = bench.farjump();
    serving.args(["serve", "--listen", "tcp:127.0.0.1:0", "--key-file", "farm.key", "--objects", "1M"]);
    let (serving, address) = crate::workbench::start_target(serving.args(["--rights", "observe,call"]));
    let put = ["put", "table", "--to", &address, "--handle", "handle"];
    bench.run(put).fails(3, &["--key-file"]);
    bench.run([&put[..], &["--key-file", "farm.key"]].concat()).worked();
    bench.run(["get", "handle"]).fails(3, &["--key-file"]);
    let got = bench.run(["get", "handle", "--key-file", "farm.key", "--transport", "tcp"]).worked();
    assert_eq!(got.out, contents);
    bench.run(["evict", "handle", "--key-file", "farm.key"]).worked();
    serving.stop().worked();
}

#[test]
fn invalid_or_incomplete_object_options_are_refused_with_the_reason() {
    let bench = Workbench::new();
    for wrong in [
        &["--objects", "0"][..],
        &["--objects", "much"],
        &["--objects-spill-folder", "."],
        &["--objects", "1M", "--objects-spill-folder", "."],
        &["--objects", "1M", "--objects-spill-bytes", "1M"],
    ] {
        let words = if wrong[0] == "--objects" && wrong.len() == 2 { "bytes" } else { "--objects" };
        let words = if wrong == ["--objects", "0"] { "out of range" } else { words };
        bench.run([&["serve", "--listen", &bench.address()], wrong].concat()).fails(2, &[words]);
    }
    let nowhere = ["--objects", "1M", "--objects-spill-folder", "nowhere", "--objects-spill-bytes", "1M"];
    bench.run([&["serve", "--listen", &bench.address()], &nowhere[..]].concat()).fails(1, &["nowhere"]);
    bench.write("table", [1; 50]);
    let long = "x".repeat(256);
    put(&bench, "table", &["--type", &long]).fails(2, &["256 bytes"]);
    put(&bench, "nowhere", &[]).fails(1, &["cannot read `nowhere`"]);
}
