//! A source's own checks of code that is to run in place.

use farjump_core::channel::Channel;
use farjump_core::image::Machine;
use farjump_loader::Library;

use crate::Error;

/// Checks whether the code of `library` for `machine` can run in the mailbox that `channel` writes. The target
/// itself reports the limits of its policy and its system.
///
/// # Errors
/// [`Error::NotInPlace`] with the reason.
pub(super) fn check(library: &Library, machine: Machine, channel: &Channel) -> Result<(), Error> {
    let refused = |why| Err(Error::NotInPlace { ifunc: library.name().to_owned(), why });
    if !channel.has_mailbox() {
        return refused("the link's transport delivers messages, and has no mailbox to run code in".into());
    }
    match library.image_for(machine)?.span2_len() {
        0 => Ok(()),
        len => refused(format!(
            "it has {len} bytes of writable statics, which would have no place to stay in from call to call"
        )),
    }
}
