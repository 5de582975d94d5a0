//! Frames in slots: memory of the target that both processes know by its address alone.
//!
//! There is no connection, so there is neither a count of frames nor a link key. A signal is a function of the slot's
//! address in the target. Remains of a frame at another address are no signal, and neither is payload whose author does
//! not know its future address. All words are little-endian, and a slot starts at a multiple of 8 bytes.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | signal of the address, stored last; in a checked frame its complement. The target writes a *receipt* here when it takes the frame |
//! | 8 | 4 | length of the frame, a multiple of 8 |
//! | 12 | 4 | length of the payload |
//! | 16 | 8 | bits 0 to 3: log2 of the payload's alignment; 4: code or name travels; 5: by name; 16 to 63: the first six bytes of the list's id, or of the BLAKE3 hash of the name |
//!
//! then the payload, aligned relative to the slot; then, at the next multiple of 8, the code part, if it
//! travels. It lists the images of the function, one for each machine, in the order x86-64, aarch64, riscv64:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 2 | number of images on the list; 0 by name |
//! | 2 | 2 | length of the name |
//! | 4 | 4 | zero |
//! | 8 | | the name; then, at the next multiple of 8, the list |
//! | | 24 each | code id, 16 bytes; ELF machine, 2; zero, 2; length of the image, 4: 0 if this frame does not carry it |
//! | | | the carried images in that order, each at the next multiple of 8 |
//!
//! The list's id is the start of the BLAKE3 hash of its code ids and machines, 18 bytes each. It does not depend on the
//! images that a frame carries. A receipt identifies the target's machine ([`owner`]), so that later frames carry the
//! image for that machine alone.
//!
//! and, in checked frames, two words at the end: the first eight bytes of the BLAKE3 hash of all from offset
//! 8 up to here, and the trailer of the address. Their first word marks them as checked, because no other
//! field can be trusted before the check.
//!
//! The code part is last, so a frame without it is the beginning of one with it.
//! `docs/design/ucx.md` says when a sender uses each kind, and why frames arrive whole.

use farjump_core::image::{CodeId, Machine};
use farjump_core::signal::LinkKey;
use farjump_loader::code_id;

/// Length of the header in bytes.
pub(super) const HEAD: usize = 24;
/// Payloads up to this long share a line with the header.
pub(super) const INLINE: usize = 64 - HEAD;
/// Length in bytes of the two words at the end of a checked frame.
pub(super) const CHECK: usize = 16;
/// log2 of the alignment of a slot's address in bytes, unless code requires more.
pub(super) const SLOT_ALIGN_LOG2: u8 = 3;
/// Longest frame in bytes.
pub(super) const MAX_FRAME: usize = 1 << 31;
/// Length of the fixed fields of the code part in bytes.
const PART: usize = 8;
/// Length of an entry of its list in bytes.
const ENTRY: usize = 24;

const ALIGN: u64 = 0xf;
const CARRIES: u64 = 1 << 4;
const NAMED: u64 = 1 << 5;
const UNUSED: u64 = 0xffc0;

/// The machines that a frame can list images for, in the order of the list.
pub(super) const MACHINES: [Machine; 3] = [Machine::X86_64, Machine::AARCH64, Machine::RISCV];

/// The same key in all processes: the address makes the difference. A change of the format changes the key.
const SIGNALS: LinkKey = LinkKey::from_bytes(*b"ucp_ifunc frame2");
/// The keys of receipts, this machine's first.
const RECEIPTS: [(Machine, LinkKey); 3] = {
    let x86_64 = (Machine::X86_64, LinkKey::from_bytes(*b"ucp_ifunc had 2x"));
    let aarch64 = (Machine::AARCH64, LinkKey::from_bytes(*b"ucp_ifunc had 2a"));
    let riscv = (Machine::RISCV, LinkKey::from_bytes(*b"ucp_ifunc had 2r"));
    match Machine::native() {
        Some(Machine::AARCH64) => [aarch64, x86_64, riscv],
        Some(Machine::RISCV) => [riscv, x86_64, aarch64],
        _ => [x86_64, aarch64, riscv],
    }
};

