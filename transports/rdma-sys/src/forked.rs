//! An open device in a forked child: its queues are the parent's, and the child's memory holds copies of their state.

use std::ffi::c_int;

use crate::{ibv_context, ibv_cq, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_wc};

/// The result of all operations.
const REFUSED: c_int = libc::EPERM;

/// Disables the queues of a device that a parent opened, in this forked child: [`ibv_post_send`](crate::ibv_post_send)
/// and the other inline functions fail.
///
/// # Safety
/// `context` is open in the parent, the caller is a handler of `pthread_atfork` in the child, and the thread that forked
/// runs no function of the library.
pub unsafe fn end_in_child(context: *mut ibv_context) {
    unsafe extern "C" fn post_send(_: *mut ibv_qp, _: *mut ibv_send_wr, _: *mut *mut ibv_send_wr) -> c_int {
        REFUSED
    }
    unsafe extern "C" fn post_recv(_: *mut ibv_qp, _: *mut ibv_recv_wr, _: *mut *mut ibv_recv_wr) -> c_int {
        REFUSED
    }
    unsafe extern "C" fn poll_cq(_: *mut ibv_cq, _: c_int, _: *mut ibv_wc) -> c_int {
        -REFUSED
    }
    unsafe extern "C" fn req_notify_cq(_: *mut ibv_cq, _: c_int) -> c_int {
        REFUSED
    }
    // SAFETY: the context is the library's memory, of which the child has a copy, and nothing else uses it (see Safety).
    let operations = unsafe { &mut (*context).ops };
    operations.post_send = Some(post_send);
    operations.post_recv = Some(post_recv);
    operations.poll_cq = Some(poll_cq);
    operations.req_notify_cq = Some(req_notify_cq);
}
