//! The result of a handshake.

use farjump_control::{Control, PassedOver, Rights};
use farjump_core::channel::Channel;
use farjump_core::image::Machine;

use crate::policy::Ceilings;

/// A connection to a target, right after the handshake. A link keeps its parts apart from each other, where
/// they share cache lines with what each call reads beside them.
pub(in crate::link) struct Connection {
    pub(super) channel: Channel,
    pub(super) control: Control,
    pub(super) machine: Machine,
    pub(super) epoch: u64,
    pub(super) transport: String,
    /// The target's limits, as announced.
    pub(super) limits: Ceilings,
    /// This source's rights there, as announced.
    pub(super) rights: Rights,
    /// Transports preferred to the one taken, and why they were not.
    pub(super) passed_over: Vec<PassedOver>,
}
