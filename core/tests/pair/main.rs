//! Two simulated peers: what core promises over every arrival rule, with bytes delayed, torn and reordered as far as the rule
//! allows, and against peers that lie.
#![cfg(not(loom))]

mod agreement;
mod delivery;
mod lies;
mod messages;
mod peers;
mod repeating;
mod sleep;
mod streams;
mod wire;
