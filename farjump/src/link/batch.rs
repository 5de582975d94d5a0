//! Small messages that travel together.

use farjump_loader::Library;

use super::Link;
use crate::Error;

/// Messages of a link that are put together into frames, so that many small ones cost little more than a few big ones. Made by
/// [`Link::batch`].
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

    /// Injects without asking for a reply, as [`Link::send`] does, and in the same order; but the message may wait for others that
    /// share its frame: those for the same function, cached, of one length of up to 256 bytes, up to 1 KiB or 128 of them.
    /// The frame goes when it is full or something comes that does not fit it, before anything else is sent on the link, and
    /// when the batch is finished or dropped.
    ///
    /// # Errors
    /// As [`Link::send`]. The messages before are not lost: those that wait go with the next try.
    #[inline]
    pub fn send(&mut self, library: &Library, args: &[u8]) -> Result<(), Error> {
        self.link.inner.borrow_mut().inject_several(library, args).map_err(|error| *error)
    }

    /// Sends what waits.
    ///
    /// # Errors
    /// When the target has no room for it within the builder's send limit, or is gone. In the first case it goes before whatever is
    /// sent next, or with [`Link::flush`].
    pub fn finish(self) -> Result<(), Error> {
        // Dropping it would try again what has just failed.
        let this = std::mem::ManuallyDrop::new(self);
        this.link.inner.borrow_mut().finish_several()
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        // A handler that runs inside the link may drop a batch: what waits then goes with what is sent next, as it does where there
        // is no room for it now.
        if let Ok(mut inner) = self.link.inner.try_borrow_mut() {
            let _ = inner.finish_several();
        }
    }
}
