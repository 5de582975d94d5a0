//! Delivered frames: frames as messages of a two-sided transport.
//!
//! A message is exactly one frame: its length is the frame's. Nothing polls its bytes, so it needs no signal,
//! no whole lines and no trailer. It begins with the payload, which therefore lies on a line without padding,
//! and ends with the header:
//!
//! | bytes from the end | bytes | what |
//! |---|---|---|
//! | 16 | 4 | stamp ([`LinkKey::stamp`](crate::signal::LinkKey::stamp)) |
//! | 12 | 1 | kind ([`Kind`]), any but `Skip` |
//! | 11 | 1 | flags ([`Flags`]) without a trailer: low nibble log2 of the payload's alignment |
//! | 10 | 2 | code index; in a reply its status |
//! | 8 | 4 | token |
//! | 4 | 4 | the transport's own |
//!
//! A frame that names code begins with 24 zeros, then code header, name and image as in a mailbox. The
//! payload starts where the code header says, and reaches to the header.

use super::{
    CODE_HEADER_LEN, DEFAULT_ALIGN_LOG2, Flags, FrameError, Header, INLINE_ALIGN_LOG2, INLINE_PAYLOAD, Kind,
    Layout, MAX_FRAME, Parts, Plan, Trailer, payload_offset, put_words,
};
use crate::wire::align::MAX_ALIGN_LOG2;

/// Length of the header at the end of a delivered frame, in bytes.
pub const DELIVERED_HEADER_LEN: usize = 16;
/// Length of the transport's own bytes at the end of a delivered frame. The sender's core leaves them zero,
/// and the receiver's does not read them.
pub const TRANSPORT_WORD_LEN: usize = 4;

/// The two words of a delivered frame's header.
#[inline(always)]
pub(crate) const fn to_words(header: Header, stamp: u32) -> [u64; 2] {
    let [_, rest] = header.to_words();
    [stamp as u64 | rest << 32, rest >> 32]
}

/// The second word of a [`Header`], from the two of a delivered frame's.
#[inline(always)]
pub(super) const fn rest_of([first, second]: [u64; 2]) -> u64 {
    first >> 32 | second << 32
}

impl Header {
    /// Reads and checks the delivered frame of `len` bytes that has these words. `code` returns the
    /// five words of the code header, and whether zeros precede it; it is called only for frames that name
    /// code and are long enough.
    pub(super) fn delivered(
        words: [u64; 2],
        len: usize,
        limit: usize,
        code: impl FnOnce() -> ([u64; 5], bool),
    ) -> Result<(Header, Parts), FrameError> {
        let limit = limit.min(MAX_FRAME);
        let header = Header::from_words([len as u64 & 0xffff_ffff, rest_of(words)])?;
        if header.kind == Kind::Skip {
            return Err(FrameError::Kind(Kind::Skip as u8));
        }
        let aligns = (INLINE_ALIGN_LOG2..=MAX_ALIGN_LOG2).contains(&header.align_log2());
        if header.flags.contains(Flags::TRAILER) || !aligns {
            return Err(FrameError::Flags(header.flags.bits()));
        }
        if len > limit {
            let len = u32::try_from(len).unwrap_or(u32::MAX);
            return Err(FrameError::TooLong { len, limit });
        }
        let least = if header.kind.names_code() { CODE_HEADER_LEN } else { 0 };
        let needed = least + DELIVERED_HEADER_LEN;
        let Some(end) = len.checked_sub(DELIVERED_HEADER_LEN).filter(|end| *end >= least) else {
            return Err(FrameError::Truncated { needed, found: len });
        };
        if !header.kind.names_code() {
            let header = Header { payload_len: end as u32, ..header };
            header.check_passage(0)?;
            return Ok((header, Parts { payload: 0, code: None }));
        }
        let (code, has_zeros) = code();
        if !has_zeros {
            return Err(FrameError::Reserved);
        }
        let payload = code[4] as u32;
        let Some(payload_len) = (end as u32).checked_sub(payload) else {
            return Err(FrameError::Payload { offset: payload.into(), len: 0, frame: header.frame_len });
        };
        let header = Header { payload_len, ..header };
        let parts = header.check_code(0, end, code)?;
        Ok((header, parts))
    }
}

