//! The space that an image needs.

use farjump_core::image::ImageView;

/// The space that one image needs in a store and in its arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Need {
    /// Length of the image as it travels, in bytes.
    pub(crate) image: usize,
    /// Length of the longer of its two spans, in bytes.
    pub(crate) span: usize,
    /// Alignment of its spans, in bytes.
    pub(crate) align: usize,
    /// Whether it has landing pads.
    pub(crate) landing_pads: bool,
}

impl Need {
    /// The need of the image `image`; `None` if the bytes are no image.
    pub fn of(image: &[u8]) -> Option<Need> {
        ImageView::new_checked(image).ok().map(|view| Need::of_view(image.len(), &view))
    }

    /// The need of bitcode of `len` bytes from which `image` was compiled; `None` if the bytes are no image.
    pub fn of_compiled(len: usize, image: &[u8]) -> Option<Need> {
        ImageView::new_checked(image).ok().map(|view| Need::of_view(len, &view))
    }

    pub(crate) fn of_view(image: usize, view: &ImageView<'_>) -> Need {
        let span = view.span1().len().max(view.span2_len());
        Need { image, span, align: 1 << view.align_log2(), landing_pads: view.has_landing_pads() }
    }
}
