//! Code that runs in place, where its source wrote it: checked once, and prepared to run in each frame that contains
//! it.
//!
//! The check is on a copy. The bytes that run are those in the mailbox at that time, and nothing guarantees that they
//! equal the copy. But this process reads and writes no byte outside the image for them, because it takes every offset
//! from the copy.

use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use farjump_core::cpu::Cpu;
use farjump_core::icache;
use farjump_core::image::{CodeId, ImageView, Patches};

use crate::address_map::Listing;
use crate::code_id::code_id;
use crate::error::Error;
use crate::library::MainRoutine;
use crate::library::bundle::is_name;
use crate::resolve::Resolver;
use crate::resolve::refusal::{Refused, check_cpu};
use crate::store::refusal;

/// The facts about code that runs in place, from a copy of it. Holds no code.
pub struct InPlace {
    id: CodeId,
    name: Box<str>,
    image_len: usize,
    span1_offset: usize,
    span1_len: usize,
    entry: u64,
    /// Alignment of span 1 in bytes, at least that of a word.
    align: u64,
    payload_align_log2: u8,
    patches: Patches,
    listing: Option<Listing>,
}

impl InPlace {
    /// Checks `image`, a copy in memory that nothing else writes, against its claimed code id, and resolves its imports
    /// by `resolver`. `cpu` runs the code. With `listed`, the [`address_map`](crate::address_map) lists the code while
    /// it runs.
    ///
    /// # Errors
    /// The errors of placed code, and [`Refused::Statics`].
    pub fn new(
        image: &[u8],
        claimed: CodeId,
        name: &str,
        resolver: &Resolver,
        cpu: &Arc<Cpu>,
        listed: bool,
    ) -> Result<InPlace, Refused> {
        if !is_name(name) {
            return Err(Refused::Name { name: name.chars().take(64).collect() });
        }
        let ifunc = || name.to_owned();
        let found = code_id(image);
        if found != claimed {
            return Err(Refused::IdMismatch { ifunc: ifunc(), claimed, found });
        }
        let view =
            ImageView::new_checked(image).map_err(|source| Refused::BadImage { ifunc: ifunc(), source })?;
        icache::supported().map_err(|reason| Refused::UnsupportedMachine { ifunc: ifunc(), reason })?;
        check_cpu(&view, name, cpu.platform(), cpu)?;
        if view.span2_len() != 0 {
            return Err(Refused::Statics { ifunc: ifunc(), len: view.span2_len() });
        }
        let offer = resolver.offer(&view, name)?;
        let patches = Patches::of(&view, |import| offer.resolve(import))
            .map_err(|error| refusal(Error::Place(error), &view, name, &offer))?;
        Ok(InPlace {
            id: claimed,
            name: name.into(),
            image_len: image.len(),
            span1_offset: view.span1_offset(),
            span1_len: view.span1().len(),
            entry: view.entry().into(),
            align: (1 << view.align_log2()).max(align_of::<u64>() as u64),
            payload_align_log2: view.payload_align_log2(),
            patches,
            listing: listed.then(|| Listing::new(0, 0, claimed, name)),
        })
    }

    /// Its code id.
    pub fn id(&self) -> CodeId {
        self.id
    }

    /// The name under which the code first arrived, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Length of its image in bytes.
    pub fn image_len(&self) -> usize {
        self.image_len
    }

    /// log2 of the alignment that the payload needs, in bytes: 3 to 12, or 0 for the default rule.
    pub fn payload_align_log2(&self) -> u8 {
        self.payload_align_log2
    }

    /// Bytes of memory used by this value.
    pub fn footprint(&self) -> usize {
        size_of::<InPlace>() + self.name.len() + self.patches.sites() * Patches::SITE_LEN
    }

    /// Makes the image at `image`, which runs at `address`, ready to be called by this thread, and returns the function
    /// to call. Until [`InPlace::over`], the address map lists the code.
    ///
    /// # Errors
    /// [`Refused::Misplaced`] if the image is not aligned as it requests.
    ///
    /// # Safety
    /// `image` must be valid for writes of [`InPlace::image_len`] bytes, which nothing else in this process
    /// may use. `address` must be the same memory, executable. Both must hold until the last call of the
    /// returned function has ended.
    pub unsafe fn prepare(&self, image: NonNull<u8>, address: u64) -> Result<MainRoutine, Refused> {
        let start = address + self.span1_offset as u64;
        // SAFETY: span 1 of a checked image lies inside it.
        let span1 = unsafe { image.add(self.span1_offset) };
        if !start.is_multiple_of(self.align) || !span1.cast::<u64>().is_aligned() {
            return Err(Refused::Misplaced { ifunc: self.name.to_string(), align: self.align });
        }
        // SAFETY: the caller keeps the image valid (see Safety), and span 1 lies in it. The check above found it
        // aligned.
        unsafe { self.patches.apply(span1, start) };
        icache::sync_foreign(span1.addr().get() as u64, start, self.span1_len);
        if let Some(listing) = &self.listing {
            listing.move_to(start, self.span1_len as u64);
        }
        // SAFETY: the entry lies inside code for this machine, which is executable there (see Safety). The image claims
        // that the function has this signature, which the caller must trust to run it.
        Ok(unsafe {
            std::mem::transmute::<*const c_void, MainRoutine>((start + self.entry) as usize as *const c_void)
        })
    }

    /// Ends the call: from now on other code, or none, is at this address.
    pub fn over(&self) {
        if let Some(listing) = &self.listing {
            listing.move_to(0, 0);
        }
    }
}

impl fmt::Debug for InPlace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("InPlace")
            .field("name", &self.name)
            .field("id", &self.id)
            .field("image_len", &self.image_len)
            .finish_non_exhaustive()
    }
}
