//! Services: the functions of `farjump_ifunc.h` that every target offers to injected code.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
use std::arch::naked_asm;
use std::ffi::{c_char, c_int, c_void};

use farjump_core::image::CodeId;
use farjump_loader::Exports;

use super::context::{self, NotLeft};
use super::enter::Caller;
#[cfg(doc)]
use super::forward_requests::NotForwarded;
use super::lent_bytes::LentBytes;
use crate::ServeError;
use crate::objects::{Lent, ObjectError, Request};

/// Beginnings of names of functions that compilers call on their own, and that belong to them.
const OF_COMPILERS: [&str; 2] = ["__", "_Unwind_"];
/// Functions of C's library that they also call on their own, for a remainder of numbers and for loops. Targets offer none
/// by themselves.
const IMPLICIT: [&str; 4] = ["fmod", "fmodf", "rawmemchr", "wcslen"];

/// Checks that safe code may offer an export of this name: no injected code uses the name without declaring its type.
///
/// # Errors
/// [`ServeError::ReservedExport`].
pub(super) fn check_name(name: &str) -> Result<(), ServeError> {
    let why = if name.starts_with("farjump_") {
        "names that begin with farjump_ are the target's own: choose another one"
    } else if Exports::ALWAYS.contains(&name) {
        "every target offers it, as compilers call it on their own: to offer another one take export_raw, which is unsafe"
    } else if IMPLICIT.contains(&name) || OF_COMPILERS.iter().any(|start| name.starts_with(start)) {
        "compilers call it on their own, by the type that they know: to offer it take export_raw, which is unsafe"
    } else {
        return Ok(());
    };
    Err(ServeError::ReservedExport { name: name.into(), why })
}

/// Adds the services to `exports`.
pub(super) fn offer(exports: &mut Exports) {
    // SAFETY: they are the functions that `farjump_ifunc.h` declares by these names, and stay as long as this
    // library.
    unsafe {
        exports.insert("farjump_reply", farjump_reply as *const c_void);
        exports.insert("farjump_forward", farjump_forward as *const c_void);
        exports.insert("farjump_again", farjump_again as *const c_void);
        exports.insert("farjump_make", farjump_make as *const c_void);
        exports.insert("farjump_inject", farjump_inject as *const c_void);
        exports.insert("farjump_object", farjump_object as *const c_void);
        exports.insert("farjump_new_object", farjump_new_object as *const c_void);
        exports.insert("farjump_private_copy", farjump_private_copy as *const c_void);
        exports.insert("farjump_panic", farjump_panic as *const c_void);
    }
}

/// Appends `len` bytes to this call's reply. Returns 0, or -1 if the reply would get too long.
unsafe extern "C" fn farjump_reply(bytes: *const c_void, len: usize) -> c_int {
    if len == 0 {
        return 0;
    }
    if bytes.is_null() {
        return -1;
    }
    // SAFETY: the header requires `len` readable bytes, and injected code is trusted as native code is.
    let bytes = unsafe { LentBytes::new(bytes.cast(), len) };
    if context::append(bytes) { 0 } else { -1 }
}

/// Forwards this call, with this payload, to the destination that the target knows by `peer`. Returns 0, or a
/// [`NotForwarded`].
unsafe extern "C" fn farjump_forward(
    peer: *const c_char,
    peer_len: usize,
    payload: *const c_void,
    payload_size: usize,
) -> c_int {
    // SAFETY: the header requires so many readable bytes at each, and injected code is trusted as native code is.
    let (peer, payload) =
        unsafe { (LentBytes::new(peer.cast(), peer_len), LentBytes::new(payload.cast(), payload_size)) };
    match context::forward(Some(peer), payload) {
        Ok(()) => 0,
        Err(why) => why as c_int,
    }
}

/// Runs this call again here, later, with this payload. Returns 0, or a [`NotForwarded`].
unsafe extern "C" fn farjump_again(payload: *const c_void, payload_size: usize) -> c_int {
    // SAFETY: as in `farjump_forward`.
    let payload = unsafe { LentBytes::new(payload.cast(), payload_size) };
    match context::forward(None, payload) {
        Ok(()) => 0,
        Err(why) => why as c_int,
    }
}

/// Hands over code that this call has made, and writes its id of 16 bytes to `id`. Returns 0, or a [`NotForwarded`].
unsafe extern "C" fn farjump_make(code: *const c_void, len: usize, id: *mut u8) -> c_int {
    // SAFETY: the header requires `len` readable bytes, and injected code is trusted as native code is.
    let code = unsafe { LentBytes::new(code.cast(), len) };
    match context::make(code) {
        Ok(CodeId(made)) => {
            // SAFETY: the header requires 16 writable bytes.
            unsafe { id.copy_from(made.as_ptr(), made.len()) };
            0
        }
        Err(why) => why as c_int,
    }
}

/// Sends a message to the code with the id of 16 bytes at `id`: to the destination `peer`, or here if `peer_len` is 0.
/// Returns 0, or a [`NotForwarded`].
unsafe extern "C" fn farjump_inject(
    id: *const u8,
    peer: *const c_char,
    peer_len: usize,
    payload: *const c_void,
    payload_size: usize,
) -> c_int {
    let mut code = CodeId([0; 16]);
    // SAFETY: the header requires so many readable bytes at each, and injected code is trusted as native code is.
    let (peer, payload) = unsafe {
        code.0.as_mut_ptr().copy_from(id, code.0.len());
        (LentBytes::new(peer.cast(), peer_len), LentBytes::new(payload.cast(), payload_size))
    };
    match context::inject(code, peer, payload) {
        Ok(()) => 0,
        Err(why) => why as c_int,
    }
}

