//! The layout of a frame in a message of UCX's.
//!
//! A receiver reads UCX's own header and the frame's, and is faster the nearer these are. So a frame of up to
//! [`MOST_FRONTED`] bytes begins with its header:
//!
//! | frame | message |
//! |---|---|
//! | up to [`SHORT`] bytes | header, payload; UCX passes them in one element of its queue |
//! | longer | header, 48 zeroes, payload: UCX puts messages on a line, so the payload is on one too |
//!
//! Longer frames are sent unchanged, header last: a frame of up to that length with the zeroes fits one segment of
//! UCX's.

use std::ptr::NonNull;

use farjump_core::frame::{DELIVERED_HEADER_LEN, LINE};
use farjump_core::transport::MessageHeader;

/// Longest frame that UCX passes in one element of its queue, in bytes.
pub(super) const SHORT: usize = 92;
/// Longest frame whose header is in front, in bytes.
pub(super) const MOST_FRONTED: usize = 8192;

/// Offset of the payload in the message of a frame whose header is in front.
#[inline(always)]
pub(super) const fn front(frame_len: usize) -> usize {
    if frame_len <= SHORT { DELIVERED_HEADER_LEN } else { LINE }
}

/// The parts of a frame in a received message.
pub(super) struct Received {
    /// The payload of the frame, with its other parts if it names code.
    pub(super) body: NonNull<u8>,
    /// The frame's header.
    pub(super) header: NonNull<[u8; DELIVERED_HEADER_LEN]>,
    /// Length of the frame in bytes.
    pub(super) frame_len: usize,
}

impl Received {
    /// The parts of the message of `len` bytes at `data`, `fronted` if its header is in front. `None` if it is too
    /// short for a header.
    ///
    /// # Safety
    /// `data` must be valid for `len` bytes.
    #[inline(always)]
    pub(super) unsafe fn of(data: NonNull<u8>, len: usize, fronted: bool) -> Option<Received> {
        if !fronted {
            let body_len = len.checked_sub(DELIVERED_HEADER_LEN)?;
            // SAFETY: the header lies in the message.
            let header = unsafe { data.add(body_len) }.cast();
            return Some(Received { body: data, header, frame_len: len });
        }
        // The longest of the short messages is as long as its frame.
        let front = front(len);
        let body_len = len.checked_sub(front)?;
        // SAFETY: the message has `front` bytes and more.
        let body = unsafe { data.add(front) };
        Some(Received { body, header: data.cast(), frame_len: body_len + DELIVERED_HEADER_LEN })
    }

    /// Length of the frame without its header.
    #[inline(always)]
    pub(super) fn body_len(&self) -> usize {
        self.frame_len - DELIVERED_HEADER_LEN
    }

    /// Copies the frame to `to`, its header last.
    ///
    /// # Safety
    /// The message must still be valid. `to` must be valid for writes of the frame's length and not overlap it.
    pub(super) unsafe fn copy_to(&self, to: NonNull<u8>) {
        // SAFETY: the caller's (see Safety).
        unsafe {
            self.body.copy_to_nonoverlapping(to, self.body_len());
            to.add(self.body_len()).cast().write(self.header());
        }
    }

    /// Copies the frame, of at most [`SHORT`] bytes, so that its body is at `to` and its header directly in front.
    ///
    /// # Safety
    /// The message must still be valid. `to` must be valid for writes of the frame's length, and of a header in front
    /// of it, and not overlap the message.
    #[inline(always)]
    pub(super) unsafe fn copy_short_to(&self, to: NonNull<u8>) {
        // SAFETY: the caller's (see Safety).
        unsafe {
            if self.header.cast::<u8>().add(DELIVERED_HEADER_LEN) == self.body {
                copy_blocks(self.header.cast(), to.sub(DELIVERED_HEADER_LEN), self.frame_len);
            } else {
                self.body.copy_to_nonoverlapping(to, self.body_len());
                to.sub(DELIVERED_HEADER_LEN).cast().write(self.header());
            }
        }
    }

