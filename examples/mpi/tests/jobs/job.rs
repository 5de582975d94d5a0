//! A job: some ranks of a program on this machine, which reach each other by shared memory and leave nothing
//! behind.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// Time limit of a job, in seconds; mpirun ends it then.
const LIMIT: u64 = 400;
/// Further time for mpirun to end a job.
const GRACE: Duration = Duration::from_secs(20);

/// Set for the ranks of a job.
pub(crate) const RANK: &str = "FARJUMP_MPI_TEST_RANK";

/// Options that keep Open MPI on this machine: the daemon's socket at the loopback interface, and nothing
/// started elsewhere.
const HERE: [[&str; 2]; 2] = [["plm", "isolated"], ["oob_tcp_if_include", "lo"]];

/// The path by which ranks reach each other.
pub(crate) struct Fabric {
    /// A component that Open MPI has to have for it, as `ompi_info --parsable` shows it.
    component: &'static str,
    /// Parameters of Open MPI.
    parameters: &'static [[&'static str; 2]],
    /// Environment with Open MPI.
    with_open_mpi: &'static [[&'static str; 2]],
    /// Environment with MPICH, which is Debian's over UCX.
    with_mpich: &'static [[&'static str; 2]],
}

/// By shared memory. Open MPI has windows in it. MPICH over UCX sends messages through it, which the owner of
/// a window carries out.
pub(crate) const MEMORY: Fabric = Fabric {
    component: "mca:btl:vader:",
    parameters: &[["pml", "ob1"], ["btl", "self,vader"]],
    with_open_mpi: &[["CONFORMANCE_PARTS", "channels,cached"]],
    with_mpich: &[
        ["UCX_TLS", "posix,self"],
        ["CONFORMANCE_VOLUME", "2000"],
        ["CONFORMANCE_PARTS", "channels,cached"],
    ],
};

/// By messages that the owner of a window carries out. The conformance suite does less: each write waits for
/// turns of the other rank, which may be asleep.
///
/// Open MPI takes UCX over sockets at the loopback interface. MPICH takes shared memory here, too: over
/// sockets MPICH 4.0.2 sometimes hangs in `MPI_Finalize`, where one rank waits without letting UCX answer the
/// other.
pub(crate) const MESSAGES: Fabric = Fabric {
    component: "mca:osc:ucx:",
    parameters: &[
        ["pml", "ucx"],
        ["osc", "ucx"],
        ["opal_common_ucx_tls", "any"],
        ["opal_common_ucx_devices", "any"],
    ],
    with_open_mpi: &[
        ["UCX_TLS", "tcp,self"],
        ["UCX_NET_DEVICES", "lo"],
        ["CONFORMANCE_VOLUME", "300"],
        ["CONFORMANCE_LIMIT", "200"],
        ["CONFORMANCE_PARTS", "channels,cached"],
        ["CONFORMANCE_THREADS", "no"],
    ],
    with_mpich: &[
        ["UCX_TLS", "posix,self"],
        ["CONFORMANCE_VOLUME", "300"],
        ["CONFORMANCE_PARTS", "channels,cached"],
        ["CONFORMANCE_THREADS", "no"],
    ],
};

/// The MPI that this program is linked with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mpi {
    Open,
    Mpich,
}

impl Mpi {
    /// Reads it from the library. `Err` names one that these tests cannot start.
    fn linked() -> Result<Mpi, String> {
        let version = mpi::environment::library_version().unwrap();
        match version.as_str() {
            text if text.starts_with("Open MPI") => Ok(Mpi::Open),
            text if text.starts_with("MPICH") => Ok(Mpi::Mpich),
            text => {
                Err(format!("this is linked with {text:?}, and jobs of Open MPI and MPICH alone are known"))
            }
        }
    }

    /// Finds its `mpirun`. Debian has one for each MPI, and `mpirun` is one of them.
    fn mpirun(self) -> Result<&'static str, String> {
        let (names, says, package) = match self {
            Mpi::Open => (["mpirun.openmpi", "mpirun"], ["(Open MPI)", "(OpenRTE)"], "openmpi-bin"),
            Mpi::Mpich => (["mpirun.mpich", "mpirun"], ["HYDRA"; 2], "mpich"),
        };
        let found = names.into_iter().find(|name| {
            let version = output_of(name, "--version");
            says.iter().any(|word| version.contains(word))
        });
        found.ok_or_else(|| format!("there is no mpirun of {self:?} (package {package})"))
    }
}

