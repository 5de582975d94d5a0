//! A target as a task of a tokio runtime.

use farjump_core::wait::{Turn, Waiter};

use crate::Error;
use crate::serve::Target;
use crate::tokio::Sleeper;
use crate::wait::TURNS_TO_YIELD;

impl Target<'_> {
    /// As [`Target::run`], as a task of a tokio runtime: other tasks have their turn between two polls, and
    /// while the target sleeps. Ends when a [`Stopper`](crate::serve::Stopper) stops it. If the future is dropped, its
    /// links stay, and the target can be polled or run again.
    ///
    /// **An injected function runs inside this task, and its thread runs no other task until the function returns.**
    /// Run a target whose functions take long on its own thread ([`Target::spawn`]).
    ///
    /// # Errors
    /// As [`Target::poll`]. Outside a tokio runtime.
    ///
    /// # Panics
    /// When the runtime was built without its drivers for time or for input and output
    /// (`Builder::enable_all`).
    pub async fn run_async(&mut self) -> Result<(), Error> {
        self.check_process()?;
        let mut sleeper = Sleeper::new(self.as_fd())?;
        let mut waiter = Waiter::new(self.settings.wait);
        // A policy that never yields owns its processor.
        let yields = self.settings.wait.yields != 0;
        while !self.stopper.is_stopped() {
            if self.poll()? != 0 {
                waiter.reset();
                tokio::task::yield_now().await;
                continue;
            }
            match waiter.turn() {
                Turn::Again | Turn::Event if !waiter.turns().is_multiple_of(TURNS_TO_YIELD) => {}
                Turn::Again | Turn::Event | Turn::Yield => {
                    if yields && self.may_share_processor() {
                        std::thread::yield_now();
                    }
                    tokio::task::yield_now().await;
                }
                Turn::Sleep => {
                    let armed = Armed(self);
                    // An event is likely to have others behind it; a timer is not.
                    if match armed.0.arm()? {
                        Some(longest) => sleeper.sleep(longest).await?,
                        None => true,
                    } {
                        waiter.reset();
                    }
                }
            }
        }
        self.end_links("the target stops");
        Ok(())
    }
}

/// A target that is armed until this is dropped.
struct Armed<'t, 'a>(&'t mut Target<'a>);

impl Drop for Armed<'_, '_> {
    fn drop(&mut self) {
        self.0.disarm();
    }
}
