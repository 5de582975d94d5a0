//! The functions that `include/ucp_ifunc.h` declares.

use std::ffi::{CStr, c_char, c_int, c_void};

use farjump_loader::Exports;
use farjump_ucx_sys::{
    UCS_ERR_INVALID_PARAM, UCS_ERR_NO_MESSAGE, UCS_OK, ucp_context_h, ucp_ep_h, ucp_rkey_h, ucp_worker_h,
    ucs_status_t,
};

use super::bitcode::Given;
use super::ifunc::{self, Ifunc};
use super::message::{self, Message};
use super::{Refused, poll, send, status, ucx};

/// `ucp_ifunc_msg_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct IfuncMessage {
    ifunc: *const Ifunc,
    frame: *mut c_void,
    frame_size: usize,
}

/// `ucp_ifunc_reg_param_t` of the later prototype.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct RegisterParameters {
    name: *const c_char,
    pure: c_int,
    llvm_bc: c_int,
}

/// `ucp_llvm_bc_t` of the later prototype.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Bitcode {
    triple: *const c_char,
    bc: *const c_void,
    size: u32,
}

/// Most entries of an array that a program registers.
const MOST: c_int = 256;

/// Adds the functions to `exports`: injected code may send and register too, however the program was linked. It finds them by the
/// later prototype's names too: the header's macros replace those, but bitcode of other languages has them.
pub(super) fn offer(exports: &mut Exports) {
    for (names, function) in [
        (&["farjump_ucp2_register_ifunc"][..], farjump_ucp2_register_ifunc as *const c_void),
        (&["farjump_ucp2_poll_ifunc"], farjump_ucp2_poll_ifunc as *const c_void),
        (
            &["farjump_ucp3_register_ifunc", "ucp_register_ifunc"],
            farjump_ucp3_register_ifunc as *const c_void,
        ),
        (
            &["farjump_ucp3_register_ifunc_im", "ucp_register_ifunc_im"],
            farjump_ucp3_register_ifunc_im as *const c_void,
        ),
        (&["farjump_ucp3_poll_ifunc", "ucp_poll_ifunc"], farjump_ucp3_poll_ifunc as *const c_void),
        (
            &["farjump_ucp_deregister_ifunc", "ucp_deregister_ifunc"],
            farjump_ucp_deregister_ifunc as *const c_void,
        ),
        (
            &["farjump_ucp_ifunc_msg_create", "ucp_ifunc_msg_create"],
            farjump_ucp_ifunc_msg_create as *const c_void,
        ),
        (&["farjump_ucp_ifunc_msg_free", "ucp_ifunc_msg_free"], farjump_ucp_ifunc_msg_free as *const c_void),
        (
            &["farjump_ucp_ifunc_msg_get_payload_ptr", "ucp_ifunc_msg_get_payload_ptr"],
            farjump_ucp_ifunc_msg_get_payload_ptr as *const c_void,
        ),
        (
            &["farjump_ucp_ifunc_send_nbix", "ucp_ifunc_send_nbix", "ucp_ifunc_msg_send_nbix"],
            farjump_ucp_ifunc_send_nbix as *const c_void,
        ),
    ] {
        for name in names {
            // SAFETY: they are the functions that the papers' headers declare by these names, and stay as long as this library.
            unsafe { exports.insert(*name, function) };
        }
    }
}

#[cold]
fn null(argument: &str) -> Refused {
    Refused::new(UCS_ERR_INVALID_PARAM, format!("`{argument}` is NULL"))
}

/// Sets a handle to null until it is registered, as in both prototypes: programs check it, and not the
/// status.
///
/// # Safety
/// `ifunc` must be null or valid for a write.
unsafe fn clear(ifunc: *mut *const Ifunc) -> Result<(), Refused> {
    if ifunc.is_null() {
        return Err(null("ifunc_p"));
    }
    // SAFETY: it is valid for a write.
    unsafe { ifunc.write(std::ptr::null()) };
    Ok(())
}

/// Registers by `by`, which gets the context and the name.
///
/// # Safety
/// `name` must be null or a string, and `ifunc` null or valid for a write.
unsafe fn register(
    context: ucp_context_h,
    name: *const c_char,
    ifunc: *mut *const Ifunc,
    by: impl FnOnce(usize, &str) -> Result<&'static Ifunc, Refused>,
) -> Result<ucs_status_t, Refused> {
    // SAFETY: it is null or valid for a write.
    unsafe { clear(ifunc) }?;
    if context.is_null() || name.is_null() {
        return Err(null(if context.is_null() { "context" } else { "ifunc_name" }));
    }
    // SAFETY: it is a string.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    let registered = by(context.addr(), &name)?;
    // SAFETY: it is valid for a write.
    unsafe { ifunc.write(registered) };
    Ok(UCS_OK)
}

