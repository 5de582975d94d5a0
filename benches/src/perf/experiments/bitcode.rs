//! Targets that take bitcode, where this program was built with it.

use farjump::TargetBuilder;

use crate::program::failure::Failure;

/// Makes a target take bitcode rather than images, if this program was built with it.
#[cfg(feature = "bitcode")]
pub(crate) fn takes_bitcode(builder: TargetBuilder<'static>) -> TargetBuilder<'static> {
    builder.bitcode(farjump::config::BitcodeUse::Preferred)
}

/// Makes a target take bitcode rather than images, if this program was built with it.
#[cfg(not(feature = "bitcode"))]
pub(crate) fn takes_bitcode(builder: TargetBuilder<'static>) -> TargetBuilder<'static> {
    builder
}

/// Checks that this program was built with bitcode.
///
/// # Errors
/// It was not.
pub(crate) fn has_bitcode() -> Result<(), Failure> {
    match cfg!(feature = "bitcode") {
        true => Ok(()),
        false => Err(Failure::new(crate::perf::not_built_with("bitcode"))),
    }
}
