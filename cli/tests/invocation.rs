//! The program's command line, environment and output.

use std::os::fd::OwnedFd;
use std::process::Stdio;

use farjump_fixtures::workbench::check_help_fits;

use crate::workbench::{Process, Workbench, finish, start_target};

#[test]
fn a_command_line_that_makes_no_sense_ends_with_2() {
    let bench = Workbench::new();
    let wrong: &[&[&str]] = &[
        &[],
        &["fly"],
        &["inject"],
        &["inject", "x.so", "--to", "unix:s", "--args", "a", "--args-file", "b"],
        &["inject", "x.so", "--to", "unix:s", "--repeat", "0"],
        &["inject", "x.so", "--to", "unix:s", "--timeout", "5"],
        &["serve", "--listen", "unix:s", "--mailbox-size", "64X"],
        &["serve", "--listen", "unix:s", "--cpu-level", "v9"],
        &["serve"],
        &["serve", "--listen", "unix:s", "--max-sources", "1", "--max-sources", "1"],
        &["serve", "--listen", "unix:s", "--clear=perhaps"],
        &["serve", "--listen", "unix:s", "--wait-policy", "sometimes"],
        &["serve", "--listen", "unix:s", "--modes", "cached,sometimes"],
        &["inject", "x.so", "--to", "unix:s", "--mode", "cached,always"],
        &["build", "x.c"],
        &["inject", "x.so", "--to", "store.sock"],
        &["inject", "x.so", "--to", "tcp:a:99999"],
        &["inject", "x.so", "--to", "unix:s", "--transport", "pigeon"],
        &["inject", "x.so", "--to", "unix:s", "--wait", "soon"],
        &["serve", "--listen", "tcp:node7"],
        &["serve", "--listen", "unix:s", "--destination", "next=b.sock"],
        &["serve", "--listen", "unix:s", "--max-image", "32"],
        &["serve", "--listen", "unix:s", "--arena-size", "0"],
        &["serve", "--listen", "unix:s", "--arena-size", "2G"],
        &["serve", "--listen", "tcp:127.0.0.1:0", "--transport", "shm"],
        &[
            "serve",
            "--listen",
            "unix:s",
            "--modes",
            "in-place",
            "--allow-code",
            "edc1169992d9aed8ae348fa14a32de94",
        ],
        &["store", "--to", "s"],
        &["stats", "--to", "s"],
        &["export", "x.so", "--to", "s"],
        &["put", "x", "--to", "s"],
        &["get", "x", "--to", "s"],
        &["evict", "x", "--to", "s"],
        &["transports", "--to", "s"],
        &["transports", "--transport", "pigeon"],
        &["transports", "--to", "tcp:127.0.0.1:1", "--transport", "shm"],
        &["inspect"],
        &["key", "--name", "a"],
        &["doctor", "--dirty"],
        &["demo", "--listen", "s"],
        &["demo", "--transport", "pigeon"],
        &["build", "x.c", "-o", "lib9.so", "--name", "9"],
        &[
            "build",
            "x.c",
            "-o",
            "libx.so",
            "--target",
            "aarch64-unknown-linux-gnu",
            "--target",
            "aarch64-unknown-linux-gnu",
        ],
    ];
    for args in wrong {
        let done = bench.run(*args);
        assert_eq!(done.code, 2, "{args:?}: {}", done.err);
        assert!(!done.err.is_empty() && done.out.is_empty(), "{args:?}");
    }
    for command in COMMANDS {
        let met = command.is_empty() || wrong.iter().any(|args| args.first() == command.first());
        assert!(met, "no wrong command line of {command:?}");
    }
}

#[test]
fn a_failed_command_with_json_ends_standard_error_in_json() {
    let bench = Workbench::new();
    bench.write("empty", "");
    let failing: [(&[&str], i32, &str); 14] = [
        (&["build", "no.c", "-o", "libno.so"], 1, "no.c"),
        (&["inspect", "no.so"], 1, "no.so"),
        (&["serve", "--listen", "unix:s", "--data", "no"], 1, "cannot map `no`"),
        (&["serve", "--listen", "s"], 2, "write unix:PATH"),
        (&["inject", "no.so", "--to", "unix:s"], 1, "no.so"),
        (&["store", "--to", "unix:s"], 5, "unix:"),
        (&["stats", "--to", "unix:s"], 5, "unix:"),
        (&["export", "empty", "--to", "unix:s"], 5, "unix:"),
        (&["put", "no", "--to", "unix:s"], 1, "cannot read `no`"),
        (&["get", "empty"], 1, "holds no handle"),
        (&["evict", "empty"], 1, "holds no handle"),
        (&["transports", "--to", "unix:s"], 5, "unix:"),
        (&["key", "empty"], 1, "empty exists"),
        (&["demo", "no"], 1, "cannot read `no`"),
    ];
    for (args, code, words) in failing {
        let done = bench.run([args, &["--json"]].concat());
        assert_eq!((done.code, done.text()), (code, ""), "{args:?}: {}", done.err);
        let error = done.json_error();
        assert_eq!(error["exit"], code, "{args:?}: {error}");
        let text = error["error"].as_str().expect("a text");
        assert!(
            text.contains(words) && !text.starts_with("error") && !text.contains('\n'),
            "{args:?}: {text}"
        );
    }
    for command in COMMANDS.iter().filter(|command| !command.is_empty()) {
        // `doctor` fails on broken machines alone.
        let met = *command == ["doctor"] || failing.iter().any(|(args, ..)| args.first() == command.first());
        assert!(met, "no failure of {command:?}");
        let help = bench.run([command, &["--help"][..]].concat()).worked();
        assert!(help.text().contains("--json"), "{command:?}");
    }
}