/// Returns a string of an array.
///
/// # Safety
/// `text` must be null or a string, which stays for `'a`.
unsafe fn text<'a>(text: *const c_char, argument: &str) -> Result<&'a str, Refused> {
    if text.is_null() {
        return Err(null(argument));
    }
    // SAFETY: it is a string.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str()
        .map_err(|error| Refused::new(UCS_ERR_INVALID_PARAM, format!("`{argument}` is no UTF-8: {error}")))
}

/// Returns an array of the program's.
///
/// # Errors
/// [`UCS_ERR_INVALID_PARAM`] for an impossible length, or for NULL with a length other than 0.
///
/// # Safety
/// `start` must be null or `count` values, which stay for `'a`.
unsafe fn array<'a, T>(start: *const T, count: c_int, argument: &str) -> Result<&'a [T], Refused> {
    if !(0..=MOST).contains(&count) {
        let text = format!("{count} entries of `{argument}`: there may be 0 to {MOST}");
        return Err(Refused::new(UCS_ERR_INVALID_PARAM, text));
    }
    match count {
        0 => Ok(&[]),
        _ if start.is_null() => Err(null(argument)),
        // SAFETY: there are so many values.
        _ => Ok(unsafe { std::slice::from_raw_parts(start, count as usize) }),
    }
}

/// `ucp_register_ifunc` of Two-Chains.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn farjump_ucp2_register_ifunc(
    context: ucp_context_h,
    name: *const c_char,
    ifunc: *mut *const Ifunc,
) -> ucs_status_t {
    // SAFETY: the caller keeps to the header.
    status(|| unsafe { register(context, name, ifunc, ifunc::register) })
}

/// `ucp_register_ifunc` of Three-Chains. Without `llvm_bc`, `pure` has no effect: machine code names its imports itself.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn farjump_ucp3_register_ifunc(
    context: ucp_context_h,
    parameters: RegisterParameters,
    ifunc: *mut *const Ifunc,
) -> ucs_status_t {
    status(|| {
        let by = |context, name: &str| match parameters.llvm_bc {
            0 => ifunc::register(context, name),
            _ => ifunc::register_bitcode(context, name, parameters.pure != 0, offer),
        };
        // SAFETY: the caller keeps to the header.
        unsafe { register(context, parameters.name, ifunc, by) }
    })
}

/// `ucp_register_ifunc_im`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn farjump_ucp3_register_ifunc_im(
    context: ucp_context_h,
    parameters: RegisterParameters,
    bitcodes: *const Bitcode,
    count: c_int,
    dependencies: *const *const c_char,
    dependency_count: c_int,
    ifunc: *mut *const Ifunc,
) -> ucs_status_t {
    status(|| {
        let by = |context, name: &str| {
            // SAFETY: the caller keeps to the header.
            let (bitcodes, dependencies) = unsafe {
                (array(bitcodes, count, "bitcodes")?, array(dependencies, dependency_count, "dependencies")?)
            };
            // SAFETY: as above.
            let given =
                bitcodes.iter().map(|bitcode| unsafe { given(bitcode) }).collect::<Result<Vec<_>, _>>()?;
            // SAFETY: as above.
            let dependencies = dependencies.iter().map(|&name| unsafe { text(name, "dependencies") });
            let dependencies = dependencies.collect::<Result<Vec<_>, _>>()?;
            ifunc::register_in_memory(context, name, &given, &dependencies, offer)
        };
        // SAFETY: as above.
        unsafe { register(context, parameters.name, ifunc, by) }
    })
}

/// # Safety
/// Its pointers must be null, or a string and as many bytes as it says, which stay for `'a`.
unsafe fn given<'a>(bitcode: &Bitcode) -> Result<Given<'a>, Refused> {
    if bitcode.bc.is_null() {
        return Err(null("bc"));
    }
    // SAFETY: it has so many bytes, and the triple is a string.
    unsafe {
        let bytes = std::slice::from_raw_parts(bitcode.bc.cast(), bitcode.size as usize);
        Ok(Given { triple: text(bitcode.triple, "triple")?, bytes })
    }
}