/// The end of a job.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// Standard output of all ranks.
    pub(crate) output: String,
    /// Standard error of all ranks.
    pub(crate) errors: String,
}

/// Runs `ranks` of `program`, which have to succeed, and returns their output. Prints the reason and returns
/// `None` where the MPI that this program is linked with has no mpirun here, or lacks `fabric`.
pub(crate) fn run(
    fabric: &Fabric,
    ranks: usize,
    program: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Option<String> {
    let Ended { status, output, errors } = run_to_its_end(fabric, ranks, &program, arguments)?;
    assert!(status.success(), "{}: {status}\n{errors}", program.as_ref().display());
    Some(output)
}

/// Runs `ranks` of `program`, which may fail.
pub(crate) fn run_to_its_end(
    fabric: &Fabric,
    ranks: usize,
    program: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Option<Ended> {
    let (mpi, mpirun) = match startable(fabric) {
        Ok(found) => found,
        Err(why) => {
            println!("skipped: {why}");
            return None;
        }
    };

    // Open MPI maps files of its folder. On a disk they would be written to it.
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let [output, errors] = ["said", "told"].map(|name| folder.path().join(name));

    let mut mpirun = Command::new(mpirun);
    match mpi {
        Mpi::Open => {
            mpirun.args(["--oversubscribe", "--bind-to", "none", "--timeout", &LIMIT.to_string()]);
            for [parameter, value] in HERE.iter().chain(fabric.parameters) {
                mpirun.args(["--mca", parameter, value]);
            }
            for parameter in ["osc_rdma_backing_directory", "btl_vader_backing_directory"] {
                mpirun.args(["--mca", parameter]).arg(folder.path());
            }
            // It rejects root unless both are set.
            mpirun.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        }
        // More ranks than processors are no problem, and ranks are not bound by default.
        Mpi::Mpich => {
            mpirun.args(["-launcher", "fork", "-iface", "lo"]).env("MPIEXEC_TIMEOUT", LIMIT.to_string());
        }
    }
    let variables = if mpi == Mpi::Open { fabric.with_open_mpi } else { fabric.with_mpich };
    mpirun.args(["-n", &ranks.to_string()]).arg(program.as_ref()).args(arguments);
    mpirun.env("TMPDIR", folder.path()).env(RANK, "yes");
    mpirun.envs(variables.iter().map(|[name, value]| (name, value)));
    mpirun.stdin(Stdio::null());
    mpirun.stdout(File::create(&output).unwrap()).stderr(File::create(&errors).unwrap()).process_group(0);
    let mut job = Job(mpirun.spawn().unwrap());
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = job.0.try_wait().unwrap() {
            break status;
        }
        assert!(begun.elapsed() < Duration::from_secs(LIMIT) + GRACE, "mpirun does not end");
        thread::sleep(Duration::from_millis(20));
    };
    let (output, errors) = (fs::read_to_string(output).unwrap(), fs::read_to_string(errors).unwrap());
    println!("{output}");
    Some(Ended { status, output, errors })
}

/// Returns whether a rank writes into another one's window by itself, over [`MEMORY`].
pub(crate) fn has_shared_windows() -> bool {
    Mpi::linked() == Ok(Mpi::Open)
}

/// Returns the MPI of such a job and its mpirun, or the reason why there can be none here.
fn startable(fabric: &Fabric) -> Result<(Mpi, &'static str), String> {
    let mpi = Mpi::linked()?;
    let mpirun = mpi.mpirun()?;
    if mpi == Mpi::Open && !output_of("ompi_info", "--parsable").contains(fabric.component) {
        return Err(format!("Open MPI lacks {}", fabric.component));
    }
    Ok((mpi, mpirun))
}

/// Returns the standard output of a program; nothing if there is no such program.
fn output_of(program: &str, argument: &str) -> String {
    let output = Command::new(program).arg(argument).stdin(Stdio::null()).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

/// A job, ended when dropped, with its ranks: mpirun ends them when it is ended by a signal.
struct Job(Child);

impl Drop for Job {
    fn drop(&mut self) {
        // Both signals fail if it has ended.
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
