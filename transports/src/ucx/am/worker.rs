//! A worker of `ucx-am`, and its inbox.

use std::os::fd::RawFd;
use std::ptr::NonNull;

use farjump_core::frame::LINE;
use farjump_core::transport::{BorrowedFd, Cause, OpenRequest};

use super::inbox::Inbox;
use super::listeners::{self, Listeners};
use crate::ucx::context::Context;
use crate::ucx::tls;
use crate::ucx::worker::Worker;

/// A worker that receives frames.
pub(super) struct AmWorker {
    /// Owned, but behind a pointer because callbacks have it too.
    inbox: NonNull<Inbox>,
    /// The descriptor to sleep on: the worker's, open as long as the worker.
    descriptor: RawFd,
    /// The worker's address.
    pub(super) address: Vec<u8>,
    /// The sockets on which UCX accepts connections, if the worker has TCP.
    listeners: Option<Listeners>,
}

// SAFETY: the inbox belongs only to this value; its worker's callbacks run on the thread that uses the value.
unsafe impl Send for AmWorker {}

impl AmWorker {
    /// Opens a worker of `context`, which has TCP if `tcp`, with its inbox.
    pub(super) fn open(
        context: &'static Context,
        request: &OpenRequest,
        tcp: bool,
    ) -> Result<AmWorker, Cause> {
        let before = tcp.then(listeners::listening).transpose().map_err(Cause::System)?;
        let worker = Worker::create(context)?;
        let (descriptor, address) = (worker.descriptor()?, worker.address()?);
        let listeners = match before {
            Some(before) => Listeners::of(&before, &address, || context.has_transport(tls::is_tcp))?,
            None => None,
        };
        let inbox = Inbox::new(worker, request.max_frame.max(LINE), window(request));
        let inbox = NonNull::from(Box::leak(Box::new(inbox)));
        let worker = AmWorker { inbox, descriptor, address, listeners };
        // SAFETY: the inbox stays in its box until `drop` has ended the worker.
        unsafe { worker.inbox().listen()? };
        Ok(worker)
    }

    /// Returns the descriptor to sleep on.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the worker keeps it open (`Worker::descriptor`), and lives in the inbox of this value.
        unsafe { BorrowedFd::borrow_raw(self.descriptor) }
    }

    /// Returns whether sockets are open that are to be closed once the peer is connected.
    #[inline]
    pub(super) fn has_listeners(&self) -> bool {
        self.listeners.is_some()
    }

    /// Returns the addresses of these sockets.
    #[cfg(test)]
    pub(super) fn ports(&self) -> Vec<std::net::SocketAddr> {
        self.listeners.iter().flat_map(Listeners::addresses).collect()
    }

    /// Closes these sockets if that is due. If one stays open, the link has failed.
    #[cold]
    pub(super) fn tend_listeners(&mut self) {
        let is_due = self.inbox().has_heard();
        match self.listeners.as_mut().filter(|_| is_due).map(Listeners::close) {
            Some(Ok(true)) => self.listeners = None,
            Some(Err(cause)) => self.inbox().failed(cause),
            Some(Ok(false)) | None => {}
        }
    }

    #[inline]
    pub(super) fn inbox(&self) -> &Inbox {
        // SAFETY: the inbox's box lives as long as this value; only shared references to it are ever made.
        unsafe { self.inbox.as_ref() }
    }
}

impl Drop for AmWorker {
    fn drop(&mut self) {
        self.inbox().clear();
        // SAFETY: from the box that `open` leaked. The worker is the inbox's first field, so it ends before
        // the data of its callbacks and the buffers that UCX fetches into.
        drop(unsafe { Box::from_raw(self.inbox.as_ptr()) });
    }
}

/// Returns the bytes that an endpoint for this request keeps undelivered.
pub(super) fn window(request: &OpenRequest) -> u64 {
    request.region_len.max(LINE) as u64
}
