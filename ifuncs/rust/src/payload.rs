//! The payload, which lies in memory that the peer may write.

use core::fmt;

use crate::shared::{Shared, Unaligned};
use crate::{NotForwarded, ReplyTooLong, forward_bytes, reply_bytes};

/// The payload of a call: the argument of `NAME_main` at the target, and the buffer that `init` fills in at
/// the source.
///
/// Most functions take a slice or a value instead, which is a copy ([`FromPayload`](crate::FromPayload)). `Payload` is
/// the payload in place, for functions that read only parts of it, write it or forward it.
///
/// The source may be able to write it at any time, so there is no slice of it. Each read takes each byte once and
/// returns a copy: check the copy, and use it. [`Payload::as_ptr`] is for unsafe code.
///
/// ```
/// # #[unsafe(no_mangle)] extern "C" fn farjump_reply(_: *const core::ffi::c_void, _: usize) -> core::ffi::c_int { 0 }
/// # #[unsafe(no_mangle)] extern "C" fn farjump_panic(_: *const core::ffi::c_char, _: usize) -> ! { std::process::abort() }
/// # fn main() {}
/// # mod author {
/// #![forbid(unsafe_code)]
/// use farjump_ifunc::{Payload, fail, ifunc};
///
/// /// The first word says how many the others are.
/// #[ifunc]
/// fn dot(payload: &Payload) -> u64 {
///     let Some(count) = payload.array_at(0).map(u64::from_le_bytes) else { fail("there is no count") };
///     let words = payload.chunks().skip(1).map(u64::from_le_bytes);
///     if count != words.len() as u64 {
///         fail("there are more words, or fewer, than the payload says")
///     }
///     words.fold(0, |sum, word| sum.wrapping_add(word.wrapping_mul(word)))
/// }
/// # }
/// ```
#[repr(C)]
pub struct Payload {
    at: *mut u8,
    len: usize,
}

impl Payload {
    /// # Safety
    /// `len` bytes from `at` on are valid for reads and writes as long as the value is used, and no other
    /// code of this process uses them meanwhile. With a length of 0 `at` may be anything.
    #[inline(always)]
    pub(crate) unsafe fn new(at: *mut u8, len: usize) -> Payload {
        Payload { at, len }
    }

    #[inline(always)]
    fn shared(&self) -> Shared {
        // SAFETY: the caller of `new` guarantees the bytes; this use ends before `self` does.
        unsafe { Shared::new(self.at, self.len) }
    }