    /// The frame's header.
    ///
    /// # Safety
    /// The message must still be there.
    #[inline(always)]
    pub(super) unsafe fn header(&self) -> [u8; DELIVERED_HEADER_LEN] {
        // SAFETY: the caller's (see Safety).
        unsafe { self.header.read() }
    }
}

/// Copies `len` bytes, 16 to 96, in blocks of 16 that overlap: a call of `memcpy` takes as long as that.
///
/// # Safety
/// `from` must be valid for reads and `to` for writes of `len` bytes, which must not overlap.
#[inline(always)]
unsafe fn copy_blocks(from: NonNull<u8>, to: NonNull<u8>, len: usize) {
    const BLOCK: usize = 16;
    debug_assert!((BLOCK..=6 * BLOCK).contains(&len));
    // SAFETY: each block that is copied lies in `len` bytes.
    unsafe {
        let copy = |at: usize| {
            to.add(at).cast::<u128>().write_unaligned(from.add(at).cast::<u128>().read_unaligned());
        };
        copy(0);
        if len > 2 * BLOCK {
            copy(BLOCK);
            if len > 4 * BLOCK {
                copy(2 * BLOCK);
                copy(len - 3 * BLOCK);
            }
            copy(len - 2 * BLOCK);
        }
        copy(len - BLOCK);
    }
}

/// Copies `from` to `to`, without a call for few bytes.
///
/// # Safety
/// `to` must be valid for writes of as many bytes, which must not overlap `from`.
#[inline(always)]
pub(super) unsafe fn copy(from: &[u8], to: NonNull<u8>) {
    let (len, from) = (from.len(), NonNull::from(from).cast::<u8>());
    // SAFETY: the caller's (see Safety). Each piece lies in `len` bytes.
    unsafe {
        match len {
            8..16 => {
                let ends = [0, len - 8];
                let words = ends.map(|at| from.add(at).cast::<u64>().read_unaligned());
                ends.into_iter().zip(words).for_each(|(at, word)| to.add(at).cast().write_unaligned(word));
            }
            16..=96 => copy_blocks(from, to, len),
            _ => to.copy_from_nonoverlapping(from, len),
        }
    }
}

/// Puts the header of a frame in front of it, with the transport's word in it. Returns the message's start and length.
///
/// # Safety
/// `start` must be on a line, valid for reads of the frame's `len` bytes, and for writes of a line in front of them.
/// The bytes are [`DELIVERED_HEADER_LEN`] or more, and end with the frame's header.
#[inline(always)]
pub(super) unsafe fn put_in_front(start: NonNull<u8>, len: usize, word: [u8; 4]) -> (NonNull<u8>, usize) {
    // SAFETY: the caller's (see Safety).
    unsafe {
        let [first, second]: [u64; 2] = start.add(len - DELIVERED_HEADER_LEN).cast().read_unaligned();
        put_header(start, len, MessageHeader(u64::from_le(first), u64::from_le(second)), word)
    }
}

