//! A link in the hands of a target: never waited on, and watched with everything else that the target sleeps on.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use farjump_core::channel::Armed;
use farjump_core::transport::TransportError;
use farjump_loader::Linked;

use super::Link;
use super::inner::Inner;
use super::pending_calls::ReplyBytes;
use crate::Error;

/// A link over which a target forwards what it was sent. Nothing of it waits.
#[derive(Debug)]
pub(crate) struct Outgoing(Inner);

impl Outgoing {
    pub(crate) fn new(link: Link) -> Outgoing {
        Outgoing(link.inner.into_inner())
    }

    /// Injects `linked` with `payload` as it is. Returns the token to ask [`Outgoing::take`] with, if a reply is wanted.
    ///
    /// # Errors
    /// [`Error::Full`] while there is no room; [`Error::TooLarge`], [`Error::TooManyFunctions`]; [`Error::PeerGone`] at
    /// the end of the link. Nothing was sent then.
    pub(crate) fn forward(
        &mut self,
        linked: &Arc<Linked>,
        payload: &[u8],
        wants_reply: bool,
    ) -> Result<u32, Error> {
        self.0.forward(linked, payload, wants_reply)
    }

    /// Takes what has come: frames, and now and then, or if `everywhere`, what is on the control connection.
    ///
    /// # Errors
    /// [`Error::PeerGone`] at the end of the link. The answers that came before are still there, and all other calls are
    /// answered with this error.
    pub(crate) fn look(&mut self, everywhere: bool) -> Result<(), Error> {
        self.0.look()?;
        if everywhere { self.0.look_everywhere() } else { Ok(()) }
    }

    /// The answer to a call, if it has come. The token is then void.
    pub(crate) fn take(&mut self, token: u32) -> Option<Result<ReplyBytes, Error>> {
        self.0.take(token)
    }

    /// Largest frame that can be sent, in bytes.
    pub(crate) fn max_frame(&self) -> usize {
        self.0.max_frame()
    }

    /// Prepares to sleep on both descriptors. [`Outgoing::disarm`] comes after it in any case.
    ///
    /// # Errors
    /// When the transport fails.
    pub(crate) fn arm(&mut self) -> Result<Armed, TransportError> {
        self.0.arm()
    }

    /// Awake again.
    ///
    /// # Errors
    /// When the transport fails.
    pub(crate) fn disarm(&mut self) -> Result<(), TransportError> {
        self.0.disarm()
    }

    /// The control connection's descriptor.
    pub(crate) fn control(&self) -> BorrowedFd<'_> {
        self.0.control()
    }

    /// Whether the control connection is to be watched for room to write.
    pub(crate) fn wants_write(&self) -> bool {
        self.0.wants_write()
    }

    /// Whether what the peer rings is to be watched for room to write.
    pub(crate) fn doorbell_wants_write(&self) -> bool {
        self.0.doorbell_wants_write()
    }

    /// Whether the control connection has ended, and is to be watched no longer.
    pub(crate) fn is_going(&self) -> bool {
        self.0.is_going()
    }

    /// What the peer rings, if its transport does; the same for the life of the link.
    pub(crate) fn doorbell(&self) -> Option<BorrowedFd<'_>> {
        self.0.doorbell()
    }
}
