//! Failed system calls.

use std::fmt;
use std::io;

/// A system call that failed.
#[derive(Debug, thiserror::Error)]
#[error("{operation}: {source}")]
pub struct SystemError {
    /// The operation attempted.
    pub operation: SystemOperation,
    /// The system's error.
    pub source: io::Error,
}

/// An operation of the system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SystemOperation {
    /// Draw random bytes.
    Random,
    /// Make an epoll instance or an event descriptor.
    MakeDescriptor,
    /// Watch a descriptor.
    Watch,
    /// Sleep until frames come.
    Sleep,
    /// Install the handlers of crash reports.
    CrashReport,
    /// Start a thread.
    StartThread,
    /// Connect to a destination in a thread of its own.
    ConnectDestination,
}

impl fmt::Display for SystemOperation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            SystemOperation::Random => "drawing random bytes",
            SystemOperation::MakeDescriptor => "making an epoll instance or an event descriptor",
            SystemOperation::Watch => "watching a descriptor",
            SystemOperation::Sleep => "sleeping until frames come",
            SystemOperation::CrashReport => "installing the crash report",
            SystemOperation::StartThread => "starting a thread",
            SystemOperation::ConnectDestination => "connecting to a destination",
        })
    }
}
