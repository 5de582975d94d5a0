//! Frames in slots: memory of the target that both processes know by its address alone.
//!
//! There is no connection, so nothing is counted, and no key was drawn. A signal is a function of the slot's
//! address in the target. Remains of a frame at another address are no signal, and neither is payload whose
//! author does not know its future address. All words are little-endian, and a slot starts at a multiple of 8
//! bytes.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | signal of the address, stored last; in a checked frame its complement. The target writes a *receipt* here when it takes the frame |
//! | 8 | 4 | length of the frame, a multiple of 8 |
//! | 12 | 4 | length of the payload |
//! | 16 | 8 | bits 0 to 3: log2 of the payload's alignment; 4: code or name travels; 5: by name; 16 to 63: the first six bytes of the code id, or of the BLAKE3 hash of the name |
//!
//! then the payload, aligned relative to the slot; then, at the next multiple of 8, the code part, if it
//! travels:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 4 | length of the image; 0 by name |
//! | 4 | 2 | length of the name |
//! | 6 | 2 | zero |
//! | 8 | 16 | code id; zero by name |
//! | 24 | | the name; then, at the next multiple of 8, the image |
//!
//! and, in checked frames, two words at the end: the first eight bytes of the BLAKE3 hash of all from offset
//! 8 up to here, and the trailer of the address. Their first word marks them as checked, because no other
//! field can be trusted before the check.
//!
//! The code part is last, so a frame without it is the beginning of one with it.
//! `docs/decisions/ucp-ifunc-arrival.md` says which kind is sent when, and why it is whole.

use farjump_core::image::CodeId;
use farjump_core::signal::LinkKey;
use farjump_loader::code_id;

/// Length of the header in bytes.
pub(super) const HEAD: usize = 24;
/// Payloads up to this long share a line with the header.
pub(super) const INLINE: usize = 64 - HEAD;
/// Length in bytes of the two words at the end of a checked frame.
pub(super) const CHECK: usize = 16;
/// log2 of the alignment of a slot's address in bytes, unless code asks for more.
pub(super) const SLOT_ALIGN_LOG2: u8 = 3;
/// Longest frame in bytes.
pub(super) const MAX_FRAME: usize = 1 << 31;
/// Length of the fixed fields of the code part in bytes.
const PART: usize = 24;

const ALIGN: u64 = 0xf;
const CARRIES: u64 = 1 << 4;
const NAMED: u64 = 1 << 5;
const UNUSED: u64 = 0xffc0;

/// The same for all processes: the address makes the difference. A changed format changes them.
const SIGNALS: LinkKey = LinkKey::from_bytes(*b"ucp_ifunc frame1");
const RECEIPTS: LinkKey = LinkKey::from_bytes(*b"ucp_ifunc taken1");

/// The word that marks a frame at `address`; its complement marks a checked frame.
#[inline(always)]
pub(super) const fn signal(address: u64) -> u64 {
    SIGNALS.header(address)
}

/// The last word of a checked frame at `address`.
pub(super) const fn trailer(address: u64) -> u64 {
    SIGNALS.trailer(address)
}

/// The word by which the target marks the frame at `address` as taken, and its code as stored.
#[inline(always)]
pub(super) const fn receipt(address: u64) -> u64 {
    RECEIPTS.header(address)
}

/// First word of a slot whose frame was refused: neither of the above.
pub(super) const NOTHING: u64 = 0;

/// Key of the called function, as in a header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key(u64);

impl Key {
    const MASK: u64 = !0xffff | NAMED;

    /// Key of code.
    pub(super) fn of_code(id: &CodeId) -> Key {
        Key(first_six(id))
    }

    /// Key of a function that the target has by its name.
    pub(super) fn of_name(name: &str) -> Key {
        Key(first_six(&code_id(name.as_bytes())) | NAMED)
    }

    /// The key in the third word of a frame.
    #[inline(always)]
    pub(super) const fn in_word(word: u64) -> Key {
        Key(word & Self::MASK)
    }

    /// An index below `len`, a power of two.
    #[inline(always)]
    pub(super) const fn index(self, len: usize) -> usize {
        (self.0 >> 16) as usize & (len - 1)
    }

