//! The program `farjump-perf`, run as its users do. Speed is not checked.

mod chase;
mod iceoryx;
mod invocation;
mod measuring;
mod plot;
mod remote;
mod scaling;
mod slots;
#[cfg(feature = "bitcode")]
mod tsi;
mod wake_up;
mod work;
mod workbench;
