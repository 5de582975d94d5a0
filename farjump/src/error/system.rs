//! Failed system calls.

use farjump_core::worded;
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

worded! {
    /// An operation of the system.
    #[non_exhaustive]
    SystemOperation {
        /// Draw random bytes.
        Random = "drawing random bytes",
        /// Make an epoll instance or an event descriptor.
        MakeDescriptor = "making an epoll instance or an event descriptor",
        /// Watch a descriptor.
        Watch = "watching a descriptor",
        /// Sleep until frames come.
        Sleep = "sleeping until frames come",
        /// Install the handlers of crash reports.
        CrashReport = "installing the crash report",
        /// Start a thread.
        StartThread = "starting a thread",
        /// Connect to a destination in a thread of its own.
        ConnectDestination = "connecting to a destination",
    }
}