    pub(super) const fn is_name(self) -> bool {
        self.0 & NAMED != 0
    }

    /// The third word of a frame.
    pub(super) const fn word(self, align_log2: u8, carries: bool) -> u64 {
        self.0 | align_log2 as u64 | if carries { CARRIES } else { 0 }
    }
}

fn first_six(id: &CodeId) -> u64 {
    let [a, b, c, d, e, f, ..] = id.0;
    u64::from_le_bytes([0, 0, a, b, c, d, e, f])
}

/// The two words behind the signal.
#[inline(always)]
pub(super) const fn words(len: usize, payload_len: usize, third: u64) -> [u64; 2] {
    [len as u64 | (payload_len as u64) << 32, third]
}

/// Offset of a payload with this alignment.
#[inline(always)]
pub(super) const fn payload_offset(align_log2: u8) -> usize {
    let below = (1_usize << align_log2) - 1;
    (HEAD + below) & !below
}

/// A header whose lengths have been checked against its slot, in values that no other process can change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    pub(super) payload: usize,
    pub(super) payload_len: usize,
    pub(super) key: Key,
    /// Offset of the code part, if it travels.
    pub(super) part: Option<usize>,
    /// Offset of the check, present or not.
    pub(super) end: usize,
}

/// The fault of an invalid header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BadHead {
    /// The frame would have this length, and does not fit its slot.
    PastSlot(usize),
    /// Its fields contradict each other.
    Malformed,
}

impl Head {
    /// Checks the two words behind the signal of a frame in a slot of `space` bytes that ends with `check`
    /// bytes of a check.
    ///
    /// # Errors
    /// [`BadHead`]: a returned head lies in the slot, whatever the words are.
    #[inline(always)]
    pub(super) fn checked([lengths, third]: [u64; 2], space: usize, check: usize) -> Result<Head, BadHead> {
        let (len, payload_len) = (lengths as u32 as usize, (lengths >> 32) as usize);
        let align_log2 = (third & ALIGN) as u8;
        if len > space {
            return Err(BadHead::PastSlot(len));
        }
        let payload = payload_offset(align_log2);
        let end = payload + payload_len;
        let behind = end.next_multiple_of(8) + check;
        let carries = third & CARRIES != 0;
        let wrong = if carries { behind + PART > len } else { behind != len };
        if wrong || !len.is_multiple_of(8) || third & UNUSED != 0 || !(3..=12).contains(&align_log2) {
            return Err(BadHead::Malformed);
        }
        let part = carries.then(|| end.next_multiple_of(8));
        Ok(Head { payload, payload_len, key: Key::in_word(third), part, end: len - check })
    }
}

/// Contents of the code part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Part<'a> {
    pub(super) id: CodeId,
    pub(super) name: &'a str,
    /// Empty by name.
    pub(super) image: &'a [u8],
}

impl<'a> Part<'a> {
    /// Its length in a frame, in bytes.
    pub(super) fn len(&self) -> usize {
        (PART + self.name.len()).next_multiple_of(8) + self.image.len().next_multiple_of(8)
    }

    /// Writes it to the start of `into`, which has [`Part::len`] bytes at least.
    pub(super) fn write(&self, into: &mut [u8]) {
        into[..4].copy_from_slice(&(self.image.len() as u32).to_le_bytes());
        into[4..8].copy_from_slice(&(self.name.len() as u32).to_le_bytes());
        into[8..PART].copy_from_slice(&self.id.0);
        into[PART..PART + self.name.len()].copy_from_slice(self.name.as_bytes());
        let image = (PART + self.name.len()).next_multiple_of(8);
        into[image..image + self.image.len()].copy_from_slice(self.image);
    }

    /// Reads it from `bytes`, which end with it; `None` if it is invalid for a frame with this key.
    pub(super) fn read(bytes: &'a [u8], key: Key) -> Option<Part<'a>> {
        let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?) as usize);
        let (image_len, name_len) = (word(0)?, word(4)?);
        let id = CodeId(*bytes.get(8..)?.first_chunk()?);
        let name = std::str::from_utf8(bytes.get(PART..PART.checked_add(name_len)?)?).ok()?;
        let start = (PART + name_len).next_multiple_of(8);
        let image = bytes.get(start..start.checked_add(image_len)?)?;
        let part = Part { id, name, image };
        let expected = if key.is_name() { Key::of_name(name) } else { Key::of_code(&id) };
        let fits = key == expected && image.is_empty() == key.is_name() && part.len() == bytes.len();
        fits.then_some(part)
    }
}

