//! Counts all cases: each in a process of its own, so that none depends on earlier ones.

use std::env;
use std::process::Command;

use super::case::Case;
use super::record::{Record, Row};
use super::{child, trace};
use crate::Failure;

#[derive(Debug)]
pub(crate) enum Found {
    Counted(Record),
    /// The reason why nothing can be counted on this machine.
    CannotCount(String),
}

/// Counts `turns` calls of each kind in each case, with `burden` turns of an empty loop in each operation.
///
/// # Errors
/// A call fails, or there is no C compiler.
pub(crate) fn count(cases: &[Case], turns: u32, burden: u32) -> Result<Found, Failure> {
    let folder = tempfile::tempdir()?;
    child::prepare(folder.path())?;
    let own = env::current_exe()?;
    let mut rows = Vec::new();
    for case in cases {
        let mut command = Command::new(&own);
        let numbers = [case.size.to_string(), turns.to_string(), burden.to_string()];
        command.args(["counted", &case.transport, case.mode.name()]).args(numbers);
        // The record was made without this user's settings of UCX.
        command.current_dir(folder.path()).env_clear();
        let counted = match trace::run(&mut command, child::LIBRARY) {
            Ok(counted) => counted,
            Err(error) if trace::may_not(&error) => {
                return Ok(Found::CannotCount(format!("processes may not be traced: {error}")));
            }
            Err(error) => return Err(format!("{case}: {error}").into()),
        };
        for operation in case.operations() {
            let of_it = counted.iter().filter(|(of, _)| *of == operation);
            rows.push(Row::of(case, operation, &of_it.map(|(_, turn)| *turn).collect::<Vec<_>>()));
        }
    }
    Ok(Found::Counted(Record::new(rows)))
}
