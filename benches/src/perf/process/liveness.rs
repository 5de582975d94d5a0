//! Waits for other processes, for a bounded time.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::program::failure::Failure;

/// Time limit of connecting: both endpoints touch each page of a mailbox, and 1 GiB has many.
pub(in crate::perf) const CONNECTING: Duration = Duration::from_secs(60);
/// Longest single sleep: a target's.
pub(in crate::perf) const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// Time limit of one call or message.
pub(in crate::perf) const PATIENCE: Duration = Duration::from_secs(20);
/// Polls between checks of the clock and of the other process.
const LOOKS: u32 = 1 << 14;

/// Checks that the other processes are there. While measuring each sends nothing on its socket unless it has
/// failed.
pub(in crate::perf) struct Watch {
    /// Sockets to the other processes, if there are any.
    sockets: Vec<OwnedFd>,
    failed: Cell<bool>,
}

impl Watch {
    /// Watches the process at the other end of `socket`.
    pub(in crate::perf) fn of(socket: &UnixStream) -> io::Result<Watch> {
        Ok(Watch { sockets: vec![socket.try_clone()?.into()], failed: Cell::new(false) })
    }

    /// Watches the clock alone.
    pub(in crate::perf) fn alone() -> Watch {
        Watch { sockets: Vec::new(), failed: Cell::new(false) }
    }

    /// Watches all processes that any of these watches.
    pub(in crate::perf) fn of_all<'a>(watches: impl IntoIterator<Item = &'a Watch>) -> io::Result<Watch> {
        let sockets = watches.into_iter().flat_map(|watch| &watch.sockets).map(OwnedFd::try_clone);
        Ok(Watch { sockets: sockets.collect::<io::Result<_>>()?, failed: Cell::new(false) })
    }

    /// Polls until `look` returns true.
    ///
    /// # Errors
    /// Those of `look`; one of the other processes is gone or has failed; a time-out.
    #[inline]
    pub(in crate::perf) fn until(
        &self,
        mut look: impl FnMut() -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let mut since = None;
        loop {
            for _ in 0..LOOKS {
                if look()? {
                    return Ok(());
                }
            }
            self.check_patience(&mut since)?;
        }
    }

    #[cold]
    fn check_patience(&self, since: &mut Option<Instant>) -> Result<(), Failure> {
        self.still_there()?;
        match since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            true => Err(Failure::new(format!(
                "no reply to a message within {} s: is one of the two processors busy with other work?",
                PATIENCE.as_secs()
            ))),
            false => Ok(()),
        }
    }

    /// # Errors
    /// One of the other processes is gone or has failed.
    #[cold]
    pub(in crate::perf) fn still_there(&self) -> Result<(), Failure> {
        if self.sockets.is_empty() {
            return Ok(());
        }
        let mut sockets: Vec<_> =
            self.sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        match poll(&mut sockets, Some(&Timespec::default())) {
            Ok(0) | Err(rustix::io::Errno::INTR) => Ok(()),
            _ => {
                self.failed.set(true);
                Err(Failure::new("the other process ended in the middle of a measurement"))
            }
        }
    }

    /// Returns whether one of the other processes was found gone or failed.
    pub(in crate::perf) fn has_failed(&self) -> bool {
        self.failed.get()
    }
}
