//! Connecting without holding up a task.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::{Builder, JoinHandle};

use super::{Link, LinkBuilder};
use crate::{Error, SystemError, SystemOperation};

/// State of the thread that connects, for the task that awaits it.
#[derive(Debug, Default)]
struct End {
    has_come: bool,
    waker: Option<Waker>,
}

/// Reports the end when it is dropped, also by a panic.
struct Reports(Arc<Mutex<End>>);

impl Drop for Reports {
    fn drop(&mut self) {
        let mut end = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        end.has_come = true;
        let waker = end.waker.take();
        drop(end);
        waker.into_iter().for_each(Waker::wake);
    }
}

/// A thread that connects. If the future is dropped, the thread ends by itself within the builder's time limit,
/// and drops the link.
struct Connecting {
    end: Arc<Mutex<End>>,
    thread: Option<JoinHandle<Result<Link, Error>>>,
}

impl Future for Connecting {
    type Output = Result<Link, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Link, Error>> {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        if !end.has_come {
            end.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        drop(end);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(connected)) => Poll::Ready(connected),
            // Only a transport of the caller's can have panicked: continue its panic.
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Poll::Pending,
        }
    }
}

impl LinkBuilder {
    /// As [`LinkBuilder::connect`], for tasks of any runtime: another thread waits for the target meanwhile. Dropping
    /// the future abandons the connection: the thread runs for [`LinkBuilder::connect_timeout`] at most, then closes
    /// the link that it may have made.
    ///
    /// # Errors
    /// As [`LinkBuilder::connect`], and when the thread cannot be made.
    pub async fn connect_async(self) -> Result<Link, Error> {
        let end = Arc::new(Mutex::new(End::default()));
        let reports = Reports(Arc::clone(&end));
        let thread = Builder::new()
            .name("farjump-connect".into())
            .spawn(move || {
                let _reports = reports;
                self.connect()
            })
            .map_err(|source| SystemError { operation: SystemOperation::StartThread, source })?;
        Connecting { end, thread: Some(thread) }.await
    }

    /// Connects as [`LinkBuilder::connect_async`] does, and shares the link as [`SharedLink::spawn`] does.
    ///
    /// # Errors
    /// As those two.
    ///
    /// # Panics
    /// As [`SharedLink::spawn`].
    ///
    /// [`SharedLink::spawn`]: super::SharedLink::spawn
    #[cfg(feature = "tokio")]
    pub async fn connect_shared(self) -> Result<super::SharedLink, Error> {
        super::SharedLink::spawn(self.connect_async().await?)
    }
}

impl Link {
    /// As [`Link::connect`], for tasks; see [`LinkBuilder::connect_async`].
    ///
    /// # Errors
    /// As there.
    pub async fn connect_async(address: &str) -> Result<Link, Error> {
        Link::builder(address).connect_async().await
    }
}
