//! The UCX in use: that of `FARJUMP_UCX` or `--ucx`, and one newer than all versions tested with farjump.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use farjump_fixtures::workbench::built_beside;
use serde_json::Value;

use crate::workbench::{Workbench, finish, start_target};

const NAMED: &str = "FARJUMP_UCX";

/// Returns the row of `ucx-am` in `farjump transports`.
fn shown(command: &mut Command) -> Value {
    let list = finish(command.args(["transports", "--json"])).worked().json();
    let backends = list.as_array().expect("a list");
    backends.iter().find(|backend| backend["transport"] == "ucx-am").expect("it is listed").clone()
}

/// Returns the library of the UCX in use by default; `None`, with a message, without one.
fn installed(bench: &Workbench) -> Option<PathBuf> {
    let shown = shown(&mut bench.farjump());
    let file = shown["ucx"]["file"].as_str().map(PathBuf::from);
    if file.is_none() {
        println!("skipped: {}", shown["why"]);
    }
    file
}

/// Returns that UCX under a later version number: a library of its own among links to the rest.
fn newer(bench: &Workbench, library: &Path) -> PathBuf {
    let folder = bench.path("newer");
    fs::create_dir(&folder).expect("a folder can be made");
    for name in ["libucm.so.0", "libucs.so.0", "libuct.so.0"] {
        symlink(library.with_file_name(name), folder.join(name)).expect("a link can be made");
    }
    let code = "void ucp_get_version(unsigned *a, unsigned *b, unsigned *c) { *a = 1; *b = 99; *c = 0; }";
    let source = bench.write("newer.c", code);
    let newer = folder.join("libucp-newer.so");
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-Wl,--no-as-needed", "-o"]).arg(&newer).arg(source).arg(library);
    let rpath = format!("-Wl,-rpath,{}", library.parent().expect("a folder").display());
    finish(compile.arg(rpath)).worked();
    newer
}

#[test]
fn transports_and_doctor_show_the_library_that_farjump_ucx_names() {
    let bench = Workbench::new();
    let Some(library) = installed(&bench) else { return };
    let newer = newer(&bench, &library);
    let ucx = &shown(bench.farjump().env(NAMED, &newer))["ucx"];
    assert_eq!((ucx["version"].as_str(), ucx["file"].as_str()), (Some("1.99.0"), newer.to_str()));
    let done = finish(bench.farjump().arg("transports").env(NAMED, &newer)).worked();
    assert!(done.text().contains(&format!("\nUCX 1.99.0: {}\n", newer.display())), "{}", done.text());
    let doctor = finish(bench.farjump().args(["doctor"]).env(NAMED, &newer));
    let line = format!("UCX 1.99.0, {}", newer.display());
    assert!(doctor.text().contains(&line), "{}", doctor.text());
}

#[test]
fn an_untested_newer_ucx_works_and_each_process_warns_once() {
    let bench = Workbench::new();
    let Some(library) = installed(&bench) else { return };
    let newer = newer(&bench, &library);
    let said = |err: &str| err.lines().filter(|line| line.contains("is newer than")).count();
    let crc32 = bench.sample("crc32");
    for transport in ["ucx-am", "ucx-put"] {
        let over = ["--transport", transport];
        let (serving, _) = start_target(bench.serving(&over).env(NAMED, &newer));
        for _ in 0..2 {
            let mut inject = bench.injecting(&crc32, &bench.address(), &over);
            let done = finish(inject.env(NAMED, &newer)).worked();
            assert_eq!(said(&done.err), 1, "{}", done.err);
            assert!(done.err.contains("UCX 1.99.0"), "{}", done.err);
        }
        let stopped = serving.stop().worked();
        assert_eq!(said(&stopped.err), 1, "{}", stopped.err);
    }
    // A tested version causes no remark.
    let done = finish(bench.farjump().args(["transports", "--json"])).worked();
    assert_eq!(said(&done.err), 0, "{}", done.err);
}

#[test]
fn perf_uses_the_given_ucx_library_in_all_its_processes() {
    if built_beside(env!("CARGO_BIN_EXE_farjump"), "farjump-perf").is_none() {
        return;
    }
    if farjump_os::resources::processors() < 2 {
        return println!("skipped: there is one processor only");
    }
    let bench = Workbench::new();
    let Some(library) = installed(&bench) else { return };
    let newer = newer(&bench, &library);
    let perf = |library: &Path| {
        let mut command = bench.farjump();
        command.args(["perf", "latency", "--transports", "ucx-am", "--against", "ucx-am", "--json"]);
        command.args(["--rounds", "1", "--iterations", "20", "--warmup", "1", "--ucx"]).arg(library);
        finish(&mut command)
    };
    // Endpoints of different versions refuse each other.
    let done = perf(&newer).worked();
    let report = done.json();
    assert_eq!(report["machine"]["ucx"], "1.99.0");
    assert!(report["rows"][0]["ratio"].is_number(), "{report:#}");
    let absent = bench.path("absent.so");
    let done = perf(&absent);
    assert!(done.error(1).starts_with(&format!("--ucx: FARJUMP_UCX={}: No such file", absent.display())));
}

#[test]
fn a_ucx_version_that_cannot_use_tcp_on_lo_is_named() {
    let bench = Workbench::new();
    let version = shown(&mut bench.farjump())["ucx"]["version"].as_str().map(str::to_owned);
    let Some(version) = version.filter(|version| version.starts_with("1.20.")) else {
        return println!("skipped: only UCX 1.20.0 and 1.20.1 have the defect");
    };
    let over = ["--transport", "ucx-am", "--ucx-tcp"];
    let lo = [("UCX_TLS", "tcp,self"), ("UCX_NET_DEVICES", "lo")];
    let (serving, _) = start_target(bench.serving(&over).envs(lo));
    let mut inject = bench.injecting(&bench.sample("crc32"), &bench.address(), &over);
    let words = format!("UCX {version} cannot use TCP on lo, by a defect of its own");
    finish(inject.envs(lo)).fails(1, &[&words]);
    serving.stop().worked();
}
