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

mod address;
mod arrival;
mod asking;
mod control;
mod first;
mod identity;
mod incoming;
mod key;
mod key_file;
mod keys;
mod listener;
mod message;
mod outgoing;
mod owner;
mod prefix;
mod question;
mod rights;
mod seal;
mod second;
mod socket;
mod source;
mod stream;
mod tcp;
mod terms;

pub use crate::closer::DeferredFd;
pub use address::{MAX_PATH, PeerAddress};
pub use arrival::{Arrival, ArrivalOptions, Progress};
pub use asking::{Asker, ask, ask_with};
pub use control::Control;
pub use identity::{PeerIdentity, admit, plain};
pub use key::Key;
pub use key_file::KeyFile;
pub use keys::{Keys, MAX_KEYS, NamedKey};
pub use listener::Listener;
pub use message::{
    End, HEAD_LEN, Limits, MAX_CODE, MAX_DESCRIPTORS, MAX_MEETING_MESSAGE, MAX_MESSAGE, MAX_TRANSPORT_NAME,
    MAX_TRANSPORTS, MeetRefusal, Message, RefusalCause,
};
pub use prefix::{MAGIC, PREFIX_LEN, VERSION};
pub use question::{
    Answer, Dropped, HeldCode, MAX_LISTED, Memory, Question, SourceFigures, StoreFigures, StoreListing,
    TargetStats,
};
pub use rights::Rights;
pub use second::SecondEnd;
pub use source::{SourceOptions, meet_target};
pub use stream::{IncomingStream, OPENING_LEN, Share, StreamAnswer, StreamOffer};
pub use tcp::TcpOptions;
pub use terms::{Direction, Joined, Met, PassedOver};
