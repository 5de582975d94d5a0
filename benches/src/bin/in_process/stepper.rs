//! The guard's stepper, without the guard: it counts instructions in a process of this program.

#[path = "../../guard/case.rs"]
mod case;
#[path = "../../guard/maps.rs"]
mod maps;
#[path = "../../guard/marker.rs"]
mod marker;
#[path = "../../guard/memory_operands.rs"]
mod memory_operands;
#[path = "../../guard/trace.rs"]
mod trace;

use std::process::Command;
use std::time::Duration;

use crate::Failure;
use case::MeasuredOperation;
use marker::Mark;

/// Turns in the shorter one of the two runs that are compared.
const TURNS: usize = 64;

/// Returns the instructions of one turn in the process of `command`, which calls [`counted`]: the difference
/// of two runs of different length. The kernel's instructions do not count.
pub(crate) fn instructions(command: &mut Command) -> Result<f64, Failure> {
    let turns = trace::run(command, "libcounter.so", Duration::ZERO)?;
    let of = |wanted| {
        let turn = turns.iter().find(|(operation, _)| *operation == wanted).map(|(_, turn)| turn);
        turn.map_or(0.0, |turn| (turn.own + turn.ifunc + turn.library + turn.system) as f64)
    };
    Ok((of(MeasuredOperation::Poll) - of(MeasuredOperation::Send)) / TURNS as f64)
}

/// Makes the counted turns, in the process that is stepped through.
pub(crate) fn counted(mut run: impl FnMut(usize)) {
    // The first turns differ: they include one-time setup.
    run(TURNS);
    Mark::Counting.here();
    Mark::Of(MeasuredOperation::Send).here();
    run(TURNS);
    Mark::Of(MeasuredOperation::Poll).here();
    run(2 * TURNS);
    Mark::Outside.here();
}