#[test]
fn an_error_about_the_value_of_a_variable_names_the_variable() {
    let bench = Workbench::new();
    bench.write("x", "");
    bench.write("no.c", "int no;");
    let failing: [(&str, &str, &[&str], i32); 7] = [
        ("FARJUMP_TRANSPORT", "pigeon", &["inject", "x", "--to", "unix:s"], 2),
        ("FARJUMP_TRANSPORT", "pigeon", &["put", "x", "--to", "unix:s"], 2),
        ("FARJUMP_TRANSPORT", "pigeon", &["transports", "--to", "unix:s"], 2),
        ("FARJUMP_TRANSPORT", "verbs-send", &["demo", "no.c"], 1),
        ("FARJUMP_TRANSPORT", "shm", &["serve", "--listen", "tcp:127.0.0.1:0"], 2),
        ("FARJUMP_KEY_FILE", "no.key", &["stats", "--to", "tcp:127.0.0.1:1"], 1),
        ("FARJUMP_CC", "no-such-cc", &["build", "no.c", "-o", "libno.so"], 1),
    ];
    for (variable, value, args, code) in failing {
        let done = finish(bench.farjump().args(args).env(variable, value));
        done.fails(code, &[variable]);
        let by_json = finish(bench.farjump().args(args).arg("--json").env(variable, value));
        assert!(
            by_json.json_error()["error"].as_str().is_some_and(|text| text.contains(variable)),
            "{}",
            by_json.err
        );
    }
    // The option counts, and is named.
    let by_option = ["inject", "x", "--to", "unix:s", "--transport", "pigeon"];
    let done = finish(bench.farjump().args(by_option).env("FARJUMP_TRANSPORT", "pigeon"));
    done.fails(2, &["--transport: there is no transport `pigeon`"]);
    assert!(!done.err.contains("FARJUMP_TRANSPORT"), "{}", done.err);
    // An address has the name of a transport, and is no fault of the variable.
    let connecting = ["transports", "--to", "tcp:127.0.0.1:1"];
    let done = finish(bench.farjump().args(connecting).env("FARJUMP_TRANSPORT", "tcp"));
    done.fails(5, &["no target listens on tcp:127.0.0.1:1"]);
    assert!(!done.err.contains("FARJUMP_TRANSPORT"), "{}", done.err);
    // The text has the names of those that `ucx` stands for.
    let serving = bench.serve(&["--transport", "shm"]);
    let connecting = ["transports", "--to", &bench.address()];
    let done = finish(bench.farjump().args(connecting).env("FARJUMP_TRANSPORT", "ucx"));
    assert!(done.code != 0 && done.err.contains("FARJUMP_TRANSPORT=ucx: "), "{}", done.err);
    serving.stop().worked();
    let done = finish(bench.farjump().arg("transports").env("FARJUMP_LOG", "foo,debug")).worked();
    assert!(done.err.contains("warning: `foo` in FARJUMP_LOG selects nothing"), "{}", done.err);
}

#[test]
fn help_lists_exit_codes_variables_and_examples() {
    let bench = Workbench::new();
    let help = bench.run(["--help"]).worked();
    for part in ["Exit codes:", "  5  there is no target", "FARJUMP_LOG", "Examples:", "farjump demo"] {
        assert!(help.text().contains(part), "{part}");
    }
    assert!(!help.text().contains("demo-target"));
    for command in ["build", "inspect", "serve", "inject", "transports", "key", "doctor", "demo"] {
        let help = bench.run([command, "--help"]).worked();
        assert!(help.text().contains(&format!("Usage: farjump {command}")), "{command}");
    }
}

/// The commands of the program, and the program itself. Those of `perf` are in `benches/tests`.
const COMMANDS: [&[&str]; 15] = [
    &[],
    &["build"],
    &["inspect"],
    &["serve"],
    &["inject"],
    &["store"],
    &["stats"],
    &["put"],
    &["get"],
    &["evict"],
    &["export"],
    &["transports"],
    &["key"],
    &["doctor"],
    &["demo"],
];

#[test]
fn help_fits_the_terminal_and_its_lines_break_once() {
    let bench = Workbench::new();
    for command in COMMANDS {
        check_help_fits(|| {
            let mut farjump = bench.farjump();
            farjump.args(command);
            farjump
        });
    }
}

