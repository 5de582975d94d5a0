//! Streams in C: publishers, a subscriber and the owner of their topic, each a process of its own.

use std::path::Path;
use std::process::Command;

use farjump_tools::all_work;

use crate::common::package;
use crate::installation::prefix;
use crate::objects::{in_one_process, owner};
use crate::packages::flags;
use crate::programs::{Linkage, Process, WARNINGS, compile, finish, start};

/// Returns a publisher that has published `count` texts and the owner's table, and its number.
fn publisher(folder: &Path, table: &str, count: u32) -> (Process, String) {
    let publisher = start(&folder.join("stream"), ["publish", table, "topic", &count.to_string()], folder);
    let number = publisher.line().strip_prefix("publisher ").expect("a number").to_owned();
    assert_eq!(publisher.line(), "published");
    (publisher, number)
}

/// Returns the lines of a subscriber about `count` texts and the table.
fn entries(number: &str, count: u32) -> Vec<String> {
    let texts = (0..count).map(|text| format!("{number} owned text {text}"));
    texts.chain([format!("{number} published 300000 bytes")]).collect()
}

fn run_cases(folder: &Path) {
    let (mut owner, [table, ..]) = owner(folder, "t.sock");
    let subscriber = |publishers: &str| {
        let subscriber = start(&folder.join("stream"), ["subscribe", &table, "topic", publishers], folder);
        assert_eq!(subscriber.line(), "subscribed");
        subscriber
    };
    let first = subscriber("2");
    let lines = |count: usize| -> Vec<String> { (0..count).map(|_| first.line()).collect() };
    // One publisher finishes, one is killed. The subscriber reports the one that is gone, after all that it published.
    let (mut finishes, one) = publisher(folder, &table, 3);
    assert_eq!(lines(4), entries(&one, 3));
    let (mut dies, two) = publisher(folder, &table, 2);
    assert_eq!(lines(3), entries(&two, 2));
    dies.kill_and_wait();
    assert_eq!(lines(1), [format!("{two} gone after 3")]);
    finishes.write_line("finish");
    finishes.finish().worked();
    assert_eq!(first.finish().worked().text(), "end\n");

    // The subscriber reports the end of the owner, too.
    let last = subscriber("1");
    owner.kill_and_wait();
    let told = last.finish().worked();
    assert!(told.text().starts_with("target gone: "), "{}", told.text());
}

#[test]
fn a_pkg_config_built_subscriber_gets_handles_and_reports_dead_peers() {
    if !all_work(&["pkg-config", "gcc"]) {
        return;
    }
    let folder = farjump_fixtures::folder();
    for name in ["owner", "stream"] {
        let mut cc = Command::new("gcc");
        cc.args(["-std=c11", "-D_GNU_SOURCE"]).args(WARNINGS);
        cc.arg(package().join(format!("tests/programs/{name}.c"))).arg("-o").arg(folder.path().join(name));
        cc.args(flags(&["--cflags", "--libs"]));
        finish(cc.arg(format!("-Wl,-rpath,{}", prefix().join("lib").display()))).worked();
    }
    run_cases(folder.path());
}

#[test]
fn streams_between_processes_run_clean_under_sanitizers() {
    if !Linkage::Sanitized.is_open() {
        return;
    }
    let folder = farjump_fixtures::folder();
    for name in ["owner", "stream"] {
        compile(name, Linkage::Sanitized, folder.path());
    }
    run_cases(folder.path());
}

#[test]
fn streams_are_bounded_and_misused_in_c() {
    in_one_process("streams", Linkage::Static);
}

#[test]
fn streams_in_c_neither_leak_nor_touch_what_is_not_their_own() {
    in_one_process("streams", Linkage::Sanitized);
}
