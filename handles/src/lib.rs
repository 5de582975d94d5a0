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

mod abandoned;
mod accounts;
mod allocator;
mod awaiting;
mod call_link;
mod calls;
mod client;
mod clock;
mod connection;
mod error;
mod handle;
mod holds;
mod lenders;
mod lifetimes;
mod object;
mod patience;
mod placement;
mod publisher;
mod quarantine;
mod reading;
mod refusal;
mod region;
mod releases;
mod resolver;
mod service;
mod shared;
mod spill;
mod store;
mod stream_way;
mod stream_wire;
mod streams;
mod subscriber;
mod table;
mod topic;
mod topics;
mod transfer;
mod turn;
mod typed;
mod view;
mod wire;

pub use calls::{PendingCall, Placed};
pub use client::{Client, ClientBuilder, DEFAULT_TIMEOUT};
pub use error::{Error, GoneWhy};
pub use handle::{Handle, HandleFault, MAX_ADDRESS, MAX_ADDRESSES, MAX_HANDLE, MAX_TYPE_NAME};
pub use lifetimes::{Counted, Keeper, Owned};
pub use patience::Patience;
pub use placement::{Placement, Work};
pub use publisher::Publisher;
pub use resolver::Resolver;
pub use service::Service;
pub use store::{DEFAULT_CAPACITY, Store, StoreOptions};
pub use streams::{
    DEFAULT_TOPIC_CAPACITY, MAX_MEMBERS, MAX_STREAM_HANDLE, MAX_TOPIC_CAPACITY, MAX_TOPIC_NAME, MAX_TOPICS,
    Overflow, PublisherOptions, StreamFault, SubscriberOptions,
};
pub use subscriber::{Item, Subscriber};
pub use typed::{TypeName, TypedHandle, Value};
pub use view::{Access, View};
