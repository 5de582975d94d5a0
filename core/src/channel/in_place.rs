//! Images that run in the mailbox itself, without a copy.

use core::ptr::NonNull;

use super::{Channel, Path, Taken, failed};
use crate::transport::{Cause, Operation, TransportError};

/// An image in a frame that can run where it is. Valid until the frame is released.
#[derive(Clone, Copy, Debug)]
pub struct InPlace {
    /// The writable address: valid for writes of `len` bytes. A peer that breaks the protocol can write there
    /// too.
    pub image: NonNull<u8>,
    /// Length of the image in bytes.
    pub len: usize,
    /// The executable, read-only address of the same bytes.
    pub address: u64,
}

impl Channel {
    /// The image of a frame that was taken, ready to run in the mailbox.
    ///
    /// # Errors
    /// [`Cause::Unsupported`] on two-sided paths, on transports without
    /// [`in_place`](crate::transport::Capabilities::in_place), and for a frame without an image or of
    /// another channel. The system's error if it forbids executable memory. The link stays usable in every
    /// case.
    pub fn in_place(&mut self, frame: &Taken) -> Result<InPlace, TransportError> {
        let is_own = self.holds(frame);
        let unsupported = |what| failed(Operation::Receive, Cause::Unsupported(what));
        let Path::OneSided(path) = &mut self.path else {
            return Err(unsupported("running code in messages that are delivered"));
        };
        let (Some(start), true) = (self.held.start, is_own && self.names_code) else {
            return Err(unsupported("running code of a frame that brings none"));
        };
        let executable = path.local.executable()?;
        let code = self.code.part();
        // SAFETY: `Header::check` found the image inside the frame, which is held.
        let image = unsafe { start.add(code.image_offset as usize) };
        let offset = image.addr().get() - path.local.base().addr().get();
        let address = (executable.addr().get() + offset) as u64;
        Ok(InPlace { image, len: code.image_len as usize, address })
    }
}
