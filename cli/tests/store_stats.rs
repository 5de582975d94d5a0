//! `store` and `stats`: their report on a target, the code they drop, and their message without a target.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;
use std::time::Duration;

use farjump::{Library, Link};
use serde_json::Value;

use crate::workbench::{Done, Workbench, documented, keys};

fn run_admin(bench: &Workbench, command: &str, more: &[&str]) -> Done {
    bench.run([&[command, "--to", &bench.address()], more].concat())
}

fn json(bench: &Workbench, command: &str, more: &[&str]) -> Value {
    run_admin(bench, command, &[more, &["--json"]].concat()).worked().json()
}

fn names(listing: &Value) -> Vec<&str> {
    let images = listing["images"].as_array().expect("a list");
    images.iter().map(|image| image["name"].as_str().expect("a text")).collect()
}

#[test]
fn injected_code_is_listed_with_its_calls_as_text_and_json() {
    let bench = Workbench::new();
    let (crc32, hello) = (bench.sample("crc32"), bench.sample("grep"));
    let serving = bench.serve(&[]);
    assert_eq!(
        run_admin(&bench, "store", &[]).worked().text().lines().count(),
        1,
        "the heads of the columns"
    );
    bench.inject(&hello, &["--args", "x"]).worked();
    bench.inject(&crc32, &["--repeat", "7"]).worked();
    let listing = json(&bench, "store", &[]);
    assert_eq!(names(&listing), ["crc32", "grep"], "what was used last comes first");
    let image = &listing["images"][0];
    let report = bench.json(["inspect".as_ref(), crc32.as_os_str(), "--json".as_ref()]);
    assert_eq!((&image["id"], &image["bytes"]), (&report["images"][0]["id"], &report["images"][0]["bytes"]));
    assert_eq!((&image["calls"], &listing["images"][1]["calls"]), (&7.into(), &1.into()));
    for time in ["time_us", "link_us", "last_use_us"] {
        assert!(image[time].as_f64().is_some_and(|time| time > 0.0), "{image}");
    }
    assert!(image["source"].as_str().is_some_and(|source| source.starts_with("farjump (pid ")), "{image}");
    let done = run_admin(&bench, "store", &[]).worked();
    let row = done.text().lines().nth(1).expect("a row");
    for part in [image["id"].as_str().expect("a text"), "crc32", "  7  ", "just now", "farjump (pid "] {
        // A slow machine may be some seconds late.
        assert!(row.contains(part) || (part == "just now" && row.contains(" ago")), "{part} in {row}");
    }
    serving.stop().worked();
}

#[test]
fn code_is_dropped_by_an_id_prefix_or_all_at_once() {
    let bench = Workbench::new();
    let (crc32, grep, histogram) = (bench.sample("crc32"), bench.sample("grep"), bench.sample("histogram"));
    let local = histogram.to_str().expect("a path in UTF-8");
    let serving = bench.serve(&["--local", local, "--rights", "observe,call,inject,drop"]);
    bench.inject(&grep, &["--args", "x"]).worked();
    bench.inject(&crc32, &[]).worked();
    let listing = json(&bench, "store", &[]);
    let id = |name: &str| {
        let images = listing["images"].as_array().expect("a list");
        let image = images.iter().find(|image| image["name"] == name).expect("it is held");
        image["id"].as_str().expect("a text")[..6].to_uppercase()
    };
    assert_eq!(run_admin(&bench, "store", &["--drop", &id("crc32")]).worked().text(), "dropped 1 image\n");
    run_admin(&bench, "store", &["--drop", &id("crc32")]).fails(1, &["has no code whose id begins with"]);
    run_admin(&bench, "store", &["--drop", &id("histogram")]).fails(1, &["`histogram`", "--local"]);
    for wrong in ["abc", "grep"] {
        run_admin(&bench, "store", &["--drop", wrong]).fails(2, &["no code id"]);
    }
    assert_eq!(run_admin(&bench, "store", &["--drop", "abcd", "--drop-all"]).code, 2);
    assert_eq!(names(&json(&bench, "store", &[])), ["grep", "histogram"]);
    bench.inject(&crc32, &[]).worked();
    let dropped = json(&bench, "store", &["--drop-all"]);
    assert_eq!((&dropped["dropped"], &dropped["kept"]), (&2.into(), &1.into()));
    assert_eq!(keys(&dropped), documented("reference/json.md", "`--drop-all` with `--json` print"));
    let text = run_admin(&bench, "store", &["--drop-all"]).worked();
    assert_eq!(text.text(), "dropped 0 images; kept 1 of the target's own (serve --local)\n");
    bench.inject(&grep, &["--args", "x"]).worked();
    let done = serving.stop().worked();
    assert!(done.err.contains("0 frames refused"), "{}", done.err);
}

