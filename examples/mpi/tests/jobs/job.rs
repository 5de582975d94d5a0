//! A job: some ranks of a program on this machine, that reach each other by shared memory and leave nothing behind.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// How long a job may take, in seconds; mpirun ends it then.
const LIMIT: u64 = 400;
/// How much longer mpirun may take for that.
const GRACE: Duration = Duration::from_secs(20);

/// What keeps Open MPI to this machine: the daemon's socket at the loopback interface, and nothing started elsewhere.
const HERE: [[&str; 2]; 2] = [["plm", "isolated"], ["oob_tcp_if_include", "lo"]];

/// How ranks reach each other.
pub(crate) struct Way {
    /// A component that Open MPI has to have for it, as `ompi_info --parsable` shows it.
    component: &'static str,
    /// Parameters of Open MPI.
    parameters: &'static [[&'static str; 2]],
    /// Variables of the environment.
    variables: &'static [[&'static str; 2]],
}

/// By shared memory, which windows are in.
pub(crate) const MEMORY: Way =
    Way { component: "mca:btl:vader:", parameters: &[["pml", "ob1"], ["btl", "self,vader"]], variables: &[] };

/// By UCX over sockets at the loopback interface: what is written into a window is carried out by the rank that it belongs to.
/// Slow, so the conformance suite does less.
pub(crate) const SOCKETS: Way = Way {
    component: "mca:osc:ucx:",
    parameters: &[
        ["pml", "ucx"],
        ["osc", "ucx"],
        ["opal_common_ucx_tls", "any"],
        ["opal_common_ucx_devices", "any"],
    ],
    variables: &[
        ["UCX_TLS", "tcp,self"],
        ["UCX_NET_DEVICES", "lo"],
        ["CONFORMANCE_VOLUME", "300"],
        ["CONFORMANCE_LIMIT", "200"],
        ["CONFORMANCE_PARTS", "channels,cached"],
        ["CONFORMANCE_THREADS", "no"],
    ],
};

/// Runs `ranks` of `program`, which have to end well, and returns what they said. `None`, having told why, where there is no
/// mpirun of Open MPI's, or not this way.
pub(crate) fn run(
    way: &Way,
    ranks: usize,
    program: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Option<String> {
    if let Some(why) = lacking(way) {
        println!("skipped: {why}");
        return None;
    }

    // Open MPI maps files of its folder. On a disk they would be written to it.
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let [said, told] = ["said", "told"].map(|name| folder.path().join(name));

    let mut mpirun = Command::new("mpirun");
    mpirun.args(["--oversubscribe", "--bind-to", "none", "--timeout", &LIMIT.to_string()]);
    for [parameter, value] in HERE.iter().chain(way.parameters) {
        mpirun.args(["--mca", parameter, value]);
    }
    for parameter in ["osc_rdma_backing_directory", "btl_vader_backing_directory"] {
        mpirun.args(["--mca", parameter]).arg(folder.path());
    }
    mpirun.args(["-n", &ranks.to_string()]).arg(program.as_ref()).args(arguments);
    mpirun.env("TMPDIR", folder.path()).envs(way.variables.iter().map(|[name, value]| (name, value)));
    // It says no to root unless both are set.
    mpirun.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    mpirun.stdin(Stdio::null());
    mpirun.stdout(File::create(&said).unwrap()).stderr(File::create(&told).unwrap()).process_group(0);
    let mut job = Job(mpirun.spawn().unwrap());
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = job.0.try_wait().unwrap() {
            break status;
        }
        assert!(begun.elapsed() < Duration::from_secs(LIMIT) + GRACE, "mpirun does not end");
        thread::sleep(Duration::from_millis(20));
    };
    let (said, told) = (fs::read_to_string(said).unwrap(), fs::read_to_string(told).unwrap());
    println!("{said}");
    assert!(status.success(), "{}: {status}\n{told}", program.as_ref().display());
    Some(said)
}

/// Why there can be no such job here, if there cannot.
fn lacking(way: &Way) -> Option<&'static str> {
    let said = |program, argument| Command::new(program).arg(argument).stdin(Stdio::null()).output();
    let (Ok(version), Ok(components)) = (said("mpirun", "--version"), said("ompi_info", "--parsable")) else {
        return Some("there is no mpirun of Open MPI's (package openmpi-bin)");
    };
    let there = String::from_utf8_lossy(&components.stdout).contains(way.component);
    match version.stdout.starts_with(b"mpirun (Open MPI)") {
        false => Some("mpirun is not Open MPI's, whose options are used"),
        true => (!there).then_some("Open MPI lacks what is asked for here"),
    }
}

/// Ended when dropped, with its ranks, which mpirun takes along when it is asked to end.
struct Job(Child);

impl Drop for Job {
    fn drop(&mut self) {
        // Neither finds anybody where it has ended.
        let group = Pid::from_child(&self.0);
        for signal in [Signal::TERM, Signal::KILL] {
            let begun = Instant::now();
            let _ = if let Ok(None) = self.0.try_wait() { kill_process_group(group, signal) } else { return };
            while begun.elapsed() < GRACE && matches!(self.0.try_wait(), Ok(None)) {
                thread::sleep(Duration::from_millis(20));
            }
        }
    }
}
