//! A descriptor of farjump's, for tasks to sleep on.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A duplicate of a descriptor that a target or a link has, for tasks to sleep on without borrowing it.
pub(crate) struct Wakeup(AsyncFd<OwnedFd>);

impl Wakeup {
    pub(crate) fn of(descriptor: BorrowedFd<'_>) -> io::Result<Wakeup> {
        let own = descriptor.try_clone_to_owned()?;
        // SAFETY: an `OwnedFd` is one open descriptor for all its life, and the `AsyncFd` owns it.
        Ok(Wakeup(unsafe { AsyncFd::register_with_interest(own, Interest::READABLE) }?))
    }

    /// Sleeps until the descriptor is readable, `longest` at most. The runtime reports once that a descriptor
    /// has become readable, and farjump's stays so as long as there is work: so its state is queried.
    pub(crate) async fn sleep(&self, longest: Duration) -> io::Result<()> {
        let woken = self.0.async_io(Interest::READABLE, |descriptor| {
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            match poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&at_once))? {
                0 => Err(io::ErrorKind::WouldBlock.into()),
                _ => Ok(()),
            }
        });
        tokio::time::timeout(longest, woken).await.unwrap_or(Ok(()))
    }
}
