//! Transports that were not taken.

use alloc::string::String;
use alloc::vec::Vec;

/// A preferred transport that was not taken.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PassedOver {
    /// The name of the transport.
    pub transport: String,
    /// The reason, as a sentence.
    pub why: String,
}

impl PassedOver {
    /// The transport of this name, which was not taken because of `why`.
    pub fn new(transport: impl Into<String>, why: impl Into<String>) -> PassedOver {
        PassedOver { transport: transport.into(), why: why.into() }
    }

    /// The reasons of all in `list`, for a message.
    pub fn reasons(list: &[PassedOver]) -> String {
        list.iter().map(|passed| passed.why.as_str()).collect::<Vec<_>>().join("; ")
    }
}
