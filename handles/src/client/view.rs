//! Views: the bytes of an object, for as long as a program needs them.

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use farjump::objects::ReadBytes;
use farjump_os::forked_children;

use crate::client::connection;
use crate::owner::shared::Shared;
use crate::owner::table::{Claimed, Source};

/// The bytes of an object. They are the owner's bytes, or a copy if the owner's memory is not mapped here. In either
/// case they stay until the view is dropped, even if the object is evicted or its owner is gone.
///
/// Dropping it releases the object at its owner: at once in the owner's process, and with the next request of the
/// [`Client`](crate::Client) elsewhere. The end of the client's process also releases it.
pub struct View {
    data: NonNull<u8>,
    len: usize,
    holder: Holder,
}

/// The thing that keeps the bytes.
enum Holder {
    Store(Arc<Shared>, u64),
    /// A claim of the client's, and the number of forks before the view was made.
    Client(Arc<connection::Inner>, u64, u64),
    /// A copy that this process owns.
    Copy(#[allow(dead_code, reason = "it keeps the bytes")] Box<[u8]>),
    /// A copy that the transport made of memory that the owner lent.
    Read(#[allow(dead_code, reason = "it keeps the bytes")] ReadBytes),
}

/// The way in which the bytes of a view came ([`View::access`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Access {
    /// They are the owner's bytes.
    Mapped,
    /// The transport read them from the owner's memory, without work of the owner.
    Read,
    /// The owner sent them in frames.
    Frames,
}

// SAFETY: any thread only reads the bytes, and any thread may drop the holder that keeps them.
unsafe impl Send for View {}
// SAFETY: as for `Send`.
unsafe impl Sync for View {}

impl View {
    /// Makes a view of `data`, which is claimed in that store.
    pub(crate) fn of_store(shared: Arc<Shared>, data: NonNull<u8>, claimed: Claimed) -> View {
        View { data, len: claimed.len as usize, holder: Holder::Store(shared, claimed.claim) }
    }

    /// Makes a view of `data`, which is claimed by that client, in memory that it has mapped.
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
        // Dereferenced once: the memory is a transport's own, and a second slice of it could be longer.
        let all: &[u8] = &bytes;
        let (data, len) = (NonNull::from(all).cast(), all.len());
        View { data, len, holder: Holder::Read(bytes) }
    }

    /// Returns the first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.data
    }

    /// Returns whether these are the owner's bytes, and not a copy.
    pub fn is_mapped(&self) -> bool {
        self.access() == Access::Mapped
    }

    /// Returns the way in which the bytes came.
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
        // SAFETY: `holder` keeps `len` bytes mapped, and claimed at their owner, which writes no finished object.
        // Processes of the owner's user could still write them: they are trusted not to (`docs/security.md`).
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

    /// Memory that is longer each time it is read. Safe code.
    struct Growing(AtomicUsize, [u8; 8]);

    impl AsRef<[u8]> for Growing {
        fn as_ref(&self) -> &[u8] {
            &self.1[..self.0.fetch_add(1, Ordering::Relaxed)]
        }
    }

    #[test]
    fn a_view_takes_start_and_length_from_one_slice() {
        let view = View::of_read(ReadBytes::new(Growing(AtomicUsize::new(3), *b"abcdefgh")));
        assert_eq!((view.access(), &*view), (Access::Read, &b"abc"[..]));
    }
}
