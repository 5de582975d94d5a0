//! What is to be written into an image to run it where it lies.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use super::{ImageView, Import, Place, PlaceError, SPAN_DISTANCE};

/// The sites of one image with what each has to hold. Made once from a checked copy of the image; after that, every other
/// copy of it that lies where it can be executed is made fit to run by a few stores, and nothing of it is read.
#[derive(Clone, Debug)]
pub struct Patches {
    /// Site as an offset in span 1, and the word it gets: what an import names is at the same address wherever the image is.
    imports: Box<[(u32, u64)]>,
    /// Site as an offset in span 1, and how far from the start of span 1 it points.
    relatives: Box<[(u32, u64)]>,
    span1_len: usize,
}

impl Patches {
    /// Length in bytes of the memory that one site takes.
    pub const SITE_LEN: usize = size_of::<(u32, u64)>();

    /// The sites of `image`. `resolve` gives an import's address, or `None` where the target does not offer it.
    ///
    /// # Errors
    /// [`PlaceError::Unresolved`] with the number of the import. [`PlaceError::Room`] for an image with a span 2, for which
    /// there is no room where it lies.
    pub fn of(
        image: &ImageView<'_>,
        mut resolve: impl FnMut(&Import<'_>) -> Option<u64>,
    ) -> Result<Patches, PlaceError> {
        if image.span2_len() != 0 {
            return Err(PlaceError::Room { span: 2, needed: image.span2_len(), found: 0 });
        }
        let offset = |site| match site {
            // All sites are in span 1, as the other one is empty.
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
        Ok(Patches {
            imports: imports?.into_boxed_slice(),
            relatives: relatives.collect(),
            span1_len: image.span1().len(),
        })
    }

    /// How many sites there are.
    pub fn sites(&self) -> usize {
        self.imports.len() + self.relatives.len()
    }

    /// Writes every site of the copy whose span 1 is at `span1` here and runs at `address`.
    ///
    /// # Safety
    /// `span1` must be aligned to 8 bytes and valid for writes of as many bytes as the image's span 1 has. Other processes may
    /// write there meanwhile; in this one nobody does, and nobody borrows it.
    pub unsafe fn apply(&self, span1: NonNull<u8>, address: u64) {
        let patch = |site: u32, word: u64| {
            debug_assert!(site as usize + 8 <= self.span1_len && site.is_multiple_of(8));
            // SAFETY: a checked image has its sites at multiples of 8 and whole in its span, which the caller vouches for.
            // Whoever else writes the word does so from another process: an atomic store tears nothing.
            let at = unsafe { AtomicU64::from_ptr(span1.as_ptr().add(site as usize).cast()) };
            at.store(word.to_le(), Ordering::Relaxed);
        };
        for &(site, word) in &self.imports {
            patch(site, word);
        }
        for &(site, distance) in &self.relatives {
            patch(site, address.wrapping_add(distance));
        }
    }
}