    /// Number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the payload is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of the [`Payload::len`] bytes, valid for reads until the function returns. The peer may write them
    /// meanwhile.
    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        self.at
    }

    /// Address of the bytes, for writes too.
    #[inline]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.at
    }

    /// The bytes, each read once.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u8> + '_ {
        self.shared().iter()
    }

    /// As many whole arrays of `N` bytes as exist, each byte read once. [`Payload::rest`] has the bytes left
    /// at the end. `N` is not 0.
    #[inline]
    pub fn chunks<const N: usize>(&self) -> impl ExactSizeIterator<Item = [u8; N]> + '_ {
        self.shared().chunks()
    }

    /// The bytes behind the last whole array of `N`: fewer than that. `N` is not 0.
    #[inline]
    pub fn rest<const N: usize>(&self) -> impl ExactSizeIterator<Item = u8> + '_ {
        self.shared().rest::<N>()
    }

    /// The `N` bytes at `at`, each read once: `payload.array_at(8).map(u64::from_le_bytes)`. `None` if there
    /// are fewer.
    #[inline]
    pub fn array_at<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.shared().array_at(at)
    }

    /// Copies from the bytes at `at` to the start of `into`, as many as fit and exist, and returns their
    /// number.
    #[inline]
    pub fn copy_to(&self, at: usize, into: &mut [u8]) -> usize {
        self.shared().copy_to(at, into)
    }

    /// Copies all bytes to `into`.
    ///
    /// # Safety
    /// `into` is valid for writes of as many bytes, and nothing else uses them meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn copy_all_to(&self, into: *mut u8) {
        // SAFETY: these are all bytes, and this function's caller guarantees the place.
        unsafe { self.shared().copy(0, self.len, into) }
    }

    /// Writes `bytes` at `at`, as many as fit, and returns their number.
    #[inline(never)]
    pub fn write_at(&mut self, at: usize, bytes: &[u8]) -> usize {
        let len = self.len.saturating_sub(at).min(bytes.len());
        let (longs, rest) = bytes.get(..len).unwrap_or_default().as_chunks();
        let mut at = at;
        for long in longs {
            // SAFETY: that many bytes follow `at`.
            unsafe { self.write(at, u64::from_ne_bytes(*long)) };
            at += size_of::<u64>();
        }
        for byte in rest {
            // SAFETY: the loop bound leaves the byte behind `at`.
            unsafe { self.write(at, *byte) };
            at += 1;
        }
        len
    }

    /// Writes `byte` everywhere.
    #[inline]
    pub fn fill(&mut self, byte: u8) {
        for at in 0..self.len {
            // SAFETY: the range ends where the bytes do.
            unsafe { self.write(at, byte) };
        }
    }

    /// # Safety
    /// `at` and the size of the number are no more than the length together.
    #[inline(always)]
    unsafe fn write<T>(&mut self, at: usize, number: T) {
        // SAFETY: the bytes are valid for writes (`new`), and this function's caller guarantees that these
        // are some of them. Volatile, because the peer may use them.
        unsafe { self.at.add(at).cast::<Unaligned<T>>().write_volatile(Unaligned(number)) }
    }

    /// Replies ([`reply`](crate::reply)) the bytes from `at` on, as they are now. If there are no more than `at`,
    /// replies none.
    ///
    /// # Errors
    /// As for [`reply`](crate::reply).
    #[inline]
    pub fn reply_from(&self, at: usize) -> Result<(), ReplyTooLong> {
        let at = at.min(self.len);
        // SAFETY: the bytes are valid for reads (`new`), and so are those behind `at`, which is no farther
        // than their end.
        unsafe { reply_bytes(self.at.wrapping_add(at), self.len - at) }
    }

    /// [`forward`](crate::forward) with this payload as it is now.
    ///
    /// # Errors
    /// As for [`forward`](crate::forward).
    #[inline]
    pub fn forward(&self, peer: &str) -> Result<(), NotForwarded> {
        // SAFETY: the bytes are valid for reads (`new`).
        unsafe { forward_bytes(peer, self.at, self.len) }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Payload").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Uses of a payload that safe code cannot make. The doc of [`Payload`] has a program that differs in the
/// type alone.
///
/// `init` gets no slice of its buffer:
/// ```compile_fail,E0308
/// #![forbid(unsafe_code)]
/// #[farjump_ifunc::ifunc(payload(max_size = max, init = init))]
/// fn first(payload: &farjump_ifunc::Payload) {}
/// fn max(args: &[u8]) -> usize { 8 }
/// fn init(space: &mut [u8], args: &[u8]) -> Result<usize, i32> { Ok(0) }
/// # fn main() {}
/// ```
/// ```
/// #![forbid(unsafe_code)]
/// #[farjump_ifunc::ifunc(payload(max_size = max, init = init))]
/// fn first(payload: &farjump_ifunc::Payload) {}
/// fn max(args: &[u8]) -> usize { 8 }
/// fn init(space: &mut farjump_ifunc::Payload, args: &[u8]) -> Result<usize, i32> { Ok(0) }
/// # fn main() {}
/// ```
/// A payload is no slice, and gives none away:
/// ```compile_fail,E0308
/// fn first(payload: &farjump_ifunc::Payload) {
///     let slice: &[u8] = payload;
/// }
/// ```
/// ```compile_fail,E0277
/// fn first(payload: &farjump_ifunc::Payload) {
///     let slice = AsRef::<[u8]>::as_ref(payload);
/// }
/// ```
/// ```
/// fn first(payload: &farjump_ifunc::Payload) {
///     let mut slice = [0; 16];
///     let len: usize = payload.copy_to(0, &mut slice);
/// }
/// ```
/// It does not outlive the call:
/// ```compile_fail
/// #![forbid(unsafe_code)]
/// fn first(payload: &farjump_ifunc::Payload) -> Box<dyn Iterator<Item = u8> + 'static> {
///     Box::new(payload.iter())
/// }
/// ```
/// ```
/// #![forbid(unsafe_code)]
/// fn first(payload: &farjump_ifunc::Payload) -> Box<dyn Iterator<Item = u8> + '_> {
///     Box::new(payload.iter())
/// }
/// ```
#[cfg(doctest)]
struct Strangers;

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn payload_writes_read_back_by_every_method_and_stay_inside() {
        for len in 0..40_usize {
            for start in 0..3 {
                let mut memory = [0xee_u8; 64];
                // SAFETY: that many bytes exist, and only this accesses them meanwhile.
                let mut payload = unsafe { Payload::new(memory.as_mut_ptr().add(start), len) };
                payload.fill(0x55);
                let bytes: Vec<u8> = (0..len as u8).collect();
                assert_eq!(payload.write_at(0, &bytes), len);
                assert_eq!((payload.len(), payload.is_empty()), (len, len == 0));
                assert_eq!(payload.iter().collect::<Vec<_>>(), bytes);
                let chunks: Vec<[u8; 13]> = payload.chunks().collect();
                let rest: Vec<u8> = payload.rest::<13>().collect();
                assert_eq!((chunks.as_flattened(), &rest[..]), bytes.split_at(len / 13 * 13));
                for at in 0..44 {
                    let there = bytes.get(at..).unwrap_or_default();
                    assert_eq!(payload.array_at(at), there.first_chunk::<7>().copied());
                    let mut copy = [0xaa; 19];
                    let copied = payload.copy_to(at, &mut copy);
                    assert_eq!(
                        (copied, &copy[..copied]),
                        (there.len().min(19), &there[..there.len().min(19)])
                    );
                    assert!(copy[copied..].iter().all(|&byte| byte == 0xaa));
                    assert_eq!(payload.write_at(at, &copy), copied);
                }
                for at in [usize::MAX, usize::MAX - 3] {
                    assert_eq!((payload.array_at::<4>(at), payload.copy_to(at, &mut [0; 8])), (None, 0));
                    assert_eq!(payload.write_at(at, &[0; 8]), 0);
                }
                assert_eq!(memory[start..start + len], bytes);
                assert!(memory[..start].iter().chain(&memory[start + len..]).all(|&byte| byte == 0xee));
            }
        }
    }
}
