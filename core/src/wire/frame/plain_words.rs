//! The header of a frame without code, read and checked along the shortest path.

use super::{
    DEFAULT_ALIGN_LOG2, DELIVERED_HEADER_LEN, Flags, HEADER_LEN, INLINE_ALIGN_LOG2, INLINE_PAYLOAD, Kind,
    LINE,
};
use crate::wire::align::MAX_ALIGN_LOG2;

/// The two words behind the signal of a frame that names no code, checked. In a mailbox they were found to be
/// as [`Header::plain`](super::Header::plain) requires, and to have one of the two usual layouts. A delivered
/// frame is its payload and its header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PlainWords {
    lengths: u64,
    rest: u64,
}

/// The bits of the second word that a receiver knows before it reads a plain frame: its kind and its flags,
/// except for the sender's expectations.
const FIXED: u32 = 0xff | !((Flags::WANTS_REPLY.bits() | Flags::ALONE.bits()) as u32) << 8 & 0xff00;

impl PlainWords {
    /// Most lines of a frame that the format can express, and less than any number that [`PlainWords::of`]
    /// makes of a length that is no multiple of a line.
    pub(crate) const MOST_LINES: u32 = (super::MAX_FRAME / LINE) as u32;

    /// Reads and checks, as [`Header::check`](super::Header::check) does, the words of a frame of this kind at
    /// `at` of a ring of `ring_len` bytes. Frames have at most `most` lines, which are at most
    /// [`PlainWords::MOST_LINES`]. The kind is one that names no code. Returns the offset of the payload too.
    /// `None` for every other frame, for unusual alignments, and for all errors, which the general path names.
    #[inline(always)]
    pub(crate) fn of(
        [lengths, rest]: [u64; 2],
        kind: Kind,
        at: usize,
        ring_len: usize,
        most: u32,
    ) -> Option<(PlainWords, usize)> {
        let (frame_len, payload_len) = (lengths as u32, (lengths >> 32) as u32);
        // One comparison makes three checks. A length of 0 and one that is no multiple of a line become a
        // number over `MOST_LINES`, because the bits below a line come to the top.
        if frame_len.wrapping_sub(LINE as u32).rotate_right(LINE.ilog2()) >= most {
            return None;
        }
        // `at` lies in a ring of at most 2^31 bytes, so the sum fits.
        if at + frame_len as usize > ring_len {
            return None;
        }
        let payload = Self::offset(rest, kind)?;
        // The most common layout: the payload directly behind the header, in its line.
        let fits = if payload == HEADER_LEN {
            payload_len <= INLINE_PAYLOAD as u32
        } else {
            u64::from(payload_len) + LINE as u64 <= u64::from(frame_len)
        };
        if fits { Some((PlainWords { lengths, rest }, payload)) } else { None }
    }

    /// Reads and checks the words of the delivered frame of `len` bytes that has this header. `None` for frames
    /// that name code and for all errors, which [`Header::delivered`](super::Header::delivered) names.
    #[inline(always)]
    pub(crate) fn of_delivered(header: [u64; 2], len: usize, limit: usize) -> Option<PlainWords> {
        let rest = super::delivered::rest_of(header);
        let align = (rest >> 8) as u8 & !(Flags::WANTS_REPLY.bits() | Flags::ALONE.bits());
        let aligns = align.wrapping_sub(INLINE_ALIGN_LOG2) <= MAX_ALIGN_LOG2 - INLINE_ALIGN_LOG2;
        if !Kind::is_plain(rest as u8) || !aligns || len > limit {
            return None;
        }
        let payload_len = len.checked_sub(DELIVERED_HEADER_LEN)?;
        Some(PlainWords { lengths: len as u64 | (payload_len as u64) << 32, rest })
    }

    /// Offset of the payload of a frame of this kind, in the two usual layouts. Frames start on a line, so a
    /// payload that is aligned to a line starts with the second one.
    #[inline(always)]
    fn offset(rest: u64, kind: Kind) -> Option<usize> {
        let fixed = rest as u32 & FIXED;
        if fixed == kind as u32 | u32::from(INLINE_ALIGN_LOG2) << 8 {
            Some(HEADER_LEN)
        } else if fixed == kind as u32 | u32::from(DEFAULT_ALIGN_LOG2) << 8 {
            Some(LINE)
        } else {
            None
        }
    }

