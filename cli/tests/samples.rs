//! The samples of `docs/guide/writing-ifuncs.md`, run as the guide says.

use std::fs;
use std::path::Path;

use crate::workbench::{Process, Workbench, start_target};

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Returns the fenced blocks of the guide, each with the words behind its opening fence.
fn blocks() -> Vec<(String, String)> {
    let guide =
        fs::read_to_string(repository().join("docs/guide/writing-ifuncs.md")).expect("the guide is there");
    let fenced = guide.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    fenced.map(|(marks, code)| (marks.to_owned(), code.to_owned())).collect()
}

#[test]
fn indirect_put_writes_into_the_store_of_the_guide() {
    let bench = Workbench::new();
    let (_, store) =
        blocks().into_iter().find(|(marks, _)| marks == "c store").expect("the guide has a store");
    bench.plain_library("store", &store);
    let library = bench.sample("indirect_put");
    let serving = bench.serve(&["--export-library", "./libstore.so"]);
    let put = |key: u64, bytes: &[u8]| {
        bench.write("put", [&key.to_le_bytes(), bytes].concat());
        bench.inject(&library, &["--args-file", "put"])
    };
    assert_eq!(put(5, b"hello").worked().out, [320_u64, 5].map(u64::to_le_bytes).concat());
    put(16, b"hello").fails(3, &["the target has no such key"]);
    put(15, &[7; 65]).fails(3, &["there are more bytes than fit the key's memory"]);
    assert_eq!(put(15, &[7; 64]).worked().out, [960_u64, 64].map(u64::to_le_bytes).concat());
    serving.stop().worked();
}

/// Returns a target with `bytes` bytes of data that knows the next one in a circle of `count`.
fn shard(bench: &Workbench, number: usize, count: usize) -> Process {
    let address = |number: usize| match number % count {
        0 => bench.address(),
        number => format!("unix:{}", bench.path(&format!("s{number}")).display()),
    };
    let data = bench.write(&format!("part{number}"), vec![b'x'; number * 10 + 1]);
    let (listen, next) = (address(number), format!("next={}", address(number + 1)));
    let mut command = bench.farjump();
    command.args(["serve", "--listen", &listen, "--destination", &next, "--data"]).arg(data);
    start_target(&mut command).0
}

/// The library's tests go round rings of other sizes (`farjump/tests/samples/chain.rs`).
#[test]
fn chain_goes_round_processes_and_says_which_is_missing() {
    let bench = Workbench::new();
    let library = bench.sample("chain");
    let mut targets = Vec::from([0, 1, 2].map(|number| shard(&bench, number, 3)));
    let visit = |visits: usize| bench.inject(&library, &["--args", &visits.to_string()]);
    for visits in [1, 3, 7] {
        let expected: Vec<_> =
            (0..visits).flat_map(|visit| (visit % 3 * 10 + 1_usize).to_le_bytes()).collect();
        assert_eq!(visit(visits).worked().out, expected, "{visits} visits");
    }
    targets.pop().expect("there is one").kill();
    visit(3).fails(3, &["could not forward it to its destination `next`"]);
    visit(2).worked();
    for target in targets {
        target.stop().worked();
    }
}

#[test]
fn a_destination_without_a_name_or_valid_address_is_refused() {
    let bench = Workbench::new();
    let serve = |peer| bench.run(["serve", "--listen", &bench.address(), "--destination", peer]);
    let done = serve("unix:b.sock");
    assert!(done.code == 2 && done.err.contains("next=unix:other.sock"), "{}", done.err);
    serve("next=b.sock").fails(2, &["b.sock"]);
}
