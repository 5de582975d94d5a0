//! Addresses of an arena's parts.

use farjump_core::image::SPAN_DISTANCE;

/// Lengths are multiples of this many bytes: the largest Linux page on the machines that farjump supports.
pub(crate) const GRANULE: usize = 64 * 1024;
/// Bytes from code to its data.
pub(crate) const DISTANCE: usize = SPAN_DISTANCE as usize;

/// Bytes of addresses that an arena of `len` bytes takes.
pub(crate) fn addresses(len: usize) -> usize {
    DISTANCE + 2 * len.next_multiple_of(GRANULE) + GRANULE
}
