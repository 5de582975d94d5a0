//! What is measured: farjump over its transports and in its modes, and the references.

use std::ptr;

use farjump::Mode;

use super::baselines::memcpy::Copy;
use super::ifuncs::Code;
use super::machine::Cpus;
use super::metric::Against;
use super::perftest::Program;
use super::place::{TCP, TCP_CLEAR};
use super::work::Function;

/// One thing that is measured.
pub(super) enum Contestant<'a> {
    /// farjump over a transport, with its number at the other side.
    Farjump {
        /// How many messages of a stream it is given at a time.
        batch: u32,
        subject: usize,
        transport: String,
        mode: Mode,
        link: usize,
        code: &'a Code,
    },
    /// A reference with a side in each process.
    Both {
        subject: usize,
        against: Against,
        /// What it does, where it works.
        function: Option<Function>,
    },
    /// A reference that is in this process alone.
    Copy(Copy),
    Perftest(Cpus),
    /// A program of perftest.
    Rdma(Program, Cpus),
    Dlopen,
    /// farjump over a transport that does not reach the target.
    Unreached {
        transport: String,
        mode: Mode,
        code: &'a Code,
        why: String,
    },
    /// A reference that is not there.
    Missing {
        against: Against,
        why: String,
        function: Option<Function>,
    },
}

/// In what farjump is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Terms<'a> {
    batch: u32,
    transport: &'a str,
    mode: Mode,
    code: *const Code,
}

impl Contestant<'_> {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Contestant::Farjump { .. } | Contestant::Unreached { .. } => "farjump",
            Contestant::Both { against, .. } | Contestant::Missing { against, .. } => against.name(),
            Contestant::Copy(_) => Against::Memcpy.name(),
            Contestant::Perftest(_) => Against::Perftest.name(),
            Contestant::Rdma(program, _) => program.name(),
            Contestant::Dlopen => Against::Dlopen.name(),
        }
    }

    pub(super) fn transport(&self) -> Option<String> {
        match self {
            Contestant::Farjump { transport, .. } | Contestant::Unreached { transport, .. } => {
                Some(transport.clone())
            }
            _ => None,
        }
    }

    pub(super) fn mode(&self) -> Option<&'static str> {
        match self {
            Contestant::Farjump { mode, .. } | Contestant::Unreached { mode, .. } => Some(mode.name()),
            _ => None,
        }
    }

    pub(super) fn image(&self) -> Option<usize> {
        match self {
            Contestant::Farjump { code, .. } | Contestant::Unreached { code, .. } => code.image,
            _ => None,
        }
    }

    pub(super) fn function(&self) -> Option<Function> {
        match self {
            Contestant::Farjump { code, .. } | Contestant::Unreached { code, .. } => code.function,
            Contestant::Both { function, .. } | Contestant::Missing { function, .. } => *function,
            _ => None,
        }
    }

    /// Why it is not measured at all.
    pub(super) fn missing(&self) -> Option<&str> {
        match self {
            Contestant::Missing { why, .. } | Contestant::Unreached { why, .. } => Some(why),
            _ => None,
        }
    }

    pub(super) fn is_farjump(&self) -> bool {
        matches!(self, Contestant::Farjump { .. } | Contestant::Unreached { .. })
    }

    pub(super) fn has_slots(&self) -> bool {
        match self {
            Contestant::Both { against, .. } | Contestant::Missing { against, .. } => against.has_slots(),
            _ => false,
        }
    }

    /// By what name this, farjump, has a row beside `other`, if it has: all other references for the same function, but
    /// `ucx_perftest`, which is one for UCX alone; and of farjump itself those of `against` that differ from it in what their name
    /// says, and in nothing else.
    pub(super) fn reference(&self, other: &Contestant<'_>, against: &[Against]) -> Option<&'static str> {
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

    /// In what farjump is measured, if this is farjump and can be.
    fn terms(&self) -> Option<Terms<'_>> {
        match self {
            Contestant::Farjump { batch, transport, mode, code, .. } => {
                Some(Terms { batch: *batch, transport, mode: *mode, code: ptr::from_ref(*code) })
            }
            _ => None,
        }
    }

    fn is_held_against(&self, other: &Contestant<'_>) -> bool {
        match (self, other) {
            (_, Contestant::Perftest(_)) => false,
            // Each is the floor of what is sealed as it is.
            (
                Contestant::Farjump { transport, .. },
                Contestant::Both { against: Against::Stream, .. }
                | Contestant::Missing { against: Against::Stream, .. },
            ) => transport != TCP,
            (
                Contestant::Farjump { transport, .. },
                Contestant::Both { against: Against::StreamSealed, .. }
                | Contestant::Missing { against: Against::StreamSealed, .. },
            ) => transport != TCP_CLEAR,
            (
                Contestant::Farjump { transport, .. } | Contestant::Unreached { transport, .. },
                Contestant::Rdma(program, _),
            ) => program.is_for(transport),
            (_, other) if other.is_farjump() => false,
            _ => self.function() == other.function(),
        }
    }
}
