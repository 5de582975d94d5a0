//! What every target offers to injected code: `farjump_ifunc.h`, seen from the other side.

use std::ffi::{c_char, c_int, c_void};

use farjump_core::shared::copy_out;
use farjump_loader::Exports;

use super::context::{self, NotLeft};
#[cfg(doc)]
use super::forwarding::NotForwarded;

/// Whether every target offers something of this name, which safe code may take for what it is: the services, and the four
/// functions that compilers call unasked.
pub(super) fn is_reserved(name: &str) -> bool {
    let reserved = name.starts_with("farjump_") || matches!(name, "memcpy" | "memmove" | "memset" | "memcmp");
    if reserved {
        log::warn!("`{name}` stays what it is: every target offers it");
    }
    reserved
}

/// Adds the services to `exports`.
pub(super) fn offer(exports: &mut Exports) {
    // SAFETY: they are what `farjump_ifunc.h` declares by these names, and stay as long as this library.
    unsafe {
        exports.insert("farjump_reply", farjump_reply as *const c_void);
        exports.insert("farjump_forward", farjump_forward as *const c_void);
        exports.insert("farjump_panic", farjump_panic as *const c_void);
    }
}

/// Appends `len` bytes to this call's reply. 0, or -1 if the reply would get too long.
unsafe extern "C" fn farjump_reply(bytes: *const c_void, len: usize) -> c_int {
    if len == 0 {
        return 0;
    }
    if bytes.is_null() {
        return -1;
    }
    // SAFETY: the header asks injected code for `len` readable bytes; injected code is trusted as native code is.
    if unsafe { context::append(bytes.cast(), len) } { 0 } else { -1 }
}

/// Has this call forwarded, with this payload, to the peer that the target knows by `peer`. 0, or a [`NotForwarded`].
unsafe extern "C" fn farjump_forward(
    peer: *const c_char,
    peer_len: usize,
    payload: *const c_void,
    payload_size: usize,
) -> c_int {
    // SAFETY: the header asks injected code for so many readable bytes; injected code is trusted as native code is.
    let peer = unsafe { slice(peer.cast(), peer_len) };
    let len = if payload.is_null() { 0 } else { payload_size };
    // Often the payload that came, where its source may write: no slice is made of it.
    let copy = || {
        let mut bytes = Vec::with_capacity(len);
        // SAFETY: as above, and there is room for them; they are there before the length says so.
        unsafe {
            copy_out(payload.cast(), bytes.as_mut_ptr(), len);
            bytes.set_len(len);
        }
        bytes
    };
    match context::forward(peer, len, copy) {
        Ok(()) => 0,
        Err(why) => why as c_int,
    }
}

/// `len` bytes at `bytes`; none where there are none.
///
/// # Safety
/// Where neither is zero, `bytes` must be valid for reads of `len` bytes as long as the result is used.
unsafe fn slice<'a>(bytes: *const u8, len: usize) -> &'a [u8] {
    if bytes.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(bytes, len) }
}

/// Ends this call; the source's wait fails with the message. Hands [`panic`] where this call of it lies on the stack.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn farjump_panic(message: *const c_char, len: usize) -> ! {
    core::arch::naked_asm!("mov rdx, rsp", "mov rcx, rbp", "jmp {panic}", panic = sym panic)
}

/// No code is placed on other machines.
#[cfg(not(target_arch = "x86_64"))]
unsafe extern "C" fn farjump_panic(message: *const c_char, len: usize) -> ! {
    // SAFETY: the same arguments.
    unsafe { panic(message, len, 0, 0) }
}

/// `farjump_panic`, whose return address lies at `slot`, and which was called with `frame` in the register that points to frames.
unsafe extern "C" fn panic(message: *const c_char, len: usize, slot: usize, frame: usize) -> ! {
    let message: &[u8] = if message.is_null() || len == 0 {
        b"(no message)"
    } else {
        // SAFETY: as in `farjump_reply`.
        unsafe { std::slice::from_raw_parts(message.cast::<u8>(), len) }
    };
    let said = String::from_utf8_lossy(message);
    match context::abandon(message, slot, frame) {
        // The code called us from a thread of its own, and there is nothing to go back to.
        NotLeft::NoCall => eprintln!("farjump: injected code panicked outside a call: {said}"),
        NotLeft::Across(function) => eprintln!(
            "farjump: injected code panicked in a function that was called back from {function}, which must not be left in the \
             middle: {said}: the process ends; return from the function that is called back, and panic then"
        ),
    }
    std::process::abort()
}
