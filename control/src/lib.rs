//! How two processes meet: the control connection, and what they agree on over it.
//!
//! A target has a [`Listener`]; each process that connects becomes a [`Control`] and, while it is being met, an
//! [`Arrival`] that is driven without waiting. A source calls [`meet_target`], which waits up to a deadline. Both end
//! with [`Met`]: a connected [`Endpoint`](farjump_core::transport::Endpoint), the terms of each direction, and the control
//! connection, which stays open. **Its end is the peer's death**, whatever the transport notices, and slow things travel
//! on it ([`Message`]).
//!
//! ```text
//! source                                target
//! prefix, Hello           ─────────────▶
//!                         ◀───────────── prefix, Welcome  + descriptors of its end
//! Ready + descriptors     ─────────────▶ connects
//! connects                ◀───────────── Rights; Limits, from a target that has any; Go
//! ```
//! Either may send `Refuse` instead, with a reason for people, and close. Where the transport's frames travel on a stream, the source
//! opens that before `Ready` ([`IncomingStream`]).
//!
//! A process that only wants to know something sends `Ask` in the place of `Hello` ([`ask`]): it gets `Answer`, and the
//! connection ends. For the target it is an [`Asker`].
//!
//! Processes of one user on one machine meet over a Unix socket. Over TCP ([`TcpOptions`]) both have a [`Key`], and all that
//! they say is sealed by it; without one TCP serves loopback only, between processes of one user.
//!
//! Nothing received is believed before it is checked. A process that connects and sends nonsense, half a message or
//! nothing at all costs the target a bounded amount of memory (64 KiB and 16 descriptors) for a bounded time.

#![deny(missing_docs)]

mod address;
mod admin;
mod connection;
mod error;
mod handshake;
mod key;
mod key_file;
mod keys;
mod listener;
mod loopback_owner;
mod peer_identity;
mod refusal;
mod rights;
mod tcp;

pub use address::{MAX_PATH, PeerAddress};
pub use admin::connection::{Asker, ask, ask_with};
pub use admin::messages::{
    Answer, Dropped, HeldCode, MAX_LISTED, Memory, Question, SourceFigures, StoreFigures, StoreListing,
    TargetStats,
};
pub use connection::Control;
pub use connection::message::{
    End, HEAD_LEN, Limits, MAX_CODE, MAX_DESCRIPTORS, MAX_MEETING_MESSAGE, MAX_MESSAGE, MAX_TRANSPORT_NAME,
    MAX_TRANSPORTS, Message,
};
pub use connection::preamble::{MAGIC, PREFIX_LEN, VERSION};
pub use connection::stream_offer::{OPENING_LEN, Share, StreamAnswer, StreamOffer};
pub use error::Error;
pub use farjump_core::transport::PassedOver;
pub use farjump_os::deferred_close::DeferredFd;
pub use handshake::negotiation::{Direction, Joined, Met};
pub use handshake::second::SecondEnd;
pub use handshake::source::{SourceOptions, meet_target};
pub use handshake::stream::IncomingStream;
pub use handshake::target::{Arrival, ArrivalOptions, Progress};
pub use key::Key;
pub use key_file::KeyFile;
pub use keys::{Keys, MAX_KEYS, NamedKey};
pub use listener::Listener;
pub use peer_identity::{PeerIdentity, admit, plain};
pub use refusal::{MeetRefusal, RefusalCause};
pub use rights::Rights;
pub use tcp::TcpOptions;
