//! Publishers and subscribers.

pub mod publisher;
pub mod subscriber;
