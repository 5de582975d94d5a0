//! The reasons why a function got nothing.

use core::ffi::c_int;

/// The reason why the server gave nothing, or took nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// The key holds a value of another type.
    WrongType,
    /// The user has no right to this, or is off.
    Denied,
    /// The server delays writes: CLIENT PAUSE, or a failover.
    Paused,
    /// The server uses more than its maxmemory.
    NoMemory,
    /// A read-only replica, or `FJ.CALL_RO`.
    ReadOnly,
    /// The key belongs to another node of the cluster, or is of another slot than the keys of `FJ.CALL`.
    OtherSlot,
    /// The server replied with an error.
    Failed,
    /// An argument has an impossible value.
    BadArgument,
    /// 64 MiB of copies, or 64 cursors: more than one call may have.
    TooMany,
}

impl Fault {
    /// The meaning of a number of `farjump_kv.h`. Stale numbers and other threads do not occur here.
    #[cold]
    pub(crate) fn of(number: c_int) -> Fault {
        match number {
            -1 => Fault::WrongType,
            -2 => Fault::Denied,
            -3 => Fault::Paused,
            -4 => Fault::NoMemory,
            -5 => Fault::ReadOnly,
            -6 => Fault::OtherSlot,
            -9 => Fault::BadArgument,
            -10 => Fault::TooMany,
            _ => Fault::Failed,
        }
    }
}
