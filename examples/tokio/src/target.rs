//! A target as a task.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};

use farjump::Target;

use crate::Failed;
use crate::descriptor::Wakeup;

/// Runs injected functions in the task that awaits this, until the future is dropped; counts its wakes in
/// `woken`.
///
/// Other tasks have their turn between two polls. While a function runs, its thread runs nothing else: long
/// functions need a target on a thread of its own (`Target::spawn`).
///
/// # Errors
/// When the system fails the target. Errors of sources end their own links only.
pub(crate) async fn serve(mut target: Target<'_>, woken: &AtomicU64) -> Result<Infallible, Failed> {
    let wakeup = Wakeup::of(target.as_fd())?;
    loop {
        while target.poll()? != 0 {
            tokio::task::yield_now().await;
        }
        let slept = match target.arm()? {
            Some(longest) => wakeup.sleep(longest).await,
            None => Ok(()),
        };
        target.disarm();
        slept?;
        woken.fetch_add(1, Ordering::Relaxed);
    }
}
