//! Handles to data that stays at its owner.

#![deny(missing_docs)]

mod allocator;
mod client;
mod error;
mod handle;
mod patience;
mod region;
mod service;
mod spill;
mod store;
mod table;
mod view;
mod wire;

pub use client::{Client, ClientBuilder, DEFAULT_TIMEOUT};
pub use error::{Error, GoneWhy};
pub use handle::{Handle, HandleFault, MAX_ADDRESS, MAX_ADDRESSES, MAX_HANDLE, MAX_TYPE_NAME};
pub use patience::Patience;
pub use service::Service;
pub use store::{DEFAULT_CAPACITY, Store, StoreOptions};
pub use view::View;
