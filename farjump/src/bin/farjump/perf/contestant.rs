//! What is measured: farjump over its transports and in its modes, and the references.

use std::ptr;

use farjump::Mode;

use super::code::Code;
use super::copy::Copy;
use super::options::{Against, Cpus};
use super::rdma::Program;
use super::work::Function;

/// One thing that is measured.
pub(super) enum Contestant<'a> {
    /// farjump over a transport, with its number at the other side.
    Farjump {
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

    /// The name of what farjump is held against. Of farjump itself there is one: mode cached.
    pub(super) fn name_as_reference(&self) -> &'static str {
        if self.is_farjump() { Against::Cached.name() } else { self.name() }
    }

    /// Whether this, farjump, has a row beside `other`: all other references for the same function, but `ucx_perftest`, which is
    /// one for UCX alone; and, if `cached`, the same code over the same link in mode cached.
    pub(super) fn is_held_against(&self, other: &Contestant<'_>, cached: bool) -> bool {
        match (self, other) {
            (
                Contestant::Farjump { link, mode, code, .. },
                Contestant::Farjump { link: of_other, mode: Mode::Cached, code: other, .. },
            ) => cached && *mode != Mode::Cached && link == of_other && ptr::eq(*code, *other),
            (_, Contestant::Perftest(_)) => false,
            (
                Contestant::Farjump { transport, .. } | Contestant::Unreached { transport, .. },
                Contestant::Rdma(program, _),
            ) => program.is_for(transport),
            (_, other) if other.is_farjump() => false,
            _ => self.function() == other.function(),
        }
    }
}
