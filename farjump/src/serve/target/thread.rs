//! Stopping a target, and running one on a thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::thread::JoinHandleExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, eventfd};

use crate::error::system;
use crate::serve::Target;
use crate::{Error, SystemError, SystemOperation};

/// Stops a target's [`Target::run`], even if it sleeps. May be cloned, sent to other threads and used in a
/// signal handler.
#[derive(Clone, Debug)]
pub struct Stopper {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    stopped: AtomicBool,
    wake: OwnedFd,
}

impl Stopper {
    pub(in crate::serve) fn new() -> Result<Stopper, Error> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(system(SystemOperation::MakeDescriptor))?;
        Ok(Stopper { inner: Arc::new(Inner { stopped: AtomicBool::new(false), wake }) })
    }

    /// Stops the target after its current frames.
    pub fn stop(&self) {
        self.inner.stopped.store(true, Ordering::Release);
        // The write fails only if the counter is full, and then the target is awake.
        let _ = rustix::io::write(&self.inner.wake, &1_u64.to_ne_bytes());
    }

    /// Returns whether [`Stopper::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        self.inner.stopped.load(Ordering::Acquire)
    }

    pub(in crate::serve) fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.wake.as_fd()
    }
}

/// A target on its own thread. Dropping it stops the target and waits for it.
#[derive(Debug)]
pub struct TargetThread {
    stopper: Stopper,
    thread: Option<JoinHandle<Result<Target<'static>, Error>>>,
}

impl TargetThread {
    pub(in crate::serve) fn start(mut target: Target<'static>) -> Result<TargetThread, Error> {
        let stopper = target.stopper();
        let thread = std::thread::Builder::new()
            .name("farjump-target".into())
            .spawn(move || target.run().map(|()| target))
            .map_err(|source| SystemError { operation: SystemOperation::StartThread, source })?;
        Ok(TargetThread { stopper, thread: Some(thread) })
    }

    /// Stops the target and returns it, with its statistics.
    ///
    /// # Errors
    /// The error that ended the target before it was stopped.
    pub fn stop(mut self) -> Result<Target<'static>, Error> {
        self.stopper.stop();
        self.join()
    }

    /// A handle that stops the target without waiting for it.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Returns whether the caller is this thread, which cannot wait for its own end.
    pub fn is_current(&self) -> bool {
        // SAFETY: it only reads the thread's own number. `std::thread::current` would keep memory of the calling thread's, which
        // checkers of memory report.
        let own = unsafe { libc::pthread_self() };
        self.thread.as_ref().is_some_and(|thread| thread.as_pthread_t() == own)
    }

    fn join(&mut self) -> Result<Target<'static>, Error> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(target)) => target,
            // Only a handler of the caller's can have panicked: continue its panic.
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => unreachable!("joined once, by value or on drop"),
        }
    }
}

impl Drop for TargetThread {
    fn drop(&mut self) {
        self.stopper.stop();
        // A second panic while one is under way would abort the process: then the thread ends by itself.
        if self.thread.is_some()
            && !std::thread::panicking()
            && let Err(error) = self.join()
        {
            log::warn!("the target had ended: {error}");
        }
    }
}