impl Plan<'_> {
    /// Lays the frame out as a message, for a payload of `payload_len` bytes.
    ///
    /// A payload without an alignment of its own is aligned to 64 bytes; to 8 if it is short and follows
    /// code.
    #[inline]
    pub fn layout_delivered(&self, payload_len: usize) -> Layout {
        let align_log2 = match &self.code {
            _ if self.align_log2 != 0 => self.align_log2,
            Some(_) if payload_len <= INLINE_PAYLOAD => INLINE_ALIGN_LOG2,
            _ => DEFAULT_ALIGN_LOG2,
        };
        let (image, payload) = match &self.code {
            None => (0, 0),
            Some(code) => {
                let (image, behind) = self.image_range(code, 0);
                (image, payload_offset(0, behind, align_log2))
            }
        };
        let frame_len = payload + payload_len + DELIVERED_HEADER_LEN;
        Layout { payload, align_log2, frame_len, trailer: Trailer::Never, image: image as u32 }
    }

    /// The header of the frame laid out as `layout` by [`Plan::layout_delivered`], with the payload's final
    /// length, which is at most the planned one. A shorter payload makes a shorter frame.
    #[inline(always)]
    pub fn header_delivered(&self, layout: &Layout, payload_len: usize) -> Header {
        let flags = Flags::from_bits_retain(layout.align_log2);
        let frame_len = layout.payload + payload_len + DELIVERED_HEADER_LEN;
        self.header_of(frame_len as u32, payload_len as u32, flags)
    }

    /// Writes the frame laid out as `layout` by [`Plan::layout_delivered`] to the start of `into`, private
    /// memory that holds zeros, without its payload. `payload_len` is the payload's final length. Returns the
    /// header; `None`, with nothing written, if `into` is shorter than the frame.
    pub fn write_delivered(
        &self,
        layout: &Layout,
        stamp: u32,
        payload_len: usize,
        into: &mut [u8],
    ) -> Option<Header> {
        let header = self.header_delivered(layout, payload_len);
        let frame = into.get_mut(..header.frame_len as usize)?;
        self.write_code(layout, frame);
        put_words(&mut frame[layout.payload + payload_len..], &to_words(header, stamp));
        Some(header)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;
    use crate::frame::PlainWords;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(50_000))]

        #[test]
        fn the_quick_check_of_messages_agrees_with_the_full_check(
            (len, limit) in (0_usize..9000, 0_usize..9000),
            kind in 0_u8..12,
            flags in prop_oneof![6 => prop::sample::select(vec![0x03_u8, 0x16, 0x06, 0x1c, 0x53]), 2 => any::<u8>()],
            (index, stamp) in any::<(u16, u32)>(),
            (token, own) in any::<(u32, u32)>(),
        ) {
            let words = [
                u64::from(stamp) | u64::from(kind) << 32 | u64::from(flags) << 40 | u64::from(index) << 48,
                u64::from(token) | u64::from(own) << 32,
            ];
            let names_code = Kind::from_number(kind).is_some_and(Kind::names_code);
            let long = match names_code || kind == Kind::Large as u8 {
                true => None,
                false => Header::delivered(words, len, limit, || panic!("it names no code"))
                    .ok()
                    .filter(|(header, _)| !header.flags.contains(Flags::TRAVELLED)),
            };
            let quick = PlainWords::of_delivered(words, len, limit);
            prop_assert_eq!(
                quick.map(|words| Header::of_checked(words.words())),
                long.map(|(header, _)| header)
            );
            if let Some((header, parts)) = long {
                prop_assert_eq!(to_words(header, stamp), [words[0], words[1] & 0xffff_ffff]);
                prop_assert_eq!((parts, header.payload_len + 16), (Parts { payload: 0, code: None }, len as u32));
            }
        }
    }
}
