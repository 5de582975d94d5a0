//! A UCX that is too old, impossible settings and a lack of memory: the message reaches the process that can
//! act, and the target serves the next source.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::workbench::{Done, Process, Workbench, finish, start_target};

/// The transport option of source and target.
const UCX_AM: [&str; 2] = ["--transport", "ucx-am"];

/// Variables that a process gets.
type Variables = [(&'static str, &'static str)];

/// Returns the reason why `ucx-am` cannot be used, from `farjump transports`; `None` if it can.
fn unusable(command: &mut Command) -> Option<String> {
    let shown = finish(command.args(["transports", "--json"])).worked().json();
    let backends = shown.as_array().expect("a list");
    let find = |name| backends.iter().find(|backend| backend["transport"] == name).expect("it is listed");
    assert_eq!(find("shm")["usable"], true, "{shown}");
    let am = find("ucx-am");
    match am["usable"] == true {
        true => None,
        false => Some(am["why"].as_str().expect("a reason").to_owned()),
    }
}

fn version(bench: &Workbench) -> String {
    let shown = bench.json(["transports", "--json", "--transport", "ucx-am"]);
    shown[0]["ucx"]["version"].as_str().expect("it is there").to_owned()
}

fn serve(bench: &Workbench, mut command: Command, variables: &Variables) -> Process {
    command.args(["serve", "--listen", &bench.address()]).args(UCX_AM).envs(variables.iter().copied());
    start_target(&mut command).0
}

fn inject(bench: &Workbench, mut command: Command, library: &Path, variables: &Variables) -> Done {
    command.arg("inject").arg(library).args(["--to", &bench.address(), "--timeout", "30s"]).args(UCX_AM);
    finish(command.envs(variables.iter().copied()))
}

#[test]
fn a_ucx_that_is_too_old_is_refused_and_shm_stays_usable() {
    let bench = Workbench::new();
    let older = "void ucp_get_version(unsigned *a, unsigned *b, unsigned *c) { *a = 1; *b = 12; *c = 0; }";
    let library = bench.plain_library("older", older);
    let folder = bench.path("folder");
    fs::create_dir(&folder).expect("a folder can be made");
    fs::copy(library, folder.join("libucp.so.0")).expect("a file can be copied");
    let why = unusable(bench.farjump().env("LD_LIBRARY_PATH", &folder)).expect("it is too old");
    assert!(why.contains("UCX 1.12.0 is installed and farjump needs 1.13 or later"), "{why}");
    let done = finish(bench.serving(&UCX_AM).env("LD_LIBRARY_PATH", &folder));
    assert_eq!(done.error(1), format!("transport `ucx-am` cannot be used: {why}"));
}

#[test]
fn a_target_fails_and_names_settings_that_leave_ucx_nothing() {
    let Some(bench) = Workbench::with_transport("ucx-am") else { return };
    let cases: [&Variables; 4] = [
        &[("UCX_TLS", "nonsense")],
        &[("UCX_TLS", "")],
        &[("UCX_TLS", "tcp"), ("UCX_NET_DEVICES", "nosuch")],
        &[("UCX_SEG_SIZE", "abc")],
    ];
    for variables in cases {
        let mut command = bench.serving(&["--ucx-tcp", UCX_AM[0], UCX_AM[1]]);
        let done = finish(command.envs(variables.iter().copied()));
        done.fails(1, &["check the variables UCX_TLS and UCX_NET_DEVICES"]);
        // UCX's own log names the value there too.
        assert!(done.err.contains("UCX  ERROR"), "{variables:?}: {}", done.err);
        assert!(!bench.path("s").exists());
    }
}

#[test]
fn a_source_with_useless_ucx_settings_fails_without_harm_to_others() {
    let Some(bench) = Workbench::with_transport("ucx-am") else { return };
    let library = bench.sample("counter");
    const NO_COMMON_TRANSPORT: &str =
        "no transport by which both processes reach each other (compare UCX_TLS and UCX_NET_DEVICES)";
    let cases: [(&Variables, &Variables, &str); 7] = [
        (&[], &[("UCX_TLS", "nonsense")], "cannot be used here (No such device)"),
        (&[], &[("UCX_TLS", "tcp,self")], "--ucx-tcp"),
        (&[], &[("UCX_MM_FIFO_SIZE", "3")], "UCX makes no worker: Invalid parameter"),
        (&[], &[("UCX_TLS", "self")], NO_COMMON_TRANSPORT),
        (&[("UCX_TLS", "posix,self")], &[("UCX_TLS", "sysv,tcp,self")], NO_COMMON_TRANSPORT),
        (&[("UCX_TLS", "posix")], &[("UCX_TLS", "sysv")], NO_COMMON_TRANSPORT),
        (&[], &[("UCX_UNIFIED_MODE", "y")], "UCX_UNIFIED_MODE"),
    ];
    for (target, source, words) in cases {
        let serving = serve(&bench, bench.farjump(), target);
        let done = inject(&bench, bench.farjump(), &library, source);
        assert!(done.error(1).contains(words), "{target:?} {source:?}: {}", done.err);
        inject(&bench, bench.farjump(), &library, &[]).worked();
        let stopped = serving.stop().worked();
        assert!(stopped.err.contains("stopped: 1 call, "), "{target:?} {source:?}: {}", stopped.err);
    }
}