/// The first word of a check: of a frame's bytes from offset 8 up to it.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    check_word(code_id(bytes))
}

/// The same, from the id of these bytes.
pub(super) fn check_word(CodeId([a, b, c, d, e, f, g, h, ..]): CodeId) -> u64 {
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::of_code(&CodeId([7; 16]))
    }

    #[test]
    fn signals_receipts_and_trailers_of_near_addresses_all_differ() {
        let mut seen = std::collections::HashSet::from([NOTHING]);
        for address in (0x7f00_0000_0000..0x7f00_0010_0000).step_by(8) {
            assert!(
                seen.insert(signal(address))
                    && seen.insert(receipt(address))
                    && seen.insert(trailer(address))
            );
        }
    }

    #[test]
    fn a_head_is_taken_only_if_its_lengths_say_the_same_and_lie_in_the_slot() {
        let plain = key().word(3, false);
        let head = |len, payload_len, third, space| Head::checked(words(len, payload_len, third), space, 0);
        let good = head(32, 5, plain, 32).unwrap();
        assert_eq!((good.payload, good.payload_len, good.part, good.end), (24, 5, None, 32));
        assert_eq!(head(32, 5, plain, 31), Err(BadHead::PastSlot(32)));
        for (len, payload_len) in
            [(0, 0), (8, 0), (24, 5), (32, 9), (33, 5), (40, 5), (32, u32::MAX as usize)]
        {
            assert_eq!(head(len, payload_len, plain, 4096), Err(BadHead::Malformed), "{len}");
        }
        for bit in [0x40, 0x8000] {
            assert_eq!(head(32, 5, plain | bit, 64), Err(BadHead::Malformed));
        }
        for align_log2 in [0, 2, 13, 15] {
            let third = key().word(align_log2, false);
            let len = (payload_offset(align_log2) + 5).next_multiple_of(8);
            assert_eq!(head(len, 5, third, 1 << 20), Err(BadHead::Malformed), "{align_log2}");
        }
        assert_eq!(head(72, 5, key().word(6, false), 72).unwrap().payload, 64);
        let checked = |len| Head::checked(words(len, 5, plain), len, CHECK).map(|head| head.end);
        assert_eq!((checked(48), checked(32)), (Ok(32), Err(BadHead::Malformed)));
        let carries = key().word(3, true);
        assert_eq!(head(48, 5, carries, 64), Err(BadHead::Malformed));
        assert_eq!(head(56, 5, carries, 64).unwrap().part, Some(32));
    }

    #[test]
    fn a_code_part_is_read_as_it_was_written_and_no_other_way() {
        let id = CodeId([7; 16]);
        let code = Part { id, name: "sum", image: b"machine code" };
        let mut bytes = vec![0; code.len()];
        code.write(&mut bytes);
        assert_eq!(Part::read(&bytes, Key::of_code(&id)), Some(code));
        assert_eq!(Part::read(&bytes, Key::of_code(&CodeId([8; 16]))), None);
        assert_eq!(Part::read(&bytes, Key::of_name("sum")), None);
        for len in 0..bytes.len() {
            assert_eq!(Part::read(&bytes[..len], Key::of_code(&id)), None, "{len}");
        }
        for (at, value) in [(0, 0xff), (3, 0xff), (4, 0xff), (7, 0xff), (24, 0xff)] {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            assert_eq!(Part::read(&bytes, Key::of_code(&id)), None, "{at}");
        }
        let named = Part { id: CodeId([0; 16]), name: "sum", image: b"" };
        let mut bytes = vec![0; named.len()];
        named.write(&mut bytes);
        assert_eq!(Part::read(&bytes, Key::of_name("sum")), Some(named));
        assert_eq!(Part::read(&bytes, Key::of_name("mus")), None);
    }
}
