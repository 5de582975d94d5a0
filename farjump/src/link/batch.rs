//! Batches: small one-way calls that share frames.

use farjump_loader::Library;

use super::Link;
use crate::Error;

/// Collects small calls of a link into shared frames, so that many small ones cost little more than a few
/// large ones. Made by [`Link::batch`].
///
/// ```no_run
/// # fn main() -> Result<(), farjump::Error> {
/// use std::time::Duration;
/// use farjump::{Library, Link};
///
/// let counter = Library::open("libcounter.so")?;
/// let link = Link::connect("unix:store.sock")?;
/// let mut batch = link.batch();
/// for key in 0..1000_u64 {
///     batch.send(&counter, &key.to_le_bytes())?;
/// }
/// batch.finish()?;
/// link.flush(Duration::from_secs(1))?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "messages are sent when it is finished or dropped"]
pub struct Batch<'l> {
    link: &'l Link,
}

impl<'l> Batch<'l> {
    pub(super) fn new(link: &'l Link) -> Batch<'l> {
        Batch { link }
    }

    /// Injects without requesting a reply, as [`Link::send`] does, and in the same order, but the call may wait for
    /// others to share its frame. Calls share a frame if they are of the same function, cached, and of one length. A
    /// frame in a mailbox takes up to 1 KiB of calls, each of up to 256 bytes. A frame that is delivered as a message
    /// takes up to 8 KiB of calls, each of up to 4 KiB. No frame takes more than 128.
    ///
    /// The batch sends a frame when it is full or the next call does not fit it. It also does so before the link sends
    /// anything else, and when the batch is finished or dropped.
    ///
    /// # Errors
    /// As [`Link::send`]. Earlier calls are not lost: those that wait are sent with the next attempt.
    #[inline]
    pub fn send(&mut self, library: &Library, args: &[u8]) -> Result<(), Error> {
        self.link.inner.borrow_mut().inject_several(library, args).map_err(|error| *error)
    }

    /// Sends the calls that wait.
    ///
    /// # Errors
    /// When the target returns no credit within the builder's send limit, or is gone. In the first case the
    /// calls are sent before the next frame of the link, or by [`Link::flush`].
    pub fn finish(self) -> Result<(), Error> {
        // Dropping it would repeat the attempt that has just failed.
        let this = std::mem::ManuallyDrop::new(self);
        this.link.inner.borrow_mut().finish_several()
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        // A handler that runs inside the link may drop a batch. Its calls then go with the next frame of the
        // link, as they do without credit.
        if let Ok(mut inner) = self.link.inner.try_borrow_mut() {
            let _ = inner.finish_several();
        }
    }
}
