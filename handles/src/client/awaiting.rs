//! Awaiting calls at objects, on any executor.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use farjump::{Library, Mode};

use crate::client::Client;
use crate::client::calls::{MAX_IN_FLIGHT, PendingCall, payload};
use crate::error::Error;
use crate::wire::handle::Handle;

/// Awaits the function's reply, without a time limit: use the executor's, or drop the call.
///
/// The call works on every executor. The first awaited call starts a thread of the client's, which wakes the tasks. The
/// thread sleeps while no call is awaited, and ends with the client.
///
/// # Errors
/// As [`Client::call`], except for the time limit. Also fails if the outcome was taken before.
impl Future for PendingCall {
    type Output = Result<Vec<u8>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Vec<u8>, Error>> {
        self.poll_task(cx)
    }
}

impl Client {
    /// As [`Client::call`], for tasks: awaits credit and the reply, without a time limit. The future does nothing until
    /// it is awaited. If it is dropped before its end, the function may still run. [`PendingCall`] describes the thread
    /// that wakes the task.
    ///
    /// The first call of a client connects a link for functions, which blocks the thread.
    ///
    /// # Errors
    /// As [`Client::call`], except for the time limit.
    pub async fn call_async(
        &self,
        library: &Library,
        handle: &Handle,
        args: &[u8],
    ) -> Result<Vec<u8>, Error> {
        self.begin(library, handle, args).await?.await
    }

    /// As [`Client::map`], for tasks: awaits all outcomes, as [`Client::call_async`] does one.
    ///
    /// # Errors
    /// Those of [`Client::call_async`], for each call.
    pub async fn map_async<'h>(
        &self,
        library: &Library,
        handles: impl IntoIterator<Item = &'h Handle>,
        args: &[u8],
    ) -> Vec<Result<Vec<u8>, Error>> {
        all_async(library, handles.into_iter().map(|handle| (Ok(self.clone()), handle)), args).await
    }

    async fn begin(&self, library: &Library, handle: &Handle, args: &[u8]) -> Result<PendingCall, Error> {
        self.0.check(handle)?;
        self.0.check_process()?;
        let calls = self.0.calls()?;
        let driven = calls.drive_by_thread()?;
        if let Some(request) = self.0.hold(handle) {
            calls.send_in(Mode::Local, &self.0.library, &request).await?;
        }
        let pending = Some(calls.inject(library, &payload(handle, args)).await?);
        Ok(PendingCall { client: self.clone(), pending, driven: Some(driven) })
    }
}

/// Returns the outcomes of calls at the owners of handles. At most [`MAX_IN_FLIGHT`] calls are under way at a time.
pub(crate) async fn all_async<'h>(
    library: &Library,
    handles: impl Iterator<Item = (Result<Client, Error>, &'h Handle)>,
    args: &[u8],
) -> Vec<Result<Vec<u8>, Error>> {
    let (mut begun, mut ended) = (VecDeque::new(), Vec::new());
    for (client, handle) in handles {
        begun.push_back(match client {
            Ok(client) => client.begin(library, handle, args).await,
            Err(error) => Err(error),
        });
        if begun.len() == MAX_IN_FLIGHT
            && let Some(first) = begun.pop_front()
        {
            ended.push(outcome(first).await);
        }
    }
    for call in begun {
        ended.push(outcome(call).await);
    }
    ended
}

async fn outcome(call: Result<PendingCall, Error>) -> Result<Vec<u8>, Error> {
    call?.await
}
