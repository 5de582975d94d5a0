//! Orders to a second process whose first thread serves, or sleeps, until the order to end.

use std::io;
use std::thread;

use rustix::net::{Shutdown, shutdown};

use super::child_protocol::{Order, Talk};
use crate::program::failure::Failure;

/// Serves in this thread until `stop` is called, at the order to end or when the source's process is gone. Another
/// thread obeys all other orders. Returns true after the order to end; otherwise the source's process is gone.
///
/// # Errors
/// Those of `serve`, and of `obey`, whose error ends the thread and calls `stop`.
pub(in crate::perf) fn until_ended(
    talk: &mut Talk,
    mut obey: impl FnMut(Order, &mut Talk) -> Result<(), Failure> + Send,
    stop: impl FnOnce() + Send,
    serve: impl FnOnce() -> Result<(), Failure>,
) -> Result<bool, Failure> {
    thread::scope(|scope| {
        let ended = scope.spawn(move || {
            let ended = loop {
                match talk.hear() {
                    Ok(Some(Order::End)) => break Ok(true),
                    Ok(Some(order)) => {
                        if let Err(failure) = obey(order, talk) {
                            break Err(failure);
                        }
                    }
                    Ok(None) => break Ok(false),
                    Err(failure) => break Err(failure),
                }
            };
            stop();
            ended
        });
        let served = serve();
        if served.is_err() {
            // No order to end will come: this wakes the other thread, which waits on standard input.
            let _ = shutdown(io::stdin(), Shutdown::Read);
        }
        let ended = ended.join().unwrap_or(Ok(false));
        served?;
        ended
    })
}
