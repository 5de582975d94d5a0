//! Two simulated peers: core's guarantees under every arrival rule, with bytes delayed, torn and reordered as far as
//! the rule allows, and against peers that lie.

mod arrival_order;
mod channel_params;
mod hostile_peers;
mod messages;
mod peers;
mod processors;
mod sleep;
mod streams;
mod templates;
