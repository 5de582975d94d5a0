//! Two connected ends in one process, without a control connection in between.

use farjump_core::transport::{
    Address, Cause, Endpoint, OpenRequest, Opening, Operation, Transport, TransportError,
};

/// How long the two may take to reach each other, in milliseconds.
const DEADLINE_MS: u32 = 10_000;

/// Opens an end of `left` and one of `right`, and connects them to each other.
///
/// # Errors
/// Whatever opening or connecting says; what was opened is closed again.
pub fn connect(
    left: &mut dyn Transport,
    right: &mut dyn Transport,
    request: &OpenRequest,
) -> Result<(Endpoint, Endpoint), TransportError> {
    let (left, right) = (left.open(request)?, right.open(request)?);
    let to_left = handed_over(&*left)?;
    let to_right = handed_over(&*right)?;
    // Both must be open while either is reached: an address is good as long as its opening.
    Ok((left.connect(to_right, DEADLINE_MS)?, right.connect(to_left, DEADLINE_MS)?))
}

/// The address of `opening` as it comes out of a control connection: with descriptors of its own.
///
/// # Errors
/// When the system gives no more descriptors.
pub fn handed_over(opening: &dyn Opening) -> Result<Address, TransportError> {
    opening.address().try_to_owned().map_err(|error| {
        let cause = Cause::System(format!("copying a descriptor: {error}"));
        TransportError::new("pair", Operation::Connect, cause)
    })
}
