//! A link driven by a target: never waited on, and watched along with everything else that wakes the target.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use farjump_core::channel::Armed;
use farjump_core::transport::TransportError;
use farjump_loader::LinkedImage;

use super::Link;
use super::inner::Inner;
use super::pending_calls::ReplyBytes;
use crate::Error;

/// A link over which a target forwards calls. None of its methods waits.
#[derive(Debug)]
pub(crate) struct Outgoing(Inner);

impl Outgoing {
    pub(crate) fn new(link: Link) -> Outgoing {
        Outgoing(link.inner.into_inner())
    }

    /// Injects `linked` with `payload` as it is. Returns the token for [`Outgoing::take`], if a reply is
    /// wanted.
    ///
    /// # Errors
    /// [`crate::InjectError::Full`] while there is no credit; [`crate::InjectError::TooLarge`],
    /// [`crate::InjectError::TooManyFunctions`]; [`crate::WaitError::PeerGone`] at the end of the link.
    /// Nothing was sent then.
    pub(crate) fn forward(
        &mut self,
        linked: &Arc<LinkedImage>,
        payload: &[u8],
        wants_reply: bool,
    ) -> Result<u32, Error> {
        self.0.forward(linked, payload, wants_reply)
    }

    /// Takes arrived frames, and now and then, or if `everywhere`, control messages.
    ///
    /// # Errors
    /// [`crate::WaitError::PeerGone`] at the end of the link. Replies that arrived before are kept; all other
    /// calls end with this error.
    pub(crate) fn look(&mut self, everywhere: bool) -> Result<(), Error> {
        self.0.look()?;
        if everywhere { self.0.look_everywhere() } else { Ok(()) }
    }

    /// Takes the outcome of a call, if it has come. The token is then void.
    pub(crate) fn take(&mut self, token: u32) -> Option<Result<ReplyBytes, Error>> {
        self.0.take(token)
    }

    /// Largest frame that can be sent, in bytes.
    pub(crate) fn max_frame(&self) -> usize {
        self.0.max_frame()
    }

    /// Prepares to sleep on both descriptors. [`Outgoing::disarm`] follows in any case.
    ///
    /// # Errors
    /// When the transport fails.
    pub(crate) fn arm(&mut self) -> Result<Armed, TransportError> {
        self.0.arm()
    }

    /// Ends a sleep.
    ///
    /// # Errors
    /// When the transport fails.
    pub(crate) fn disarm(&mut self) -> Result<(), TransportError> {
        self.0.disarm()
    }

    /// Descriptor of the control connection.
    pub(crate) fn control(&self) -> BorrowedFd<'_> {
        self.0.control()
    }

    /// Whether to watch the control connection for writability.
    pub(crate) fn wants_write(&self) -> bool {
        self.0.wants_write()
    }

    /// Whether to watch the doorbell for writability.
    pub(crate) fn doorbell_wants_write(&self) -> bool {
        self.0.doorbell_wants_write()
    }

    /// Whether the control connection has ended, and needs no more watching.
    pub(crate) fn is_going(&self) -> bool {
        self.0.is_going()
    }

    /// The doorbell's descriptor, if the transport has one; the same for the life of the link.
    pub(crate) fn doorbell(&self) -> Option<BorrowedFd<'_>> {
        self.0.doorbell()
    }
}
