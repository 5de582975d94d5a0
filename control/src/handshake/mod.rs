//! The handshake: from a connection to a link whose frames may flow.
//!
//! ```text
//! source                                target
//! preamble, Hello         ─────────────▶
//!                         ◀───────────── preamble, Welcome  + descriptors of its endpoint
//! Ready + descriptors     ─────────────▶ connects
//! connects                ◀───────────── Rights; Limits, from a target that has any; Go
//! ```
//! A link's stream is opened before `Ready` ([`stream`]). An admin request is `AdminRequest`; `AdminResponse`
//! ends it.

pub(crate) mod first_bytes;
pub(crate) mod negotiation;
pub(crate) mod options;
pub(crate) mod second_endpoint;
pub(crate) mod source;
pub(crate) mod stream;
pub(crate) mod target;
