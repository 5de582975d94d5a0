//! Header prediction: frames that name code and match one that was checked before.

use core::num::NonZeroU32;

use super::{CodePart, Flags, Header, INLINE_ALIGN_LOG2, LINE};

/// log2 of the largest alignment that a frame keeps at every position: it starts on a line.
const LINE_LOG2: u8 = 6;
/// The bits of the second header word that differ from call to call: the token, and the sender's
/// expectations.
const CALLS_OWN: u64 =
    0xffff_ffff_0000_0000 | (Flags::WANTS_REPLY.bits() as u64 | Flags::ALONE.bits() as u64) << 8;

/// The code header of a checked frame, and the prediction that later frames repeat it. Modes always and local
/// send the same words in each call: a frame with the same words passes the same checks, so the receiver
/// skips them.
// Fills a line, which a frame that matches reads whole.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct CodeHeader {
    /// The five words at 24.
    words: [u64; 5],
    prediction: Option<HeaderPrediction>,
}

/// The other words of a frame that may be repeated, without those that differ from call to call.
#[derive(Clone, Copy, Debug)]
struct HeaderPrediction {
    /// The second header word, without [`CALLS_OWN`].
    rest: u64,
    payload_len: u32,
    /// Length in bytes that the frame's parts need.
    least: NonZeroU32,
}

impl CodeHeader {
    /// The code header of no frame.
    pub(crate) const NOTHING: CodeHeader = CodeHeader { words: [0; 5], prediction: None };

    /// Makes the code header of a checked frame with this code part and payload offset. It predicts nothing
    /// yet.
    pub(crate) fn new(part: &CodePart, payload: u32) -> CodeHeader {
        CodeHeader { words: part.to_words(payload), prediction: None }
    }

    /// Predicts frames like the one that this was made of, which has this header. Predicts nothing for a
    /// frame that ends with a trailer, or whose payload's offset depends on the frame's address.
    pub(crate) fn predict(&mut self, header: &Header) {
        self.prediction = HeaderPrediction::of(header, &self.part(), self.payload());
    }

    /// The header of a frame with these two words behind the signal, if it matches the prediction and fits
    /// the `left` bytes to the end of the ring. `code` returns the five words at 24.
    #[inline(always)]
    pub(crate) fn predicted(
        &self,
        words: [u64; 2],
        left: usize,
        limit: usize,
        code: impl FnOnce() -> [u64; 5],
    ) -> Option<Header> {
        let prediction = self.prediction.as_ref()?;
        let header = Header::of_checked(words);
        let len = header.frame_len as usize;
        let fits =
            len >= prediction.least.get() as usize && len <= left.min(limit) && len.is_multiple_of(LINE);
        let same = header.payload_len == prediction.payload_len && words[1] & !CALLS_OWN == prediction.rest;
        (fits && same && code() == self.words).then_some(header)
    }

    /// The code part.
    #[inline(always)]
    pub(crate) fn part(&self) -> CodePart {
        CodePart::from_words(self.words)
    }

    /// Offset of the payload in bytes.
    #[inline(always)]
    pub(crate) fn payload(&self) -> u32 {
        self.words[4] as u32
    }
}

impl HeaderPrediction {
    fn of(header: &Header, part: &CodePart, payload: u32) -> Option<HeaderPrediction> {
        if header.flags.intersects(Flags::TRAILER.union(Flags::TRAVELLED))
            || !(INLINE_ALIGN_LOG2..=LINE_LOG2).contains(&header.align_log2())
        {
            return None;
        }
        let ends = [
            payload.checked_add(header.payload_len)?,
            part.image_offset.checked_add(part.image_len)?,
            part.names_end() as u32,
        ];
        let least = ends.into_iter().max()?.checked_next_multiple_of(LINE as u32)?;
        let rest = header.to_words()[1] & !CALLS_OWN;
        Some(HeaderPrediction { rest, payload_len: header.payload_len, least: NonZeroU32::new(least)? })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frame::Kind;
    use crate::image::CodeId;

    fn part(image: (u32, u32), name_len: u16, family_len: u16) -> CodePart {
        CodePart {
            image_offset: image.0,
            image_len: image.1,
            id: CodeId(*b"0123456789abcdef"),
            epoch: 77,
            name_len,
            family_len,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        /// A frame that matches would pass the check, with the same parts.
        #[test]
        fn a_predicted_frame_passes_the_check_with_equal_parts(
            kind in prop::sample::select(alloc::vec![Kind::CallCode, Kind::CallLocal]),
            (name_len, image_len, payload_len) in (0_u16..60, 1_u32..200, 0_u32..200),
            family_len in prop::sample::select(alloc::vec![0, 16]),
            (lines, again_lines, lines_left, limit) in (1_u32..16, 0_u32..16, 1_usize..16, 0_usize..1100),
            (flags, again_flags) in (0_u8..=255, 0_u8..=255),
            (token, again_token) in any::<(u32, u32)>(),
            (line, again_line) in (0_usize..64, 0_usize..64),
            changed in prop::option::of((0_usize..7, any::<u64>())),
        ) {
            let names_end = part((0, 0), name_len, family_len).names_end() as u32;
            let image = if kind == Kind::CallCode { (names_end.next_multiple_of(8), image_len) } else { (0, 0) };
            let behind = (image.0 + image.1).max(names_end);
            let flags = Flags::from_bits_retain((flags & 0x50) | (3 + flags % 4));
            let base = line * LINE;
            let at = super::super::payload_offset(base, behind as usize, flags.bits() & 15) as u32;
            let part = part(image, name_len, family_len);
            let words = |frame_len: u32, flags: u8, token: u32| [
                u64::from(frame_len) | u64::from(payload_len) << 32,
                kind as u64 | u64::from(flags) << 8 | 5 << 16 | u64::from(token) << 32,
            ];
            let first = Header::from_words(words(lines * 64, flags.bits(), token)).unwrap();
            let Ok(parts) = first.check(base, 1 << 20, 1 << 20, || part.to_words(at)) else { return Ok(()) };
            let mut seen = CodeHeader::new(&part, parts.payload);
            seen.predict(&first);
            let least = seen.prediction.unwrap().least.get();

            let again_flags = flags.bits() & 15 | again_flags & 0x50;
            let mut again = words(again_lines * 64, again_flags, again_token);
            let mut code = part.to_words(at);
            if let Some((which, value)) = changed {
                if which < 2 { again[which] = value } else { code[which - 2] = value }
            }
            let left = lines_left * 64;
            let Some(header) = seen.predicted(again, left, limit, || code) else {
                // A matching frame that fits is accepted.
                let fits = |len: u32| len >= least && len as usize <= left.min(limit);
                prop_assert!(changed.is_some() || !fits(again_lines * 64));
                return Ok(());
            };
            prop_assert_eq!(Header::from_words(again), Ok(header));
            let checked = header.check(again_line * LINE, left, limit, || code).unwrap();
            prop_assert_eq!((checked.payload, checked.code), (seen.payload(), Some(seen.part())));
        }
    }

    #[test]
    fn frames_with_trailers_or_place_dependent_parts_have_no_prediction() {
        let header = |flags: u8| Header {
            frame_len: 8192,
            payload_len: 8,
            kind: Kind::CallCode,
            flags: Flags::from_bits(flags).unwrap(),
            index: 0,
            token: 0,
        };
        let predicts = |flags| HeaderPrediction::of(&header(flags), &part((128, 64), 20, 0), 256).is_some();
        assert!(predicts(3) && predicts(6) && predicts(0x56));
        assert!(!predicts(7) && !predicts(12) && !predicts(0x23));
    }
}
