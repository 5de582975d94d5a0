//! Calls of loaded code that no link has brought: the only part that runs code on the target itself.

use farjump::{Library, Target};

/// Runs the function of `library` on `target` with `payload`, and returns its reply.
///
/// # Errors
/// Why it did not run, or the message of its panic.
pub(crate) fn call(_target: &mut Target<'_>, library: &Library, _payload: &[u8]) -> Result<Vec<u8>, String> {
    Err(format!(
        "NOCALL this module cannot run {} for a command yet: call it by a link, as by `farjump inject`",
        library.name()
    ))
}