/// `ucp_deregister_ifunc`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn farjump_ucp_deregister_ifunc(context: ucp_context_h, ifunc: *const Ifunc) {
    status(|| {
        // SAFETY: a handle, also a deregistered one, points to an ifunc for ever.
        let ifunc = unsafe { ifunc.as_ref() }.ok_or_else(|| null("ifunc"))?;
        ifunc::deregister(context.addr(), ifunc)?;
        Ok(UCS_OK)
    });
}

/// `ucp_ifunc_msg_create`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn farjump_ucp_ifunc_msg_create(
    ifunc: *const Ifunc,
    source_args: *mut c_void,
    source_args_size: usize,
    message: *mut IfuncMessage,
) -> ucs_status_t {
    status(|| {
        if message.is_null() {
            return Err(null("msg_p"));
        }
        // SAFETY: a handle, also a deregistered one, points to an ifunc for ever.
        let handle = unsafe { ifunc.as_ref() }.ok_or_else(|| null("ifunc"))?;
        // SAFETY: the arguments are as the ifunc's author expects, as the header requires.
        let (frame, frame_size) = unsafe { message::create(handle, source_args, source_args_size) }?;
        // SAFETY: it is valid for a write.
        unsafe { message.write(IfuncMessage { ifunc, frame, frame_size }) };
        Ok(UCS_OK)
    })
}

/// `ucp_ifunc_msg_free`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn farjump_ucp_ifunc_msg_free(message: IfuncMessage) {
    status(|| {
        // SAFETY: the frame is null or a result of `create`, as the header requires.
        unsafe { message::free(message.frame) }?;
        Ok(UCS_OK)
    });
}

/// `ucp_ifunc_msg_get_payload_ptr` of Three-Chains.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn farjump_ucp_ifunc_msg_get_payload_ptr(
    message: *mut IfuncMessage,
    payload: *mut *mut c_void,
    size: *mut usize,
) -> ucs_status_t {
    status(|| {
        if message.is_null() || payload.is_null() {
            return Err(null(if message.is_null() { "msg_p" } else { "payload" }));
        }
        // SAFETY: both point to a message and a variable, and `size` to a variable or is null, as the header
        // requires.
        unsafe {
            let (start, len) = Message::of((*message).frame)?.payload();
            payload.write(start.cast());
            if !size.is_null() {
                size.write(len);
            }
        }
        Ok(UCS_OK)
    })
}

/// `ucp_ifunc_send_nbix`, and `ucp_ifunc_msg_send_nbix`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn farjump_ucp_ifunc_send_nbix(
    endpoint: ucp_ep_h,
    message: IfuncMessage,
    remote_address: u64,
    key: ucp_rkey_h,
) -> ucs_status_t {
    status(|| {
        if endpoint.is_null() || key.is_null() || remote_address == 0 {
            return Err(null(if endpoint.is_null() {
                "ep"
            } else if key.is_null() {
                "rkey"
            } else {
                "remote_addr"
            }));
        }
        // SAFETY: the frame is null or a result of `create`; endpoint and key are UCX's, as the header
        // requires.
        unsafe {
            let message = Message::of(message.frame)?;
            send::send(ucx()?, endpoint, key, remote_address, message)
        }
    })
}

/// `ucp_poll_ifunc` of Two-Chains.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn farjump_ucp2_poll_ifunc(
    context: ucp_context_h,
    buffer: *mut c_void,
    buffer_size: usize,
    target_args: *mut c_void,
) -> ucs_status_t {
    status(|| {
        if context.is_null() {
            return Err(null("context"));
        }
        // SAFETY: the buffer is the caller's, has the given length, and no other thread polls it, as the
        // header requires.
        unsafe { poll::poll(buffer, buffer_size, target_args, offer) }
    })
}

/// `ucp_poll_ifunc` of Three-Chains: where there is no frame, UCX makes progress.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn farjump_ucp3_poll_ifunc(
    context: ucp_context_h,
    buffer: *mut c_void,
    buffer_size: usize,
    target_args: *mut c_void,
    worker: ucp_worker_h,
) -> ucs_status_t {
    status(|| {
        if context.is_null() || worker.is_null() {
            return Err(null(if context.is_null() { "context" } else { "worker" }));
        }
        // SAFETY: the buffer is the caller's, has the given length, and no other thread polls it, as the
        // header requires.
        let polled = unsafe { poll::poll(buffer, buffer_size, target_args, offer) }?;
        if polled == UCS_ERR_NO_MESSAGE {
            // SAFETY: the worker is UCX's, and this thread's, as the header requires.
            unsafe { ucx()?.ucp_worker_progress(worker) };
        }
        Ok(polled)
    })
}