/// Writes the address of a handle's object to `data` and its length to `size`. The bytes stay until the call ends.
/// Returns 0, or an [`ObjectError`].
unsafe extern "C" fn farjump_object(
    handle: *const c_void,
    handle_len: usize,
    data: *mut *const c_void,
    size: *mut usize,
) -> c_int {
    if handle.is_null() {
        return ObjectError::NoHandle as c_int;
    }
    // SAFETY: the header requires `handle_len` readable bytes, and injected code is trusted as native code is.
    let handle = unsafe { Request::new(handle.cast(), handle_len) };
    match context::object(handle) {
        Ok(Lent { data: start, len }) => {
            // SAFETY: the header requires two writable words.
            unsafe { (data.write(start.as_ptr().cast()), size.write(len)) };
            0
        }
        Err(why) => why as c_int,
    }
}

/// Makes an object of `len` bytes, and writes its address to `data`, for the call to write its contents there. If the
/// call returns, the object stays, and the reply ends with its handle. Returns 0, or an [`ObjectError`].
unsafe extern "C" fn farjump_new_object(len: usize, data: *mut *mut c_void) -> c_int {
    match context::new_object(len) {
        Ok(Lent { data: start, .. }) => {
            // SAFETY: the header requires a writable word.
            unsafe { data.write(start.as_ptr().cast()) };
            0
        }
        Err(why) => why as c_int,
    }
}

/// The function that sources call by [`objects::NAME`](crate::objects::NAME): a request to the target's store.
pub(super) unsafe extern "C" fn request_objects(payload: *mut c_void, len: usize, _target_args: *mut c_void) {
    // SAFETY: a function's payload is `len` bytes that are readable while it runs, and that no thread of this process writes.
    context::request(unsafe { Request::new(payload.cast(), len) });
}

/// Copies `len` bytes into memory of the target's that no other process can write, at a multiple of `align`, a
/// power of two up to 4096. Valid until the call ends, or calls this again. Null outside a call, for another
/// alignment, or without memory.
unsafe extern "C" fn farjump_private_copy(bytes: *const c_void, len: usize, align: usize) -> *mut c_void {
    // SAFETY: the header requires `len` readable bytes, and injected code is trusted as native code is.
    let bytes = unsafe { LentBytes::new(bytes.cast(), len) };
    context::copy(bytes, align).map_or(std::ptr::null_mut(), |copy| copy.as_ptr().cast())
}

/// Ends this call; the source's wait fails with the message. Passes [`Caller`] to [`panic()`] from here, because a
/// function that has begun cannot find it.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(super) unsafe extern "C" fn farjump_panic(message: *const c_char, len: usize) -> ! {
    // The code may have set the flags of direction, nested task and alignment check, with which no function may be called.
    naked_asm!(
        "mov rdx, [rsp]",
        "mov rcx, rsp",
        "mov r8, rbp",
        "pushfq",
        "and qword ptr [rsp], {kept}",
        "popfq",
        "jmp {panic}",
        kept = const !0x44400_i32,
        panic = sym panic,
    )
}

/// The same. `hint #34` is `bti c`.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub(super) unsafe extern "C" fn farjump_panic(message: *const c_char, len: usize) -> ! {
    naked_asm!("hint #34", "mov x2, x30", "mov x3, sp", "mov x4, x29", "b {panic}", panic = sym panic)
}

/// The same.
#[cfg(target_arch = "riscv64")]
#[unsafe(naked)]
pub(super) unsafe extern "C" fn farjump_panic(message: *const c_char, len: usize) -> ! {
    naked_asm!("mv a2, ra", "mv a3, sp", "mv a4, s0", "tail {panic}", panic = sym panic)
}

/// No code is placed on other machines.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
pub(super) unsafe extern "C" fn farjump_panic(message: *const c_char, len: usize) -> ! {
    // SAFETY: the same arguments.
    unsafe { panic(message, len, 0, 0, 0) }
}

/// `farjump_panic`; the last three arguments are those of [`Caller`].
unsafe extern "C" fn panic(
    message: *const c_char,
    len: usize,
    address: usize,
    stack: usize,
    frame: usize,
) -> ! {
    // SAFETY: the header requires `len` readable bytes, as in `farjump_reply`.
    let mut message = unsafe { LentBytes::new(message.cast(), len) };
    if message.len() == 0 {
        message = LentBytes::from(&b"(no message)"[..]);
    }
    let left = context::abandon(message, Caller { address, stack, frame });
    let message = message.to_vec();
    let said = String::from_utf8_lossy(&message);
    match left {
        // The code called from a thread of its own, which has no call to end.
        NotLeft::NoCall => eprintln!("farjump: injected code panicked outside a call: {said}"),
        NotLeft::Across(function) => eprintln!(
            "farjump: injected code panicked in a function that was called back from {function}, which must not be left in the \
             middle: {said}: the process ends; return from the function that is called back, and panic then"
        ),
    }
    std::process::abort()
}
