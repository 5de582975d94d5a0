//! Writing a frame into a slot.
//!
//! Where UCX gives a pointer to the slot, the sender stores the frame there, its signal last. The slot's contents show
//! whether the target took the last frame, and which code it has. Elsewhere the sender puts a checked frame in one
//! piece. Such a frame always carries its code: the sender assumes no order of its bytes, and does not know the slot's
//! state.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use farjump_core::shared::copy_in;
use farjump_ucx_sys::{
    UCP_OP_ATTR_FIELD_CALLBACK, UCP_OP_ATTR_FIELD_USER_DATA, UCS_ERR_INVALID_ADDR, UCS_ERR_NO_MEMORY,
    UCS_ERR_NO_RESOURCE, UCS_INPROGRESS, UCS_OK, UCS_PTR_IS_PTR, UCS_PTR_STATUS, Ucx, ucp_ep_h,
    ucp_request_param_t, ucp_request_param_t__bindgen_ty_1, ucp_rkey_h, ucs_status_t,
};

use super::frame::{self, CHECK, HEAD, Key};
use super::message::Message;
use super::{Refused, shared_mappings, ucx};

/// Sends `message` into the slot at `address` of the target. Returns [`UCS_INPROGRESS`] while UCX is not done with it.
/// The message itself may be freed in any case.
///
/// # Errors
/// [`UCS_ERR_INVALID_ADDR`] for a slot that is not aligned, or not in the target's memory;
/// [`UCS_ERR_NO_RESOURCE`] while the slot's last frame was not taken; UCX's own errors.
///
/// # Safety
/// `end` and `key` must be an endpoint, and a key that was unpacked for it, used by no other thread meanwhile
/// than UCX allows.
#[inline(always)]
pub(super) unsafe fn send(
    ucx: &'static Ucx,
    end: ucp_ep_h,
    key: ucp_rkey_h,
    address: u64,
    message: &Message,
) -> Result<ucs_status_t, Refused> {
    let below = message.slot_align() - 1;
    if address & below as u64 != 0 {
        return Err(misaligned(address, message));
    }
    let mut slot: *mut c_void = ptr::null_mut();
    // SAFETY: this function's caller guarantees the key.
    match unsafe { ucx.ucp_rkey_ptr(key, address, &raw mut slot) } {
        UCS_OK => {}
        UCS_ERR_INVALID_ADDR => return Err(shared_mappings::outside(message.len())),
        // SAFETY: this function's caller gives the same guarantees.
        _ => return unsafe { put(ucx, end, key, address, message) },
    }
    shared_mappings::check(slot.addr(), address, message.len())?;
    if slot.addr() & below != 0 {
        return Err(misaligned(address, message));
    }
    // SAFETY: the whole frame fits into the memory there: a peer's, which UCX keeps mapped as long as the key
    // exists, or this process's own.
    unsafe { store(slot.cast(), address, message) }
}

#[cold]
fn misaligned(address: u64, message: &Message) -> Refused {
    let align = message.slot_align();
    let text =
        format!("the slot is at {address:#x}: for this function it has to be at a multiple of {align}");
    Refused::new(UCS_ERR_INVALID_ADDR, text)
}

/// Stores the frame: without its code part, if the slot shows that the target has the code.
///
/// # Errors
/// [`UCS_ERR_NO_RESOURCE`].
///
/// # Safety
/// `slot` must be valid for writes of the whole message, and aligned to 8 bytes.
#[inline(always)]
pub(super) unsafe fn store(slot: *mut u8, address: u64, message: &Message) -> Result<ucs_status_t, Refused> {
    // SAFETY: there is space for a header, and both processes access these words by atomic operations alone.
    let [first, lengths, third] = unsafe { &*slot.cast::<[AtomicU64; 3]>() };
    fetch_to_write(slot);
    // Pairs with the release store of `poll`, which has read all of a frame but its payload by then.
    let taken = first.load(Ordering::Acquire);
    let signal = frame::signal(address);
    if taken == signal.to_le() || taken == !signal.to_le() {
        return Err(occupied(address));
    }
    let owner = frame::owner(address, u64::from_le(taken));
    let in_store =
        owner.is_some() && Key::in_word(u64::from_le(third.load(Ordering::Relaxed))) == message.key();
    let part = match owner {
        Some(machine) if !in_store => message.part_for(machine),
        _ => None,
    };
    let len = match &part {
        _ if in_store => message.short(),
        Some(part) => message.short() + part.len() * 8,
        None => message.len(),
    };
    if !in_store {
        // Before the third word: a sender that dies after it must not leave a receipt for code that the
        // target lacks.
        first.store(frame::NOTHING, Ordering::Relaxed);
    }
    let words = message.words_of(len, !in_store);
    third.store(words[1].to_le(), Ordering::Release);
    lengths.store(words[0].to_le(), Ordering::Relaxed);
    let own = if part.is_some() { message.short() } else { len };
    // SAFETY: frame and slot are both valid for the whole message. `part` is shorter than the message's own code part,
    // which it replaces.
    unsafe {
        copy(message.frame().add(HEAD), slot.add(HEAD), own - HEAD);
        if let Some(part) = part {
            copy(part.as_ptr().cast(), slot.add(own), part.len() * 8);
        }
    }
    // Pairs with the acquire load of `poll`: a target that sees the signal sees the frame.
    first.store(signal.to_le(), Ordering::Release);
    Ok(UCS_OK)
}

