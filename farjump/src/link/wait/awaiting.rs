//! Awaiting calls: [`Pending`] as a future, injecting with back-pressure, and driving a link.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use farjump_core::wait::Waiter;
use farjump_loader::Library;
use farjump_os::Owner;

use super::tasks::{Awaits, Tasks};
use crate::link::{Link, Pending, Reply, ReplyBytes, TURNS_TO_IDLE};
use crate::{Error, InjectError, SystemError, SystemOperation, WaitError};

/// Awaits the outcome, as [`Pending::wait`] does without a time limit. Use the runtime's: a future that is
/// dropped cancels the call.
///
/// Any number of calls of a link may be awaited at once, in one task or in several of one thread. With the
/// feature `tokio` a future that awaits drives its link inside a tokio runtime; with others run
/// [`Link::drive`] beside it. A future that has been polled should be polled on or dropped. While its task
/// does something else, it may delay other tasks of the link by up to a second; tasks of a [`SharedLink`]
/// never wait for each other.
///
/// A type that wraps a `Pending` delegates: it is [`Unpin`], so `Pin::new(&mut self.pending).poll(cx)` and
/// `Poll::map` suffice.
///
/// # Errors
/// As [`Pending::wait`], but for the deadline. [`WaitError::Taken`] after the outcome;
/// [`WaitError::NotDriven`]; [`SystemError`] when the runtime has no reactor for descriptors.
///
/// [`SharedLink`]: crate::link::SharedLink
/// [`SystemError`]: crate::SystemError
impl Future for Pending<'_> {
    type Output = Result<Reply, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Reply, Error>> {
        self.link.poll_outcome(self.token, cx).map(|outcome| outcome.map(Reply))
    }
}

