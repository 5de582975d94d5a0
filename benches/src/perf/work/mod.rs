//! Metric `work`: functions that do something, injected, as a handler of active messages, and without code at the target.
//!
//! Each way computes the same from the same arguments ([`Function`]), on data in the target's memory ([`data`]). The time
//! begins when the source has the arguments. It ends when the source has the answer, or knows that its bytes are in place.
//! All ways share the source ([`source`]) and the target ([`target`]); [`injected`], [`am`] and [`one_sided`] have what
//! differs. Handlers of messages, and a source that computes by itself, call the code that is injected, placed as a target
//! places it ([`native`]).

#[cfg(feature = "ucx")]
pub(super) mod am;
mod data;
pub(super) mod functions;
pub(super) mod injected;
pub(super) mod mapped;
mod native;
pub(super) mod one_sided;
pub(super) mod source;
pub(super) mod target;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::metric::Against;
pub(super) use data::store_len;
pub(super) use functions::{Function, Functions, parse_functions};

/// One way of doing one function's work, as both processes know it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) way: Way,
    pub(super) function: Function,
    /// The function's library.
    pub(super) library: PathBuf,
    /// Most bytes that are worked on.
    pub(super) longest: usize,
}

/// How the work is done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Way {
    /// Injected, over a transport.
    Injected(String),
    /// By the handler of UCX's active messages.
    Messages,
    /// At the source, which gets and puts what is at the target by UCX.
    Fetch,
    /// The same in memory that both processes have mapped.
    RawFetch,
}

impl Way {
    /// That of a reference.
    pub(super) fn of(against: Against) -> Option<Way> {
        match against {
            Against::UcxAm => Some(Way::Messages),
            Against::Fetch => Some(Way::Fetch),
            Against::RawFetch => Some(Way::RawFetch),
            _ => None,
        }
    }
}

impl Task {
    /// The address of the target that it is injected into over `transport`, in a folder with room for so short a name.
    pub(super) fn host(&self, transport: &str) -> String {
        format!("{transport}{}", self.function as u8)
    }

    /// Bytes of the longest message of it, or of the longest answer.
    #[cfg(feature = "ucx")]
    pub(super) fn longest_message(&self) -> usize {
        functions::longest_message(self.longest)
    }
}
