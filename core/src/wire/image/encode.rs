//! Encoding an image.

use alloc::vec::Vec;

use super::{
    ABI_LINUX, FEATURES, ImageError, ImageView, Import, LANDING_PADS, Level, MAGIC, MAX_WANTED, Machine,
    NAMES_BITS, Relative, SPAN2,
};

/// The parts of an image, to be encoded. Made by farjump-builder.
#[derive(Clone, Debug)]
pub struct ImageParts<'a> {
    /// Instruction set.
    pub machine: Machine,
    /// The least CPU level that runs it. Not encoded if there are `features`.
    pub level: Level,
    /// The CPU features that it needs, in any order, as [`Cpu::features`](crate::cpu::Cpu::features) spells
    /// them; none for an image that has a level.
    pub features: Vec<&'a str>,
    /// True if each address to which code branches indirectly is a landing pad. Only on aarch64.
    pub landing_pads: bool,
    /// log2 of the alignment both spans need, 0 to 12.
    pub align_log2: u8,
    /// log2 of the payload's alignment, 3 to 12, or 0 for the default.
    pub payload_align_log2: u8,
    /// Text, read-only data, GOT; sites hold zero.
    pub span1: &'a [u8],
    /// Offset of `NAME_main` in span 1.
    pub entry: u32,
    /// Initialised part of span 2; sites hold zero.
    pub data: &'a [u8],
    /// Zeroed rest of span 2, in bytes.
    pub bss_len: u32,
    /// Imports in any order.
    pub imports: Vec<Import<'a>>,
    /// Relative sites in any order.
    pub relatives: Vec<Relative>,
    /// Sonames of the libraries that define some of the imports, in any order.
    pub wanted: Vec<&'a str>,
}

impl<'a> ImageParts<'a> {
    /// The parts of an image of nothing but text that starts with `NAME_main`, has no sites and requests no
    /// alignment beyond that of instructions.
    pub fn text(machine: Machine, span1: &'a [u8]) -> Self {
        ImageParts {
            machine,
            level: Level::BASELINE,
            features: Vec::new(),
            landing_pads: false,
            align_log2: machine.instruction_align_log2(),
            payload_align_log2: 0,
            span1,
            entry: 0,
            data: &[],
            bss_len: 0,
            imports: Vec::new(),
            relatives: Vec::new(),
            wanted: Vec::new(),
        }
    }

    /// Encodes the canonical bytes: sites in order, and each name once. The names of wanted libraries come
    /// first; those of imports follow in the order in which the sorted imports first use them. So the same
    /// code has the same code id whichever linker made it.
    ///
    /// # Errors
    /// Those of [`ImageView::new_checked`] on the result. Too many sites or names for their counts show up as
    /// [`ImageError::Truncated`] or [`ImageError::Overlong`].
    pub fn encode(&self) -> Result<Vec<u8>, ImageError> {
        let mut imports = self.imports.clone();
        imports.sort_by_key(|import| import.site);
        let mut relatives = self.relatives.clone();
        relatives.sort_by_key(|relative| relative.site);
        let mut wanted = self.wanted.clone();
        wanted.sort_unstable();
        wanted.dedup();
        if wanted.len() > MAX_WANTED {
            return Err(ImageError::WantedCount { count: wanted.len() });
        }
        let mut features = self.features.clone();
        features.sort_unstable();
        features.dedup();
        let mut names = Vec::new();
        for (index, feature) in features.iter().enumerate() {
            // The list has a blank between two names, and a zero byte ends it.
            if feature.contains([' ', '\0']) {
                return Err(ImageError::Feature { index });
            }
            names.extend_from_slice(feature.as_bytes());
            names.push(if index + 1 == features.len() { 0 } else { b' ' });
        }
        for (index, name) in wanted.iter().enumerate() {
            // A zero byte ends a name in the table.
            if name.contains('\0') {
                return Err(ImageError::Wanted { index });
            }
            names.extend_from_slice(name.as_bytes());
            names.push(0);
        }
        let mut known: Vec<(&str, u32)> = Vec::new();
        let mut offsets = Vec::with_capacity(imports.len());
        for (index, import) in imports.iter().enumerate() {
            // A zero byte ends a name in the table.
            if import.name.contains('\0') {
                return Err(ImageError::Name { index });
            }
            let offset = match known.iter().find(|(name, _)| *name == import.name) {
                Some(&(_, offset)) => offset,
                None => {
                    let offset = names.len() as u32;
                    known.push((import.name, offset));
                    names.extend_from_slice(import.name.as_bytes());
                    names.push(0);
                    offset
                }
            };
            offsets.push(offset | if import.weak { SPAN2 } else { 0 });
        }
        let mut out = Vec::new();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.machine.0.to_le_bytes());
        let level = if features.is_empty() { self.level.number() } else { FEATURES };
        let landing_pads = if self.landing_pads { LANDING_PADS } else { 0 };
        out.push(ABI_LINUX | landing_pads | level << 4);
        out.push(self.align_log2.min(15) | self.payload_align_log2.min(15) << 4);
        for word in [self.span1.len() as u32, self.entry, self.data.len() as u32, self.bss_len] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&(imports.len() as u16).to_le_bytes());
        out.extend_from_slice(&(relatives.len() as u16).to_le_bytes());
        // Names too long for their bits make an image that is refused below.
        let names_len = names.len() as u32 & ((1 << NAMES_BITS) - 1);
        out.extend_from_slice(&(names_len | (wanted.len() as u32) << NAMES_BITS).to_le_bytes());
        for (import, offset) in imports.iter().zip(offsets) {
            out.extend_from_slice(&import.site.to_word().to_le_bytes());
            out.extend_from_slice(&offset.to_le_bytes());
            out.extend_from_slice(&import.addend.to_le_bytes());
        }
        for relative in &relatives {
            out.extend_from_slice(&relative.site.to_word().to_le_bytes());
            out.extend_from_slice(&relative.to.to_word().to_le_bytes());
        }
        out.extend_from_slice(&names);
        out.resize(out.len().next_multiple_of(16), 0);
        out.extend_from_slice(self.span1);
        if !self.data.is_empty() {
            out.resize(out.len().next_multiple_of(8), 0);
            out.extend_from_slice(self.data);
        }
        ImageView::new_checked(&out)?;
        Ok(out)
    }
}
