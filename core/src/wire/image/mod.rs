//! Images: the code that `NAME_main` reaches, linked for one architecture, as bytes that travel.
//!
//! [`ImageView::new_checked`] parses an image once, at the edge; all later code trusts the view. Placing an
//! image ([`ImageView::place`]) copies its two spans and patches its sites. An *import* is a GOT slot, or any
//! other word that holds the address of a symbol that the target offers, plus an addend. A *relative* site is
//! a word that holds an address inside the image. There are no other sites: the builder refuses code that
//! needs more.
//!
//! The bytes, all little-endian (as in `docs/reference/protocol.md`):
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 4 | magic `FJI` and the format's version, 2 |
//! | 4 | 2 | ELF machine ([`Machine`]) |
//! | 6 | 1 | bits 0 to 2: ABI, 1 = Linux, System V, LP64; bit 3: landing pads; high nibble: CPU level ([`Level`]), 15 = a list of features |
//! | 7 | 1 | low nibble: log2 of the image's alignment; high nibble: log2 of the payload's, 0 = default |
//! | 8 | 4 | length of span 1 (text, read-only data, GOT) |
//! | 12 | 4 | entry: offset of `NAME_main` in span 1 |
//! | 16 | 4 | length of the data at the start of span 2 |
//! | 20 | 4 | length of the zeroes that follow it (bss) |
//! | 24 | 2 | number of imports |
//! | 26 | 2 | number of relative sites |
//! | 28 | 4 | bits 0 to 26: length of the name table; bits 27 to 31: number of wanted libraries |
//! | 32 | 16 each | imports, ascending by site: site, name offset (bit 31: weak), addend (signed 64 bit) |
//! | | 8 each | relative sites, ascending: site, location that it points at |
//! | | | if there are features, their list; names of wanted libraries, ascending, then of imports; each ends with a zero byte |
//! | | | zeroes up to the next multiple of 16 |
//! | | | span 1; then, if there is data, zeroes up to the next multiple of 8 and the data |
//!
//! The *list of features* names the features that code for one CPU needs, ascending, with a blank between
//! two. They are spelled as in [`Cpu::features`](crate::cpu::Cpu::features).
//!
//! An image *with landing pads*, for aarch64 alone, has an instruction for that (`bti`) at each address to
//! which code branches indirectly. A target may make the processor check this
//! ([`ImageView::has_landing_pads`]).
//!
//! A *wanted library* is the soname of a shared library that defines some of the imports. It is a hint: a
//! target that offers those imports itself does not need the library.
//!
//! A *location* is a 32-bit word: bit 31 is the span (0: span 1, 1: span 2), the rest is the offset in it.

use core::fmt;

use super::align::INLINE_ALIGN_LOG2;
use super::layout::image as field;

mod check;
mod encode;
mod error;
mod instructions;
mod landing_pads;
mod level;
mod machine;
mod names;
mod patch;
mod place;
mod platform;

pub use super::align::MAX_ALIGN_LOG2;
pub use super::code_id::{CodeId, FamilyId};
pub use encode::ImageParts;
pub use error::{ImageError, PlaceError};
pub use instructions::code_align_log2;
pub use level::Level;
pub use machine::Machine;
pub use patch::Patches;
pub use place::Place;
use place::SPAN2;
pub use platform::{Platform, PlatformError};

/// Length of the fixed part of an image, in bytes.
pub const HEADER_LEN: usize = 32;
/// Distance in memory from span 1 to span 2, in bytes. The linker script fixes it, code reaches its data
/// through it, and every placed image keeps it.
pub const SPAN_DISTANCE: u64 = 1 << 30;
/// Largest length of either span, in bytes: a location has one bit for the span.
pub const MAX_SPAN: usize = 1 << 30;
/// Longest name of an import, in bytes.
pub const MAX_SYMBOL: usize = 4096;
/// Most libraries that an image can want.
pub const MAX_WANTED: usize = 16;
/// Longest name of a wanted library, in bytes.
pub const MAX_SONAME: usize = 255;

