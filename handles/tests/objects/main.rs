//! Objects of stores: used through links, their lifetimes, functions at them, streams of their handles, and requests that
//! take long or are abandoned.

mod abandoned;
mod calls;
mod lifetimes;
mod streams;
#[path = "../support/mod.rs"]
mod support;
mod through_links;
mod turns;
