//! The functions that UCX calls for each message.

use std::ffi::c_void;
use std::ptr;

use farjump_core::transport::Cause;
use farjump_ucx_sys::{UCS_OK, ucp_am_recv_param_t, ucs_status_t};

use super::{CREDIT, CREDIT_REQUEST, FRAME, FRONTED, Inbox, Violation};

impl Inbox {
    /// Makes the worker fill the inbox.
    ///
    /// # Safety
    /// The inbox must not move until the worker is gone.
    pub(in super::super) unsafe fn listen(&self) -> Result<(), Cause> {
        let own: *mut c_void = ptr::from_ref(self).cast_mut().cast();
        // SAFETY: the callbacks expect an inbox, which the caller keeps in place; they only read through it.
        unsafe {
            self.worker.handle(FRAME, Some(frame_came::<false>), own)?;
            self.worker.handle(FRONTED, Some(frame_came::<true>), own)?;
            self.worker.handle(CREDIT, Some(on_credit), own)?;
            self.worker.handle(CREDIT_REQUEST, Some(on_credit_request), own)
        }
    }
}

/// Returns the inbox and the header that UCX passes to a callback.
///
/// # Safety
/// The caller is a callback that [`Inbox::listen`] set, and passes UCX's arguments.
unsafe fn given<'a>(argument: *mut c_void, header: *const c_void, len: usize) -> (&'a Inbox, &'a [u8]) {
    // SAFETY: `listen` passed an inbox that stays in place as long as its worker, which runs this callback.
    let inbox = unsafe { &*argument.cast_const().cast::<Inbox>() };
    let header = match len {
        0 => &[][..],
        // SAFETY: UCX lends `len` bytes for the time of the callback.
        len => unsafe { std::slice::from_raw_parts(header.cast::<u8>(), len) },
    };
    (inbox, header)
}

unsafe extern "C" fn frame_came<const FRONTED: bool>(
    argument: *mut c_void,
    header: *const c_void,
    header_len: usize,
    data: *mut c_void,
    len: usize,
    params: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    // SAFETY: set by `listen`, called by UCX with its arguments.
    let (inbox, header) = unsafe { given(argument, header, header_len) };
    // SAFETY: UCX lends `params` for the time of the callback.
    let attributes = unsafe { (*params).recv_attr };
    if header.is_empty()
        && !inbox.has_failed.get()
        // SAFETY: UCX's arguments.
        && let Some(status) = unsafe { inbox.take_next(FRONTED, data, len, attributes) }
    {
        return status;
    }
    // SAFETY: UCX's arguments.
    unsafe { inbox.take(FRONTED, header, data, len, attributes) }
}

unsafe extern "C" fn on_credit(
    argument: *mut c_void,
    header: *const c_void,
    header_len: usize,
    _data: *mut c_void,
    _len: usize,
    _params: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    // SAFETY: set by `listen`, called by UCX with its arguments.
    let (inbox, header) = unsafe { given(argument, header, header_len) };
    match header.first_chunk() {
        Some(consumed) => inbox.returned(u16::from_le_bytes(*consumed)),
        None => inbox.violated(Violation("returns credit without a number")),
    }
    UCS_OK
}

unsafe extern "C" fn on_credit_request(
    argument: *mut c_void,
    header: *const c_void,
    header_len: usize,
    data: *mut c_void,
    len: usize,
    params: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    // SAFETY: set by `listen` and called by UCX, like this callback.
    let status = unsafe { on_credit(argument, header, header_len, data, len, params) };
    // SAFETY: set by `listen`, called by UCX with its arguments.
    let (inbox, _) = unsafe { given(argument, header, header_len) };
    inbox.recv_credit.request();
    if inbox.recv_credit.must_return_credit() {
        inbox.attend.set(true);
    }
    status
}