/// Prefetches the slot's first line for writing. A read first would transfer it twice, and the second
/// transfer delays the frame.
#[inline(always)]
fn fetch_to_write(slot: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch faults nowhere and changes no register; processors without PREFETCHW execute it as a
    // no-operation.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) slot, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = slot;
}

/// Copies `len` bytes, a multiple of 8, into a slot, which the target can read and write meanwhile. Bytes that share a
/// line with the header are too few to be worth a call.
///
/// # Safety
/// `from` and `to` must be valid for that, and aligned to 8 bytes. No other thread of this process uses them
/// meanwhile.
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    if len > frame::INLINE {
        // SAFETY: this function's caller guarantees it.
        return unsafe { copy_in(from, to, len) };
    }
    for word in 0..len / 8 {
        // SAFETY: this function's caller guarantees it.
        let place = unsafe { AtomicU64::from_ptr(to.cast::<u64>().add(word)) };
        // SAFETY: this function's caller guarantees `len` readable bytes at `from`.
        place.store(unsafe { from.cast::<u64>().add(word).read() }, Ordering::Relaxed);
    }
}

#[cold]
fn occupied(address: u64) -> Refused {
    let text = format!(
        "the slot at {address:#x} holds a frame that the target has not taken yet: send it later, or elsewhere"
    );
    Refused::new(UCS_ERR_NO_RESOURCE, text)
}

/// Puts the frame, checked, in one piece. UCX gets its own copy: the message may go to other slots meanwhile, or be
/// freed.
///
/// # Errors
/// [`UCS_ERR_NO_MEMORY`]; UCX's own errors.
///
/// # Safety
/// As for [`send`].
#[inline(never)]
unsafe fn put(
    ucx: &'static Ucx,
    end: ucp_ep_h,
    key: ucp_rkey_h,
    address: u64,
    message: &Message,
) -> Result<ucs_status_t, Refused> {
    let copy = checked(address, message)?;
    let (start, len) = (copy.as_ptr(), copy.len() * 8);
    let user_data = Box::into_raw(Box::new(copy));
    // SAFETY: numbers and pointers, for all of which zero is valid; the mask names the meaningful ones.
    let mut params: ucp_request_param_t = unsafe { MaybeUninit::zeroed().assume_init() };
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    params.cb = ucp_request_param_t__bindgen_ty_1 { send: Some(done) };
    params.user_data = user_data.cast();
    // SAFETY: this function's caller guarantees endpoint and key; the copy stays until UCX is done with it.
    let request = unsafe { ucx.ucp_put_nbx(end, start.cast(), len, address, key, &raw const params) };
    if UCS_PTR_IS_PTR(request) {
        return Ok(UCS_INPROGRESS);
    }
    // SAFETY: it is the box made above, and there is no request whose callback would drop it.
    drop(unsafe { Box::from_raw(user_data) });
    match UCS_PTR_STATUS(request) {
        UCS_OK => Ok(UCS_OK),
        status => {
            Err(Refused::new(status, format!("UCX did not put the frame of {len} bytes (status {status})")))
        }
    }
}

/// Returns the whole frame, as words, with its check.
///
/// # Errors
/// [`UCS_ERR_NO_MEMORY`].
pub(super) fn checked(address: u64, message: &Message) -> Result<Vec<u64>, Refused> {
    let (words, len) = (message.len() / 8, message.len() + CHECK);
    let mut copy = Vec::new();
    copy.try_reserve_exact(len / 8)
        .map_err(|_| Refused::new(UCS_ERR_NO_MEMORY, format!("no memory for a copy of {len} bytes")))?;
    // SAFETY: a message's frame is words that were all written, and there is space for them.
    unsafe {
        ptr::copy_nonoverlapping(message.frame().cast::<u64>(), copy.as_mut_ptr(), words);
        copy.set_len(words);
    }
    let [lengths, third] = message.words(true);
    copy[0] = !frame::signal(address).to_le();
    copy[1] = (lengths + CHECK as u64).to_le();
    copy[2] = third.to_le();
    // SAFETY: words are bytes.
    let bytes = unsafe { std::slice::from_raw_parts(copy.as_ptr().cast::<u8>(), words * 8) };
    let hash = frame::hash(&bytes[8..]);
    copy.extend([hash.to_le(), frame::trailer(address).to_le()]);
    Ok(copy)
}

/// UCX's callback after a put.
unsafe extern "C" fn done(request: *mut c_void, _status: ucs_status_t, user_data: *mut c_void) {
    // SAFETY: it is the box that `put` handed over, and UCX calls this once.
    drop(unsafe { Box::from_raw(user_data.cast::<Vec<u64>>()) });
    if let Ok(ucx) = ucx() {
        // SAFETY: the request is UCX's, and nothing else knows it.
        unsafe { ucx.ucp_request_free(request) };
    }
}
