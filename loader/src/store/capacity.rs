//! The capacity of a code store.

/// The capacity of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capacity {
    /// Total length of the images as they travelled, in bytes: headers, names of imports and initial data
    /// included, bss not. (A placed image also takes space of the arena.)
    pub bytes: usize,
    /// Number of images.
    pub images: usize,
}

impl Capacity {
    /// No limit but the arena.
    pub const UNBOUNDED: Capacity = Capacity { bytes: usize::MAX, images: usize::MAX };
}
