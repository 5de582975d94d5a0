//! Handles to data that stays at its owner.

#![deny(missing_docs)]

mod allocator;
mod client;
mod error;
mod handle;
mod patience;
mod publisher;
mod region;
mod service;
mod spill;
mod store;
mod stream_way;
mod stream_wire;
mod streams;
mod subscriber;
mod table;
mod topic;
mod topics;
mod view;
mod wire;

pub use client::{Client, ClientBuilder, DEFAULT_TIMEOUT};
pub use error::{Error, GoneWhy};
pub use handle::{Handle, HandleFault, MAX_ADDRESS, MAX_ADDRESSES, MAX_HANDLE, MAX_TYPE_NAME};
pub use patience::Patience;
pub use publisher::Publisher;
pub use service::Service;
pub use store::{DEFAULT_CAPACITY, Store, StoreOptions};
pub use streams::{
    DEFAULT_TOPIC_CAPACITY, MAX_MEMBERS, MAX_STREAM_HANDLE, MAX_TOPIC_CAPACITY, MAX_TOPIC_NAME, MAX_TOPICS,
    Overflow, PublisherOptions, StreamFault, SubscriberOptions,
};
pub use subscriber::{Item, Subscriber};
pub use view::View;
