//! The driver of a shared link: a task of any runtime, or a thread.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::awaiting::{Driven, Driving, drive};
use super::shared::{Shared, SharedLink};
use super::users::Driver;
use crate::link::Link;
use crate::{Error, SystemError, SystemOperation};

/// Keeps a thread driving a [`SharedLink`](crate::SharedLink) until the value is dropped.
#[derive(Debug)]
pub struct DrivenByThread(Arc<Driver>);

impl DrivenByThread {
    fn new(driver: Arc<Driver>) -> DrivenByThread {
        driver.add_user();
        DrivenByThread(driver)
    }
}

impl Drop for DrivenByThread {
    fn drop(&mut self) {
        // The driver notices this when it wakes, within a second.
        self.0.remove_user();
    }
}

impl SharedLink {
    /// Shares a link, and spawns the task that drives it on the current tokio runtime.
    ///
    /// # Errors
    /// Outside a tokio runtime, or when the system has no descriptor left.
    ///
    /// # Panics
    /// When the runtime was built without its drivers for time or for input and output
    /// (`Builder::enable_all`).
    #[cfg(feature = "tokio")]
    pub fn spawn(link: Link) -> Result<SharedLink, Error> {
        let mut sleeper = crate::tokio::Sleeper::new(link.as_fd()?)?;
        let shared = SharedLink::new(link);
        let driven = shared.drive(async move |longest| match sleeper.sleep(longest).await {
            Ok(_) => Ok(()),
            Err(error) => Err(io::Error::other(error)),
        });
        ::tokio::spawn(async move {
            if let Err(error) = driven.await {
                log::debug!("a shared link is no longer driven: {error}");
            }
        });
        Ok(shared)
    }

    /// Drives the link as [`Link::drive`] does. Spawn the future on the runtime. Calls may be awaited as soon as the
    /// future is made. It ends when no clone of the link and no pending call is left.
    ///
    /// # Errors
    /// As [`Link::drive`].
    pub fn drive<S: AsyncFnMut(Duration) -> io::Result<()>>(
        &self,
        sleep: S,
    ) -> impl Future<Output = Result<(), Error>> + use<S> {
        let shared = Arc::downgrade(&self.0);
        let driving = Driving::begin(&self.0.tasks, self.0.owner);
        async move {
            let _driving = driving;
            drive(&shared, sleep).await
        }
    }

    /// Makes a thread drive the link, for tasks that have no runtime to spawn [`SharedLink::drive`] on. Calls may be
    /// awaited while the result is kept. The first use starts the thread. It sleeps without a time limit while no
    /// result is kept, and ends with the link.
    ///
    /// # Errors
    /// [`SystemError`] when the system has no thread or descriptor left;
    /// [`WaitError::Closed`](crate::WaitError::Closed); [`WaitError::Forked`](crate::WaitError::Forked).
    pub fn drive_by_thread(&self) -> Result<DrivenByThread, Error> {
        self.0.check_process()?;
        if let Some(driven) = self.0.awake_driver() {
            return Ok(driven);
        }
        // Before the driver is locked: a caller that has the link's lock may want the driver.
        let descriptor = self.with(|link| {
            link.as_fd()?.try_clone_to_owned().map_err(failed(SystemOperation::MakeDescriptor))
        })??;
        let mut driver = self.0.driver.lock().unwrap_or_else(PoisonError::into_inner);
        let driver = match &*driver {
            Some(driver) if !driver.has_ended() => Arc::clone(driver),
            _ => Arc::clone(driver.insert(Driver::start(self, descriptor)?)),
        };
        Ok(DrivenByThread::new(driver))
    }
}

impl Shared {
    /// Keeps the thread awake that drives the link, if there is one.
    pub(super) fn awake_driver(&self) -> Option<DrivenByThread> {
        let driver = self.driver.lock().unwrap_or_else(PoisonError::into_inner);
        driver.as_ref().filter(|driver| !driver.has_ended()).cloned().map(DrivenByThread::new)
    }
}

impl Driven for Weak<Shared> {
    fn with<R>(&self, act: impl FnOnce(&Link) -> R) -> Option<R> {
        let shared = self.upgrade()?;
        // Only a handler that drops the future which runs the handler has the lock here. Then this leaves the link
        // alone. A closed link needs no driver.
        shared.hold(|held| held.look(None, act)).ok()?.ok()
    }

    fn disarm(&self) {
        if let Some(shared) = self.upgrade() {
            let _ = shared.hold(|held| held.disarm_driver());
        }
    }
}

fn failed(operation: SystemOperation) -> impl FnOnce(io::Error) -> Error {
    move |source| SystemError { operation, source }.into()
}

impl Driver {
    /// Starts the thread, for a link with this descriptor. Calls may be awaited while it has a user.
    fn start(link: &SharedLink, descriptor: OwnedFd) -> Result<Arc<Driver>, Error> {
        let driver = Arc::new(Driver::new(&link.0.tasks, link.0.owner)?);
        let (ends, shared) = (Ends(Arc::clone(&driver)), Arc::downgrade(&link.0));
        let run = move || {
            let driver = &ends.0;
            let mut driven =
                pin!(drive(&shared, async |longest| driver.sleep(&shared, &descriptor, longest)));
            // The future is pending only to let other threads have their turn: its sleep blocks.
            while driven.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
                std::thread::yield_now();
            }
        };
        let thread = std::thread::Builder::new().name("farjump-calls".to_owned());
        thread.spawn(run).map_err(failed(SystemOperation::StartThread))?;
        Ok(driver)
    }

    /// Sleeps until the link has an event, for `longest` at most, or without a limit while the driver has no user.
    /// Fails when the link is gone.
    fn sleep(&self, shared: &Weak<Shared>, descriptor: &OwnedFd, longest: Duration) -> io::Result<()> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(io::Error::other("the link was dropped"));
        }
        let event = PollFd::new(&*self.wake, PollFlags::IN);
        let slept = if !self.has_users() {
            // The target need not wake this thread: its next user does.
            if let Some(shared) = shared.upgrade() {
                let disarmed = shared.hold(|held| {
                    held.disarm_driver();
                    held.open().map(drop)
                });
                disarmed.and_then(|open| open).map_err(io::Error::other)?;
            }
            poll(&mut [event], None)
        } else {
            let longest = Timespec::try_from(longest).ok();
            poll(&mut [event, PollFd::new(&descriptor.as_fd(), PollFlags::IN)], longest.as_ref())
        };
        self.wake.quiet();
        match slept {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Notes the end of the thread, however it ends.
struct Ends(Arc<Driver>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.end();
    }
}
