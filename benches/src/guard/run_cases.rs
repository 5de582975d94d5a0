//! Counts all cases: each in a process of its own, so that none depends on earlier ones.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{env, fs, thread};

use super::case::{Case, is_by_device};
use super::record::{Record, Row};
use super::trace::Turns;
use super::{child, trace};
use crate::Failure;

/// Time in which a device delivers what was sent, also one that is emulated.
const DELIVERY: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) enum Found {
    Counted(Record),
    /// The reason why nothing can be counted on this machine.
    CannotCount(String),
}

/// Counts `turns` calls of each kind in each case, with `burden` turns of an empty loop in each operation. The
/// function is that of `built`, or is compiled here.
///
/// # Errors
/// A call fails, or there is no C compiler.
pub(crate) fn count(cases: &[Case], turns: u32, burden: u32, built: Option<&Path>) -> Result<Found, Failure> {
    let folder = tempfile::tempdir()?;
    let library = match built {
        Some(built) => built.to_owned(),
        None => {
            child::prepare(folder.path())?;
            folder.path().join(child::LIBRARY)
        }
    };
    let next = AtomicUsize::new(0);
    // A process and its tracer take turns, and so keep one processor busy. Load changes no count.
    let processors = farjump_os::resources::processors();
    let worker = || {
        let mut counted = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(number) else { return counted };
            let turns = count_one(case, turns, burden, &library);
            // The others' failures say no more than the first.
            if turns.is_err() {
                next.store(cases.len(), Ordering::Relaxed);
            }
            counted.push((number, turns.map_err(|error| Refused::of(case, &error))));
        }
    };
    let mut counted: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..processors.min(cases.len())).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a worker does not panic")).collect()
    });
    counted.sort_by_key(|(number, _)| *number);
    let mut rows = Vec::new();
    for (number, turns) in counted {
        let case = &cases[number];
        let turns = match turns {
            Ok(turns) => turns,
            Err(Refused::Tracing(why)) => return Ok(Found::CannotCount(why)),
            Err(Refused::Other(why)) => return Err(why.into()),
        };
        for operation in case.operations() {
            let of_it = turns.iter().filter(|(of, _)| *of == operation);
            rows.push(Row::of(case, operation, &of_it.map(|(_, turn)| *turn).collect::<Vec<_>>()));
        }
    }
    Ok(Found::Counted(Record::new(rows)))
}

/// Counts `turns` first calls over shared memory, each of code that the target has never seen.
///
/// # Errors
/// As [`count`], and where processes may not be traced.
pub(crate) fn count_first(turns: u32) -> Result<Turns, Failure> {
    let folder = tempfile::tempdir()?;
    child::prepare(folder.path())?;
    let count = child::prepare_first(folder.path(), turns)?.to_string();
    let mut command = counted()?;
    command.args(["counted", "shm", "cached", "8", "0", "0", "--first", &count]);
    command.current_dir(folder.path()).env_clear();
    trace::run(&mut command, child::LIBRARY, Duration::ZERO)
}

/// Returns the command of the counted process, which is this program. That process does not see the path.
///
/// # Errors
/// The system does not report the path.
fn counted() -> Result<Command, Failure> {
    let mut command = Command::new(env::current_exe()?);
    command.arg0("farjump_guard");
    Ok(command)
}

/// The reason why a case was not counted.
enum Refused {
    /// Processes may not be traced here.
    Tracing(String),
    Other(String),
}

impl Refused {
    fn of(case: &Case, error: &Failure) -> Refused {
        match trace::may_not(error) {
            true => Refused::Tracing(format!("processes may not be traced: {error}")),
            false => Refused::Other(format!("{case}: {error}")),
        }
    }
}

/// Counts one case, in a folder of its own, because the counted process listens there. `library` is copied
/// into it.
fn count_one(case: &Case, turns: u32, burden: u32, library: &Path) -> Result<Turns, Failure> {
    let folder = tempfile::tempdir()?;
    fs::copy(library, folder.path().join(child::LIBRARY))?;
    let mut command = counted()?;
    let numbers = [case.size.to_string(), turns.to_string(), burden.to_string()];
    command.args(["counted", &case.transport, case.mode.name()]).args(numbers);
    // The record was made without this user's settings of UCX.
    command.current_dir(folder.path()).env_clear();
    let delivery = if is_by_device(&case.transport) { DELIVERY } else { Duration::ZERO };
    trace::run(&mut command, child::LIBRARY, delivery)
}
