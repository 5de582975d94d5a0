//! Lengths of regions, which are whole units of [`REGION_UNIT`].

use farjump_core::transport::{Cause, REGION_UNIT};

/// Checks that a region can have this length.
pub(crate) fn check(len: usize) -> Result<(), Cause> {
    if len == 0 || !len.is_multiple_of(REGION_UNIT) {
        let what =
            format!("a region of {len} bytes is not a positive number of units of {REGION_UNIT} bytes");
        return Err(Cause::System(what));
    }
    Ok(())
}

/// The length of the region for a read of `len` bytes.
#[cfg(any(feature = "ucx", feature = "verbs"))]
pub(crate) fn for_read(len: usize) -> Result<usize, Cause> {
    len.checked_next_multiple_of(REGION_UNIT).ok_or(Cause::Unsupported("so long a read"))
}
