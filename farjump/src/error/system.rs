//! Failed system calls.

use farjump_core::worded;
use farjump_os::limits;
use std::{fmt, io};

/// A system call that failed.
#[derive(thiserror::Error)]
#[error("{operation}: {source}{}", operation.limit_behind(source))]
pub struct SystemError {
    /// The operation attempted.
    pub operation: SystemOperation,
    /// The system's error.
    pub source: io::Error,
}

impl fmt::Debug for SystemError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !out.alternate() {
            return fmt::Display::fmt(self, out);
        }
        out.debug_struct("SystemError")
            .field("operation", &self.operation)
            .field("source", &self.source)
            .finish()
    }
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

impl SystemOperation {
    /// Returns advice about the limit of this process that the operation reached, if it reached one.
    fn limit_behind(self, error: &io::Error) -> String {
        match self {
            SystemOperation::StartThread | SystemOperation::ConnectDestination => {
                limits::behind_thread(error)
            }
            SystemOperation::Random => limits::behind_call("getrandom", error),
            SystemOperation::MakeDescriptor => limits::behind_call("epoll_create1 or eventfd2", error),
            SystemOperation::Watch => limits::behind_call("epoll_ctl", error),
            SystemOperation::Sleep => limits::behind_call("epoll_pwait or ppoll", error),
            SystemOperation::CrashReport => limits::behind_call("rt_sigaction or sigaltstack", error),
        }
    }
}
