//! Helper processes of a case: this program again, with other rights.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use farjump::Library;
use farjump_fixtures::helper_process::HelperProcess;
use rustix::process::{Resource, Rlimit, setrlimit};

/// The folder with the injected functions, as in the conformance suite.
pub(crate) const LIBRARIES: &str = "CONFORMANCE_LIBRARIES";
/// Bytes that a process may lock; without it, its user's limit.
const LOCKED: &str = "VERBS_FAULTS_LOCKED";
/// A user without privileges.
pub(crate) const NOBODY: u32 = 1000;

/// The rights of a process.
#[derive(Default)]
pub(crate) struct As {
    /// Whether it is unprivileged, as [`NOBODY`].
    pub(crate) nobody: bool,
    /// Bytes of memory that it may lock.
    pub(crate) locks: Option<u64>,
    /// Its control group.
    pub(crate) group: Option<PathBuf>,
}

/// Starts a process that plays the role.
pub(crate) fn start(role: &[&str]) -> HelperProcess {
    start_as(&As::default(), role)
}

/// Starts a process with these rights that plays the role.
pub(crate) fn start_as(who: &As, role: &[&str]) -> HelperProcess {
    let program = std::env::current_exe().unwrap();
    let mut command = match &who.group {
        None => Command::new(program),
        Some(group) => {
            let mut command = Command::new("sh");
            let procs = group.join("cgroup.procs");
            command.args(["-c", "echo $$ >\"$0\" && exec \"$@\""]).arg(procs).arg(program);
            command
        }
    };
    command.arg("--play").args(role).env(LIBRARIES, libraries());
    if let Some(bytes) = who.locks {
        command.env(LOCKED, bytes.to_string());
    }
    if who.nobody {
        command.uid(NOBODY).gid(NOBODY);
    }
    HelperProcess::start(command)
}

/// Limits the memory that this process may lock as the one that started it asked for.
pub(crate) fn limit_locked() {
    if let Ok(bytes) = std::env::var(LOCKED) {
        let most = Some(bytes.parse().unwrap());
        setrlimit(Resource::Memlock, Rlimit { current: most, maximum: most }).unwrap();
    }
}

/// The folder with the injected functions of a case.
pub(crate) fn libraries() -> PathBuf {
    std::env::var_os(LIBRARIES).expect("cases get the folder of functions").into()
}

/// One of the injected functions.
pub(crate) fn library(name: &str) -> Library {
    Library::open(libraries().join(format!("lib{name}.so"))).unwrap()
}