/// Returns the word that marks a frame at `address`; its complement marks a checked frame.
#[inline(always)]
pub(super) const fn signal(address: u64) -> u64 {
    SIGNALS.header(address)
}

/// Returns the last word of a checked frame at `address`.
pub(super) const fn trailer(address: u64) -> u64 {
    SIGNALS.trailer(address)
}

/// Returns the word by which the target marks the frame at `address` as taken, and its code as stored.
#[inline(always)]
pub(super) const fn receipt(address: u64) -> u64 {
    RECEIPTS[0].1.header(address)
}

/// Returns the receipt of a target on this machine.
#[cfg(test)]
pub(super) fn receipt_of(machine: Machine, address: u64) -> Option<u64> {
    RECEIPTS.iter().find(|(own, _)| *own == machine).map(|(_, key)| key.header(address))
}

/// Returns the machine of the target whose receipt at `address` this word is; `None` for other words.
#[inline(always)]
pub(super) fn owner(address: u64, word: u64) -> Option<Machine> {
    if word == receipt(address) {
        return Some(RECEIPTS[0].0);
    }
    #[cold]
    fn other(address: u64, word: u64) -> Option<Machine> {
        let others = RECEIPTS[1..].iter();
        others.filter(|(_, key)| key.header(address) == word).map(|(machine, _)| *machine).next()
    }
    other(address, word)
}

/// First word of a slot whose frame was refused: neither a signal nor a receipt.
pub(super) const NOTHING: u64 = 0;

/// Key of the called function, as in a header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key(u64);

impl Key {
    const MASK: u64 = !0xffff | NAMED;

    /// Returns the key of code.
    pub(super) fn of_code(id: &CodeId) -> Key {
        Key(first_six(id))
    }

    /// Returns the key of a function that the target has by its name.
    pub(super) fn of_name(name: &str) -> Key {
        Key(first_six(&code_id(name.as_bytes())) | NAMED)
    }

    /// Returns the key in the third word of a frame.
    #[inline(always)]
    pub(super) const fn in_word(word: u64) -> Key {
        Key(word & Self::MASK)
    }

    /// Returns an index below `len`, a power of two.
    #[inline(always)]
    pub(super) const fn index(self, len: usize) -> usize {
        (self.0 >> 16) as usize & (len - 1)
    }

    pub(super) const fn is_name(self) -> bool {
        self.0 & NAMED != 0
    }

    /// Returns the third word of a frame.
    pub(super) const fn word(self, align_log2: u8, carries: bool) -> u64 {
        self.0 | align_log2 as u64 | if carries { CARRIES } else { 0 }
    }
}

fn first_six(id: &CodeId) -> u64 {
    let [a, b, c, d, e, f, ..] = id.0;
    u64::from_le_bytes([0, 0, a, b, c, d, e, f])
}

/// Returns the two words behind the signal.
#[inline(always)]
pub(super) const fn words(len: usize, payload_len: usize, third: u64) -> [u64; 2] {
    [len as u64 | (payload_len as u64) << 32, third]
}

/// Returns the offset of a payload with this alignment.
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

/// An image on the list of a code part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Listed<'a> {
    pub(super) machine: Machine,
    pub(super) id: CodeId,
    /// Empty if the frame does not carry it.
    pub(super) bytes: &'a [u8],
}

/// Contents of the code part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Part<'a> {
    pub(super) name: &'a str,
    /// The images; empty for a call by name.
    pub(super) images: Vec<Listed<'a>>,
}

/// Returns the id of a list of images.
pub(super) fn id_of_list(list: impl Iterator<Item = (CodeId, Machine)>) -> CodeId {
    let bytes: Vec<u8> =
        list.flat_map(|(id, machine)| id.0.into_iter().chain(machine.0.to_le_bytes())).collect();
    code_id(&bytes)
}

impl<'a> Part<'a> {
    /// Returns the id of its list.
    pub(super) fn id(&self) -> CodeId {
        id_of_list(self.images.iter().map(|image| (image.id, image.machine)))
    }

