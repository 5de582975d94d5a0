//! How much a code store holds, and what an image needs of it.

use farjump_core::image::ImageView;

/// How much a store holds at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capacity {
    /// Length of all images together as they travelled: headers, names of imports and initial data included, bss not. In
    /// bytes. (Placed, an image takes room of the arena besides.)
    pub bytes: usize,
    /// Number of images.
    pub images: usize,
}

impl Capacity {
    /// No bound but the arena.
    pub const UNBOUNDED: Capacity = Capacity { bytes: usize::MAX, images: usize::MAX };
}

/// What one image needs of a store and of its arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Need {
    /// Length of the image as it travels, in bytes.
    pub(crate) image: usize,
    /// Length of the longer of its two spans, in bytes.
    pub(crate) span: usize,
    /// Alignment of its spans, in bytes.
    pub(crate) align: usize,
}

impl Need {
    /// The need of these bytes; `None` if they are no image.
    pub fn of(image: &[u8]) -> Option<Need> {
        ImageView::new_checked(image).ok().map(|view| Need::of_view(image.len(), &view))
    }

    pub(crate) fn of_view(image: usize, view: &ImageView<'_>) -> Need {
        Need { image, span: view.span1().len().max(view.span2_len()), align: 1 << view.align_log2() }
    }
}
