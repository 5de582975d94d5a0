//! The failure of a check, as a sentence.

use std::fmt;

/// The reason why a check failed. `?` makes one of every error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure(String);

/// The result of a check: the number of things that it verified, all right.
pub(super) type Counted = Result<u64, Failure>;

impl Failure {
    pub(super) fn new(what: impl Into<String>) -> Failure {
        Failure(what.into())
    }

    /// Adds the place of the failure.
    pub(super) fn at(self, place: impl fmt::Display) -> Failure {
        Failure(format!("{place}: {}", self.0))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

// `Failure` itself is no `Error`, which would overlap with `From<T> for T`.
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
