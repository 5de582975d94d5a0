//! The cases: their names, and the run of each in a process of its own that is killed if it hangs.

pub(crate) mod cut_handshake;
pub(crate) mod full_queues;
pub(crate) mod limits;
pub(crate) mod links;
pub(crate) mod removal;
pub(crate) mod two_machines;
pub(crate) mod wrong_addresses;

use std::fs;
use std::io::{Read, Seek};
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::helper::LIBRARIES;
use crate::{Done, SKIPPED, Skip, command, forks, machine, objects};

/// Time in seconds after which a case counts as hanging. It is no statement about the case's usual time. The waits in
/// a case are shorter, as their errors name the missing event. The variable sets another time.
const LIMIT: (&str, u64) = ("VERBS_FAULTS_LIMIT", 270);
/// The variable with the other machine's address, for cases between two.
const THERE: &str = "VERBS_FAULTS_THERE";
/// If this variable is set, a claim about both backends is tested over only one of them, in turn. That halves the
/// time.
const IN_TURN: &str = "VERBS_FAULTS_IN_TURN";
/// Timeouts for a silent peer. `SOON` is one second, which is longer than the device of a busy machine pauses.
/// `SECONDS` is two or more. `LATE` is longer than any operation here takes.
const SOON: &str = "timeout=15,retries=6";
const SECONDS: &str = "timeout=16,retries=6";
/// A device repeats its request at the kernel's next tick.
const AGAIN: &str = "timeout=1,retries=6";
const LATE: &str = "timeout=20,retries=6";

const WRITE: &str = "verbs-write";
const SEND: &str = "verbs-send";

/// A fault, and its required consequences.
pub(crate) struct Case {
    /// The backend, and the claim.
    pub(crate) name: String,
    backend: &'static str,
    /// `FARJUMP_VERBS` of all its processes.
    options: &'static str,
    /// The other machine's address, for cases between two.
    there: Option<String>,
    run: fn(&str) -> Done,
}

/// The result of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// The claim holds.
    Ok,
    /// The claim does not hold, or there is no result.
    Failed,
    /// The case is not possible here.
    Skipped,
}

/// A row of the tables: the backends, their options, the claim, and the function that tests it.
type Row = (&'static [&'static str], &'static str, &'static str, fn(&str) -> Done);

const BOTH: &[&str] = &[WRITE, SEND];

