//! Streams of handles through topics: order, bounds, and the ends of publishers and subscribers.

mod bounds;
mod ends;
mod order;
mod page;
mod support;
