//! `serve`: a target's start, its policy and its end.

use std::fs;
use std::time::{Duration, Instant};

use farjump::{Library, Link};
use rustix::process::Signal;
use serde_json::Value;

use crate::workbench::{Process, Workbench, finish, process_fields, runs, start_target, wait_for};

/// Prints to the target's standard output that it runs, and never returns.
pub(crate) const STUCK: &str = "
#include <unistd.h>
FARJUMP_COPY_ARGS(stuck)
FARJUMP_IFUNC void stuck_main(void *payload, size_t size, void *args)
{
    write(1, \"stuck\\n\", 6);
    for (;;) __asm__ volatile(\"pause\");
}";

#[test]
fn a_target_announces_readiness_and_a_signal_ends_it_without_leftovers() {
    let bench = Workbench::new();
    for signal in [Signal::TERM, Signal::INT] {
        let serving = Process::start(&mut bench.serving(&[]));
        assert_eq!(serving.line(), format!("ready: {} (pid {})", bench.address(), serving.pid()));
        assert!(bench.path("s").exists());
        serving.signal(signal);
        let done = serving.finish().worked();
        assert!(done.err.starts_with("stopped: 0 calls"), "{}", done.err);
        assert!(!bench.path("s").exists());
    }
}

#[test]
fn it_says_when_it_is_ready_as_json_too() {
    let bench = Workbench::new();
    let serving = Process::start(&mut bench.serving(&["--json"]));
    let ready: Value = serde_json::from_str(&serving.line()).expect("it is JSON");
    assert_eq!((&ready["ready"], &ready["pid"]), (&bench.address().into(), &serving.pid().into()));
    let pid = serving.pid();
    let stopped: Value = serde_json::from_str(&serving.stop().worked().err).expect("it is JSON");
    assert_eq!((&stopped["pid"], &stopped["stopped"]["calls"]), (&pid.into(), &0.into()));
}

#[test]
fn a_stale_socket_is_taken_over() {
    let bench = Workbench::new();
    assert_eq!(bench.serve(&[]).kill().code, 128 + 9);
    assert!(bench.path("s").exists());
    let library = bench.sample("crc32");
    assert_eq!(bench.inject(&library, &[]).code, 5);
    let serving = bench.serve(&[]);
    bench.inject(&library, &[]).worked();
    serving.stop().worked();
    assert!(!bench.path("s").exists());
}

#[test]
fn a_path_in_use_is_refused_and_its_owner_serves_on() {
    let bench = Workbench::new();
    let serving = bench.serve(&[]);
    finish(&mut bench.serving(&[])).fails(1, &["already in use by a running target"]);
    let library = bench.sample("crc32");
    bench.inject(&library, &[]).worked();
    serving.stop().worked();
}

#[test]
fn an_abstract_socket_is_served_and_leaves_no_file() {
    let bench = Workbench::new();
    let address = format!("unix:@farjump-serve-{}", std::process::id());
    let mut command = bench.farjump();
    let serving = Process::start(command.args(["serve", "--listen", &address, "--json"]));
    let ready: Value = serde_json::from_str(&serving.line()).expect("it is JSON");
    assert_eq!(ready["ready"], *address);
    let library = bench.sample("crc32");
    let inject = |to: &str| finish(bench.farjump().arg("inject").arg(&library).args(["--to", to]));
    let done = inject(&address).worked();
    assert!(done.err.contains("by shm"), "{}", done.err);
    finish(bench.farjump().args(["serve", "--listen", &address])).fails(1, &["has this name"]);
    assert!(!bench.path(&address["unix:".len()..]).exists(), "a file was made");
    serving.stop().worked();
    inject(&address).fails(5, &["no process of this network namespace has this name"]);
}

#[test]
fn a_file_that_is_no_socket_is_named_and_left_alone() {
    let bench = Workbench::new();
    bench.write("s", "precious");
    finish(&mut bench.serving(&[])).fails(1, &["is no socket but a regular file"]);
    bench.inject(&bench.sample("crc32"), &[]).fails(5, &["names no socket but a regular file"]);
    assert_eq!(fs::read(bench.path("s")).expect("it is there"), b"precious");
}

#[test]
fn serve_names_an_unusable_option_or_address_and_leaves_no_socket() {
    let bench = Workbench::new();
    let wrong: [(&[&str], &str); 4] = [
        (&["--data", "missing"], "cannot map `missing`"),
        (&["--data", "."], "no regular file"),
        (&["--export-library", "./libmissing.so"], "libmissing.so"),
        (&["--transport", "verbs-send"], "transport `verbs-send` cannot be used"),
    ];
    for (more, part) in wrong {
        finish(&mut bench.serving(more)).fails(1, &[part]);
        assert!(!bench.path("s").exists());
    }
    for (address, code, part) in [
        ("store.sock", 2, "write unix:PATH"),
        ("unix:no/such/folder/s", 1, "no/such/folder"),
        (&format!("unix:{}", "x".repeat(200)), 2, "at most 107"),
    ] {
        bench.run(["serve", "--listen", address]).fails(code, &[part]);
    }
}

#[test]
fn values_that_are_of_no_use_on_this_machine_get_a_word() {
    let bench = Workbench::new();
    let useless = ["--max-sources", "100000000", "--wanted-library", "libnosuch.so.1"];
    let done = bench.serve(&useless).stop().worked();
    for words in
        ["--max-sources is 100000000", "--wanted-library: the dynamic linker has no `libnosuch.so.1`"]
    {
        assert!(done.err.contains(&format!("warning: {words}")), "{words}: {}", done.err);
    }
    let useful = ["--objects", "1M", "--max-sources", "8", "--wanted-library", "libc.so.6"];
    assert!(!bench.serve(&useful).stop().worked().err.contains("warning"));
    for limit in ["--store-bytes", "--max-source-memory"] {
        // It ends before anything is allocated.
        let done = finish(&mut bench.serving(&[limit, "4000G", "--data", "missing"]));
        done.fails(1, &["cannot map `missing`"]);
        let words = format!("warning: {limit} is 4000 GiB, and this process may use ");
        assert!(done.err.starts_with(&words) && done.err.lines().count() == 2, "{}", done.err);
    }
}

#[test]
fn memory_that_this_machine_lacks_is_an_error_of_its_option() {
    let bench = Workbench::new();
    for option in ["objects", "arena-size"] {
        let done = finish(&mut bench.serving(&[&format!("--{option}"), "4000G"]));
        done.fails(2, &[&format!("--{option}: 4000G is more than the "), "that this process may use"]);
        assert!(!bench.path("s").exists());
    }
}

#[test]
fn an_idle_target_with_a_connection_uses_no_processor_time() {
    let bench = Workbench::new();
    let serving = bench.serve(&[]);
    let library = Library::open(bench.sample("crc32")).expect("it was built");
    let link = Link::connect(&bench.address()).expect("it serves");
    link.inject(&library, b"").and_then(|call| call.wait(Duration::from_secs(30))).expect("it works");
    let ticks = || -> u64 {
        let fields = process_fields(serving.pid()).expect("it runs");
        fields[11..13].iter().map(|field| field.parse::<u64>().expect("a number")).sum()
    };
    // Before that it spins for a while, and naps.
    wait_for("the target to sleep", || {
        let before = ticks();
        std::thread::sleep(Duration::from_millis(200));
        (ticks() == before).then_some(())
    });
    let (before, start) = (ticks(), Instant::now());
    std::thread::sleep(Duration::from_secs(2));
    let (used, elapsed) = (ticks() - before, start.elapsed());
    // A tick is 10 ms: 1% of the time.
    assert!(used * 1000 <= elapsed.as_millis() as u64, "{used} ticks in {elapsed:?}");
    link.inject(&library, b"").and_then(|call| call.wait(Duration::from_secs(30))).expect("it wakes");
    drop(link);
    serving.stop().worked();
}

#[test]
fn code_needs_no_file_at_the_target() {
    let bench = Workbench::new();
    let (hello, histogram) = (bench.sample("hello"), bench.sample("histogram"));
    let data = bench.write("data", "abracadabra");
    let nothing = bench.path("nothing");
    fs::create_dir(&nothing).expect("a folder can be made");
    let mut command = bench.serving(&["--process-symbols", "--data"]);
    command.arg(&data).current_dir(&nothing).env("LD_LIBRARY_PATH", "");
    let (serving, _) = start_target(&mut command);
    let greeted = bench.inject(&hello, &["--args", "target", "--repeat", "2"]).worked();
    assert_eq!(greeted.out, 2_u64.to_le_bytes());
    assert_eq!(serving.line(), "hello target, for the first time; the answer is 42");
    assert_eq!(serving.line(), "hello target, again; the answer is 42");
    let counts = bench.inject(&histogram, &[]).worked().out;
    let count = |byte: u8| counts[8 + 8 * usize::from(byte)];
    assert_eq!([count(b'a'), count(b'b'), count(b'c'), count(b'x')], [5, 2, 1, 0]);
    let maps = fs::read_to_string(format!("/proc/{}/maps", serving.pid())).expect("it runs");
    assert!(!maps.contains("libhello") && !maps.contains("libhistogram"), "{maps}");
    assert_eq!(fs::read_dir(&nothing).expect("it is there").count(), 0);
    let done = serving.stop().worked();
    assert!(done.err.contains("3 calls, 2 images linked, 0 frames refused, 2 sources"), "{}", done.err);
}

#[test]
fn code_gets_only_the_library_exports_that_the_target_offers() {
    let bench = Workbench::new();
    let library = bench.library(
        "price",
        "FARJUMP_COPY_ARGS(price)
        extern int shop_price(int item);
        FARJUMP_IFUNC void price_main(void *payload, size_t size, void *args)
        {
            int price = shop_price((int)size);
            farjump_reply(&price, sizeof price);
        }",
    );
    bench.plain_library("shop", "int shop_price(int item) { return 100 + item; }");
    let serving = bench.serve(&[]);
    bench.inject(&library, &["--args", "12345"]).fails(3, &["refused `price`: it exports no `shop_price`"]);
    let stopped = serving.stop().worked();
    assert!(stopped.err.contains("0 calls, 0 images linked, 1 frame refused"), "{}", stopped.err);
    // By a bare file name, found in the target's working folder.
    let serving = bench.serve(&["--export-library", "libshop.so"]);
    let done = bench.inject(&library, &["--args", "12345"]).worked();
    assert_eq!(done.out, 105_i32.to_le_bytes());
    serving.stop().worked();
}

#[test]
fn a_second_signal_ends_a_target_in_an_endless_function() {
    let bench = Workbench::new();
    let library = bench.library("stuck", STUCK);
    let serving = bench.serve(&["--process-symbols"]);
    let source = Process::start(&mut bench.injecting(&library, &bench.address(), &["--timeout", "60m"]));
    assert_eq!(serving.line(), "stuck");
    // Two pending signals count as one, so the signal is repeated as often as needed.
    wait_for("the target to end", || {
        serving.signal(Signal::TERM);
        (!runs(serving.pid())).then_some(())
    });
    assert_eq!(serving.finish().code, 128 + 15);
    source.finish().fails(5, &["is gone"]);
}

#[test]
fn rights_with_a_sign_change_the_default_and_a_list_replaces_it() {
    let bench = Workbench::new();
    let library = bench.sample("crc32");
    for (allowed, rights) in [
        (&["--rights", "+drop"][..], "observe,call,inject,drop"),
        (&["--rights", "-inject", "--allow-export"], "observe,call,export"),
        (&["--rights=-observe,+export"], "call,inject,export"),
        (&["--rights", "call,drop"], "call,drop"),
    ] {
        let serving = bench.serve(allowed);
        let shown = bench.json(["transports", "--to", &bench.address(), "--json"]);
        let shown: Vec<_> =
            shown["rights"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
        assert_eq!(shown.join(","), rights, "{allowed:?}");
        serving.stop().worked();
    }
    let serving = bench.serve(&["--rights", "-inject"]);
    let done = bench.inject(&library, &["--mode", "always"]);
    done.fails(
        3,
        &["have its operator add `+inject` to the rights of its sources (`farjump serve --rights`)"],
    );
    assert!(!done.err.contains("key"), "{}", done.err);
    bench
        .run(["store", "--to", &bench.address(), "--drop-all"])
        .fails(3, &["have its operator add `+drop` to the rights"]);
    serving.stop().worked();
    for wrong in ["+drop,call", "+drop,-drop", "+fly", ""] {
        bench.run(["serve", "--listen", "unix:s", "--rights", wrong]).fails(2, &["--rights"]);
    }
}

#[test]
fn a_target_serves_under_every_spin_setting() {
    let bench = Workbench::new();
    let library = bench.sample("crc32");
    for spin in ["never", "always", "events", "100"] {
        let serving = bench.serve(&["--wait-policy", spin, "--transport", "shm"]);
        bench.inject(&library, &["--repeat", "100"]).worked();
        serving.stop().worked();
    }
}
