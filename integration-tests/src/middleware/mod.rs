//! Middleware: transports around a transport. [`Trace`] passes each operation to a sink. [`Metered`] counts
//! operations and bytes, without plain stores into mapped memory. [`FaultInjector`] spoils a seeded part of
//! the sent frames.
//!
//! Each takes a `Box<dyn Transport>` and is a [`farjump_core::transport::Transport`], so they nest in any
//! order. The name stays that of the inner transport, by which the peers match; each peer wraps for itself.
//! `Trace` and `FaultInjector` hide the mapping: [`farjump_core::transport::ArrivalRules::STORES`] is not
//! offered, and `put`, `fence` and `put_word` of the inner transport carry frames under another rule. That
//! costs a call for each piece of a frame and a second write for its signal, so figures through them say
//! nothing about the bare transport.

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

/// The capabilities that remain when the mapping is hidden.
fn without_mapping(mut capabilities: Capabilities) -> Capabilities {
    capabilities.arrival -= ArrivalRules::STORES;
    capabilities
}

/// Refuses a transport without a remaining arrival rule: its peers could agree on none, and would only learn that
/// they have none in common.
fn require_a_rule(name: &str, capabilities: &Capabilities) -> Result<(), TransportError> {
    if capabilities.arrival.is_empty() {
        let cause = Cause::Unsupported(
            "middleware that leaves the transport no arrival rule (`stores` needs the mapping, which it hides)",
        );
        return Err(TransportError::new(name, Operation::Open, cause));
    }
    Ok(())
}
