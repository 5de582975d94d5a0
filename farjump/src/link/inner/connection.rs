//! A link's connection to its target.

use std::time::Instant;

use farjump_control::{Control, Limits, PassedOver, Rights};
use farjump_core::channel::Channel;
use farjump_core::cpu::Cpu;
use farjump_os::Owner;

use super::batching::Several;
use super::large::LargeMailbox;
use crate::GoneCause;
use crate::wait::nanoseconds;

/// A connection to a target, with all state that ends with it: [`Inner::reconnect`](super::Inner::reconnect)
/// replaces it whole.
// The fields that every call uses come first, side by side.
#[repr(C)]
pub(in crate::link) struct Connection {
    pub(super) channel: Channel,
    /// The frame that calls are being put into. While there is one, no other frame may be begun.
    pub(super) batch: Option<Several>,
    pub(super) control: TargetControl,
    pub(super) target: TargetInfo,
    pub(super) large: LargeMailbox,
}

/// The control connection of a link, and the end of its target.
#[repr(C)]
pub(super) struct TargetControl {
    /// The reason and the deadline while the target is closing and the channel may still bring earlier
    /// frames.
    pub(super) leaving: Option<Box<(Instant, GoneCause)>>,
    /// True if the last read took its maximum and left messages.
    pub(super) unread: bool,
    /// True if a message was read since the link last prepared to sleep in an event loop.
    pub(super) has_notice: bool,
    /// Time at which an idle link reads the connection again ([`nanoseconds`]).
    pub(super) next_check: u64,
    /// Set once the target is gone.
    pub(super) gone: Option<Box<GoneCause>>,
    /// The process that made the connection. A forked child has a copy, and uses it for nothing.
    pub(super) owner: Owner,
    /// Refusals read since the link was made.
    pub(super) refusals_read: u64,
    pub(super) stream: Control,
}

/// The target's properties from the handshake.
// The fields that calls use come first, side by side.
#[repr(C)]
pub(super) struct TargetInfo {
    pub(super) epoch: u64,
    /// This source's rights there.
    pub(super) rights: Rights,
    /// The target's limits.
    pub(super) limits: Limits,
    /// Name of the transport taken.
    pub(super) transport: Box<str>,
    /// Transports preferred to the one taken, with the reasons against them.
    pub(super) passed_over: Vec<PassedOver>,
    /// The CPU that the target claims to have.
    pub(super) cpu: Box<Cpu>,
}

impl Connection {
    pub(super) fn new(channel: Channel, stream: Control, target: TargetInfo) -> Connection {
        let control = TargetControl {
            leaving: None,
            unread: false,
            has_notice: false,
            next_check: nanoseconds(),
            gone: None,
            owner: Owner::this(),
            refusals_read: 0,
            stream,
        };
        Connection { channel, batch: None, control, target, large: LargeMailbox::default() }
    }
}
