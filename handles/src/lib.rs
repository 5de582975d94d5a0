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
mod streams;
mod table;
mod view;
mod wire;

pub use client::{Client, ClientBuilder, DEFAULT_TIMEOUT};
pub use error::{Error, GoneWhy};
pub use handle::{Handle, HandleFault, MAX_ADDRESS, MAX_ADDRESSES, MAX_HANDLE, MAX_TYPE_NAME};
pub use patience::Patience;
pub use service::Service;
pub use store::{DEFAULT_CAPACITY, Store, StoreOptions};
pub use streams::{
    DEFAULT_TOPIC_CAPACITY, Item, MAX_MEMBERS, MAX_STREAM_HANDLE, MAX_TOPIC_CAPACITY, MAX_TOPIC_NAME,
    MAX_TOPICS, Overflow, Publisher, PublisherOptions, StreamFault, Subscriber, SubscriberOptions,
};
pub use view::View;
