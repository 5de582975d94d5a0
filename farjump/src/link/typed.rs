//! Typed calls: those of [`TypedFunction`]s.

use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use farjump_loader::{Library, TypedArgs, TypedFunction, TypedReply};

use super::{Batch, Link, Pending, Reply, SharedLink, SharedPending};
use crate::{CallError, Error, ReplyLength};

impl Link {
    /// Calls `function`: [`Link::inject`] with arguments and a reply of its types. The payload is the value's own
    /// bytes, without a further copy or check.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), farjump::Error> {
    /// use std::time::Duration;
    /// use farjump::{Library, Link};
    ///
    /// let sum = Library::open("libsum.so")?.typed::<[u64], u64>()?;
    /// let link = Link::connect("unix:store.sock")?;
    /// let total: u64 = link.call(&sum, &[3, 4, 5])?.wait(Duration::from_secs(1))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Link::inject`].
    #[inline(always)]
    pub fn call<'c, A: TypedArgs + ?Sized, R: TypedReply + ?Sized>(
        &'c self,
        function: &'c TypedFunction<A, R>,
        args: &A,
    ) -> Result<TypedPending<'c, R>, Error> {
        let pending = self.inject(function.library(), args.payload())?;
        Ok(TypedPending::new(pending, function.library()))
    }

    /// As [`Link::call`], and awaits credit as [`Link::inject_async`] does.
    ///
    /// # Errors
    /// As [`Link::inject_async`].
    pub async fn call_async<'c, A: TypedArgs + ?Sized, R: TypedReply + ?Sized>(
        &'c self,
        function: &'c TypedFunction<A, R>,
        args: &A,
    ) -> Result<TypedPending<'c, R>, Error> {
        let pending = self.inject_async(function.library(), args.payload()).await?;
        Ok(TypedPending::new(pending, function.library()))
    }

    /// As [`Link::call`], but fails with [`crate::InjectError::Full`] instead of waiting for credit.
    ///
    /// # Errors
    /// As [`Link::try_inject`].
    #[inline(always)]
    pub fn try_call<'c, A: TypedArgs + ?Sized, R: TypedReply + ?Sized>(
        &'c self,
        function: &'c TypedFunction<A, R>,
        args: &A,
    ) -> Result<TypedPending<'c, R>, Error> {
        let pending = self.try_inject(function.library(), args.payload())?;
        Ok(TypedPending::new(pending, function.library()))
    }

    /// Calls `function` without requesting a reply: [`Link::send`] with arguments of its type.
    ///
    /// # Errors
    /// As [`Link::send`].
    #[inline(always)]
    pub fn call_one_way<A: TypedArgs + ?Sized, R: ?Sized>(
        &self,
        function: &TypedFunction<A, R>,
        args: &A,
    ) -> Result<(), Error> {
        self.send(function.library(), args.payload())
    }

    /// As [`Link::call_one_way`], but fails with [`crate::InjectError::Full`] instead of waiting for credit.
    ///
    /// # Errors
    /// As [`Link::try_send`].
    #[inline(always)]
    pub fn try_call_one_way<A: TypedArgs + ?Sized, R: ?Sized>(
        &self,
        function: &TypedFunction<A, R>,
        args: &A,
    ) -> Result<(), Error> {
        self.try_send(function.library(), args.payload())
    }
}

impl SharedLink {
    /// As [`Link::call_async`]. The call that is returned may be awaited by another task.
    ///
    /// # Errors
    /// As [`SharedLink::inject`].
    pub async fn call<A: TypedArgs + ?Sized, R: TypedReply + ?Sized>(
        &self,
        function: &TypedFunction<A, R>,
        args: &A,
    ) -> Result<SharedTypedPending<R>, Error> {
        let library = function.library().clone();
        let pending = self.inject(&library, args.payload()).await?;
        Ok(SharedTypedPending { pending, library, reply: PhantomData })
    }

