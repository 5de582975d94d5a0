//! What owners and clients send each other: handles, requests and refusals.

pub(crate) mod handle;
pub(crate) mod refusal;
pub(crate) mod requests;
