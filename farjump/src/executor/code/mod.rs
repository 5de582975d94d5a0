//! Code that a target has or is given, and its addresses in each domain.

pub(super) mod bind;
#[cfg(feature = "bitcode")]
pub(super) mod bitcode;
pub(super) mod in_place;
#[cfg(not(feature = "bitcode"))]
pub(super) mod no_bitcode;
pub(super) mod own;
pub(super) mod table;
