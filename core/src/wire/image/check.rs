//! Checks of an image's bytes: lengths, offsets, sites and names.

use super::{
    ABI_LINUX, FEATURES, HEADER_LEN, ImageError, ImageView, Level, MAGIC, MAX_ALIGN_LOG2, MAX_SPAN, Machine,
    Place, field, instructions, landing_pads, names, names_len, u16_at, u32_at,
};
use crate::wire::align::INLINE_ALIGN_LOG2;

impl<'a> ImageView<'a> {
    /// Returns whether the bytes start like an image.
    pub fn is_image(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC[..field::VERSION])
    }

    /// Checks every length, offset, site and name of `bytes`. They must be memory that nothing else can
    /// write: a copy of the received bytes, never the mailbox itself.
    ///
    /// # Errors
    /// The first error found, see [`ImageError`]. Nothing outside `bytes` is read, whatever they hold.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, ImageError> {
        let found = bytes.len() as u64;
        if bytes.len() < HEADER_LEN {
            return Err(ImageError::Truncated { needed: HEADER_LEN as u64, found });
        }
        if !ImageView::is_image(bytes) {
            return Err(ImageError::Magic);
        }
        if bytes[field::VERSION] != MAGIC[field::VERSION] {
            return Err(ImageError::Version(bytes[field::VERSION]));
        }
        let (abi, level) = (bytes[field::ABI] & 15, bytes[field::ABI] >> 4);
        let machine = Machine(u16_at(bytes, field::MACHINE));
        if abi != ABI_LINUX {
            landing_pads::check_abi(abi, machine)?;
        }
        if level != 0 && Level::new(machine, level).is_none() {
            check_features_follow(bytes, machine, level)?;
        }
        let (align_log2, payload_log2) = (bytes[field::ALIGN] & 15, bytes[field::ALIGN] >> 4);
        if align_log2 > MAX_ALIGN_LOG2 {
            return Err(ImageError::Alignment(align_log2));
        }
        if payload_log2 != 0 && !(INLINE_ALIGN_LOG2..=MAX_ALIGN_LOG2).contains(&payload_log2) {
            return Err(ImageError::PayloadAlignment(payload_log2));
        }
        let (span1, data, bss) = (
            u64::from(u32_at(bytes, field::SPAN1_LEN)),
            u64::from(u32_at(bytes, field::DATA_LEN)),
            u64::from(u32_at(bytes, field::BSS_LEN)),
        );
        if span1 == 0 {
            return Err(ImageError::Empty);
        }
        for (span, len) in [(1, span1), (2, data + bss)] {
            if len > MAX_SPAN as u64 {
                return Err(ImageError::SpanTooLong { span, len });
            }
        }
        let entry = u32_at(bytes, field::ENTRY);
        if u64::from(entry) >= span1 {
            return Err(ImageError::Entry { entry, len: span1 as u32 });
        }
        // No sum here can overflow: each term is below 2^36.
        let sites = u64::from(u16_at(bytes, field::IMPORTS)) * field::import::LEN as u64
            + u64::from(u16_at(bytes, field::RELATIVES)) * field::relative::LEN as u64;
        let names_at = HEADER_LEN as u64 + sites;
        let names_end = names_at + names_len(bytes) as u64;
        let span1_at = names_end.next_multiple_of(16);
        let span1_end = span1_at + span1;
        let data_at = if data == 0 { span1_end } else { span1_end.next_multiple_of(8) };
        let end = data_at + data;
        if found < end {
            return Err(ImageError::Truncated { needed: end, found });
        }
        if found > end {
            return Err(ImageError::Overlong { end, found });
        }
        let padding = bytes[names_end as usize..span1_at as usize]
            .iter()
            .chain(&bytes[span1_end as usize..data_at as usize]);
        if padding.into_iter().any(|&byte| byte != 0) {
            return Err(ImageError::Padding);
        }
        let view = ImageView {
            bytes,
            names_at: names_at as usize,
            span1_at: span1_at as usize,
            data_at: data_at as usize,
        };
        // Without sites, names and wanted libraries there is nothing else to check.
        if names_end != HEADER_LEN as u64 || view.wanted_count() != 0 {
            view.check_lists()?;
        }
        if machine != Machine::X86_64 {
            instructions::check(&view)?;
        }
        Ok(view)
    }

    /// Checks sites and names.
    #[inline(never)]
    fn check_lists(&self) -> Result<(), ImageError> {
        let wanted = if self.names_features() { names::check_features(self.names())? } else { 0 };
        let imports = names::check_wanted(self.names(), wanted, self.wanted_count())?;
        self.check_sites()?;
        let offsets = (0..self.import_count()).map(|index| self.name_offset(index));
        names::check_imports(self.names(), imports, offsets)
    }

    /// Checks that both lists ascend by at least eight bytes, and that no pair of the merged lists is closer
    /// than that.
    fn check_sites(&self) -> Result<(), ImageError> {
        let imports = self.import_count();
        let (mut i, mut r) = (0, 0);
        let mut last: Option<Place> = None;
        while i < imports || r < self.relative_count() {
            let import = (i < imports)
                .then(|| Place::from_word(u32_at(self.bytes, HEADER_LEN + i * field::import::LEN)));
            let relative = (r < self.relative_count()).then(|| self.relative_words(r));
            let take_import = match (import, relative) {
                (Some(import), Some((site, _))) => import <= site,
                (import, _) => import.is_some(),
            };
            let (index, site) = if take_import {
                i += 1;
                (i - 1, import)
            } else {
                r += 1;
                let index = imports + r - 1;
                if let Some((_, to)) = relative {
                    self.check_place(index, to, 0)?;
                }
                (index, relative.map(|(site, _)| site))
            };
            let Some(site) = site else { break };
            self.check_place(index, site, 8)?;
            let offset = match site {
                Place::Span1(offset) | Place::Span2(offset) => offset,
            };
            if take_import && !offset.is_multiple_of(8) {
                return Err(ImageError::Unaligned { index, place: site });
            }
            if last.is_some_and(|last| !site.is_behind(last)) {
                return Err(ImageError::Overlap { index, place: site });
            }
            last = Some(site);
        }
        Ok(())
    }

    /// Checks that `need` bytes from `place` on lie in its span. A pointer (`need` 0) may also be one past
    /// the span's end, as C allows.
    fn check_place(&self, index: usize, place: Place, need: u64) -> Result<(), ImageError> {
        let (offset, len) = match place {
            Place::Span1(offset) => (offset, self.span1().len() as u64),
            Place::Span2(offset) => (offset, self.span2_len() as u64),
        };
        if u64::from(offset) + need > len {
            return Err(ImageError::Outside { index, place, len });
        }
        Ok(())
    }
}

/// Checks the number of a level that `machine` does not have: it must announce a list of features at the
/// start of the name table. The contents of the table are checked later, if it has any.
#[cold]
fn check_features_follow(bytes: &[u8], machine: Machine, level: u8) -> Result<(), ImageError> {
    match level {
        FEATURES if names_len(bytes) != 0 => Ok(()),
        FEATURES => Err(ImageError::Features),
        _ => Err(ImageError::Level { machine, level }),
    }
}
