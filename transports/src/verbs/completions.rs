//! Completion queues: taking completions, sleeping on them, and explaining failed ones.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use farjump_core::transport::Cause;
use farjump_rdma_sys::{
    IBV_WC_LOC_ACCESS_ERR, IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_QP_OP_ERR, IBV_WC_REM_ACCESS_ERR,
    IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR, IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR,
    IBV_WC_WR_FLUSH_ERR, ibv_comp_channel, ibv_cq, ibv_poll_cq, ibv_req_notify_cq, ibv_wc, ibv_wc_status,
};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::device::Device;
use super::error::{exhausted, last_error};

/// Completions taken at a time.
pub(super) const BATCH: usize = 16;

/// The buffer that [`Completions::take`] fills.
pub(super) type Batch = [MaybeUninit<ibv_wc>; BATCH];

/// A completion queue, with a channel if something sleeps on it.
pub(super) struct Completions {
    cq: NonNull<ibv_cq>,
    channel: Option<NonNull<ibv_comp_channel>>,
    device: Arc<Device>,
}

// SAFETY: verbs objects may be used by any thread.
unsafe impl Send for Completions {}

impl Completions {
    /// Creates a queue for `len` completions.
    pub(super) fn create(device: &Arc<Device>, len: u32, sleeps: bool) -> Result<Completions, Cause> {
        let failed = |what: &str| Cause::System(exhausted(&device.name, what, &last_error()));
        let channel = if sleeps {
            // SAFETY: the context is open.
            let channel = unsafe { device.verbs.ibv_create_comp_channel(device.context()) };
            Some(NonNull::new(channel).ok_or_else(|| failed("completion channel"))?)
        } else {
            None
        };
        let at = channel.map_or(ptr::null_mut(), NonNull::as_ptr);
        let vector = if sleeps { device.next_vector() } else { 0 };
        // SAFETY: the context is open, the channel belongs to it, and it has this vector.
        let cq = unsafe {
            device.verbs.ibv_create_cq(device.context(), len as c_int, ptr::null_mut(), at, vector)
        };
        let Some(cq) = NonNull::new(cq) else {
            let cause = failed(&format!("completion queue for {len}"));
            if let Some(channel) = channel {
                // SAFETY: made above, and not used again.
                unsafe { device.verbs.ibv_destroy_comp_channel(channel.as_ptr()) };
            }
            return Err(cause);
        };
        let made = Completions { cq, channel, device: Arc::clone(device) };
        if let Some(channel) = made.descriptor() {
            fcntl_getfl(channel).and_then(|flags| fcntl_setfl(channel, flags | OFlags::NONBLOCK)).map_err(
                |errno| {
                    Cause::System(format!(
                        "a completion channel cannot be looked at without waiting: {errno}"
                    ))
                },
            )?;
        }
        Ok(made)
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_cq {
        self.cq.as_ptr()
    }

    /// Takes at most [`BATCH`] completions, and fewer only if there are no more.
    #[inline]
    pub(super) fn take<'a>(&self, batch: &'a mut Batch) -> Result<&'a [ibv_wc], Cause> {
        // SAFETY: the queue exists, and the batch fits `BATCH` completions.
        let taken = unsafe { ibv_poll_cq(self.cq.as_ptr(), BATCH as c_int, batch.as_mut_ptr().cast()) };
        match usize::try_from(taken) {
            // SAFETY: the call wrote `taken` completions.
            Ok(taken) => Ok(unsafe { std::slice::from_raw_parts(batch.as_ptr().cast(), taken.min(BATCH)) }),
            Err(_) => Err(self.not_polled(taken)),
        }
    }

    #[cold]
    fn not_polled(&self, taken: c_int) -> Cause {
        Cause::System(format!("{} cannot poll its completions ({taken})", self.device.name))
    }

    /// The descriptor that becomes readable at a completion after [`Completions::arm`].
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the channel and its descriptor exist as long as this value.
        self.channel.map(|channel| unsafe { BorrowedFd::borrow_raw(channel.as_ref().fd) })
    }

    /// Requests an event on the channel at the next solicited (`Request::solicited`) or failed completion. The caller
    /// must poll for earlier completions after this call.
    pub(super) fn arm(&self) -> Result<(), Cause> {
        // SAFETY: the queue exists.
        match unsafe { ibv_req_notify_cq(self.cq.as_ptr(), true) } {
            0 => Ok(()),
            errno => Err(Cause::System(format!(
                "{} cannot report completions: {}",
                self.device.name,
                std::io::Error::from_raw_os_error(errno)
            ))),
        }
    }

    /// Empties the channel. Does not wait.
    pub(super) fn disarm(&self) {
        let Some(channel) = self.channel else { return };
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel exists and does not block; both outputs are valid. Each event is acknowledged
        // once.
        unsafe {
            while self.device.verbs.ibv_get_cq_event(channel.as_ptr(), &mut cq, &mut context) == 0 {
                self.device.verbs.ibv_ack_cq_events(cq, 1);
            }
        }
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        if self.device.is_parents() {
            return;
        }
        // Destroying the queue would wait for an unacknowledged event.
        self.disarm();
        // SAFETY: every queue pair that used it is gone (see `Queue`). An error of either call has no remedy.
        unsafe {
            self.device.verbs.ibv_destroy_cq(self.cq.as_ptr());
            if let Some(channel) = self.channel {
                self.device.verbs.ibv_destroy_comp_channel(channel.as_ptr());
            }
        }
    }
}

