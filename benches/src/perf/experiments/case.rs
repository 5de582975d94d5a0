//! The measured cases: farjump over its transports and in its modes, and the baselines.

use std::ptr;

use farjump::Mode;

use super::baselines::memcpy::Copy;
use super::wake_up::Waker;
use super::work::Function;
use crate::perf::machine::Cpus;
use crate::perf::machine::perftest;
use crate::perf::options::ifuncs::Code;
use crate::perf::process::place::{TCP, TCP_CLEAR};
use crate::perf::report::metric::Against;

/// One case.
pub(in crate::perf) enum Case<'a> {
    /// farjump over a transport, with its endpoint number in the other process.
    Farjump {
        /// Calls of a stream that are handed over at a time.
        batch: u32,
        endpoint: usize,
        transport: String,
        mode: Mode,
        link: usize,
        code: &'a Code,
    },
    /// A baseline with an endpoint in each process.
    Both {
        endpoint: usize,
        against: Against,
        /// The function whose work it does, if any.
        function: Option<Function>,
    },
    /// A baseline within this process alone.
    Copy(Copy),
    /// A program that measures by itself.
    Tool(Against, Cpus),
    Dlopen,
    /// A sleeper, farjump's or a baseline's.
    Sleeper(Box<Waker<'a>>),
    /// farjump over a transport that does not reach the target.
    Unreached {
        transport: String,
        mode: Mode,
        code: &'a Code,
        why: String,
    },
    /// A baseline that is missing.
    Missing {
        against: Against,
        why: String,
        function: Option<Function>,
    },
}

/// The parameters under which farjump is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Terms<'a> {
    batch: u32,
    transport: &'a str,
    mode: Mode,
    code: *const Code,
}

impl Case<'_> {
    pub(in crate::perf) fn name(&self) -> &'static str {
        match self {
            Case::Farjump { .. } | Case::Unreached { .. } => "farjump",
            Case::Both { against, .. } | Case::Missing { against, .. } => against.name(),
            Case::Copy(_) => Against::Memcpy.name(),
            Case::Tool(tool, _) => tool.name(),
            Case::Dlopen => Against::Dlopen.name(),
            Case::Sleeper(waker) => waker.name,
        }
    }

    pub(in crate::perf) fn transport(&self) -> Option<String> {
        match self {
            Case::Farjump { transport, .. } | Case::Unreached { transport, .. } => Some(transport.clone()),
            Case::Sleeper(waker) => waker.transport.map(str::to_owned),
            _ => None,
        }
    }

    pub(in crate::perf) fn mode(&self) -> Option<&'static str> {
        match self {
            Case::Farjump { mode, .. } | Case::Unreached { mode, .. } => Some(mode.name()),
            Case::Sleeper(waker) => waker.transport.map(|_| Mode::Cached.name()),
            _ => None,
        }
    }

    pub(in crate::perf) fn image(&self) -> Option<usize> {
        match self {
            Case::Farjump { code, .. } | Case::Unreached { code, .. } => code.image,
            _ => None,
        }
    }

    pub(in crate::perf) fn function(&self) -> Option<Function> {
        match self {
            Case::Farjump { code, .. } | Case::Unreached { code, .. } => code.function,
            Case::Both { function, .. } | Case::Missing { function, .. } => *function,
            _ => None,
        }
    }

    /// Returns the reason if it is not measured at all.
    pub(in crate::perf) fn missing(&self) -> Option<&str> {
        match self {
            Case::Missing { why, .. } | Case::Unreached { why, .. } => Some(why),
            Case::Sleeper(waker) => waker.missing(),
            _ => None,
        }
    }

    /// Returns the number of connected sources, where it is a parameter.
    pub(in crate::perf) fn sources(&self) -> Option<u32> {
        match self {
            Case::Sleeper(waker) => Some(waker.sources as u32),
            _ => None,
        }
    }

    /// Returns whether it is farjump over a target that either polls or sleeps.
    pub(in crate::perf) fn has_own_target(&self) -> bool {
        matches!(self, Case::Farjump { .. } | Case::Unreached { .. })
    }

    pub(in crate::perf) fn is_farjump(&self) -> bool {
        self.transport().is_some()
    }

    pub(in crate::perf) fn has_slots(&self) -> bool {
        match self {
            Case::Both { against, .. } | Case::Missing { against, .. } => against.has_slots(),
            _ => false,
        }
    }

    /// Returns the name under which farjump's case has a row beside `other`, if any. All other baselines of
    /// the same function qualify, but `ucx_perftest` only beside UCX. Of farjump's own cases, those of
    /// `against` qualify that differ from this one only in the property of their name.
    pub(in crate::perf) fn baseline(&self, other: &Case<'_>, against: &[Against]) -> Option<&'static str> {
        if let (Some(one), Some(two)) = (self.terms(), other.terms()) {
            let named = match two {
                two if two == (Terms { mode: Mode::Cached, ..one }) => Against::Cached,
                two if two == (Terms { batch: 1, ..one }) => Against::Single,
                two if one.transport == TCP && two == (Terms { transport: TCP_CLEAR, ..one }) => {
                    Against::Clear
                }
                _ => return None,
            };
            return (one != two && against.contains(&named)).then_some(named.name());
        }
        self.is_held_against(other).then(|| other.name())
    }

    /// Returns the parameters of farjump's measurement, if this is farjump and measurable.
    fn terms(&self) -> Option<Terms<'_>> {
        match self {
            Case::Farjump { batch, transport, mode, code, .. } => {
                Some(Terms { batch: *batch, transport, mode: *mode, code: ptr::from_ref(*code) })
            }
            _ => None,
        }
    }

    fn is_held_against(&self, other: &Case<'_>) -> bool {
        match (self, other) {
            (_, Case::Tool(Against::Perftest, _)) => false,
            // Each is the floor of farjump with the same encryption.
            (
                Case::Farjump { transport, .. },
                Case::Both { against: Against::Stream, .. } | Case::Missing { against: Against::Stream, .. },
            ) => transport != TCP,
            (
                Case::Farjump { transport, .. },
                Case::Both { against: Against::StreamSealed, .. }
                | Case::Missing { against: Against::StreamSealed, .. },
            ) => transport != TCP_CLEAR,
            (Case::Farjump { transport, .. } | Case::Unreached { transport, .. }, Case::Tool(program, _)) => {
                perftest::is_for(*program, transport)
            }
            (_, other) if other.is_farjump() => false,
            _ => self.function() == other.function(),
        }
    }
}
