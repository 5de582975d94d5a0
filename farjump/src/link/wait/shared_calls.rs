//! Calls of tasks on a shared link.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use farjump_loader::Library;

use super::patience::Patience;
use super::shared::{Shared, SharedLink};
use super::threads::Ended;
use crate::link::{Link, Pending, Reply};
use crate::{Error, InjectError, Mode, WaitError};

impl SharedLink {
    /// As [`Link::inject_async`]. The call that is returned may be awaited by another task.
    ///
    /// # Errors
    /// As [`Link::inject_async`], and [`InjectError::Busy`].
    pub async fn inject(&self, library: &Library, args: &[u8]) -> Result<SharedPending, Error> {
        let token = self.with_credit(|link| link.try_inject(library, args).map(Pending::into_raw)).await?;
        Ok(self.pending_from_raw(token))
    }

    /// The pending call with this number ([`Pending::into_raw`]), of a call that was sent on the link in
    /// [`SharedLink::with`].
    pub fn pending_from_raw(&self, number: u32) -> SharedPending {
        SharedPending { link: Arc::clone(&self.0), token: number }
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

    async fn with_credit<T>(&self, mut send: impl FnMut(&Link) -> Result<T, Error>) -> Result<T, Error> {
        let mut waits = AwaitsCredit { shared: &self.0, number: None };
        poll_fn(|cx| {
            let locked = self.0.lock()?;
            match locked.look(&mut send)? {
                Err(Error::Inject(InjectError::Full)) => {
                    let tasks = &self.0.tasks;
                    if !tasks.has_own_task() {
                        let peer = self.0.address.to_string();
                        return Poll::Ready(Err(WaitError::NotDriven { peer }.into()));
                    }
                    waits.number = Some(tasks.set_credit(waits.number, cx.waker()));
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
    shared: &'s Shared,
    number: Option<u64>,
}

impl Drop for AwaitsCredit<'_> {
    fn drop(&mut self) {
        // In a forked child a thread of the parent may have the lock of the tasks.
        if let Some(number) = self.number
            && self.shared.is_own()
        {
            self.shared.tasks.unregister_credit(number);
        }
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

impl SharedPending {
    /// Waits for the outcome as [`SharedLink::wait`] does.
    ///
    /// # Errors
    /// As there. The call is then cancelled.
    pub fn wait(mut self, patience: &mut Patience<'_>) -> Result<Reply, Ended> {
        let reply = self.link.wait(self.token, patience)?;
        self.token = VOID;
        Ok(reply)
    }

    /// Polls once, without waiting: `None` if the outcome has not come.
    ///
    /// # Errors
    /// As awaiting it, and [`WaitError::Taken`] after the outcome.
    pub fn poll(&mut self) -> Result<Option<Reply>, Error> {
        let polled = self.link.hold(|held| held.look(None, |link| link.poll_raw(self.token)))???;
        if polled.is_some() {
            self.token = VOID;
        }
        Ok(polled)
    }
}

impl Future for SharedPending {
    type Output = Result<Reply, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Reply, Error>> {
        let this = &mut *self;
        let token = this.token;
        let polled = this.link.lock()?.look(|link| {
            let mut inner = link.inner.borrow_mut();
            Poll::Ready(match inner.poll_call(token) {
                Ok(Some(reply)) => Ok(Reply(reply)),
                Err(error) => Err(error),
                Ok(None) if !inner.is_owned(token) => {
                    Err(WaitError::Taken { peer: inner.address().to_owned() }.into())
                }
                Ok(None) if inner.tasks().has_own_task() => {
                    inner.wake_on_outcome(token, cx.waker());
                    return Poll::Pending;
                }
                Ok(None) => {
                    inner.abandon(token);
                    Err(WaitError::NotDriven { peer: inner.address().to_owned() }.into())
                }
            })
        })?;
        if polled.is_ready() {
            // Nothing is left to cancel.
            this.token = VOID;
        }
        polled
    }
}

impl Drop for SharedPending {
    fn drop(&mut self) {
        if self.token != VOID {
            self.link.abandon(self.token, None);
        }
    }
}
