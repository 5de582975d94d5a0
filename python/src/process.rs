//! The process that an object belongs to: a forked child has its parent's links and targets, and may use neither.

use farjump_os::Owner;
use pyo3::prelude::*;

use crate::errors::raise;

/// The process that made an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process(Owner);

impl Process {
    /// Returns this process.
    pub(crate) fn this() -> Process {
        Process(Owner::this())
    }

    /// Returns whether this process made the object.
    pub(crate) fn is_this(self) -> bool {
        self.0.is_this()
    }

    /// Checks that this process made the object, which the error names `what`.
    ///
    /// # Errors
    /// `Forked` in a child.
    pub(crate) fn check(self, py: Python<'_>, what: &str) -> PyResult<()> {
        if self.is_this() {
            return Ok(());
        }
        let text = format!(
            "this {what} is that of the process with pid {}, which forked this one: make another after the fork",
            self.0.pid()
        );
        Err(raise(py, "Forked", text))
    }
}