/// Puts `header` in front of the other bytes of a frame of `len` bytes, with the transport's word in it. Returns the
/// message's start and length.
///
/// # Safety
/// `start` must be on a line, and valid for writes of a line in front of it.
#[inline(always)]
pub(super) unsafe fn put_header(
    start: NonNull<u8>,
    len: usize,
    header: MessageHeader,
    word: [u8; 4],
) -> (NonNull<u8>, usize) {
    let second = u64::from(header.1 as u32) | u64::from(u32::from_le_bytes(word)) << 32;
    let [first, second] = MessageHeader(header.0, second).to_le();
    let front = front(len);
    // SAFETY: the caller's (see Safety).
    let message = unsafe {
        let message = start.sub(front);
        if front == LINE {
            message.cast::<[u64; LINE / 8]>().write([first, second, 0, 0, 0, 0, 0, 0]);
        } else {
            message.cast::<[u64; 2]>().write([first, second]);
        }
        message
    };
    (message, len - DELIVERED_HEADER_LEN + front)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Lines([u8; 9000]);

    #[test]
    fn a_frame_is_read_as_it_was_written_with_its_word() {
        let mut lines = Lines([9; 9000]);
        for len in [16, 17, 24, SHORT, SHORT + 1, 128, MOST_FRONTED] {
            let frame = &mut lines.0[LINE..];
            frame[..len].iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
            let expected = frame[..len - 4].to_vec();
            let start = NonNull::from(frame).cast::<u8>();
            // SAFETY: the frame lies behind a line, and the message in both.
            unsafe {
                let (message, message_len) = put_in_front(start, len, [1, 2, 3, 4]);
                let found = Received::of(message, message_len, true).unwrap();
                assert_eq!((found.frame_len, found.body), (len, start));
                let body = std::slice::from_raw_parts(found.body.as_ptr(), found.body_len());
                let (header, word) = (&found.header()[..12], &found.header()[12..]);
                assert_eq!([body, header].concat(), expected);
                assert_eq!(word, [1, 2, 3, 4]);
                let gap = std::slice::from_raw_parts(message.as_ptr(), front(len));
                assert!(gap[DELIVERED_HEADER_LEN..].iter().all(|byte| *byte == 0));
            }
        }
    }

    #[test]
    fn each_number_of_bytes_is_copied_and_no_more() {
        let from: [u8; 200] = std::array::from_fn(|at| at as u8 + 1);
        for len in 0..=from.len() {
            let mut to = [0; 201];
            // SAFETY: `to` has more bytes.
            unsafe { copy(&from[..len], NonNull::from(&mut to).cast()) };
            assert_eq!(to[..len], from[..len]);
            assert!(to[len..].iter().all(|byte| *byte == 0), "{len}");
        }
    }

    #[test]
    fn a_short_frame_is_copied_header_first_wherever_its_header_was() {
        let bytes: [u8; 128] = std::array::from_fn(|at| at as u8 + 1);
        for len in DELIVERED_HEADER_LEN..=SHORT {
            for fronted in [true, false] {
                let mut to = Lines([0; 9000]);
                let start = NonNull::from(&mut to.0[LINE..]).cast::<u8>();
                // SAFETY: neither length is over that of the arrays.
                unsafe {
                    Received::of(NonNull::from(&bytes).cast(), len, fronted).unwrap().copy_short_to(start)
                };
                let (header, body) = match fronted {
                    true => bytes[..len].split_at(DELIVERED_HEADER_LEN),
                    false => {
                        let (body, header) = bytes[..len].split_at(len - DELIVERED_HEADER_LEN);
                        (header, body)
                    }
                };
                assert_eq!(to.0[LINE - DELIVERED_HEADER_LEN..][..len], [header, body].concat(), "{len}");
                let (before, behind) = (&to.0[..LINE - DELIVERED_HEADER_LEN], &to.0[LINE + body.len()..]);
                assert!(before.iter().chain(behind).all(|byte| *byte == 0), "{len}");
            }
        }
    }

    #[test]
    fn a_message_that_is_too_short_for_a_header_has_no_parts() {
        let bytes = [0_u8; 256];
        let data = NonNull::from(&bytes).cast();
        // SAFETY: no length is over 256.
        let frame_len =
            |len, fronted| unsafe { Received::of(data, len, fronted) }.map(|found| found.frame_len);
        assert_eq!([0, 15, 16, 92].map(|len| frame_len(len, true)), [None, None, Some(16), Some(92)]);
        assert_eq!([93, 140, 256].map(|len| frame_len(len, true)), [Some(45), Some(92), Some(208)]);
        assert_eq!([15, 16, 256].map(|len| frame_len(len, false)), [None, Some(16), Some(256)]);
    }
}