    /// Returns its image for this machine, if it is carried.
    pub(super) fn for_machine(&self, machine: Machine) -> Option<&Listed<'a>> {
        self.images.iter().find(|image| image.machine == machine && !image.bytes.is_empty())
    }

    /// Returns the same list, carrying the image for this machine alone.
    pub(super) fn with_only(&self, machine: Machine) -> Part<'a> {
        let only = |image: &Listed<'a>| Listed {
            bytes: if image.machine == machine { image.bytes } else { &[] },
            ..*image
        };
        Part { name: self.name, images: self.images.iter().map(only).collect() }
    }

    fn list_at(&self) -> usize {
        (PART + self.name.len()).next_multiple_of(8)
    }

    /// Returns its length in a frame, in bytes.
    pub(super) fn len(&self) -> usize {
        let images = self.images.iter().map(|image| ENTRY + image.bytes.len().next_multiple_of(8));
        self.list_at() + images.sum::<usize>()
    }

    /// Writes it to the start of `into`, which has [`Part::len`] bytes at least, all zero.
    pub(super) fn write(&self, into: &mut [u8]) {
        into[..2].copy_from_slice(&(self.images.len() as u16).to_le_bytes());
        into[2..4].copy_from_slice(&(self.name.len() as u16).to_le_bytes());
        into[PART..PART + self.name.len()].copy_from_slice(self.name.as_bytes());
        let (_, list) = into.split_at_mut(self.list_at());
        let (list, mut images) = list.split_at_mut(ENTRY * self.images.len());
        for (image, entry) in self.images.iter().zip(list.chunks_exact_mut(ENTRY)) {
            entry[..16].copy_from_slice(&image.id.0);
            entry[16..18].copy_from_slice(&image.machine.0.to_le_bytes());
            entry[20..].copy_from_slice(&(image.bytes.len() as u32).to_le_bytes());
            let (to, behind) = images.split_at_mut(image.bytes.len().next_multiple_of(8));
            to[..image.bytes.len()].copy_from_slice(image.bytes);
            images = behind;
        }
    }

    /// Reads it from `bytes`, which end with it. Returns `None` if it is invalid for a frame with this key.
    pub(super) fn read(bytes: &'a [u8], key: Key) -> Option<Part<'a>> {
        let half = |at: usize| Some(usize::from(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?)));
        let (count, name_len) = (half(0)?, half(2)?);
        if (half(4)?, half(6)?) != (0, 0) {
            return None;
        }
        let name = std::str::from_utf8(bytes.get(PART..PART + name_len)?).ok()?;
        let (list, mut behind) =
            bytes.get((PART + name_len).next_multiple_of(8)..)?.split_at_checked(ENTRY * count)?;
        if count > MACHINES.len() {
            return None;
        }
        let mut images = Vec::with_capacity(count);
        for entry in list.as_chunks::<ENTRY>().0 {
            let [id @ .., a, b, 0, 0, c, d, e, f] = *entry else { return None };
            let len = u32::from_le_bytes([c, d, e, f]) as usize;
            let (image, rest) = behind.split_at_checked(len.checked_next_multiple_of(8)?)?;
            let machine = Machine(u16::from_le_bytes([a, b]));
            // Each machine once, in the order of `MACHINES`.
            let place = MACHINES.iter().position(|known| *known == machine)?;
            if images
                .last()
                .is_some_and(|last: &Listed<'_>| MACHINES[..place].iter().all(|known| *known != last.machine))
            {
                return None;
            }
            images.push(Listed { machine, id: CodeId(id), bytes: &image[..len] });
            behind = rest;
        }
        let part = Part { name, images };
        let expected = if key.is_name() { Key::of_name(name) } else { Key::of_code(&part.id()) };
        let fits = key == expected && part.images.is_empty() == key.is_name() && part.len() == bytes.len();
        fits.then_some(part)
    }
}

/// Returns the first word of a check: the hash of a frame's bytes from offset 8 to the check.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    check_word(code_id(bytes))
}