impl Link {
    /// As [`Link::inject`], but awaits credit instead of blocking, without a time limit. The future does nothing until
    /// it is awaited; dropping it injects nothing.
    ///
    /// # Errors
    /// As [`Link::inject`], but for the time limit, and as awaiting a [`Pending`].
    pub async fn inject_async(&self, library: &Library, args: &[u8]) -> Result<Pending<'_>, Error> {
        self.with_credit(|| self.try_inject(library, args)).await
    }

    /// As [`Link::send`], and awaits credit as [`Link::inject_async`] does.
    ///
    /// # Errors
    /// As [`Link::inject_async`].
    pub async fn send_async(&self, library: &Library, args: &[u8]) -> Result<(), Error> {
        self.with_credit(|| self.try_send(library, args)).await
    }

    /// Drives the link for tasks on a runtime other than tokio: while this future is polled, calls can be
    /// awaited. `sleep` waits until [`Link::as_fd`] is readable, for the given time at most; the runtime's
    /// type for descriptors may own a duplicate of it. It may return early.
    ///
    /// ```no_run
    /// # use std::io; use std::time::Duration;
    /// # struct Async; impl Async {
    /// #     fn new(_: std::os::fd::OwnedFd) -> io::Result<Async> { Ok(Async) }
    /// #     async fn readable_for(&self, _: Duration) -> io::Result<()> { Ok(()) }
    /// # }
    /// # async fn first<T>(a: impl Future<Output = T>, _: impl Future) -> T { a.await }
    /// # async fn ask(link: farjump::Link, sum: farjump::Library) -> Result<(), Box<dyn std::error::Error>> {
    /// let descriptor = Async::new(link.as_fd()?.try_clone_to_owned()?)?; // the runtime's
    /// let driven = link.drive(async |longest| descriptor.readable_for(longest).await);
    /// let reply = first(link.inject(&sum, b"3 4 5")?, driven).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the target is gone, which fails all calls, or `sleep` fails.
    pub fn drive(
        &self,
        sleep: impl AsyncFnMut(Duration) -> io::Result<()>,
    ) -> impl Future<Output = Result<Infallible, Error>> {
        let mut inner = self.inner.borrow_mut();
        let (tasks, owner) = (Arc::clone(inner.tasks()), inner.owner());
        drop(inner);
        let driving = Driving::begin(&tasks, owner);
        async move {
            let driven = drive(&self, sleep).await;
            drop(driving);
            match driven {
                Ok(()) => unreachable!("a link that is borrowed is there"),
                Err(error) => Err(error),
            }
        }
    }

    /// Tries to send until a try does not fail for lack of credit.
    async fn with_credit<T>(&self, mut send: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
        let mut waits = AwaitsCredit { link: self, number: None };
        poll_fn(|cx| match send() {
            Err(Error::Inject(InjectError::Full)) => waits.poll(cx).map(Err),
            sent => Poll::Ready(sent),
        })
        .await
    }

    /// Polls for an outcome. If it has not come, registers the task to be woken when it comes.
    pub(in crate::link) fn poll_outcome(
        &self,
        token: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ReplyBytes, Error>> {
        self.cancel_dropped();
        if let Some(outcome) = self.inner.borrow_mut().take_outcome(token) {
            self.rest_if_unused();
            return Poll::Ready(outcome);
        }
        if let Some(outcome) = self.inner.borrow_mut().look_before_tasks(token).transpose() {
            return Poll::Ready(outcome);
        }
        let awaits = Awaits::Outcome(token as u16);
        let tasks = Arc::clone(self.inner.borrow_mut().tasks());
        let turn = self.look_for(&tasks, awaits, cx.waker());
        if let Some(outcome) = self.inner.borrow_mut().take_outcome(token) {
            self.rest_if_unused();
            return Poll::Ready(outcome);
        }
        let awaited = turn.and_then(|turn| {
            self.wake_on_outcome(token, cx)?;
            self.rest_for(&tasks, awaits, turn)
        });
        match awaited {
            Ok(()) => Poll::Pending,
            Err(error) => {
                let mut inner = self.inner.borrow_mut();
                let outcome = inner.take_outcome(token).unwrap_or(Err(error));
                inner.abandon(token);
                Poll::Ready(outcome)
            }
        }
    }

    fn wake_on_outcome(&self, token: u32, cx: &Context<'_>) -> Result<(), Error> {
        let mut inner = self.inner.borrow_mut();
        if inner.wake_on_outcome(token, cx.waker()) {
            return Ok(());
        }
        Err(WaitError::Taken { peer: inner.address().to_owned() }.into())
    }

    /// Cancels a call. If the link is in use, which a waker or a handler may cause, its next use cancels the call.
    pub(in crate::link) fn abandon(&self, token: u32) {
        match self.inner.try_borrow_mut() {
            Ok(mut inner) => inner.abandon(token),
            Err(_) => self.dropped.borrow_mut().push(token),
        }
        self.rest_if_unused();
    }

    /// Cancels calls that were dropped while the link was in use.
    pub(in crate::link) fn cancel_dropped(&self) {
        while let Some(token) = self.dropped.borrow_mut().pop() {
            self.inner.borrow_mut().abandon(token);
        }
    }
}

/// A future that awaits credit.
struct AwaitsCredit<'l> {
    link: &'l Link,
    /// Its number among such futures, once it waits.
    number: Option<u64>,
}

impl AwaitsCredit<'_> {
    /// Registers the task to be woken when there may be credit.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        self.link.cancel_dropped();
        let tasks = Arc::clone(self.link.inner.borrow_mut().tasks());
        let number = tasks.set_credit(self.number, cx.waker());
        self.number = Some(number);
        let awaits = Awaits::Credit(number);
        let turn = self.link.look_for(&tasks, awaits, cx.waker());
        match turn.and_then(|turn| self.link.rest_for(&tasks, awaits, turn)) {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(error),
        }
    }
}

impl Drop for AwaitsCredit<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number
            && let Ok(mut inner) = self.link.inner.try_borrow_mut()
        {
            let tasks = Arc::clone(inner.tasks());
            drop(inner);
            tasks.unregister_credit(number);
            self.link.rest_if_unused();
        }
    }
}

