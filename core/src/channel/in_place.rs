//! Images that run where they lie, in the mailbox.

use core::ptr::NonNull;

use super::{Channel, Path, failed};
use crate::transport::{Cause, Operation, TransportError};

/// The image that travels in a frame, where it can run. Valid until the frame is released.
#[derive(Clone, Copy, Debug)]
pub struct InPlace {
    /// Where it can be written: valid for writes of `len` bytes. The peer, if it breaks the protocol, can write there too.
    pub image: NonNull<u8>,
    /// Its length in bytes.
    pub len: usize,
    /// The address of the same bytes where they can be executed, and not written.
    pub address: u64,
}

impl Channel {
    /// The image that travels in the frame that [`Channel::poll`] returned last, where it can run.
    ///
    /// # Errors
    /// [`Cause::Unsupported`] on two-sided paths, on transports without [`in_place`](crate::transport::Capabilities::in_place),
    /// and if no frame with an image is held. What the system said, where it does not allow memory to be executed. The link
    /// goes on in any case.
    pub fn in_place(&mut self) -> Result<InPlace, TransportError> {
        let unsupported = |what| failed(Operation::Receive, Cause::Unsupported(what));
        let Path::OneSided(path) = &mut self.path else {
            return Err(unsupported("running code in messages that are delivered"));
        };
        let (Some(frame), Some(code)) = (&self.held, &self.code) else {
            return Err(unsupported("running code of a frame that brings none"));
        };
        let executable = path.local.executable()?;
        // SAFETY: `Header::check` found the image inside the frame, which is held.
        let image = unsafe { frame.start.add(code.image_offset as usize) };
        let offset = image.addr().get() - path.local.base().addr().get();
        let address = (executable.addr().get() + offset) as u64;
        Ok(InPlace { image, len: code.image_len as usize, address })
    }
}