    /// As [`Link::call_one_way`], and awaits credit.
    ///
    /// # Errors
    /// As [`SharedLink::send`].
    pub async fn call_one_way<A: TypedArgs + ?Sized, R: ?Sized>(
        &self,
        function: &TypedFunction<A, R>,
        args: &A,
    ) -> Result<(), Error> {
        self.send(function.library(), args.payload()).await
    }
}

impl Batch<'_> {
    /// Calls `function` without requesting a reply: [`Batch::send`] with arguments of its type.
    ///
    /// # Errors
    /// As [`Batch::send`].
    #[inline]
    pub fn call_one_way<A: TypedArgs + ?Sized, R: ?Sized>(
        &mut self,
        function: &TypedFunction<A, R>,
        args: &A,
    ) -> Result<(), Error> {
        self.send(function.library(), args.payload())
    }
}

/// A pending call whose reply is an `R`. Dropping it cancels it, as a [`Pending`].
#[derive(Debug)]
#[must_use = "dropping it abandons the call: use Link::call_one_way where no reply is wanted"]
pub struct TypedPending<'c, R: ?Sized> {
    pending: Pending<'c>,
    library: &'c Library,
    reply: PhantomData<fn() -> PhantomData<R>>,
}

impl<'c, R: ?Sized> TypedPending<'c, R> {
    #[inline(always)]
    pub(super) fn new(pending: Pending<'c>, library: &'c Library) -> Self {
        TypedPending { pending, library, reply: PhantomData }
    }
}

impl<'c, R: TypedReply + ?Sized> TypedPending<'c, R> {
    /// Waits for the reply: an `R`, or a `Vec<T>` if that is `[T]`.
    ///
    /// # Errors
    /// As [`Pending::wait`], and [`CallError::ReplyLength`] for a reply of another length than the type has.
    #[inline(always)]
    pub fn wait(self, timeout: Duration) -> Result<R::Value, Error> {
        value::<R>(&self.pending.wait(timeout)?, self.library)
    }

    /// Polls once, without waiting, as [`Pending::poll`].
    ///
    /// # Errors
    /// As [`TypedPending::wait`], but for the deadline.
    pub fn poll(&mut self) -> Result<Option<R::Value>, Error> {
        self.pending.poll()?.map(|reply| value::<R>(&reply, self.library)).transpose()
    }

    /// Cancels the call.
    pub fn cancel(self) {}

    /// The same call, whose reply is bytes.
    pub fn into_pending(self) -> Pending<'c> {
        self.pending
    }
}

/// Awaiting it awaits its [`Pending`], and returns the value.
impl<R: TypedReply + ?Sized> Future for TypedPending<'_, R> {
    type Output = Result<R::Value, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let library = self.library;
        Pin::new(&mut self.pending).poll(cx).map(|reply| value::<R>(&reply?, library))
    }
}

/// A pending call of a [`SharedLink`] whose reply is an `R`, to be awaited. Dropping it cancels it, as a
/// [`SharedPending`].
///
/// # Errors
/// As [`TypedPending::wait`], but for the deadline.
#[derive(Debug)]
#[must_use = "dropping it abandons the call: use SharedLink::call_one_way where no reply is wanted"]
pub struct SharedTypedPending<R: ?Sized> {
    pending: SharedPending,
    library: Library,
    reply: PhantomData<fn() -> PhantomData<R>>,
}

impl<R: TypedReply + ?Sized> Future for SharedTypedPending<R> {
    type Output = Result<R::Value, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        Pin::new(&mut this.pending).poll(cx).map(|reply| value::<R>(&reply?, &this.library))
    }
}

/// Returns the value of a reply.
#[inline(always)]
fn value<R: TypedReply + ?Sized>(reply: &Reply, library: &Library) -> Result<R::Value, Error> {
    R::from_reply(reply).ok_or_else(|| wrong_length::<R>(reply.len(), library))
}

#[cold]
fn wrong_length<R: TypedReply + ?Sized>(len: usize, library: &Library) -> Error {
    let type_name = std::any::type_name::<R>();
    let ifunc = library.name().to_owned();
    CallError::ReplyLength(Box::new(ReplyLength { ifunc, len, type_name, shape: R::SHAPE })).into()
}
