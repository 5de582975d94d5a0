//! Metric `work`: functions that work on data, injected, as a handler of messages, and without code at the
//! target.
//!
//! Each way computes the same from the same arguments ([`Function`]), on data in the target's memory
//! ([`data`]). The time starts when the source has the arguments. It ends when the source has the reply, or
//! knows that its bytes are in place. All ways share the source ([`source`]) and the target ([`target`]);
//! [`injected`], [`am`] and [`one_sided`] hold the differences. Handlers of messages, and a source that
//! computes by itself, call the injected code, placed as a target places it ([`native`]). [`resident`] has the
//! functions whose data lie at the target.

#[cfg(feature = "ucx")]
pub(in crate::perf) mod am;
mod data;
pub(in crate::perf) mod functions;
pub(in crate::perf) mod injected;
pub(in crate::perf) mod mapped;
mod native;
pub(in crate::perf) mod one_sided;
pub(in crate::perf) mod resident;
pub(in crate::perf) mod source;
pub(in crate::perf) mod target;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::perf::report::metric::Against;
pub(in crate::perf) use data::{Store, store_len};
pub(in crate::perf) use functions::{Function, Functions, parse_functions};

/// One way of doing one function's work, known to both processes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(in crate::perf) struct Task {
    pub(in crate::perf) method: Method,
    pub(in crate::perf) function: Function,
    pub(in crate::perf) library: PathBuf,
    /// Most bytes to work on.
    pub(in crate::perf) longest: usize,
}

/// A way of doing the work.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(in crate::perf) enum Method {
    /// Injected, over a transport.
    Injected(String),
    /// By the handler of UCX's active messages.
    Messages,
    /// At the source, which gets and puts the target's data by UCX.
    Fetch,
    /// The same in memory mapped by both processes.
    RawFetch,
}

impl Method {
    /// Returns the way of a baseline.
    pub(in crate::perf) fn of(against: Against) -> Option<Method> {
        match against {
            Against::UcxAm => Some(Method::Messages),
            Against::Fetch => Some(Method::Fetch),
            Against::RawFetch => Some(Method::RawFetch),
            _ => None,
        }
    }
}

impl Task {
    /// Returns the socket name of the target for injection over `transport`; short, as socket paths are
    /// limited.
    pub(in crate::perf) fn host(&self, transport: &str) -> String {
        format!("{transport}{}", self.function as u8)
    }

    /// Returns the bytes of its longest message or reply.
    #[cfg(feature = "ucx")]
    pub(in crate::perf) fn longest_message(&self) -> usize {
        functions::longest_message(self.longest)
    }
}
