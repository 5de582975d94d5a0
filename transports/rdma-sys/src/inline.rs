//! The inline functions and macros of `infiniband/verbs.h`.

use std::ffi::{c_int, c_uint};
use std::mem::{offset_of, size_of};
use std::ptr;

use crate::{
    Verbs, ibv_context, ibv_cq, ibv_gid_entry, ibv_port_attr, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_wc,
    verbs_context,
};

/// A provider's result for an unsupported operation (`errno.h`).
const NOT_THERE: c_int = libc::EOPNOTSUPP;

/// Posts a list of work requests to a send queue: 0, or a number of `errno`.
///
/// # Safety
/// The rules of `ibv_post_send` in the header: `qp` is valid, the list is terminated, and its pointers are valid.
/// Memory that is not sent inline stays valid until its request is done. `bad_wr` points to a valid output.
#[inline]
pub unsafe fn ibv_post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: the caller keeps the header's rules (see Safety).
    unsafe { (*(*qp).context).ops.post_send.map_or(NOT_THERE, |post| post(qp, wr, bad_wr)) }
}

/// Posts a list of work requests to a receive queue: 0, or a number of `errno`.
///
/// # Safety
/// The rules of [`ibv_post_send`].
#[inline]
pub unsafe fn ibv_post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad_wr: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: the caller keeps the header's rules (see Safety).
    unsafe { (*(*qp).context).ops.post_recv.map_or(NOT_THERE, |post| post(qp, wr, bad_wr)) }
}

/// Takes up to `len` completions off a queue: returns their number, or a negative number.
///
/// # Safety
/// The rules of `ibv_poll_cq` in the header: `cq` is valid, and `wc` fits `len` completions.
#[inline]
pub unsafe fn ibv_poll_cq(cq: *mut ibv_cq, len: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller keeps the header's rules (see Safety).
    unsafe { (*(*cq).context).ops.poll_cq.map_or(-NOT_THERE, |poll| poll(cq, len, wc)) }
}

/// Requests an event on the queue's channel at the next completion, or with `solicited_only` at the next
/// solicited one: 0, or a number of `errno`.
///
/// # Safety
/// The rules of `ibv_req_notify_cq` in the header: `cq` is valid.
#[inline]
pub unsafe fn ibv_req_notify_cq(cq: *mut ibv_cq, solicited_only: bool) -> c_int {
    // SAFETY: the caller keeps the header's rules (see Safety).
    unsafe {
        (*(*cq).context).ops.req_notify_cq.map_or(NOT_THERE, |ask| ask(cq, c_int::from(solicited_only)))
    }
}

/// The extended context around `context`, if its provider has one that contains the field at `field`
/// (`verbs_get_ctx_op` in the header).
///
/// # Safety
/// `context` must be one that the library opened.
unsafe fn extended(context: *mut ibv_context, field: usize) -> Option<*mut verbs_context> {
    let all_ones = ptr::without_provenance_mut(usize::MAX);
    // SAFETY: the caller keeps the context open (see Safety).
    if unsafe { (*context).abi_compat } != all_ones {
        return None;
    }
    // The provider allocated both as one, the plain one last. The extended one grows towards lower addresses,
    // and states its size.
    let around = context.wrapping_byte_sub(offset_of!(verbs_context, context)).cast::<verbs_context>();
    // SAFETY: the mark above says that an extended context is around this one, and its size is right before
    // it.
    let len = unsafe { (*around).sz };
    (len >= size_of::<verbs_context>() - field).then_some(around)
}

impl Verbs {
    /// Queries the state of a port: 0, or a number of `errno`. Does the same as the header's macro
    /// `ibv_query_port`.
    ///
    /// # Safety
    /// `context` must be open, and `attributes` a valid output.
    pub unsafe fn query_port(
        &self,
        context: *mut ibv_context,
        port: u8,
        attributes: *mut ibv_port_attr,
    ) -> c_int {
        // SAFETY: the caller keeps the context open (see Safety).
        let around = unsafe { extended(context, offset_of!(verbs_context, query_port)) };
        // SAFETY: the context is extended, and the field lies within the provider's part.
        let query = around.and_then(|around| unsafe { (*around).query_port });
        match query {
            // SAFETY: a provider's function, called like in the header.
            Some(query) => unsafe { query(context, port, attributes, size_of::<ibv_port_attr>()) },
            None => {
                // SAFETY: the output is valid. The older structure is the beginning of this one.
                unsafe {
                    attributes.write_bytes(0, 1);
                    self.ibv_query_port(context, port, attributes.cast())
                }
            }
        }
    }

    /// Queries an entry of a port's table of GIDs: 0, or a number of `errno`, `ENODATA` for an empty one.
    ///
    /// # Safety
    /// `context` must be open, and `entry` a valid output.
    pub unsafe fn query_gid_ex(
        &self,
        context: *mut ibv_context,
        port: u32,
        index: u32,
        entry: *mut ibv_gid_entry,
    ) -> c_int {
        let flags: c_uint = 0;
        // SAFETY: the caller keeps the header's rules (see Safety).
        unsafe { self._ibv_query_gid_ex(context, port, index, entry, flags, size_of::<ibv_gid_entry>()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn port(_: *mut ibv_context, port: u8, to: *mut ibv_port_attr, len: usize) -> c_int {
        // SAFETY: the test below passes a valid output.
        unsafe { (*to).lid = u16::from(port) + len as u16 };
        7
    }

    #[test]
    fn a_context_is_extended_if_it_is_marked_so_and_long_enough() {
        // SAFETY: pointers, numbers and optional functions, for all of which zero is valid.
        let mut around: Box<verbs_context> = unsafe { Box::new(std::mem::zeroed()) };
        around.sz = size_of::<verbs_context>();
        around.query_port = Some(port);
        let start = &raw mut *around;
        // SAFETY: the context lies within `around`.
        let context = unsafe { &raw mut (*start).context };
        let field = offset_of!(verbs_context, query_port);
        // SAFETY: the context exists in all three.
        unsafe {
            assert_eq!(extended(context, field), None, "it is not marked");
            (*context).abi_compat = ptr::without_provenance_mut(usize::MAX);
            assert_eq!(extended(context, field), Some(start));
            (*start).sz = size_of::<verbs_context>() - field - 1;
            assert_eq!(extended(context, field), None, "an old provider has no such field");
        }
    }

    #[test]
    fn an_operation_that_a_provider_lacks_is_an_error_and_no_call() {
        // SAFETY: pointers, numbers and optional functions, for all of which zero is valid.
        let mut context: Box<ibv_context> = unsafe { Box::new(std::mem::zeroed()) };
        // SAFETY: pointers and numbers, for which zero is valid.
        let mut qp: Box<ibv_qp> = unsafe { Box::new(std::mem::zeroed()) };
        // SAFETY: pointers and numbers, for which zero is valid.
        let mut cq: Box<ibv_cq> = unsafe { Box::new(std::mem::zeroed()) };
        qp.context = &raw mut *context;
        cq.context = &raw mut *context;
        // SAFETY: queues of a context without operations.
        unsafe {
            assert_eq!(ibv_post_send(&raw mut *qp, ptr::null_mut(), ptr::null_mut()), libc::EOPNOTSUPP);
            assert_eq!(ibv_poll_cq(&raw mut *cq, 0, ptr::null_mut()), -libc::EOPNOTSUPP);
            assert_eq!(ibv_req_notify_cq(&raw mut *cq, true), libc::EOPNOTSUPP);
        }
    }
}