#[test]
fn the_device_is_an_option_of_the_commands_that_use_one() {
    let bench = Workbench::new();
    for command in COMMANDS {
        let help = bench.run([command, &["--help"]].concat()).worked();
        let users = ["serve", "inject", "transports", "build", "demo"];
        let uses = users.contains(command.first().unwrap_or(&""));
        assert_eq!(help.text().contains("--device <NAME[:PORT]>"), uses, "{command:?}");
    }
    assert_eq!(bench.run(["stats", "--to", "unix:s", "--device", "rxe0"]).code, 2);
    bench.run(["transports", "--device", "a:b:c"]).fails(2, &["--device"]);
}

#[test]
fn only_a_misspelt_variable_gets_a_warning_with_the_nearest_name() {
    let bench = Workbench::new();
    let done = finish(bench.farjump().arg("transports").env("FARJUMP_LOGS", "debug")).worked();
    assert!(done.err.starts_with("warning: ") && done.err.lines().count() == 1, "{}", done.err);
    assert!(
        done.err.contains("FARJUMP_LOGS") && done.err.contains("did you mean FARJUMP_LOG?"),
        "{}",
        done.err
    );
    for known in [
        "FARJUMP_LOG",
        "FARJUMP_CC",
        "FARJUMP_LD",
        "FARJUMP_TRANSPORT",
        "FARJUMP_DEVICE",
        "FARJUMP_VERBS",
        "FARJUMP_COMPILER",
        "FARJUMP_LIBLLVM",
        "FARJUMP_DEBUG",
    ] {
        let done = finish(bench.farjump().arg("transports").env(known, "error")).worked();
        assert_eq!(done.err, "", "{known}");
    }
}

#[test]
fn every_empty_variable_of_the_help_counts_as_unset() {
    let bench = Workbench::new();
    bench.write("prose", "don't panic");
    let help = bench.run(["--help"]).worked();
    let (_, list) = help.text().split_once("\nEnvironment").expect("it has a list of them");
    let variables: Vec<&str> = list
        .split(|letter: char| letter.is_whitespace() || ",:".contains(letter))
        .filter(|name| name.starts_with("FARJUMP_") || *name == "TMPDIR")
        .collect();
    for known in ["TMPDIR", "FARJUMP_LOG", "FARJUMP_KEY_FILE", "FARJUMP_MAX_PAYLOAD", "FARJUMP_MODE"] {
        assert!(variables.contains(&known), "{known}: {variables:?}");
    }
    let empty = || variables.iter().map(|variable| (variable, ""));
    let listing = |command: &mut std::process::Command| {
        let done = finish(command.args(["transports", "--json"])).worked();
        (done.text().to_owned(), done.err)
    };
    assert_eq!(listing(bench.farjump().envs(empty())), listing(&mut bench.farjump()));
    let demo = finish(bench.farjump().args(["demo", "prose"]).envs(empty())).worked();
    assert_eq!(demo.err, "");
    let library = bench.sample("crc32");
    let (serving, _) = start_target(bench.serving(&[]).envs(empty()));
    finish(bench.injecting(&library, &bench.address(), &[]).envs(empty())).worked();
    assert_eq!(serving.stop().worked().err.lines().count(), 1);
}

#[test]
fn the_log_follows_its_variable() {
    let bench = Workbench::new();
    let library = bench.sample("crc32");
    let (serving, _) = start_target(bench.serving(&[]).env("FARJUMP_LOG", "debug"));
    bench.inject(&library, &[]).worked();
    let done = serving.stop().worked();
    assert!(done.err.contains("debug: farjump::serve") && done.err.contains("has connected"), "{}", done.err);
}

#[test]
fn every_transport_is_listed_for_people_and_for_programs() {
    let bench = Workbench::new();
    let table = bench.run(["transports"]).worked();
    // The version of UCX stands behind their names.
    let rows: Vec<Vec<&str>> = table
        .text()
        .lines()
        .take_while(|line| !line.is_empty())
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows[0][0], "transport");
    assert_eq!(rows[1], ["shm", "yes", "yes", "stores", "1", "GiB", "this", "machine"]);
    let list = bench.json(["transports", "--json"]);
    let list = list.as_array().expect("a list");
    assert_eq!(list.len(), rows.len() - 1);
    for (backend, row) in list.iter().zip(&rows[1..]) {
        assert_eq!(backend["transport"], row[0]);
        assert_eq!(backend["compiled"], row[1] == "yes");
        assert_eq!(backend["usable"], row[2] == "yes");
        assert_eq!(backend["why"].is_string(), row[2] == "no", "{backend}");
    }
    assert_eq!(list[0]["arrives_by"], "stores");
    assert!(list[0]["largest_bytes"].as_u64() > Some(1 << 20));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let bench = Workbench::new();
    let (read, write) = std::io::pipe().expect("a pipe can be made");
    drop(read);
    let mut command = bench.farjump();
    command.arg("transports").stdout(OwnedFd::from(write)).stderr(Stdio::piped());
    let done = Process::spawn(&mut command).finish().worked();
    assert_eq!(done.err, "");
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let bench = Workbench::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("there is /dev/full");
    let mut command = bench.farjump();
    command.arg("transports").stdout(full).stderr(Stdio::piped());
    Process::spawn(&mut command).finish().fails(1, &["standard output"]);
}