/// Returns the first word of a check, from the id of these bytes.
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
    fn a_head_is_accepted_only_if_consistent_and_inside_the_slot() {
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
        assert_eq!(head(32, 5, carries, 64), Err(BadHead::Malformed));
        assert_eq!(head(40, 5, carries, 64).unwrap().part, Some(32));
    }

    fn sum(bytes: [&'static [u8]; 2]) -> Part<'static> {
        let machines = [Machine::X86_64, Machine::AARCH64];
        let images = machines.into_iter().zip(bytes).zip([7, 8]).map(|((machine, bytes), id)| Listed {
            machine,
            id: CodeId([id; 16]),
            bytes,
        });
        Part { name: "sum", images: images.collect() }
    }

    fn written(part: &Part<'_>) -> Vec<u8> {
        let mut bytes = vec![0; part.len()];
        part.write(&mut bytes);
        bytes
    }

    #[test]
    fn only_an_undamaged_code_part_is_read_with_its_own_key() {
        let part = sum([b"machine code", b"other code!!!!!"]);
        let key = Key::of_code(&part.id());
        let bytes = written(&part);
        assert_eq!(Part::read(&bytes, key), Some(part.clone()));
        assert_eq!(Part::read(&bytes, Key::of_code(&CodeId([8; 16]))), None);
        assert_eq!(Part::read(&bytes, Key::of_name("sum")), None);
        for len in 0..bytes.len() {
            assert_eq!(Part::read(&bytes[..len], key), None, "{len}");
        }
        for (at, value) in [
            (0, 0xff),
            (1, 0xff),
            (2, 0xff),
            (4, 1),
            (8, 0xff),
            (16, 0xff),
            (32, 0xff),
            (34, 1),
            (36, 0xff),
            (39, 0xff),
        ] {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            assert_eq!(Part::read(&bytes, key), None, "{at}");
        }
        let named = Part { name: "sum", images: Vec::new() };
        let bytes = written(&named);
        assert_eq!(Part::read(&bytes, Key::of_name("sum")), Some(named));
        assert_eq!(Part::read(&bytes, Key::of_name("mus")), None);
    }

    #[test]
    fn a_list_has_each_known_machine_once_and_in_order() {
        let whole = sum([b"one", b"two"]);
        for machines in
            [[Machine::AARCH64, Machine::X86_64], [Machine::X86_64; 2], [Machine::X86_64, Machine(0x1234)]]
        {
            let images =
                whole.images.iter().zip(machines).map(|(image, machine)| Listed { machine, ..*image });
            let part = Part { name: "sum", images: images.collect() };
            assert_eq!(Part::read(&written(&part), Key::of_code(&part.id())), None, "{machines:?}");
        }
        let many = Part { name: "sum", images: whole.images.iter().cycle().take(4).copied().collect() };
        assert_eq!(Part::read(&written(&many), Key::of_code(&many.id())), None);
    }

    #[test]
    fn a_list_has_one_key_whichever_images_travel() {
        let whole = sum([b"machine code", b"other code!!!!!"]);
        for (machine, bytes) in
            [(Machine::X86_64, &b"machine code"[..]), (Machine::AARCH64, b"other code!!!!!")]
        {
            let part = whole.with_only(machine);
            assert_eq!(part.id(), whole.id());
            assert!(part.len() < whole.len());
            let read = written(&part);
            let read = Part::read(&read, Key::of_code(&whole.id())).unwrap();
            assert_eq!(read.for_machine(machine).unwrap().bytes, bytes);
            assert_eq!(read.images.iter().filter(|image| !image.bytes.is_empty()).count(), 1);
            assert_eq!(read.for_machine(Machine::RISCV), None);
        }
    }

    #[test]
    fn a_receipt_identifies_its_machine_and_only_at_its_address() {
        let address = 0x7f00_0000_0040;
        assert_eq!(owner(address, receipt(address)), Machine::native());
        let mut machines: Vec<_> =
            RECEIPTS.iter().map(|(_, key)| owner(address, key.header(address))).collect();
        machines.sort_by_key(|machine| machine.map(|machine| machine.0));
        machines.dedup();
        assert_eq!(machines.len(), 3);
        for word in [signal(address), !signal(address), NOTHING, receipt(address + 8), trailer(address)] {
            assert_eq!(owner(address, word), None);
        }
    }
}
