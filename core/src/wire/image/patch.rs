//! The words to write into an image to run it in place.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use super::{ImageView, Import, Place, PlaceError, SPAN_DISTANCE};
use crate::shared;

/// The sites of one image with the word for each. Made once from a checked copy of the image. After that, a
/// few stores make every other copy in executable memory ready to run, and nothing reads those copies.
#[derive(Clone, Debug)]
pub struct Patches {
    /// Offset of the site in span 1, and its word: an import has the same address wherever the image is.
    imports: Box<[(u32, u64)]>,
    /// Offset of the site in span 1, and the distance that it points from the start of span 1.
    relatives: Box<[(u32, u64)]>,
    /// The same for sites that are no multiples of 8: addresses in instructions.
    unaligned: Box<[(u32, u64)]>,
    span1_len: usize,
}

impl Patches {
    /// Length in bytes of the memory that one site takes.
    pub const SITE_LEN: usize = size_of::<(u32, u64)>();

    /// Collects the sites of `image`. `resolve` returns an import's address, or `None` if the target does not
    /// offer it.
    ///
    /// # Errors
    /// [`PlaceError::Unresolved`] with the number of the import. [`PlaceError::Space`] for an image with a
    /// span 2, which has no space in place.
    pub fn of(
        image: &ImageView<'_>,
        mut resolve: impl FnMut(&Import<'_>) -> Option<u64>,
    ) -> Result<Patches, PlaceError> {
        if image.span2_len() != 0 {
            return Err(PlaceError::Space { span: 2, needed: image.span2_len(), found: 0 });
        }
        let offset = |site| match site {
            // Span 2 is empty, so all sites are in span 1.
            Place::Span1(offset) | Place::Span2(offset) => offset,
        };
        let imports: Result<Vec<_>, _> = image
            .imports()
            .enumerate()
            .map(|(index, import)| match resolve(&import) {
                None if !import.weak => Err(PlaceError::Unresolved(index)),
                base => Ok((offset(import.site), base.unwrap_or(0).wrapping_add_signed(import.addend))),
            })
            .collect();
        let distance = |to| match to {
            Place::Span1(offset) => u64::from(offset),
            Place::Span2(offset) => SPAN_DISTANCE + u64::from(offset),
        };
        let relatives = image.relatives().map(|relative| (offset(relative.site), distance(relative.to)));
        let (relatives, unaligned): (Vec<_>, Vec<_>) =
            relatives.partition(|(site, _)| site.is_multiple_of(8));
        Ok(Patches {
            imports: imports?.into_boxed_slice(),
            relatives: relatives.into_boxed_slice(),
            unaligned: unaligned.into_boxed_slice(),
            span1_len: image.span1().len(),
        })
    }

    /// Number of sites.
    pub fn sites(&self) -> usize {
        self.imports.len() + self.relatives.len() + self.unaligned.len()
    }

    /// Writes every site of the copy whose span 1 is writable at `span1` and runs at `address`.
    ///
    /// # Safety
    /// `span1` must be aligned to 8 bytes and valid for writes of span 1's length. Other processes may write
    /// there meanwhile; in this process nothing may write or borrow it.
    pub unsafe fn apply(&self, span1: NonNull<u8>, address: u64) {
        let patch = |site: u32, word: u64| {
            debug_assert!(site as usize + 8 <= self.span1_len && site.is_multiple_of(8));
            // SAFETY: these sites are multiples of 8 and whole in the span, which the caller keeps valid (see
            // Safety). Other processes may write the word; an atomic store tears nothing.
            let at = unsafe { AtomicU64::from_ptr(span1.as_ptr().add(site as usize).cast()) };
            at.store(word.to_le(), Ordering::Relaxed);
        };
        for &(site, word) in &self.imports {
            patch(site, word);
        }
        for &(site, distance) in &self.relatives {
            patch(site, address.wrapping_add(distance));
        }
        for &(site, distance) in &self.unaligned {
            debug_assert!(site as usize + 8 <= self.span1_len);
            let word = address.wrapping_add(distance).to_le_bytes();
            // SAFETY: the sites of a checked image are whole in the span, which the caller keeps valid (see
            // Safety). `copy_in` allows for other processes that write there.
            unsafe { shared::copy_in(word.as_ptr(), span1.as_ptr().add(site as usize), word.len()) };
        }
    }
}
