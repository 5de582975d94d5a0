//! Calls of loaded code without a link. This is the only part that runs code on the target itself.

use std::sync::Arc;

use farjump::{Library, Principal, Target};

use crate::causes::with_causes;

/// Runs the function of `library` on `target` with `payload` for `principal`, and returns its reply.
///
/// # Errors
/// The reason why it did not run, or the message of its panic.
pub(crate) fn call(
    target: &mut Target<'_>,
    principal: &Arc<Principal>,
    library: &Library,
    payload: &[u8],
) -> Result<Vec<u8>, String> {
    // SAFETY: the administrator of the server has let its clients load code (`load`), or has listed the code's id. A
    // client that loads code answers for it, like an administrator that loads a module. The target's arguments are the
    // module's marker, of which functions use only the address.
    let reply = unsafe { target.call_for(principal, library, payload) };
    reply.map(farjump::Reply::into_vec).map_err(|error| with_causes(&error))
}
