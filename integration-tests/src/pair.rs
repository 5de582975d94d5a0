//! Two connected ends in one process, without a control connection in between.

use farjump_core::transport::{Endpoint, OpenRequest, Transport, TransportError};

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
    let (left_address, right_address) = (left.address(), right.address());
    Ok((left.connect(right_address, DEADLINE_MS)?, right.connect(left_address, DEADLINE_MS)?))
}
