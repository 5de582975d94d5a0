//! The handshake: from a connection to a link whose frames may flow.

pub(crate) mod first_bytes;
pub(crate) mod negotiation;
pub(crate) mod second;
pub(crate) mod source;
pub(crate) mod stream;
pub(crate) mod target;
