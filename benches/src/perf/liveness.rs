//! Waits for the other process, for a bounded time.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::program::failure::Failure;

/// Time limit of connecting: both endpoints touch each page of a mailbox, and 1 GiB has many.
pub(super) const CONNECTING: Duration = Duration::from_secs(60);
/// Longest single sleep: a target's.
pub(super) const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// Time limit of one call or message.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// Polls between checks of the clock and of the other process.
const LOOKS: u32 = 1 << 14;

/// Checks that the other process is there. While measuring it sends nothing on the socket unless it has
/// failed.
pub(super) struct Watch {
    /// Socket to the other process, if there is one.
    socket: Option<OwnedFd>,
    failed: Cell<bool>,
}

impl Watch {
    /// Watches the process at the other end of `socket`.
    pub(super) fn of(socket: &UnixStream) -> io::Result<Watch> {
        Ok(Watch { socket: Some(socket.try_clone()?.into()), failed: Cell::new(false) })
    }

    /// Watches the clock alone.
    pub(super) fn alone() -> Watch {
        Watch { socket: None, failed: Cell::new(false) }
    }

    /// Polls until `look` returns true.
    ///
    /// # Errors
    /// Those of `look`; the other process is gone or has failed; a time-out.
    #[inline]
    pub(super) fn until(&self, mut look: impl FnMut() -> Result<bool, Failure>) -> Result<(), Failure> {
        let mut since = None;
        loop {
            for _ in 0..LOOKS {
                if look()? {
                    return Ok(());
                }
            }
            self.go_on(&mut since)?;
        }
    }

    #[cold]
    fn go_on(&self, since: &mut Option<Instant>) -> Result<(), Failure> {
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
    /// The other process is gone or has failed.
    #[cold]
    pub(super) fn still_there(&self) -> Result<(), Failure> {
        let Some(socket) = &self.socket else { return Ok(()) };
        let mut sockets = [PollFd::new(socket, PollFlags::IN)];
        match poll(&mut sockets, Some(&Timespec::default())) {
            Ok(0) | Err(rustix::io::Errno::INTR) => Ok(()),
            _ => {
                self.failed.set(true);
                Err(Failure::new("the other process ended in the middle of a measurement"))
            }
        }
    }

    /// Returns whether the other process was found gone or failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.get()
    }
}
