//! `work --resident`: functions on data that lie at the target.
//!
//! Each way computes the same result of the same data ([`query`]). The target holds them in one memory for all
//! ways, and in a second one for fetches by UCX. Active messages, and a source that computes by itself, call
//! the injected code, placed as a target places it ([`present`]).

#[cfg(feature = "ucx")]
pub(crate) mod messages;
pub(crate) mod present;
pub(crate) mod query;
pub(crate) mod rows;
pub(crate) mod run;
pub(crate) mod source;
pub(crate) mod target;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub(crate) use query::Query;

/// One way of working on resident data, for all functions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) method: Method,
    /// The functions, each with its library.
    pub(crate) libraries: Vec<(Query, PathBuf)>,
    /// Most bytes of data.
    pub(crate) longest: usize,
}

/// A way of working on resident data.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Method {
    /// By injected functions, over a transport.
    Injected(String),
    /// By the handler of UCX's active messages.
    Messages,
    /// At the source, which gets the data by UCX.
    Fetch,
    /// At the source, to which the target sends the data in UCX's active messages.
    FetchMessages,
    /// At the source, in memory that both processes have mapped.
    RawFetch,
}