const MAGIC: [u8; 4] = *b"FJI\x02";
/// Bits of the word [`field::NAMES`] that hold the length of the name table.
const NAMES_BITS: u32 = 27;
const ABI_LINUX: u8 = 1;
/// The bit of the byte [`field::ABI`] of an image with landing pads.
const LANDING_PADS: u8 = 8;
/// The high nibble of the byte [`field::ABI`] of an image that names features in place of a level.
const FEATURES: u8 = 15;

/// A word that needs the address of a symbol that the target offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Import<'a> {
    /// Location of the word; a multiple of 8.
    pub site: Place,
    /// Name of the symbol.
    pub name: &'a str,
    /// Added to the symbol's address. Not always zero: a table may point into the middle of one of the
    /// target's arrays.
    pub addend: i64,
    /// An unresolved weak import becomes `0 + addend` and does not refuse the image (ELF weak symbols).
    pub weak: bool,
}

/// A word that needs an address inside the image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Relative {
    /// Location of the word, at any offset: an instruction may hold it.
    pub site: Place,
    /// The location that it points at.
    pub to: Place,
}

/// An image whose lengths, offsets, sites and names have all been checked.
#[derive(Clone, Copy)]
pub struct ImageView<'a> {
    bytes: &'a [u8],
    names_at: usize,
    span1_at: usize,
    data_at: usize,
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
fn i64_at(bytes: &[u8], at: usize) -> i64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    i64::from_le_bytes(word)
}

/// Length in bytes of the name table of the image with this header.
#[inline]
fn names_len(bytes: &[u8]) -> usize {
    (u32_at(bytes, field::NAMES) & ((1 << NAMES_BITS) - 1)) as usize
}

/// Returns whether a target may search for a library with this name, which comes from another process. A name
/// with a slash would be a path.
pub fn is_soname(name: &str) -> bool {
    (1..=MAX_SONAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/')
}

/// The location of an image's code, which its sender needs to place a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Text {
    /// Offset of span 1 in the image, in bytes.
    pub(crate) offset: usize,
    /// log2 of the alignment in bytes that span 1 needs to run; at least that of a word, for its sites.
    pub(crate) align_log2: u8,
}

/// Finds span 1 of the image `bytes`; `None` if they are no image. Checks only what this needs:
/// [`ImageView::new_checked`] checks images from other processes.
pub(crate) fn text(bytes: &[u8]) -> Option<Text> {
    let head = bytes.get(..HEADER_LEN)?;
    let sites = usize::from(u16_at(head, field::IMPORTS)) * field::import::LEN
        + usize::from(u16_at(head, field::RELATIVES)) * field::relative::LEN;
    let offset = (HEADER_LEN + sites + names_len(head)).next_multiple_of(16);
    let align_log2 = (head[field::ALIGN] & 15).max(INLINE_ALIGN_LOG2);
    (offset < bytes.len() && align_log2 <= MAX_ALIGN_LOG2).then_some(Text { offset, align_log2 })
}

