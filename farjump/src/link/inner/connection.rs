//! State of a link's connection to its target.

use std::time::Instant;

use farjump_control::{Control, PassedOver, Rights};
use farjump_core::channel::Channel;
use farjump_core::image::Machine;

use super::batching::Several;
use super::large::Bigger;
use crate::policy::Ceilings;

/// A connection to a target, from the handshake to the end. A link that is made anew gets another one.
pub(in crate::link) struct Connection {
    // Dropped before the channel that it belongs to.
    pub(super) bigger: Bigger,
    /// The frame that calls are being put into. While there is one, no other frame may be begun.
    pub(super) several: Option<Several>,
    pub(in crate::link) channel: Channel,
    pub(in crate::link) control: Control,
    /// When an idle link reads the control connection again.
    pub(super) control_due: Instant,
    /// Whether the control connection has messages left from the last read, which took its maximum.
    pub(super) unread: bool,
    /// Refusals read.
    pub(super) refusals_read: u64,
    /// Why the target is gone.
    pub(super) gone: Option<String>,
    /// Why and until when the target is going, where the channel may still bring frames sent before.
    pub(super) going: Option<Box<(Instant, String)>>,
    pub(super) machine: Machine,
    pub(super) epoch: u64,
    pub(super) transport: String,
    pub(super) passed_over: Vec<PassedOver>,
    /// The target's limits, as announced.
    pub(super) limits: Ceilings,
    /// This source's rights there, as announced.
    pub(super) rights: Rights,
}

/// What a handshake finds out about a target.
pub(in crate::link) struct TargetInfo {
    /// The architecture.
    pub(in crate::link) machine: Machine,
    /// The run of the target.
    pub(in crate::link) epoch: u64,
    /// The name of the transport taken.
    pub(in crate::link) transport: String,
    /// Transports preferred to it, and why they were not taken.
    pub(in crate::link) passed_over: Vec<PassedOver>,
    /// The target's limits.
    pub(in crate::link) limits: Ceilings,
    /// This source's rights there.
    pub(in crate::link) rights: Rights,
}

impl Connection {
    /// The connection right after its handshake.
    pub(in crate::link) fn new(channel: Channel, control: Control, target: TargetInfo) -> Connection {
        let TargetInfo { machine, epoch, transport, passed_over, limits, rights } = target;
        Connection {
            bigger: Bigger::default(),
            several: None,
            channel,
            control,
            control_due: Instant::now(),
            unread: false,
            refusals_read: 0,
            gone: None,
            going: None,
            machine,
            epoch,
            transport,
            passed_over,
            limits,
            rights,
        }
    }
}
