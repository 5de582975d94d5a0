//! Bytes that injected code points to.

use std::marker::PhantomData;
use std::ptr;

use farjump_core::shared;

/// Bytes that injected code lends a service. They may lie in the payload, and so in a mailbox that the source
/// can write at the same time: no slice is made of them.
#[derive(Clone, Copy)]
pub(super) struct LentBytes<'a> {
    start: *const u8,
    len: usize,
    lent: PhantomData<&'a [u8]>,
}

impl LentBytes<'_> {
    /// `len` bytes at `start`; none if either is zero.
    ///
    /// # Safety
    /// If neither is zero, `start` must be valid for reads of `len` bytes as long as the result is used, and
    /// no thread of this process writes there meanwhile.
    pub(super) unsafe fn new(start: *const u8, len: usize) -> Self {
        LentBytes { start, len: if start.is_null() { 0 } else { len }, lent: PhantomData }
    }

    pub(super) fn len(self) -> usize {
        self.len
    }

    /// Returns whether they equal `bytes`.
    pub(super) fn are(self, bytes: &[u8]) -> bool {
        // SAFETY: `new`'s caller guarantees that `len` bytes are valid for reads.
        self.len == bytes.len() && unsafe { shared::equals(self.start, bytes) }
    }

    /// Appends a copy of the first `most` of them.
    #[inline]
    pub(super) fn append_to(self, into: &mut Vec<u8>, most: usize) {
        let (had, len) = (into.len(), self.len.min(most));
        into.reserve(len);
        // SAFETY: `new`'s caller guarantees that `len` bytes are valid for reads. `reserve` has made space
        // for them in the vector, which is memory of its own, and they are written before the length covers
        // them.
        unsafe {
            shared::copy_out(self.start, into.as_mut_ptr().add(had), len);
            into.set_len(had + len);
        }
    }

    /// A copy.
    pub(super) fn to_vec(self) -> Vec<u8> {
        let mut copy = Vec::new();
        self.append_to(&mut copy, self.len);
        copy
    }
}

impl<'a> From<&'a [u8]> for LentBytes<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        LentBytes { start: ptr::from_ref(bytes).cast(), len: bytes.len(), lent: PhantomData }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lent_bytes_append_up_to_a_limit_and_compare_whole() {
        let lent = LentBytes::from(&b"some bytes"[..]);
        let mut copy = b"and ".to_vec();
        lent.append_to(&mut copy, 4);
        lent.append_to(&mut copy, usize::MAX);
        assert_eq!(
            (copy.as_slice(), lent.to_vec().as_slice()),
            (&b"and somesome bytes"[..], &b"some bytes"[..])
        );
        assert!(lent.are(b"some bytes") && !lent.are(b"some byte") && !lent.are(b"same bytes"));
        // SAFETY: nothing is lent.
        let nothing = unsafe { [LentBytes::new(ptr::null(), 5), LentBytes::new(b"x".as_ptr(), 0)] };
        assert!(nothing.iter().all(|none| none.len() == 0 && none.are(b"") && none.to_vec().is_empty()));
    }
}
