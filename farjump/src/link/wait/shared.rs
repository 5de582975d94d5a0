//! Links that tasks on any thread share.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use farjump_loader::Library;

use super::awaiting::{Driven, Driving, drive};
use crate::link::{Link, Pending, Reply};
use crate::{Error, InjectError, Mode, WaitError};

/// A link that any number of tasks on any threads use, each by a clone of it.
///
/// Its futures are [`Send`]: they may be spawned on a runtime of several threads. A separate task drives it
/// ([`SharedLink::spawn`], [`SharedLink::drive`]), so no task waits for another one to be polled. Calls share a lock,
/// which they hold while they write a frame or look for frames, never during a wait. The link closes when the last
/// clone and the last pending call are dropped.
///
/// Tasks of one thread may also share a [`Link`] by reference, and pay for no lock.
#[derive(Clone, Debug)]
pub struct SharedLink(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    link: Mutex<Link>,
    /// The thread that holds the lock, by [`this_thread`]; 0 for none.
    holder: AtomicUsize,
    /// Calls that were dropped while another thread, or a caller of this one, held the lock.
    dropped: Mutex<Vec<u32>>,
}

/// A number that identifies this thread among those that run.
fn this_thread() -> usize {
    thread_local!(static HERE: Cell<u8> = const { Cell::new(0) });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

/// The link, while the lock is held.
struct Locked<'s> {
    link: MutexGuard<'s, Link>,
    holder: &'s AtomicUsize,
}

impl Deref for Locked<'_> {
    type Target = Link;
    fn deref(&self) -> &Link {
        &self.link
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.holder.store(0, Ordering::Relaxed);
    }
}

impl Shared {
    /// Waits for the lock, unless this thread has it: a handler or a payload routine then runs inside a call.
    fn lock(&self) -> Result<Locked<'_>, Error> {
        let link = match self.link.try_lock() {
            Ok(link) => link,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if self.holder.load(Ordering::Relaxed) == this_thread() => {
                return Err(InjectError::Busy.into());
            }
            Err(TryLockError::WouldBlock) => self.link.lock().unwrap_or_else(PoisonError::into_inner),
        };
        Ok(self.locked(link))
    }

    fn locked<'s>(&'s self, link: MutexGuard<'s, Link>) -> Locked<'s> {
        self.holder.store(this_thread(), Ordering::Relaxed);
        self.cancel_dropped(&link);
        Locked { link, holder: &self.holder }
    }

    fn cancel_dropped(&self, link: &Link) {
        let dropped = std::mem::take(&mut *self.dropped.lock().unwrap_or_else(PoisonError::into_inner));
        dropped.into_iter().for_each(|token| link.abandon(token));
    }

    /// Cancels a call: now, or when the lock is next taken.
    fn abandon(&self, token: u32) {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner).push(token);
        if let Ok(link) = self.link.try_lock() {
            drop(self.locked(link));
        }
    }
}

