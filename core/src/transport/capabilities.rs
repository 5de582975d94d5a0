//! The abilities of a backend.

use super::ArrivalRules;
#[cfg(doc)]
use super::{Address, Endpoint, LocalAddress, LocalMemory, UnconnectedEndpoint};

/// The family of a backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum InboxKind {
    /// Frames are written into a mailbox: [`Endpoint::OneSided`].
    OneSided,
    /// Frames are delivered whole: [`Endpoint::TwoSided`].
    TwoSided,
}

/// The abilities of a backend on this machine, before any peer is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Capabilities {
    /// The backend's family.
    pub inbox: InboxKind,
    /// The arrival rules that the backend can honour here, as sender and as receiver.
    pub arrival: ArrivalRules,
    /// Largest frame in bytes, header, trailer and padding **included**, that the path can move in one
    /// operation. A mailbox further limits frames to the length of its ring.
    pub max_frame: usize,
    /// True if an aligned 64-byte line arrives in one piece: a reader that sees one word of it sees all.
    /// Matters only under [`ArrivalRules::IN_ORDER`], where frames of one line then need no trailer.
    pub line_whole: bool,
    /// True if the local region can have an executable alias ([`LocalMemory::executable`]), so that code can
    /// run in the mailbox. States the backend's ability, **not** this process's permission: if the system
    /// forbids it, the request for the alias fails.
    pub in_place: bool,
    /// True if addresses contain file descriptors ([`LocalAddress::descriptors`]), which travel only on a
    /// Unix socket, between processes of one machine.
    pub descriptors: bool,
    /// True if frames travel on a stream. Farjump connects it beside the control connection, to the address
    /// on which the target already listens, and passes it to [`UnconnectedEndpoint::connect`]
    /// ([`Address::stream`]).
    pub stream: bool,
}

impl Capabilities {
    /// The minimal capabilities of a backend of this family: frames of up to `max_frame` bytes, lines not
    /// written whole. Set the better ones field by field.
    pub const fn new(inbox: InboxKind, arrival: ArrivalRules, max_frame: usize) -> Self {
        Capabilities {
            inbox,
            arrival,
            max_frame,
            line_whole: false,
            in_place: false,
            descriptors: false,
            stream: false,
        }
    }
}
