//! Views: the bytes of an object, for as long as somebody needs them.

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use farjump::objects::ReadBytes;
use farjump_os::forked_children;

use crate::connection;
use crate::shared::Shared;
use crate::table::{Claimed, Source};

/// The bytes of an object. They lie where their owner keeps them, or in a copy if that is not mapped here; in any case they
/// stay until the view is dropped, also when the object is evicted or its owner is gone.
///
/// Dropping it releases the object at its owner: at once in the owner's process, with the next request of the
/// [`Client`](crate::Client) elsewhere, and when the client's process ends in any case.
pub struct View {
    data: NonNull<u8>,
    len: usize,
    holder: Holder,
}

/// What keeps the bytes.
enum Holder {
    Store(Arc<Shared>, u64),
    /// A claim of the client's, and the number of forks before the view was made.
    Client(Arc<connection::Inner>, u64, u64),
    /// A copy of this process's own.
    Copy(#[allow(dead_code, reason = "it keeps the bytes")] Box<[u8]>),
    /// A copy that the transport made, of the memory that the owner lent.
    Read(#[allow(dead_code, reason = "it keeps the bytes")] ReadBytes),
}

/// The way by which the bytes of a view came ([`View::access`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Access {
    /// They lie where the owner keeps them.
    Mapped,
    /// The transport read them from the owner's memory, without the owner.
    Read,
    /// The owner sent them in frames.
    Frames,
}

// SAFETY: the bytes are only read, by whichever thread, and what keeps them may be dropped by any.
unsafe impl Send for View {}
// SAFETY: as for `Send`.
unsafe impl Sync for View {}

impl View {
    /// `data` is claimed in that store.
    pub(crate) fn of_store(shared: Arc<Shared>, data: NonNull<u8>, claimed: Claimed) -> View {
        View { data, len: claimed.len as usize, holder: Holder::Store(shared, claimed.claim) }
    }

    /// `data` is claimed by that client, in memory that it has mapped.
    pub(crate) fn of_client(inner: Arc<connection::Inner>, data: NonNull<u8>, claimed: Claimed) -> View {
        let holder = Holder::Client(inner, claimed.claim, forked_children::forks());
        View { data, len: claimed.len as usize, holder }
    }

    pub(crate) fn of_copy(bytes: Vec<u8>) -> View {
        let mut bytes = bytes.into_boxed_slice();
        let len = bytes.len();
        let data = NonNull::from(&mut *bytes).cast();
        View { data, len, holder: Holder::Copy(bytes) }
    }

    pub(crate) fn of_read(bytes: ReadBytes) -> View {
        // Asked once: the memory is a transport's own, and a second slice of it could be a longer one.
        let all: &[u8] = &bytes;
        let (data, len) = (NonNull::from(all).cast(), all.len());
        View { data, len, holder: Holder::Read(bytes) }
    }

    /// The first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.data
    }

    /// Whether these are the owner's bytes, and not a copy.
    pub fn is_mapped(&self) -> bool {
        self.access() == Access::Mapped
    }

    /// How they came here.
    pub fn access(&self) -> Access {
        match self.holder {
            Holder::Store(..) | Holder::Client(..) => Access::Mapped,
            Holder::Read(_) => Access::Read,
            Holder::Copy(_) => Access::Frames,
        }
    }
}

impl Deref for View {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `holder` keeps `len` bytes mapped, and claimed at their owner, which writes no object that is finished.
        // Processes of the owner's user could write them all the same: they are trusted not to (`docs/security.md`).
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for View {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for View {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("View")
            .field("len", &self.len)
            .field("access", &self.access())
            .finish_non_exhaustive()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        match &self.holder {
            Holder::Store(shared, claim) => shared.table().release(Source::Owner, *claim),
            Holder::Client(inner, claim, forks) => inner.release_view(*claim, self.len, *forks),
            Holder::Copy(_) | Holder::Read(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Memory that shows more each time. Safe code.
    struct Growing(AtomicUsize, [u8; 8]);

    impl AsRef<[u8]> for Growing {
        fn as_ref(&self) -> &[u8] {
            &self.1[..self.0.fetch_add(1, Ordering::Relaxed)]
        }
    }

    #[test]
    fn a_view_of_memory_that_was_read_has_start_and_length_of_one_slice() {
        let view = View::of_read(ReadBytes::new(Growing(AtomicUsize::new(3), *b"abcdefgh")));
        assert_eq!((view.access(), &*view), (Access::Read, &b"abc"[..]));
    }
}
