//! A store and the service that serves it: objects, claims and topics.

pub(crate) mod allocator;
pub(crate) mod lenders;
pub(crate) mod service;
pub(crate) mod shared;
pub(crate) mod spill;
pub(crate) mod store;
pub(crate) mod table;
pub(crate) mod topic;
pub(crate) mod topics;
pub(crate) mod turn;