#[test]
fn a_target_with_useless_ucx_settings_refuses_each_source_and_survives() {
    let Some(bench) = Workbench::with_transport("ucx-am") else { return };
    let library = bench.sample("counter");
    let cases: [(&Variables, i32, &str); 2] = [
        (&[("UCX_TLS", "self")], 1, "no transport by which both processes reach each other"),
        (&[("UCX_MM_FIFO_SIZE", "3")], 3, "refused: ucx-am: opening an endpoint: UCX makes no worker"),
    ];
    for (variables, code, words) in cases {
        let serving = serve(&bench, bench.farjump(), variables);
        for source in [&[][..], &[("UCX_TLS", "self")], &[]] {
            let done = inject(&bench, bench.farjump(), &library, source);
            assert!(done.error(code).contains(words), "{variables:?} {source:?}: {}", done.err);
        }
        serving.stop().worked();
    }
}

#[test]
fn ucx_settings_that_must_agree_may_be_set_alike() {
    let Some(bench) = Workbench::with_transport("ucx-am") else { return };
    let library = bench.sample("counter");
    let alike: &Variables = &[("UCX_MAX_EAGER_RAILS", "2"), ("UCX_RNDV_SCHEME", "am")];
    let serving = serve(&bench, bench.farjump(), alike);
    inject(&bench, bench.farjump(), &library, alike).worked();
    serving.stop().worked();
}

#[test]
fn ucx_logs_to_standard_error_or_to_the_users_file() {
    let Some(bench) = Workbench::with_transport("ucx-am") else { return };
    let chatty = || {
        let mut command = bench.farjump();
        command.args(["transports", "--json"]).env("UCX_TLS", "nonsense").env("UCX_LOG_LEVEL", "info");
        command
    };
    let said = "transport 'nonsense' is not available";
    let done = finish(chatty().env_remove("UCX_LOG_FILE")).worked();
    done.json();
    assert!(done.err.contains(said), "{}", done.err);

    let done = finish(chatty().env("UCX_LOG_FILE", bench.path("log"))).worked();
    done.json();
    assert_eq!(done.err, "");
    let log = fs::read_to_string(bench.path("log")).expect("UCX wrote it");
    assert!(log.contains(said), "{log}");
}

/// Returns `farjump` with another /dev/shm: a small file system with these options, filled up if `full`. `None`, with a
/// message, where this user may not mount one.
fn with_shm(bench: &Workbench, options: &str, full: bool) -> Option<Command> {
    const SCRIPT: &str = r#"
        mount -t tmpfs -o "$1" farjump-test /dev/shm || exit 77
        [ "$2" = false ] || dd if=/dev/zero of=/dev/shm/fill 2>/dev/null
        shift 2
        exec "$@""#;
    let command = || {
        let mut command = bench.program("unshare");
        command.args(["--mount", "sh", "-c", SCRIPT, "sh", options, &full.to_string()]);
        command
    };
    match command().arg("true").output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
            println!("skipped: /dev/shm cannot be another here, as root it can: {why}");
            return None;
        }
        Err(error) => {
            println!("skipped: /dev/shm cannot be another here: unshare: {error}");
            return None;
        }
    }
    let mut command = command();
    command.arg(env!("CARGO_BIN_EXE_farjump"));
    Some(command)
}

#[test]
fn code_runs_over_ucx_where_dev_shm_may_not_be_executed() {
    let Some(bench) = Workbench::with_transport("ucx-am") else { return };
    let library = bench.sample("crc32");
    let Some(target) = with_shm(&bench, "noexec,size=64m", false) else { return };
    let Some(source) = with_shm(&bench, "noexec,size=64m", false) else { return };
    let posix: &Variables = &[("UCX_TLS", "posix,self")];
    let serving = serve(&bench, target, posix);
    inject(&bench, source, &library, posix).worked();
    serving.stop().worked();
}

#[test]
fn ucx_copes_with_a_full_dev_shm_or_names_the_workaround() {
    let Some(bench) = Workbench::with_transport("ucx-am") else { return };
    let library = bench.sample("crc32");
    let full = || with_shm(&bench, "size=256k", true);
    let (Some(target), Some(source), Some(around)) = (full(), full(), full()) else { return };
    // From 1.14 on UCX checks the space when it starts, and falls back to other memory.
    let copes = !version(&bench).starts_with("1.13.");
    let named = |done: Done, code| {
        if copes {
            done.worked();
            return;
        }
        done.fails(code, &["/dev/shm", "UCX_TLS=^posix"]);
    };

    let serving = serve(&bench, target, &[]);
    for _ in 0..2 {
        named(inject(&bench, bench.farjump(), &library, &[]), 3);
    }
    serving.stop().worked();

    let serving = serve(&bench, bench.farjump(), &[]);
    named(inject(&bench, source, &library, &[]), 1);
    inject(&bench, bench.farjump(), &library, &[]).worked();
    // The workaround.
    inject(&bench, around, &library, &[("UCX_TLS", "^posix")]).worked();
    serving.stop().worked();
}

#[test]
fn in_noexec_memory_mode_in_place_is_refused_and_cached_works() {
    let Some(bench) = Workbench::with_transport("ucx-am") else { return };
    let library = bench.sample("crc32");
    let Some(mut target) = with_shm(&bench, "noexec,size=64m", false) else { return };
    target.args(["serve", "--listen", &bench.address(), "--transport", "ucx-put"]);
    target.args(["--modes", "cached,in-place"]).env("UCX_TLS", "posix,self");
    let (serving, _) = start_target(&mut target);
    let inject = |mode| {
        let more = ["--transport", "ucx-put", "--mode", mode];
        finish(bench.injecting(&library, &bench.address(), &more).env("UCX_TLS", "posix,self"))
    };
    let refused = inject("in-place");
    assert!(refused.error(3).contains("noexec (/dev/shm"), "{}", refused.err);
    inject("cached").worked();
    serving.stop().worked();
}