/// The cases on one machine.
const ALONE: &[Row] = &[
    (
        &[WRITE],
        SOON,
        "a key that is not the peer's is refused by its device, and both endpoints see it",
        wrong_addresses::key,
    ),
    (
        &[WRITE],
        SOON,
        "a write beyond the peer's memory is refused by its device, and both endpoints see it",
        wrong_addresses::range,
    ),
    (BOTH, SOON, "a queue pair that does not exist is unreachable", wrong_addresses::missing_queue_pair),
    (
        BOTH,
        SOON,
        "a queue pair of somebody else's takes nothing, and its link goes on",
        wrong_addresses::foreign_queue_pair,
    ),
    (BOTH, SOON, "a peer that closed its end is unreachable", wrong_addresses::closed),
    (
        &[WRITE],
        LATE,
        "a full send queue says so, and loses nothing once the peer is there",
        full_queues::send_queue,
    ),
    (&[SEND], LATE, "a peer that does not look stops the sender, and gets all in turn", full_queues::window),
    (
        BOTH,
        SOON,
        "a sender beyond its credit learns that the peer has posted no receive",
        full_queues::beyond_grant,
    ),
    (&[SEND], SOON, "a sender beyond its credit takes no buffer of another link's", full_queues::of_others),
    (BOTH, LATE, "a target that stands still delays calls, and loses none", links::standing_still),
    (BOTH, SOON, "a target that is killed ends all calls, and a new one is reached", links::target_killed),
    (BOTH, SOON, "a source that is killed costs the others nothing", links::source_killed),
    (
        BOTH,
        SOON,
        "calls under way end when the own link goes down, and a new link works when it is up",
        links::down,
    ),
    (BOTH, SOON, "a stream that the own link cuts is accounted for call by call", links::down_in_the_middle),
    (
        BOTH,
        LATE,
        "endpoints that send nothing outlast their port going down and coming up",
        links::down_and_up,
    ),
    (
        BOTH,
        AGAIN,
        "reads that the device repeats harm no link though each loan ends with its read",
        objects::repeated,
    ),
    (
        BOTH,
        SOON,
        "a forked child uses none of its parent's links, and opens the device for its own",
        forks::forked,
    ),
    (
        BOTH,
        LATE,
        "an object whose reader gives up is claimed until the device has read it, and the next one comes",
        objects::given_up,
    ),
    (
        BOTH,
        SOON,
        "an owner that is killed while the device reads its memory ends the read",
        objects::owner_killed,
    ),
    (
        BOTH,
        LATE,
        "a peer that leaves a handshake at any point is named, and the target serves on",
        cut_handshake::left,
    ),
    (
        BOTH,
        LATE,
        "a peer that falls silent in a handshake is given up, and the target serves on",
        cut_handshake::silent,
    ),
    (BOTH, LATE, "more links than the device makes are refused, and the others go on", limits::objects),
    (
        BOTH,
        LATE,
        "too little memory that may be locked is named with the bytes and the command",
        limits::memory,
    ),
    (BOTH, LATE, "a user without privileges needs none", limits::user),
    (BOTH, LATE, "a device that may not be opened is named with the mend", limits::node),
    (BOTH, SOON, "the command line says what is wrong with a port that is down", command::down),
    (
        BOTH,
        SOON,
        "a device is taken away as soon as no link holds it, and a new one is found",
        removal::device,
    ),
    // Last, and for one backend. Soft-RoCE of 6.1 and of 6.12 never releases an interface that is removed while a
    // link of verbs-send is open (`unregister_netdevice: waiting for dummy0`). It keeps it even when the link and its
    // processes are gone. Over verbs-write that happens now and then, and is reported.
    (
        &[WRITE],
        SOON,
        "links end when the interface under the device goes, and work on a new one",
        removal::interface,
    ),
];

/// The cases between two machines.
const BETWEEN: &[Row] = &[
    (
        BOTH,
        SECONDS,
        "the peer's link going down ends calls as unreachable, and a new link works",
        two_machines::down,
    ),
    (
        BOTH,
        LATE,
        "a peer whose link was down for a while says what became of its end or goes on, and a new link works",
        two_machines::down_for_a_while,
    ),
    (
        BOTH,
        LATE,
        "an idle link to a peer whose link went down ends by the control connection",
        two_machines::down_idle,
    ),
];

fn cases(rows: &[Row], there: Option<&str>) -> Vec<Case> {
    let in_turn = std::env::var_os(IN_TURN).is_some();
    let of_row = |(number, &(backends, options, claim, run)): (usize, &Row)| {
        let there = there.map(str::to_owned);
        let backends = match backends.len() {
            both @ 2.. if in_turn => &backends[number % both..][..1],
            _ => backends,
        };
        let of = move |&backend: &&'static str| {
            let (name, there) = (format!("{backend}: {claim}"), there.clone());
            Case { name, backend, options, there, run }
        };
        backends.iter().map(of)
    };
    rows.iter().enumerate().flat_map(of_row).collect()
}

/// All cases on one machine.
pub(crate) fn alone() -> Vec<Case> {
    cases(ALONE, None)
}

/// All cases between this machine and the one where `verbs-faults --falls` listens at `address`.
pub(crate) fn between(address: &str) -> Vec<Case> {
    cases(BETWEEN, Some(address))
}

/// The other machine's address.
///
/// # Panics
/// In a case on one machine.
pub(crate) fn there() -> String {
    std::env::var(THERE).expect("a case between two machines has the address of the other")
}

/// Runs the case in this process.
pub(crate) fn run_here(name: &str) -> ExitCode {
    let Some(case) =
        cases(ALONE, None).into_iter().chain(cases(BETWEEN, None)).find(|case| case.name == name)
    else {
        eprintln!("there is no case {name:?}");
        return ExitCode::from(2);
    };
    // Unwinding releases the case's resources (an interface that is down, processes) also after a panic. The panic's
    // text is on standard error.
    match panic::catch_unwind(AssertUnwindSafe(|| (case.run)(case.backend))) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(Skip(why))) => {
            eprintln!("{why}");
            ExitCode::from(SKIPPED)
        }
        Err(_) => ExitCode::FAILURE,
    }
}

