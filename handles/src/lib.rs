#![doc = include_str!("../README.md")]
//!
//! # Contents
//! A [`Store`] keeps objects in this process, and serves them through a [`farjump::Target`]. A [`Client`] uses the
//! objects of another process. A [`Handle`] names an object, and programs may send or store it in any way.
//!
//! | to | see |
//! |---|---|
//! | own objects | [`Store`], [`StoreOptions`], [`Store::service`] |
//! | read them | [`Client::get`], [`View`], [`Client::wait`] |
//! | compute where they lie | [`Client::call`], [`Client::derive`], [`Client::map`], [`Client::call_auto`] |
//! | wait for calls in an event loop | [`Client::start_call`], [`Client::as_fd`], [`Client::arm`] |
//! | await calls | [`PendingCall`], [`Client::call_async`], [`Client::map_async`] |
//! | resolve handles of any owner | [`Handle::get`], [`Resolver`] |
//! | evict objects automatically | [`Owned`], [`Counted`], [`Client::lease`] |
//! | read values of a type | [`TypedHandle`], [`Value`] |

#![deny(missing_docs)]

mod client;
mod clock;
mod error;
mod owner;
mod region;
mod streams;
mod wire;

pub use client::calls::{PendingCall, Placed};
pub use client::lifetimes::{Counted, Keeper, Owned};
pub use client::placement::{Placement, Work};
pub use client::resolver::Resolver;
pub use client::typed::{TypeName, TypedHandle, Value};
pub use client::view::{Access, View};
pub use client::{Client, ClientBuilder};
pub use error::{Error, GoneWhy};
pub use farjump::Patience;
pub use farjump::config::{ClientConfig, Overflow, PublisherConfig, StoreConfig, SubscriberConfig};
pub use owner::service::Service;
pub use owner::store::{DEFAULT_CAPACITY, Store, StoreOptions};
pub use streams::publisher::Publisher;
pub use streams::subscriber::{Item, Subscriber};
pub use streams::{
    DEFAULT_TOPIC_CAPACITY, MAX_MEMBERS, MAX_STREAM_HANDLE, MAX_TOPIC_CAPACITY, MAX_TOPIC_NAME, MAX_TOPICS,
    StreamFault,
};
pub use wire::handle::{Handle, HandleFault, MAX_ADDRESS, MAX_ADDRESSES, MAX_HANDLE, MAX_TYPE_NAME};