#[test]
fn stats_show_the_targets_work_refusal_causes_and_sources() {
    let bench = Workbench::new();
    let (crc32, hello) = (bench.sample("crc32"), bench.sample("hello"));
    let serving = bench.serve(&["--max-source-memory", "8M", "--store-images", "5"]);
    assert!(run_admin(&bench, "stats", &[]).worked().text().ends_with("sources  none\n"));
    bench.inject(&crc32, &["--repeat", "10"]).worked();
    // It calls printf, which is not offered.
    assert_eq!(bench.inject(&hello, &[]).code, 3);
    let link = Link::connect(&bench.address()).expect("it serves");
    let stats = json(&bench, "stats", &[]);
    assert_eq!((&stats["pid"], &stats["calls"]), (&serving.pid().into(), &10.into()));
    assert_eq!(
        (&stats["links"], &stats["links_made"], &stats["links_ended"]),
        (&1.into(), &3.into(), &2.into())
    );
    let refusals = stats["refusals"].as_object().expect("an object");
    let (causes, sum) = (refusals.len(), refusals.values().filter_map(Value::as_u64).sum::<u64>());
    assert_eq!((causes, sum), (farjump::RefusalCause::count(), 1));
    assert_eq!(refusals["UnresolvedImport"], 1);
    assert_eq!((&stats["store"]["images"], &stats["store"]["capacity_images"]), (&1.into(), &5.into()));
    assert_eq!(stats["sources"][0]["pid"], std::process::id());
    assert_eq!(stats["sources"][0]["memory_limit_bytes"], 8 << 20);
    let text = run_admin(&bench, "stats", &[]).worked();
    for part in [
        "links    1 now, 3 in all; 0 sources rejected\n",
        "calls    10, 0 of them forwarded\n",
        "refused  1 frame: 1 unresolved import\n",
        "1 image of 5, ",
        "B of 8 388 608 B",
    ] {
        assert!(text.text().contains(part), "{part} in {}", text.text());
    }
    drop(link);
    serving.stop().worked();
}

#[test]
fn the_keys_of_the_json_are_exactly_the_documented_ones() {
    let bench = Workbench::new();
    let crc32 = bench.sample("crc32");
    let serving = bench.serve(&[]);
    bench.inject(&crc32, &[]).worked();
    let link = Link::connect(&bench.address()).expect("it serves");
    let (store, stats) = (json(&bench, "store", &[]), json(&bench, "stats", &[]));
    assert_eq!(keys(&store), documented("reference/json.md", "`farjump store --json` prints"));
    assert_eq!(keys(&store["images"][0]), documented("reference/json.md", "Each image has"));
    assert_eq!(keys(&stats), documented("reference/json.md", "`farjump stats --json` prints"));
    assert_eq!(keys(&stats["store"]), documented("reference/json.md", "`store` has"));
    assert_eq!(keys(&stats["sources"][0]), documented("reference/json.md", "Each of `sources` has"));
    let protocol = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/protocol.md");
    let protocol = fs::read_to_string(protocol).expect("the document is there");
    for cause in keys(&stats["refusals"]) {
        assert!(protocol.contains(&cause), "{cause} is not in docs/reference/protocol.md");
    }
    drop(link);
    serving.stop().worked();
}

#[test]
fn store_and_stats_without_a_target_exit_with_a_specific_code() {
    let bench = Workbench::new();
    for command in ["store", "stats"] {
        run_admin(&bench, command, &[]).fails(5, &["no target listens on"]);
        bench.run([command, "--to", "store.sock"]).fails(2, &["write unix:PATH"]);
    }
    let serving = bench.serve(&[]);
    serving.kill();
    run_admin(&bench, "stats", &[]).fails(5, &["the one that did has ended"]);
}

#[test]
fn exit_codes_distinguish_foreign_dying_and_busy_peers() {
    let bench = Workbench::new();
    let listener = UnixListener::bind(bench.path("s")).expect("the path is free");
    // It listens and does nothing else.
    run_admin(&bench, "stats", &["--timeout", "100ms"]).fails(4, &["took too long"]);
    drop(listener.accept().expect("it had connected"));
    let cases: [(&[u8], i32, &str); 3] = [
        (b"SSH-2.0-nothing\r\n", 1, "does not speak farjump"),
        (b"FARJUMP\0\x08\0\0\0\xff\0\0\0\0\0\0\0\x13", 5, "in the middle"),
        (b"", 5, "is gone"),
    ];
    for (said, code, words) in cases {
        let done = thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().expect("it connects");
                stream.read_exact(&mut [0; 22]).expect("it asks");
                stream.write_all(said).expect("it reads");
            });
            run_admin(&bench, "store", &[])
        });
        done.fails(code, &[words]);
    }
}

#[test]
fn an_admin_request_times_out_during_an_endless_function() {
    let bench = Workbench::new();
    let library = bench.library(
        "stuck",
        "FARJUMP_COPY_ARGS(stuck)
        FARJUMP_IFUNC void stuck_main(void *payload, size_t size, void *args)
        {
            (void)payload, (void)size, (void)args;
            for (;;) __asm__ volatile(\"\");
        }",
    );
    let serving = bench.serve(&[]);
    let link = Link::connect(&bench.address()).expect("it serves");
    let stuck = Library::open(library).expect("it was built");
    let call = link.inject(&stuck, b"").expect("it is sent");
    assert!(call.wait(Duration::from_millis(200)).is_err());
    run_admin(&bench, "store", &["--timeout", "200ms"]).fails(4, &["took too long"]);
    serving.kill();
}
