#![doc = include_str!("../README.md")]
//!
//! # Handshake
//! A target's [`Listener`] drives an [`Arrival`] for each process that connects, and never waits. A source
//! calls [`connect_target`], which waits up to a deadline. Both get [`Handshake`]: a connected [`Endpoint`],
//! the terms of each direction, and the [`Control`] connection. **The end of the control connection is the
//! peer's death**, whatever the transport sees. An admin request ([`admin_request`], [`AdminConnection`])
//! uses its own connection and makes no link. Everything received is checked before use. Bad, partial or
//! missing data costs the target at most 64 KiB and 16 descriptors, for a bounded time.
//!
//! [`Endpoint`]: farjump_core::transport::Endpoint

#![deny(missing_docs)]

mod address;
mod admin;
mod connection;
mod error;
mod handshake;
mod key;
mod key_file;
mod limits;
mod listener;
mod loopback_owner;
mod peer_identity;
mod refusal;
mod rights;
mod socket_file;
mod tcp;

pub use address::{MAX_PATH, PeerAddress};
pub use admin::connection::{AdminConnection, admin_request, admin_request_with, request_descriptor};
pub use admin::messages::{
    AdminRequest, AdminResponse, Dropped, MAX_LISTED, Memory, SourceStats, StoreListing, StoreStats,
    StoredImage, TargetStats,
};
pub use admin::objects::{MemoryKeeper, ObjectListing, ObjectState, StoredObject};
pub use connection::message::{
    EndpointInfo, HEAD_LEN, MAX_CODE, MAX_DESCRIPTORS, MAX_HANDSHAKE_MESSAGE, MAX_MESSAGE,
    MAX_TRANSPORT_NAME, MAX_TRANSPORTS, Message,
};
pub use connection::preamble::{MAGIC, PREFIX_LEN, VERSION};
pub use connection::stream_offer::{OPENING_LEN, Share, StreamAccept, StreamOffer};
pub use connection::{Control, LingeringPeer};
pub use error::{
    AddressError, ConnectionError, ControlOperation, ControlSystemError, FileKind, HandshakeError,
    HandshakeEvent, KeyError, KeyFault, KeyLineFault, MessageFault, NoListener, ParameterFault,
    ReservedBytes,
};
pub use farjump_core::transport::PassedOver;
pub use farjump_os::deferred_close::DeferredFd;
pub use handshake::negotiation::{Direction, Handshake, Joined};
pub use handshake::options::ArrivalOptions;
pub use handshake::second_endpoint::SecondEndpoint;
pub use handshake::source::{SourceOptions, connect_target};
pub use handshake::stream::IncomingStream;
pub use handshake::target::{Arrival, Progress};
pub use key::Key;
pub use key::keys::{Keys, MAX_KEYS, NamedKey};
pub use key_file::KeyFile;
pub use limits::Limits;
pub use listener::{Listener, remove_stale_socket};
pub use peer_identity::{MAX_NAME, PeerIdentity, admit, first_names, plain};
pub use refusal::{RefusalCause, RejectCause};
pub use rights::{Grant, MissingRights, Rights};
pub use socket_file::end_process;
pub use tcp::TcpOptions;
