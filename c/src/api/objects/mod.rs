//! Stores, their clients, handles and views of objects.

pub mod calls;
pub mod client;
pub mod handle;
pub mod lifetimes;
pub mod placement;
pub mod resolver;
pub mod store;
pub mod view;
