//! Sleeping in a tokio runtime on a descriptor of farjump's.

use std::future::Future;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Handle, Id};
use tokio::time::{Instant, Sleep};

use crate::{Error, SystemError, SystemOperation};

/// A descriptor and a timer in a runtime.
#[derive(Debug)]
pub(crate) struct Sleeper {
    runtime: Id,
    descriptor: AsyncFd<OwnedFd>,
    timer: Pin<Box<Sleep>>,
}

fn failed(source: io::Error) -> Error {
    SystemError { operation: SystemOperation::Watch, source }.into()
}

impl Sleeper {
    /// A sleeper on a duplicate of `descriptor` in the current runtime.
    pub(crate) fn new(descriptor: BorrowedFd<'_>) -> Result<Sleeper, Error> {
        let runtime = Handle::try_current().map_err(|error| failed(io::Error::other(error)))?.id();
        let own = descriptor.try_clone_to_owned().map_err(failed)?;
        // SAFETY: an `OwnedFd` is one open descriptor for all its life, and the `AsyncFd` owns it.
        let descriptor = unsafe { AsyncFd::register_with_interest(own, Interest::READABLE) }
            .map_err(|error| failed(error.into()))?;
        Ok(Sleeper { runtime, descriptor, timer: Box::pin(tokio::time::sleep(Duration::ZERO)) })
    }

    /// Returns whether the current runtime is the one that it was made in.
    pub(crate) fn is_of_this_runtime(&self) -> bool {
        Handle::try_current().is_ok_and(|current| current.id() == self.runtime)
    }

    /// Begins a sleep of at most `longest`.
    pub(crate) fn set(&mut self, longest: Duration) {
        self.timer.as_mut().reset(Instant::now() + longest);
    }

    /// Polls for the end of the sleep. Returns whether the descriptor ended it.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Result<Poll<bool>, Error> {
        match self.poll_descriptor(cx) {
            Poll::Ready(event) => event.map(|()| Poll::Ready(true)).map_err(failed),
            Poll::Pending => Ok(self.poll_timer(cx).map(|()| false)),
        }
    }

    /// Polls for the end of the sleep's time.
    pub(crate) fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.timer.as_mut().poll(cx)
    }

    /// Polls for readability of the descriptor. The runtime reports only once that a descriptor has become readable,
    /// and farjump's stays so as long as there is work: so this queries its state.
    fn poll_descriptor(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.descriptor.poll_read_ready(cx))?;
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            match poll(&mut [PollFd::new(self.descriptor.get_ref(), PollFlags::IN)], Some(&at_once)) {
                Ok(0) => ready.clear_ready(),
                Ok(_) => return Poll::Ready(Ok(())),
                Err(errno) => return Poll::Ready(Err(errno.into())),
            }
        }
    }

    /// Sleeps until the descriptor is readable, for `longest` at most. Returns whether it is readable.
    pub(crate) async fn sleep(&mut self, longest: Duration) -> Result<bool, Error> {
        self.set(longest);
        std::future::poll_fn(|cx| match self.poll(cx) {
            Ok(slept) => slept.map(Ok),
            Err(error) => Poll::Ready(Err(error)),
        })
        .await
    }
}