impl SharedLink {
    /// Shares a link that [`SharedLink::drive`] is going to drive, on a runtime other than tokio.
    pub fn new(link: Link) -> SharedLink {
        let (holder, dropped) = (AtomicUsize::new(0), Mutex::default());
        SharedLink(Arc::new(Shared { link: Mutex::new(link), holder, dropped }))
    }

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
        let driving = self.with(|link| Driving::begin(link.inner.borrow_mut().tasks()));
        async move {
            let _driving = driving?;
            drive(&shared, sleep).await
        }
    }

    /// As [`Link::inject_async`]. The call that is returned may be awaited by another task.
    ///
    /// # Errors
    /// As [`Link::inject_async`], and [`InjectError::Busy`].
    pub async fn inject(&self, library: &Library, args: &[u8]) -> Result<SharedPending, Error> {
        let token = self.with_credit(|link| link.try_inject(library, args).map(Pending::into_raw)).await?;
        Ok(SharedPending { link: Arc::clone(&self.0), token })
    }

    /// As [`Link::send_async`].
    ///
    /// # Errors
    /// As [`SharedLink::inject`].
    pub async fn send(&self, library: &Library, args: &[u8]) -> Result<(), Error> {
        self.with_credit(|link| link.try_send(library, args)).await
    }

    /// As [`SharedLink::send`], in another mode than the link's.
    ///
    /// # Errors
    /// As [`SharedLink::send`].
    pub async fn send_in(&self, mode: Mode, library: &Library, args: &[u8]) -> Result<(), Error> {
        self.with_credit(|link| link.try_send_in(mode, library, args)).await
    }

    /// Runs `act` on the link, for methods that do not wait: [`Link::stats`], [`Link::set_mode`]. Other tasks and their
    /// threads wait meanwhile: do not call a method that waits.
    ///
    /// # Errors
    /// [`InjectError::Busy`] from a handler of this link.
    pub fn with<R>(&self, act: impl FnOnce(&Link) -> R) -> Result<R, Error> {
        Ok(act(&*self.0.lock()?))
    }

    async fn with_credit<T>(&self, mut send: impl FnMut(&Link) -> Result<T, Error>) -> Result<T, Error> {
        let mut waits = AwaitsCredit { link: &self.0, number: None };
        poll_fn(|cx| {
            let link = self.0.lock()?;
            match send(&link) {
                Err(Error::Inject(InjectError::Full)) => {
                    let mut inner = link.inner.borrow_mut();
                    if !inner.tasks().has_own_task() {
                        let peer = inner.address().to_owned();
                        return Poll::Ready(Err(WaitError::NotDriven { peer }.into()));
                    }
                    waits.number = Some(inner.tasks().set_credit(waits.number, cx.waker()));
                    Poll::Pending
                }
                sent => Poll::Ready(sent),
            }
        })
        .await
    }
}

/// A future that awaits credit.
struct AwaitsCredit<'s> {
    link: &'s Shared,
    number: Option<u64>,
}

impl Drop for AwaitsCredit<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number
            && let Ok(link) = self.link.lock()
        {
            let tasks = Arc::clone(link.inner.borrow_mut().tasks());
            drop(link);
            tasks.unregister_credit(number);
        }
    }
}

impl Driven for Weak<Shared> {
    fn with<R>(&self, act: impl FnOnce(&Link) -> R) -> Option<R> {
        let shared = self.upgrade()?;
        // Only a handler that drops the future which runs the handler has the lock here. Then this leaves the link
        // alone.
        let link = shared.lock().ok()?;
        Some(act(&link))
    }
}

/// No call has this token.
const VOID: u32 = 0;

/// A pending call of a [`SharedLink`], to be awaited. Dropping it cancels it: the function still runs, and its
/// outcome is dropped.
///
/// # Errors
/// Those of awaiting a [`Pending`].
#[derive(Debug)]
#[must_use = "dropping it abandons the call: use SharedLink::send where no reply is wanted"]
pub struct SharedPending {
    link: Arc<Shared>,
    token: u32,
}

impl Future for SharedPending {
    type Output = Result<Reply, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Reply, Error>> {
        let this = &mut *self;
        let link = this.link.lock()?;
        let mut inner = link.inner.borrow_mut();
        let outcome = match inner.poll_call(this.token) {
            Ok(Some(reply)) => Ok(Reply(reply)),
            Err(error) => Err(error),
            Ok(None) if !inner.is_owned(this.token) => {
                Err(WaitError::Taken { peer: inner.address().to_owned() }.into())
            }
            Ok(None) if inner.tasks().has_own_task() => {
                inner.wake_on_outcome(this.token, cx.waker());
                return Poll::Pending;
            }
            Ok(None) => {
                inner.abandon(this.token);
                Err(WaitError::NotDriven { peer: inner.address().to_owned() }.into())
            }
        };
        // Nothing is left to cancel.
        this.token = VOID;
        Poll::Ready(outcome)
    }
}
impl Drop for SharedPending {
    fn drop(&mut self) {
        if self.token != VOID {
            self.link.abandon(self.token);
        }
    }
}
