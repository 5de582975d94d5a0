//! Outcomes that wait here, which count in the memory that their source may take of the target. These are outcomes for
//! which the source has no credit, and those that wait for a release of the program's. They include the replies that
//! are gathered for a call, until the last one has come.

use super::gathers::Gathers;
use super::{Forwards, Outcome, Recount};

/// Most bytes of a reason kept for a source that may take no more memory.
const REASON: usize = 256;

impl Outcome {
    /// Returns the number of its bytes.
    fn len(&self) -> usize {
        match self {
            Outcome::Done(bytes) => bytes.len(),
            Outcome::Panicked(message) => message.len(),
            Outcome::Incomplete { why, replies, .. } => why.len() + replies.len(),
            Outcome::Failed(why) | Outcome::Withdrawn(why) => why.len(),
            Outcome::Kept { outcome, .. } => outcome.len(),
            Outcome::Overlong | Outcome::Lost(_) => 0,
        }
    }

    /// Keeps the outcome until its source can take it, or may. If the source may not take so much memory, this keeps
    /// only the length of the reply, or the beginning of the reason for none.
    pub(in crate::serve) fn keep(self, mut recount: impl FnMut(usize, usize) -> bool) -> Outcome {
        let (outcome, before) = match self {
            Outcome::Kept { outcome, bytes } => (outcome, bytes),
            other => (Box::new(other), 0),
        };
        let bytes = outcome.len();
        match recount(before, bytes) {
            true => Outcome::Kept { outcome, bytes },
            false => {
                recount(before, 0);
                match *outcome {
                    Outcome::Failed(why) => Outcome::Failed(why.chars().take(REASON).collect()),
                    Outcome::Withdrawn(why) => Outcome::Withdrawn(why.chars().take(REASON).collect()),
                    Outcome::Panicked(message) => Outcome::Panicked(message[..bytes.min(REASON)].to_vec()),
                    _ => Outcome::Lost(bytes),
                }
            }
        }
    }

    /// The outcome, and the bytes that count for it.
    pub(in crate::serve) fn kept(&self) -> (&Outcome, usize) {
        match self {
            Outcome::Kept { outcome, bytes } => (outcome, *bytes),
            other => (other, 0),
        }
    }
}

impl Gathers {
    /// Counts the replies that have come since the last time.
    pub(super) fn count(&mut self, recount: Recount<'_>) {
        for id in std::mem::take(&mut self.changed) {
            if let Some(gather) = self.open.get_mut(&id) {
                gather.count(&mut *recount);
            }
        }
    }
}

impl Forwards {
    /// Counts the replies that were gathered in this turn.
    pub(in crate::serve) fn count_gathered(&mut self, recount: Recount<'_>) {
        self.onward.gathers.count(recount);
    }
}
