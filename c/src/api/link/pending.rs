//! Pending calls.

use crate::api::bytes::farjump_bytes_t;
use crate::api::catch::{duration, guarded};
use crate::api::last_error::Failure;
use crate::api::link::{farjump_link_t, usable};
use crate::api::status::farjump_status_t::{self, *};

/// A pending call, as a number: it needs no memory and no end. Numbers differ between links. The number of a
/// call that ended or was cancelled differs from those of later calls, for 65,535 calls in the same slot.
/// 0 is no call.
pub type farjump_pending_t = u64;

/// Waits for the outcome, `timeout_ns` nanoseconds at most. The function's reply, the bytes of all its calls
/// of farjump_reply() in order, becomes the content of `reply`; NULL for a reply that is not needed. The
/// number is void afterwards.
///
/// FARJUMP_ERROR_REFUSED when the target refused the call; FARJUMP_ERROR_PANICKED when the function panicked.
/// FARJUMP_ERROR_INCOMPLETE when it led to calls that were lost; `reply` then has the replies of the others.
/// FARJUMP_ERROR_TIMEOUT when the time limit passed; the call is then cancelled. FARJUMP_ERROR_PEER_GONE.
/// FARJUMP_ERROR_NO_CALL for a number that is void.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_pending_wait(
    link: *mut farjump_link_t,
    pending: farjump_pending_t,
    timeout_ns: u64,
    reply: *mut farjump_bytes_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a link that only this thread uses.
        let call = unsafe { usable(link)? }.pending(pending)?;
        let timeout = duration(timeout_ns);
        // SAFETY: the header requires NULL or bytes that nothing else uses.
        match unsafe { reply.as_mut() } {
            Some(reply) => reply.fill(|content| {
                let waited = call.wait_into(timeout, content);
                waited.map_err(|error| Failure::of_call(error, content))
            })?,
            None => drop(call.wait(timeout)?),
        }
        Ok(FARJUMP_OK)
    })
}

/// Polls once, without waiting: FARJUMP_NOT_YET if the outcome has not come; the number then stays valid, and
/// `reply` is unchanged. Otherwise it does the same as farjump_pending_wait().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_pending_poll(
    link: *mut farjump_link_t,
    pending: farjump_pending_t,
    reply: *mut farjump_bytes_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a link that only this thread uses.
        let mut call = unsafe { usable(link)? }.pending(pending)?;
        let outcome = call.poll();
        if matches!(outcome, Ok(None)) {
            // Dropping the call would cancel it.
            let _ = call.into_raw();
            return Ok(FARJUMP_NOT_YET);
        }
        // SAFETY: the header requires NULL or bytes that nothing else uses.
        match unsafe { reply.as_mut() } {
            Some(reply) => reply.fill(|bytes| match outcome {
                Ok(content) => {
                    bytes.extend_from_slice(content.as_deref().unwrap_or_default());
                    Ok(())
                }
                Err(error) => Err(Failure::of_call(error, bytes)),
            })?,
            None => drop(outcome?),
        }
        Ok(FARJUMP_OK)
    })
}

/// Cancels the call: it still runs, and its outcome is dropped. The number is void afterwards.
///
/// FARJUMP_ERROR_NO_CALL for a number that is void already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_pending_cancel(
    link: *mut farjump_link_t,
    pending: farjump_pending_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a link that only this thread uses.
        unsafe { usable(link)? }.pending(pending)?.cancel();
        Ok(FARJUMP_OK)
    })
}
