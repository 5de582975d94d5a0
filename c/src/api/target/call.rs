//! Calls that a program makes on its own target.

use std::ffi::{c_char, c_void};

use farjump::{CodeId, OwnCode, Target};

use crate::api::bytes::farjump_bytes_t;
use crate::api::catch::{bytes, guarded, object, text};
use crate::api::last_error::Failure;
use crate::api::library::{farjump_code_id_t, farjump_library_t};
use crate::api::status::farjump_status_t::{self, *};
use crate::api::target::{farjump_target_t, usable};

/// Runs the function of `library` here, on this thread, without a link: for programs that take calls in ways
/// of their own, as a command of a server. Its payload routines make the payload of the `args_size` bytes at
/// `args`. Its reply becomes the content of `reply`, empty if it replied nothing; NULL for a reply that is
/// not needed.
///
/// The target treats the code like code that a source brings: the same allow-list and limits, and the same
/// store, where it stays for the next call. The function gets the target's arguments. The store drops other
/// code if it needs the space. Messages that the function sends go with the next calls of
/// farjump_target_poll(), and their outcomes are dropped: poll, also if the target is armed.
///
/// FARJUMP_ERROR_REFUSED if the code may not come in or cannot be linked, or for arguments or a reply over
/// the limit. FARJUMP_ERROR_PANICKED; FARJUMP_ERROR_LIBRARY if the library has no image for this CPU or a
/// payload routine fails. FARJUMP_ERROR_BUSY from inside an injected function or a callback of the target.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_call(
    target: *mut farjump_target_t,
    library: *const farjump_library_t,
    args: *const c_void,
    args_size: usize,
    reply: *mut farjump_bytes_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a target that only this thread uses, an open library, and so many bytes.
        let (mut target, library, args) =
            unsafe { (usable(target)?, object(library, "library")?, bytes(args, args_size, "args")?) };
        // SAFETY: the header requires NULL or bytes that nothing else uses, and code that its caller trusts.
        unsafe { run(&mut target, OwnCode::Library(library.rust()), args, reply) }
    })
}

/// Does the same as farjump_target_call(), for the `image_size` bytes of an image at `image`, as
/// farjump_library_image() returns them. The function gets a copy of the `payload_size` bytes at `payload` as
/// its payload. Image and payload are read during the call only. `name` is the function's, for messages and
/// for `farjump stats`.
///
/// Each call hashes the image; farjump_target_call_stored() does not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_call_image(
    target: *mut farjump_target_t,
    name: *const c_char,
    image: *const c_void,
    image_size: usize,
    payload: *const c_void,
    payload_size: usize,
    reply: *mut farjump_bytes_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a target that only this thread uses, a text, and so many bytes of both.
        let (mut target, name, image, payload) = unsafe {
            (
                usable(target)?,
                text(name, "name")?,
                bytes(image, image_size, "image")?,
                bytes(payload, payload_size, "payload")?,
            )
        };
        // SAFETY: as in `farjump_target_call`.
        unsafe { run(&mut target, OwnCode::Image { name, bytes: image }, payload, reply) }
    })
}

/// Does the same as farjump_target_call_image(), for code in the target's store that a source or an earlier
/// call brought.
///
/// FARJUMP_ERROR_REFUSED, with farjump_last_cause() FARJUMP_CAUSE_CODE_MISSING, if it is not there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_call_stored(
    target: *mut farjump_target_t,
    id: *const farjump_code_id_t,
    payload: *const c_void,
    payload_size: usize,
    reply: *mut farjump_bytes_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a target that only this thread uses, an id, and so many bytes.
        let (mut target, id, payload) =
            unsafe { (usable(target)?, object(id, "id")?, bytes(payload, payload_size, "payload")?) };
        // SAFETY: as in `farjump_target_call`.
        unsafe { run(&mut target, OwnCode::Stored(CodeId(id.bytes)), payload, reply) }
    })
}

/// Makes the target run code.
///
/// # Safety
/// `reply` must be NULL, or bytes that nothing else uses. The code must be trusted, as [`Target::call`] says.
unsafe fn run(
    target: &mut Target<'_>,
    code: OwnCode<'_>,
    args: &[u8],
    reply: *mut farjump_bytes_t,
) -> Result<farjump_status_t, Failure> {
    // SAFETY: this function's caller guarantees it.
    match unsafe { reply.as_mut() } {
        // SAFETY: this function's caller guarantees it.
        Some(reply) => reply.fill(|content| unsafe { target.call_into(code, args, content) })?,
        // SAFETY: this function's caller guarantees it.
        None => drop(unsafe { target.call(code, args)? }),
    }
    Ok(FARJUMP_OK)
}
