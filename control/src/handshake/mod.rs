//! The handshake: from a connection to a link whose frames may flow.
//!
//! ```text
//! source                                target
//! preamble, Hello         ─────────────▶
//!                         ◀───────────── preamble, Welcome  + descriptors of its endpoint
//! Ready + descriptors     ─────────────▶ connects
//! connects                ◀───────────── Rights; Limits, from a target that has any; Go
//! ```
//! Either process may send `Refuse` instead, with a reason as text, and close. If the transport's frames
//! travel on a stream, the source opens it before it sends `Ready` ([`stream`]). An admin request sends `Ask`
//! instead of `Hello`, gets `Answer`, and the connection ends. Processes of one user on one machine connect
//! over a Unix socket. Over TCP both have a key, which encrypts the connection; without one TCP serves
//! loopback alone, between processes of one user.

pub(crate) mod first_bytes;
pub(crate) mod negotiation;
pub(crate) mod second;
pub(crate) mod source;
pub(crate) mod stream;
pub(crate) mod target;
