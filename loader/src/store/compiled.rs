//! Images that a target has compiled from bitcode.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use farjump_core::icache;
use farjump_core::image::ImageView;

use super::{Copied, LinkedImage, Store, Stored, Usage, bad_image, name_of, place, store_full, unsupported};
use crate::code_id::code_id;
use crate::domain::Domain;
use crate::resolve::Resolver;
use crate::resolve::refusal::{Refused, check_cpu};

/// The compilation of an image from bitcode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compilation {
    /// Whether it was optimised. If not, an optimised image follows.
    pub optimised: bool,
    /// Length of the image, in bytes.
    pub image_len: usize,
    /// Time for compiling and linking, or for finding an image that was kept from an earlier compilation.
    pub time: Duration,
}

impl fmt::Display for Compilation {
    /// Writes the compilers' word for its optimisation: `O0` or `O2`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if self.optimised { "O2" } else { "O0" })
    }
}

impl Store {
    /// Links an image that was compiled here from bitcode: places it, and patches its sites by `resolver`. The store
    /// has it in `domain` by the code id of the bitcode, which is in `copied`. It replaces an image that was compiled
    /// from the same bitcode before. An older image without writable statics stays placed until its last `Arc` is
    /// dropped. New calls should go to the new image, whose count of calls continues that of the old one.
    ///
    /// # Errors
    /// See [`Refused`]. Store and copy are then unchanged.
    pub fn insert_compiled(
        &mut self,
        copied: &mut Copied,
        image: &[u8],
        compilation: Compilation,
        domain: Domain,
        resolver: &Resolver,
        origin: Option<&Arc<str>>,
    ) -> Result<Arc<LinkedImage>, Refused> {
        let start = Instant::now();
        let name = name_of(copied)?;
        let (key, len) = (domain.key(code_id(copied.image())), copied.image().len());
        let view = ImageView::new_checked(image).map_err(|source| bad_image(name, source))?;
        icache::supported().map_err(|reason| unsupported(name, reason))?;
        check_cpu(&view, name, self.platform, &self.next.cpu)?;
        let before = self.stored.get(&key).map(|stored| Arc::clone(&stored.linked));
        if before.is_none() && !self.has_capacity_for(len) {
            return Err(store_full(name, len, self.capacity.bytes, self.stored.len(), self.bytes));
        }
        let offer = resolver.offer(&view, name)?;
        let (block, main) = place(&mut self.arena, &view, name, &offer)?;
        let payload_align_log2 = view.payload_align_log2();
        let (bytes, image_len) = copied.take();
        let link_time = start.elapsed() + compilation.time;
        let linked = LinkedImage {
            key,
            main,
            payload_align_log2,
            link_time,
            bytes,
            image_len,
            usage: Usage::new(),
            origin: origin.cloned(),
            family: OnceLock::new(),
            compilation: Some(Box::new(compilation)),
            listing: OnceLock::new(),
            shown: OnceLock::new(),
            block,
        };
        if let Some(before) = before {
            if let Some(family) = before.family() {
                linked.set_family(*family);
            }
            linked.usage().continue_from(before.usage());
            self.drop_code(key);
            // The successor counts these calls.
            self.past_calls -= before.usage().calls();
        }
        let linked = Arc::new(linked);
        self.bytes += len;
        self.stored.insert(key, Stored { linked: Arc::clone(&linked), listed: None });
        if self.next.ages.add(key) {
            self.sort_ages();
        }
        Ok(linked)
    }
}