    /// The two words.
    pub(crate) fn words(&self) -> [u64; 2] {
        [self.lengths, self.rest]
    }

    /// Offset of the payload in a frame of a mailbox.
    pub(crate) fn payload(&self) -> usize {
        if self.flags().bits() & Flags::ALIGN.bits() == INLINE_ALIGN_LOG2 { HEADER_LEN } else { LINE }
    }

    /// Length of the frame in bytes.
    #[inline(always)]
    pub(crate) fn frame_len(&self) -> u32 {
        self.lengths as u32
    }

    /// Length of the payload in bytes.
    #[inline(always)]
    pub(crate) fn payload_len(&self) -> usize {
        (self.lengths >> 32) as usize
    }

    /// Returns whether the frame is of this kind.
    #[inline(always)]
    pub(crate) fn is_of(&self, kind: Kind) -> bool {
        self.rest as u8 == kind as u8
    }

    /// The code index, or a reply's status.
    #[inline(always)]
    pub(crate) fn index(&self) -> u16 {
        (self.rest >> 16) as u16
    }

    /// The token.
    #[inline(always)]
    pub(crate) fn token(&self) -> u32 {
        (self.rest >> 32) as u32
    }

    /// The alignment and flags.
    #[inline(always)]
    pub(crate) fn flags(&self) -> Flags {
        Flags::from_bits_retain((self.rest >> 8) as u8)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frame::Header;

    /// Lengths around those that matter.
    fn length() -> impl Strategy<Value = u32> {
        prop_oneof![0..700_u32, (0..20_u32).prop_map(|lines| lines * LINE as u32), any::<u32>()]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(50_000))]

        #[test]
        fn accepted_frames_are_those_of_the_general_check_in_two_layouts(
            frame_len in length(),
            payload_len in length(),
            expected in prop_oneof![Just(Kind::Call), Just(Kind::Reply)],
            kind in prop_oneof![Just(Kind::Call as u8), Just(Kind::Reply as u8), any::<u8>()],
            flags in any::<u8>(),
            (index, token) in any::<(u16, u32)>(),
            line in 0..64_usize,
            limit in prop_oneof![Just(1 << 20), 0..1000_usize],
        ) {
            let (at, ring_len) = (line * LINE, 4096);
            let lengths = u64::from(frame_len) | u64::from(payload_len) << 32;
            let rest = u64::from(kind) | u64::from(flags) << 8 | u64::from(index) << 16 | u64::from(token) << 32;
            let most = ((limit / LINE) as u32).min(PlainWords::MOST_LINES);
            let found = PlainWords::of([lengths, rest], expected, at, ring_len, most);
            let checked = Header::from_words([lengths, rest]).ok().and_then(|header| {
                let parts = header.check(at & 4095, ring_len - at, limit, || [0; 5]).ok()?;
                Some((header, parts))
            });
            let expected = checked.filter(|(header, _)| {
                let inline = header.align_log2() == INLINE_ALIGN_LOG2 && payload_len <= INLINE_PAYLOAD as u32;
                header.kind == expected
                    && !header.flags.intersects(Flags::TRAILER | Flags::TRAVELLED)
                    && (inline || header.align_log2() == DEFAULT_ALIGN_LOG2)
            });
            prop_assert_eq!(found.is_some(), expected.is_some());
            if let (Some((call, payload)), Some((header, parts))) = (found, expected) {
                prop_assert_eq!(payload, parts.payload as usize);
                prop_assert_eq!(call.payload(), parts.payload as usize);
                prop_assert_eq!(call.frame_len(), header.frame_len);
                prop_assert_eq!(call.payload_len(), header.payload_len as usize);
                prop_assert_eq!((call.index(), call.token(), call.flags()), (header.index, header.token, header.flags));
            }
        }
    }
}
