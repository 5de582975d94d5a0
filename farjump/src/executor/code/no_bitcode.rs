//! Bitcode in a build without the feature `bitcode`: it is refused.

use std::sync::Arc;

use farjump_control::RefusalCause;
use farjump_loader::{CodeKey, Copied, LinkedImage};

use crate::executor::Executor;
use crate::executor::code::table::Unbound;
use crate::refusal::Refusal;

impl Executor {
    /// Returns whether this code waits for its first image.
    pub(in crate::executor) fn awaits(&self, _: &CodeKey) -> bool {
        false
    }

    /// Returns the last refusal of this code, if it was bitcode.
    pub(in crate::executor) fn refusal_of(&self, _: &CodeKey) -> Option<&Refusal> {
        None
    }

    /// Refuses bitcode.
    #[cold]
    pub(in crate::executor) fn bring_bitcode(
        &mut self,
        _: CodeKey,
        copied: &Copied,
        _: &Arc<str>,
    ) -> Result<Arc<LinkedImage>, Unbound> {
        let name = String::from_utf8_lossy(copied.name()).into_owned();
        let text = format!(
            "the target refused `{name}`: it is bitcode, which this target does not take: send an image, or build the target with the feature bitcode of farjump"
        );
        Err(Refusal { cause: RefusalCause::WrongMachine, text }.into())
    }
}
