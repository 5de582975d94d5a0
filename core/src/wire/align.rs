//! Alignments that frames and images share.

/// Alignment of a payload that shares the header's line: log2 of 8 bytes.
pub const INLINE_ALIGN_LOG2: u8 = 3;
/// Largest alignment of an image or of its payload: log2 of 4096 bytes.
pub const MAX_ALIGN_LOG2: u8 = 12;
