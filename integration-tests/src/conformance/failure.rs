//! What a check found wrong, as a sentence.

use std::fmt;

/// Why a check failed. Every error becomes one by `?`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure(String);

/// How a check ended: how many things it looked at, of which none was wrong.
pub(super) type Counted = Result<u64, Failure>;

impl Failure {
    pub(super) fn new(what: impl Into<String>) -> Failure {
        Failure(what.into())
    }

    /// The same, saying where.
    pub(super) fn at(self, place: impl fmt::Display) -> Failure {
        Failure(format!("{place}: {}", self.0))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

// Failure itself is no `Error`, or this would overlap with `From<T> for T`.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure(error.to_string())
    }
}

/// Ends the check with a failure unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::conformance::failure::Failure::new(format!($($text)+)));
        }
    };
}
pub(super) use ensure;