/// The next step of a task that awaits a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::link) enum Turn {
    /// Another task drives.
    Driven,
    /// The task looks again, after other tasks have had their turn.
    #[cfg(feature = "tokio")]
    Again,
    /// The task has nothing to do until the link is armed and an event comes.
    #[cfg(feature = "tokio")]
    Sleep,
}

#[cfg(not(feature = "tokio"))]
impl Link {
    /// Checks that a task drives the link.
    fn look_for(&self, tasks: &Arc<Tasks>, awaits: Awaits, waker: &Waker) -> Result<Turn, Error> {
        if tasks.may_drive(awaits, waker) != super::tasks::Drives::No {
            let peer = self.inner.borrow().address().to_owned();
            return Err(WaitError::NotDriven { peer }.into());
        }
        Ok(Turn::Driven)
    }

    fn rest_for(&self, _: &Arc<Tasks>, _: Awaits, _: Turn) -> Result<(), Error> {
        Ok(())
    }

    fn rest_if_unused(&self) {}
}

/// Marks a link as driven by its own task.
pub(in crate::link) struct Driving {
    tasks: Arc<Tasks>,
    owner: Owner,
}

impl Driving {
    pub(in crate::link) fn begin(tasks: &Arc<Tasks>, owner: Owner) -> Driving {
        tasks.add_driver().into_iter().for_each(Waker::wake);
        Driving { tasks: Arc::clone(tasks), owner }
    }
}

impl Drop for Driving {
    fn drop(&mut self) {
        // In a forked child a thread of the parent may have the lock of the tasks.
        if self.owner.is_this() {
            self.tasks.remove_driver().into_iter().for_each(Waker::wake);
        }
    }
}

/// Access to a link that a task drives.
pub(in crate::link) trait Driven {
    /// Runs `act` on the link; `None` if it is no longer there.
    fn with<R>(&self, act: impl FnOnce(&Link) -> R) -> Option<R>;

    /// Ends the sleep of the task.
    fn disarm(&self) {
        self.with(Link::disarm);
    }
}

impl Driven for &Link {
    fn with<R>(&self, act: impl FnOnce(&Link) -> R) -> Option<R> {
        Some(act(self))
    }
}

/// Polls a link and sleeps by `sleep`, until it fails or is no longer there.
pub(in crate::link) async fn drive<D: Driven>(
    driven: &D,
    mut sleep: impl AsyncFnMut(Duration) -> io::Result<()>,
) -> Result<(), Error> {
    let Some(mut waiter) = driven.with(|link| Waiter::new(link.inner.borrow().settings.task_wait)) else {
        return Ok(());
    };
    loop {
        let Some(turn) = driven.with(|link| link.turn_of_driver(&mut waiter)) else { return Ok(()) };
        match turn? {
            Some(longest) => {
                let armed = Armed(driven);
                let slept = sleep(longest).await;
                drop(armed);
                slept.map_err(|source| SystemError { operation: SystemOperation::Sleep, source })?;
            }
            None => yield_now().await,
        }
    }
}

impl Link {
    /// Takes one turn of the task that drives the link. Returns the longest time to sleep if it armed the link.
    fn turn_of_driver(&self, waiter: &mut Waiter) -> Result<Option<Duration>, Error> {
        self.cancel_dropped();
        let mut inner = self.inner.borrow_mut();
        let sleeps = inner.turn_of_task(waiter, TURNS_TO_IDLE);
        inner.tasks().wake_for_credit();
        drop(inner);
        if !sleeps? {
            return Ok(None);
        }
        waiter.reset();
        let longest = self.arm();
        if !matches!(longest, Ok(Some(_))) {
            self.disarm();
        }
        longest
    }
}

/// A link that is armed until this is dropped.
struct Armed<'d, D: Driven>(&'d D);

impl<D: Driven> Drop for Armed<'_, D> {
    fn drop(&mut self) {
        self.0.disarm();
    }
}

/// Lets other tasks have their turn.
async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}
