//! A source's own checks of code that is to run in place.

use farjump_core::channel::Channel;
use farjump_core::code::CodeKind;
use farjump_core::cpu::Cpu;
use farjump_loader::Library;

use crate::{Error, InPlaceFault, InjectError};

/// Checks whether the code of `library` for `target` can run in the mailbox that `channel` writes. The
/// target itself reports the limits of its policy and its system.
///
/// # Errors
/// [`crate::InjectError::NotInPlace`] with the reason.
pub(super) fn check(library: &Library, target: &Cpu, channel: &Channel) -> Result<(), Error> {
    let refused =
        |fault| Err(Error::Inject(InjectError::NotInPlace { ifunc: library.name().to_owned(), fault }));
    if !channel.runs_in_place() {
        return refused(InPlaceFault::NoMailbox);
    }
    let image = library.image_for_cpu(target)?;
    match image.span2_len() {
        _ if matches!(image.kind(), CodeKind::Bitcode(_)) => refused(InPlaceFault::Bitcode),
        0 => Ok(()),
        len => refused(InPlaceFault::Statics { len }),
    }
}
