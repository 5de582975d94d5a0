//! The samples of `docs/writing-ifuncs.md`, run as the guide says.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::workbench::{Serving, Workbench};

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Returns the fenced blocks of the guide, each with the words behind its opening fence.
fn blocks() -> Vec<(String, String)> {
    let guide = fs::read_to_string(repository().join("docs/writing-ifuncs.md")).expect("the guide is there");
    let fenced = guide.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    fenced.map(|(marks, code)| (marks.to_owned(), code.to_owned())).collect()
}

#[test]
fn what_the_guide_shows_of_a_sample_is_in_it() {
    let mut shown = Vec::new();
    for (marks, code) in blocks() {
        let Some(file) = marks.strip_prefix("c of ") else { continue };
        let source = fs::read_to_string(repository().join("ifuncs/samples/c").join(file)).expect("a sample");
        assert!(source.contains(&code), "{file} has no such lines:\n{code}");
        shown.push(file.to_owned());
    }
    shown.dedup();
    assert_eq!(shown, ["sum.c", "indirect_put.c", "codec.c", "chain.c"]);
}

#[test]
fn sum_adds_up_a_file_of_floats_and_refuses_text_that_is_none() {
    let bench = Workbench::new();
    let library = bench.sample("sum");
    let serving = bench.serve(&[]);
    let floats: Vec<u8> = [1.0_f32, 2.0, 10.0].into_iter().flat_map(f32::to_le_bytes).collect();
    bench.write("floats", &floats);
    let done = bench.inject(&library, &["--args-file", "floats"]).worked();
    assert_eq!(done.out, 13.0_f64.to_le_bytes());
    let done = bench.inject(&library, &["--args", "13.25"]);
    assert!(done.error(3).contains("no multiple of 4 bytes"), "{}", done.err);
    serving.stop().worked();
}

#[test]
fn indirect_put_writes_into_the_store_of_the_guide() {
    let bench = Workbench::new();
    let (_, store) =
        blocks().into_iter().find(|(marks, _)| marks == "c store").expect("the guide has a store");
    bench.plain_library("store", &store);
    let library = bench.sample("indirect_put");
    let serving = bench.serve(&["--export", "./libstore.so"]);
    let put = |key: u64, bytes: &[u8]| {
        bench.write("put", [&key.to_le_bytes(), bytes].concat());
        bench.inject(&library, &["--args-file", "put"])
    };
    assert_eq!(put(5, b"hello").worked().out, [320_u64, 5].map(u64::to_le_bytes).concat());
    assert!(put(16, b"hello").error(3).contains("the target has no such key"));
    assert!(put(15, &[7; 65]).error(3).contains("there are more bytes than fit the key's memory"));
    assert_eq!(put(15, &[7; 64]).worked().out, [960_u64, 64].map(u64::to_le_bytes).concat());
    serving.stop().worked();
}

#[test]
fn codec_replies_a_file_as_it_is_and_sends_less() {
    let bench = Workbench::new();
    let library = bench.sample("codec");
    let serving = bench.serve(&[]);
    let guide = fs::read(repository().join("docs/writing-ifuncs.md")).expect("the guide is there");
    bench.write("guide", &guide);
    let done = bench.inject(&library, &["--args-file", "guide", "--json"]).worked();
    assert!(done.out == guide, "something else comes out");
    let figures: Value =
        serde_json::from_str(done.err.lines().last().expect("there are figures")).expect("JSON");
    let sent = figures["payload_bytes"].as_u64().expect("a number");
    assert!(sent < guide.len() as u64 * 2 / 3, "{sent} of {} bytes were sent", guide.len());
    serving.stop().worked();
}

/// A target with `bytes` bytes of data that knows the next one in a circle of `count`.
fn shard(bench: &Workbench, number: usize, count: usize) -> Serving {
    let address = |number: usize| match number % count {
        0 => bench.address(),
        number => format!("unix:{}", bench.path(&format!("s{number}")).display()),
    };
    let data = bench.write(&format!("part{number}"), vec![b'x'; number * 10 + 1]);
    let mut command = bench.farjump();
    command
        .args(["serve", "--listen", &address(number), "--destination"])
        .arg(format!("next={}", address(number + 1)));
    Serving::start(command.arg("--data").arg(data))
}

#[test]
fn chain_goes_round_processes_and_says_which_is_missing() {
    let bench = Workbench::new();
    let library = bench.sample("chain");
    for count in [1, 2, 3, 8] {
        let mut targets: Vec<_> = (0..count).map(|number| shard(&bench, number, count)).collect();
        for visits in [1, count, 2 * count + 1] {
            let expected: Vec<_> =
                (0..visits).flat_map(|visit| (visit % count * 10 + 1).to_le_bytes()).collect();
            let done = bench.inject(&library, &["--args", &visits.to_string()]).worked();
            assert_eq!(done.out, expected, "{visits} visits of {count} targets");
        }
        if count > 1 {
            targets.pop().expect("there is one").kill();
            let done = bench.inject(&library, &["--args", &count.to_string()]);
            let error = done.error(3);
            assert!(error.contains("could not forward it to its destination `next`"), "{error}");
            bench.inject(&library, &["--args", &(count - 1).to_string()]).worked();
        }
        for target in targets {
            target.stop().worked();
        }
    }
}

#[test]
fn a_peer_without_a_name_or_with_an_impossible_address_is_refused_at_once() {
    let bench = Workbench::new();
    let serve = |peer| bench.run(["serve", "--listen", &bench.address(), "--destination", peer]);
    let done = serve("unix:b.sock");
    assert!(done.code == 2 && done.err.contains("next=unix:other.sock"), "{}", done.err);
    let done = serve("next=b.sock");
    assert!(done.error(1).contains("b.sock"), "{}", done.err);
}