/// Runs the case in a process of its own, and prints its result. The process takes the injected functions from
/// `libraries`, unless they were built on another machine.
pub(crate) fn run_apart(case: &Case, libraries: Option<&Path>) -> Verdict {
    let name = &case.name;
    let begun = Instant::now();
    let ended = ended(case, libraries);
    let seconds = begun.elapsed().as_secs();
    let (verdict, why) = match ended {
        Ok((Some(0), _)) => (Verdict::Ok, String::new()),
        Ok((Some(code), said)) if code == i32::from(SKIPPED) => (Verdict::Skipped, said),
        Ok((_, said)) => (Verdict::Failed, said),
        Err(why) => (Verdict::Failed, why),
    };
    match verdict {
        Verdict::Ok => println!("ok {name} ({seconds} s)"),
        Verdict::Skipped => println!("skipped {name}: {}", why.trim_end()),
        Verdict::Failed => {
            // In one line, because summaries take one.
            println!("failed {name} ({seconds} s): {}", why.trim().replace('\n', "; "));
            machine::mend();
        }
    }
    verdict
}

/// Exit status and standard error of the case's process, or the reason why there are none.
fn ended(case: &Case, libraries: Option<&Path>) -> Result<(Option<i32>, String), String> {
    let failed = |error: std::io::Error| format!("this program, started again: {error}");
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(["--case", &case.name]).env(farjump_transports::verbs::OPTIONS_VARIABLE, case.options);
    if let Some(libraries) = libraries {
        command.env(LIBRARIES, libraries);
    }
    if let Some(there) = &case.there {
        command.env(THERE, there);
    }
    // A file and no pipe: a process that the case left behind would keep a pipe open.
    let mut stderr = tempfile::tempfile().map_err(failed)?;
    command.stdin(Stdio::null()).stderr(stderr.try_clone().map_err(failed)?);
    let mut child = Apart(command.spawn().map_err(failed)?);
    let end = Instant::now() + Duration::from_secs(limit());
    let status = loop {
        match child.0.try_wait().map_err(failed)? {
            None if Instant::now() < end => thread::sleep(Duration::from_millis(20)),
            status => break status,
        }
    };
    let mut said = Vec::new();
    stderr.rewind().and_then(|()| stderr.read_to_end(&mut said)).map_err(failed)?;
    let said = String::from_utf8_lossy(&said).into_owned();
    match status {
        Some(status) => Ok((status.code(), said)),
        None => Err(format!("it hangs, and stands at {}, having said: {said}", standing(child.0.id()))),
    }
}

/// The positions in the kernel of the threads of process `pid` and of its children, in one line. A position is the
/// call with its arguments (proc(5), `syscall`), and the functions in which it waits.
fn standing(pid: u32) -> String {
    let of = |folder: &Path, file: &str| fs::read_to_string(folder.join(file)).unwrap_or_default();
    let folders = |path: &str| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let parent = |process: &Path| {
        let status = of(process, "status");
        status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
    };
    let is_own = |process: &PathBuf| process.ends_with(pid.to_string()) || parent(process) == Some(pid);
    let mut lines = Vec::new();
    for process in folders("/proc").filter(is_own) {
        lines.push(of(&process, "cmdline").replace('\0', " ").trim().to_owned());
        for thread in folders(&format!("{}/task", process.display())) {
            let functions = of(&thread, "stack").replace("[<0>] ", "").replace('\n', " ");
            lines.push(format!(
                "  {}: {} {functions}",
                of(&thread, "comm").trim(),
                of(&thread, "syscall").trim()
            ));
        }
    }
    lines.join("; ")
}

fn limit() -> u64 {
    let (variable, unless_set) = LIMIT;
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(unless_set)
}

/// The process of a case, killed when dropped. Its own processes die with it.
struct Apart(Child);

impl Drop for Apart {
    fn drop(&mut self) {
        // Both calls fail if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