impl<'a> ImageView<'a> {
    #[inline]
    fn names(&self) -> &'a [u8] {
        &self.bytes[self.names_at..self.names_at + names_len(self.bytes)]
    }

    #[inline]
    fn wanted_count(&self) -> usize {
        (u32_at(self.bytes, field::NAMES) >> NAMES_BITS) as usize
    }

    fn name_offset(&self, index: usize) -> u32 {
        u32_at(self.bytes, HEADER_LEN + index * field::import::LEN + field::import::NAME) & !SPAN2
    }

    fn name(&self, index: usize) -> &'a str {
        let name = names::name_at(self.names(), self.name_offset(index) as usize);
        name.and_then(|name| core::str::from_utf8(name).ok()).unwrap_or("")
    }

    fn relative_words(&self, index: usize) -> (Place, Place) {
        let at = HEADER_LEN + self.import_count() * field::import::LEN + index * field::relative::LEN;
        let place = |field: usize| Place::from_word(u32_at(self.bytes, at + field));
        (place(field::relative::SITE), place(field::relative::POINTEE))
    }

    #[inline]
    fn import_count(&self) -> usize {
        usize::from(u16_at(self.bytes, field::IMPORTS))
    }

    #[inline]
    fn relative_count(&self) -> usize {
        usize::from(u16_at(self.bytes, field::RELATIVES))
    }

    /// The whole image as it travels; its hash gives the code id.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The instruction set it was linked for.
    #[inline]
    pub fn machine(&self) -> Machine {
        Machine(u16_at(self.bytes, field::MACHINE))
    }

    /// The platform that it is for: its machine, and the least CPU level that runs it. `None` if it names
    /// features in place of a level.
    #[inline]
    pub fn platform(&self) -> Option<Platform> {
        let machine = self.machine();
        Level::new(machine, self.bytes[field::ABI] >> 4).map(|level| Platform { machine, level })
    }

    /// The CPU features that it needs, ascending, each once, as [`Cpu::features`](crate::cpu::Cpu::features)
    /// spells them. None if it names a level instead.
    pub fn features(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let list = if self.names_features() { names::name_at(self.names(), 0) } else { None };
        let list = list.and_then(|list| core::str::from_utf8(list).ok());
        list.into_iter().flat_map(|list| list.split(' '))
    }

    #[inline]
    fn names_features(&self) -> bool {
        self.bytes[field::ABI] >> 4 == FEATURES
    }

    /// Returns whether the image has landing pads: each address to which code branches indirectly is one,
    /// `NAME_main` first of all. If so, a target can map the code so that a processor with BTI refuses
    /// indirect branches to other addresses.
    #[inline]
    pub fn has_landing_pads(&self) -> bool {
        self.bytes[field::ABI] & LANDING_PADS != 0
    }

    /// Offset of `NAME_main` in span 1, in bytes.
    #[inline]
    pub fn entry(&self) -> u32 {
        u32_at(self.bytes, field::ENTRY)
    }

    /// log2 of the alignment that both spans need, in bytes: 0 to 12.
    #[inline]
    pub fn align_log2(&self) -> u8 {
        self.bytes[field::ALIGN] & 15
    }

    /// log2 of the alignment that the payload needs: 3 to 12, or 0 for the default rule (`docs/reference/protocol.md`:
    /// 64 bytes, or 8 where the payload shares a line with its header).
    #[inline]
    pub fn payload_align_log2(&self) -> u8 {
        self.bytes[field::ALIGN] >> 4
    }

    /// Text, read-only data and GOT, as they travel (sites hold zero).
    #[inline]
    pub fn span1(&self) -> &'a [u8] {
        &self.bytes[self.span1_at..self.span1_at + u32_at(self.bytes, field::SPAN1_LEN) as usize]
    }

    /// Offset of span 1 in the image, in bytes.
    pub fn span1_offset(&self) -> usize {
        self.span1_at
    }

    /// Initial contents of the start of span 2.
    #[inline]
    pub fn data(&self) -> &'a [u8] {
        &self.bytes[self.data_at..]
    }

    /// Length of span 2, data and bss together, in bytes. 0 for code without writable statics.
    #[inline]
    pub fn span2_len(&self) -> usize {
        u32_at(self.bytes, field::DATA_LEN) as usize + u32_at(self.bytes, field::BSS_LEN) as usize
    }

    /// The imports, ascending by site.
    pub fn imports(&self) -> impl ExactSizeIterator<Item = Import<'a>> + 'a {
        let view = *self;
        (0..self.import_count()).map(move |index| {
            let at = HEADER_LEN + index * field::import::LEN;
            Import {
                site: Place::from_word(u32_at(view.bytes, at + field::import::SITE)),
                name: view.name(index),
                addend: i64_at(view.bytes, at + field::import::ADDEND),
                weak: u32_at(view.bytes, at + field::import::NAME) & SPAN2 != 0,
            }
        })
    }

    /// Returns whether the image wants libraries.
    #[inline]
    pub fn wants_libraries(&self) -> bool {
        self.wanted_count() != 0
    }

    /// Returns whether placing the image patches nothing.
    #[inline]
    fn has_no_sites(&self) -> bool {
        self.import_count() == 0 && self.relative_count() == 0
    }

    /// Sonames of the libraries that define some of the imports, in byte order: each passes [`is_soname`],
    /// and there are at most [`MAX_WANTED`].
    pub fn wanted(&self) -> impl Iterator<Item = &'a str> + 'a {
        let mut rest = self.names();
        if self.names_features() {
            let list = names::name_at(rest, 0).map_or(0, |list| list.len() + 1);
            rest = &rest[list..];
        }
        (0..self.wanted_count()).map_while(move |_| {
            let name = names::name_at(rest, 0)?;
            rest = &rest[name.len() + 1..];
            core::str::from_utf8(name).ok()
        })
    }

    /// The relative sites, ascending.
    pub fn relatives(&self) -> impl ExactSizeIterator<Item = Relative> + 'a {
        let view = *self;
        (0..self.relative_count()).map(move |index| {
            let (site, to) = view.relative_words(index);
            Relative { site, to }
        })
    }

    /// Copies both spans into `space` and patches every site. `resolve` returns an import's address, or `None`
    /// if the target does not offer it. Returns the address to call.
    ///
    /// The caller must publish the code ([`crate::icache::publish`]) before it runs.
    ///
    /// # Errors
    /// [`PlaceError::Unresolved`] with the number of the import. `space` then holds garbage and must not be
    /// run.
    pub fn place(
        &self,
        space: Space<'_>,
        mut resolve: impl FnMut(&Import<'_>) -> Option<u64>,
    ) -> Result<u64, PlaceError> {
        let Space { span1, span2, address } = space;
        let (text, data) = (self.span1(), self.data());
        if text.len() != span1.len() {
            return Err(wrong_space(1, text.len(), span1.len()));
        }
        if self.span2_len() != span2.len() {
            return Err(wrong_space(2, self.span2_len(), span2.len()));
        }
        span1.copy_from_slice(text);
        if !span2.is_empty() {
            let (start, bss) = span2.split_at_mut(data.len());
            start.copy_from_slice(data);
            bss.fill(0);
        }
        if self.has_no_sites() {
            return Ok(address + u64::from(self.entry()));
        }
        let mut patch = |site: Place, word: u64| {
            let at = match site {
                Place::Span1(offset) => &mut span1[offset as usize..offset as usize + 8],
                Place::Span2(offset) => &mut span2[offset as usize..offset as usize + 8],
            };
            at.copy_from_slice(&word.to_le_bytes());
        };
        for (index, import) in self.imports().enumerate() {
            let base = match resolve(&import) {
                Some(base) => base,
                None if import.weak => 0,
                None => return Err(PlaceError::Unresolved(index)),
            };
            patch(import.site, base.wrapping_add_signed(import.addend));
        }
        for relative in self.relatives() {
            let to = match relative.to {
                Place::Span1(offset) => address + u64::from(offset),
                Place::Span2(offset) => address + SPAN_DISTANCE + u64::from(offset),
            };
            patch(relative.site, to);
        }
        Ok(address + u64::from(self.entry()))
    }
}

#[cold]
fn wrong_space(span: u8, needed: usize, found: usize) -> PlaceError {
    PlaceError::Space { span, needed, found }
}

impl fmt::Debug for ImageView<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ImageView")
            .field("machine", &self.machine())
            .field("span1", &self.span1().len())
            .field("span2", &self.span2_len())
            .field("imports", &self.import_count())
            .field("wanted", &self.wanted_count())
            .finish_non_exhaustive()
    }
}

/// Space for an image: writable views of its two spans, and the address at which span 1 will *run* (in
/// another mapping of the same memory; span 2 runs at `address + SPAN_DISTANCE`).
#[derive(Debug)]
pub struct Space<'a> {
    /// Exactly as long as span 1.
    pub span1: &'a mut [u8],
    /// Exactly as long as span 2, data and bss.
    pub span2: &'a mut [u8],
    /// Address at which the code will run, aligned as the image requests.
    pub address: u64,
}
