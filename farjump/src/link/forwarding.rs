//! A link that a target drives: it never waits on the link, and watches it along with everything else that wakes it.

use std::os::fd::BorrowedFd;

use farjump_core::channel::Armed;
use farjump_core::cpu::Cpu;
use farjump_core::image::{CodeId, FamilyId};
use farjump_core::transport::TransportError;
use farjump_loader::{LinkedImage, Manifest};

use super::Link;
use super::forwarded::{Forwarded, Image, Wanted};
use super::inner::Inner;
use super::pending_calls::ReplyBytes;
use crate::Error;

/// A link over which a target forwards calls. None of its methods waits.
#[derive(Debug)]
pub(crate) struct Outgoing(Inner);

impl Outgoing {
    /// If `brings_code`, each message carries its code.
    pub(crate) fn new(link: Link, brings_code: bool) -> Outgoing {
        let mut inner = link.inner.into_inner();
        inner.prepare_forwarding(brings_code);
        Outgoing(inner)
    }

    /// Returns the image by which this code travels to the destination, for the next [`Outgoing::forward`]. `None` if
    /// the destination takes another image of its family.
    #[inline]
    pub(crate) fn image_of(&mut self, linked: &LinkedImage) -> Option<Image<'static>> {
        self.0.forwarded_image(linked)
    }

    /// The CPU of the destination.
    pub(crate) fn cpu(&self) -> &Cpu {
        self.0.peer_cpu()
    }

    /// Takes the destination's requests that this link cannot serve itself. A response follows for each.
    pub(crate) fn take_wanted(&mut self) -> Vec<Wanted> {
        self.0.take_wanted()
    }

    /// Sends the destination an image that it has requested; `None` if there is none.
    ///
    /// # Errors
    /// [`crate::WaitError::PeerGone`] at the end of the link.
    pub(crate) fn respond_with_code(&mut self, id: CodeId, image: Option<&[u8]>) -> Result<(), Error> {
        self.0.respond_with_code(id, image)
    }

    /// Sends the destination a manifest that it has requested; `None` if there is none.
    ///
    /// # Errors
    /// As [`Outgoing::respond_with_code`].
    pub(crate) fn respond_with_manifest(
        &mut self,
        family: FamilyId,
        manifest: Option<&Manifest>,
    ) -> Result<(), Error> {
        self.0.respond_with_manifest(family, manifest)
    }

    /// Injects the code as `image` with the payload as it is. Returns the token for [`Outgoing::take`], if a reply is
    /// wanted.
    ///
    /// # Errors
    /// [`crate::InjectError::Full`] while there is no credit; [`crate::InjectError::TooLarge`],
    /// [`crate::InjectError::TooManyFunctions`]; [`crate::WaitError::PeerGone`] at the end of the link.
    /// Nothing was sent then.
    pub(crate) fn forward(&mut self, call: &Forwarded<'_>, image: Image<'_>) -> Result<u32, Error> {
        self.0.forward(call, image)
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

    /// Returns whether to watch the control connection for writability.
    pub(crate) fn wants_write(&self) -> bool {
        self.0.wants_write()
    }

    /// Returns whether to watch the doorbell for writability.
    pub(crate) fn doorbell_wants_write(&self) -> bool {
        self.0.doorbell_wants_write()
    }

    /// Returns whether the control connection has ended, and needs no more watching.
    pub(crate) fn is_draining(&self) -> bool {
        self.0.is_draining()
    }

    /// The doorbell's descriptor, if the transport has one; the same for the life of the link.
    pub(crate) fn doorbell(&self) -> Option<BorrowedFd<'_>> {
        self.0.doorbell()
    }
}