/// The cause of a failed request: the device's name for it, and its usual meaning. `beside` is the text of an
/// event.
#[cold]
pub(super) fn failure(device: &Device, done: &ibv_wc, beside: Option<String>) -> Cause {
    let words = device.words(done.status);
    let text = explain(&device.name, done.status, done.vendor_err, &words, beside);
    if done.status == IBV_WC_RETRY_EXC_ERR { Cause::Unreachable(text) } else { Cause::System(text) }
}

fn explain(device: &str, status: ibv_wc_status, vendor: u32, words: &str, beside: Option<String>) -> String {
    let means = match status {
        IBV_WC_RETRY_EXC_ERR => {
            "the peer did not answer: it ended, or the link or a switch in between is down, or the GIDs do not reach each other"
        }
        IBV_WC_RNR_RETRY_EXC_ERR => "the peer has posted no receive",
        IBV_WC_REM_ACCESS_ERR => {
            "the peer's device refused the access: its memory is gone, or key, range or rights are wrong"
        }
        IBV_WC_REM_INV_REQ_ERR | IBV_WC_REM_OP_ERR => "the peer's device could not carry out the request",
        IBV_WC_LOC_QP_OP_ERR => "this process's queue pair could not carry it out: is its own link down?",
        IBV_WC_LOC_PROT_ERR | IBV_WC_LOC_ACCESS_ERR => "memory of this process is not registered for it",
        // The status of requests behind a failed one, and of receives. Some devices report only this status for the
        // fault itself.
        IBV_WC_WR_FLUSH_ERR => {
            "the queue pair was shut by an earlier fault: the link of this device went down, or the peer requested memory that it may not access"
        }
        _ => "the device failed the request",
    };
    let beside = beside.map(|what| format!("; {what}")).unwrap_or_default();
    format!("{device} reports: {words} (status {status}, vendor error {vendor:#x}): {means}{beside}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_request_is_explained_with_status_and_vendor_error() {
        let text = explain("rxe0", IBV_WC_RETRY_EXC_ERR, 0x81, "transport retry counter exceeded", None);
        assert_eq!(
            text,
            "rxe0 reports: transport retry counter exceeded (status 12, vendor error 0x81): the peer did not answer: it ended, or the \
             link or a switch in between is down, or the GIDs do not reach each other"
        );
        let beside = Some("rxe0:1: the port went down".to_owned());
        let text = explain("rxe0", IBV_WC_LOC_QP_OP_ERR, 0, "local QP operation error", beside);
        assert!(text.ends_with("; rxe0:1: the port went down"), "{text}");
        assert!(explain("rxe0", 99, 0, "unknown", None).contains("failed the request"));
    }
}
