//! Calls on a link: sending, waiting from threads and awaiting in event loops.

pub(crate) mod awaited;
pub(crate) mod call;
pub(crate) mod event_loop;
pub(crate) mod methods;
pub(crate) mod pending;
pub(crate) mod pendings;
pub(crate) mod ready;
pub(crate) mod sending;
pub(crate) mod shared;
