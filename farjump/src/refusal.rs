//! Refusals: frames that a target does not run, with the cause and a text for the source's user.

use farjump_control::RefusalCause;
use farjump_loader::Refused;

/// A frame that a target did not run, or a one-way call that did not end well, and the reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The kind of reason, as counted.
    pub cause: RefusalCause,
    /// A whole sentence: the fault, its place, and the remedy.
    pub text: String,
}

impl Refusal {
    /// A frame refused because of `reason`, which follows a colon.
    pub(crate) fn new(cause: RefusalCause, reason: impl std::fmt::Display) -> Self {
        Refusal { cause, text: format!("the target refused a frame: {reason}") }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.text)
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        let cause = match &refused {
            Refused::Name { .. } => RefusalCause::BadName,
            Refused::Misplaced { .. } => RefusalCause::BadFrame,
            Refused::BadImage { .. } | Refused::Statics { .. } => RefusalCause::BadImage,
            Refused::IdMismatch { .. } => RefusalCause::IdMismatch,
            Refused::WrongMachine { .. }
            | Refused::MissingFeatures { .. }
            | Refused::UnsupportedMachine { .. } => RefusalCause::WrongMachine,
            Refused::UnresolvedImport { .. }
            | Refused::WantedLibraries { .. }
            | Refused::WantedUnopened { .. } => RefusalCause::UnresolvedImport,
            _ => RefusalCause::OutOfMemory,
        };
        Refusal { cause, text: refused.to_string() }
    }
}
