//! Stores, handles, placement and streams.

pub(crate) mod handle;
pub(crate) mod placement;
pub(crate) mod request;
pub(crate) mod store;
pub(crate) mod stream;
