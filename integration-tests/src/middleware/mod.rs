//! Middleware: transports that wrap a transport.
//!
//! | type | what it does | over memory that is mapped |
//! |---|---|---|
//! | [`Trace`] | hands each operation to a sink, as a line to read or a value to look at | hides the mapping, to see each put |
//! | [`Metered`] | counts operations and bytes | leaves the mapping: plain stores are not counted |
//! | [`FaultInjector`] | spoils a chosen, seeded part of what is sent | hides the mapping, to reach each put |
//!
//! Each takes a `Box<dyn Transport>` and is a [`farjump_core::transport::Transport`], so they nest in any order. The name stays
//! that of the inner transport, because the two sides find each other by it; each side wraps for itself.
//!
//! Where the mapping is hidden, [`farjump_core::transport::ArrivalRules::STORES`] is not offered, and frames travel by another
//! rule that the inner transport lists: `put`, `fence` and `put_word` of the inner transport carry the bytes. That costs
//! one call through a trait object for each piece of a frame, and a second write for its signal; figures taken through
//! such middleware say nothing about the transport without it.

mod event;
mod fault_injector;
mod metered;
mod observer;
mod pages;
mod trace;

pub use event::{Action, Event, Step};
pub use fault_injector::{Fault, FaultHandle, FaultInjector, Faults, Hold, PerMille};
pub use metered::{Count, Meter, Metered};
pub use trace::Trace;

use farjump_core::transport::{ArrivalRules, Capabilities, Cause, Operation, TransportError};

/// What remains of `capabilities` once the mapping is hidden.
fn without_mapping(mut capabilities: Capabilities) -> Capabilities {
    capabilities.arrival -= ArrivalRules::STORES;
    capabilities
}

/// Refuses a transport that has no arrival rule left: its peers could agree on none, and would be told only that they
/// have none in common.
fn require_a_rule(name: &str, capabilities: &Capabilities) -> Result<(), TransportError> {
    if capabilities.arrival.is_empty() {
        let cause = Cause::Unsupported(
            "middleware that leaves the transport no arrival rule (`stores` needs the mapping, which it hides)",
        );
        return Err(TransportError::new(name, Operation::Open, cause));
    }
    Ok(())
}
