//! UCX in a forked child of a process that uses it: every function does nothing, and fails if it can.
//!
//! UCX does not support its use in a child. Its thread is not in the child, and its descriptors for events are the
//! parent's too: if a child closes an endpoint or makes one, the parent's thread aborts. So a child leaks all objects
//! of UCX.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use crate::*;

/// The error of all functions.
const ERROR: ucs_status_t = UCS_ERR_CANCELED;

/// The error of functions that return a request.
fn failed() -> ucs_status_ptr_t {
    ptr::without_provenance_mut(ERROR as isize as usize)
}

/// Replaces functions of a library by ones that return a value, and do nothing else.
macro_rules! replace {
    ($library:ident, $($name:ident($($parameter:ty),*) -> $type:ty = $value:expr;)*) => {$({
        unsafe extern "C" fn $name($(_: $parameter),*) -> $type {
            $value
        }
        $library.$name = $name;
    })*};
}

/// Replaces all functions but those that read settings and texts.
pub(crate) fn replace(library: &mut Library) {
    replace! { library,
        ucp_init_version(c_uint, c_uint, *const ucp_params_t, *const ucp_config_t, *mut ucp_context_h) -> ucs_status_t = ERROR;
        ucp_cleanup(ucp_context_h) -> () = ();
        ucp_context_query(ucp_context_h, *mut ucp_context_attr_t) -> ucs_status_t = ERROR;
        ucp_context_print_info(ucp_context_h, *mut libc::FILE) -> () = ();
        ucp_worker_create(ucp_context_h, *const ucp_worker_params_t, *mut ucp_worker_h) -> ucs_status_t = ERROR;
        ucp_worker_destroy(ucp_worker_h) -> () = ();
        ucp_worker_query(ucp_worker_h, *mut ucp_worker_attr_t) -> ucs_status_t = ERROR;
        ucp_worker_print_info(ucp_worker_h, *mut libc::FILE) -> () = ();
        ucp_worker_get_address(ucp_worker_h, *mut *mut ucp_address_t, *mut usize) -> ucs_status_t = ERROR;
        ucp_worker_release_address(ucp_worker_h, *mut ucp_address_t) -> () = ();
        ucp_worker_progress(ucp_worker_h) -> c_uint = 0;
        ucp_worker_get_efd(ucp_worker_h, *mut c_int) -> ucs_status_t = ERROR;
        ucp_worker_arm(ucp_worker_h) -> ucs_status_t = ERROR;
        ucp_request_query(*mut c_void, *mut ucp_request_attr_t) -> ucs_status_t = ERROR;
        ucp_ep_create(ucp_worker_h, *const ucp_ep_params_t, *mut ucp_ep_h) -> ucs_status_t = ERROR;
        ucp_ep_close_nbx(ucp_ep_h, *const ucp_request_param_t) -> ucs_status_ptr_t = ptr::null_mut();
        ucp_ep_print_info(ucp_ep_h, *mut libc::FILE) -> () = ();
        ucp_ep_flush_nbx(ucp_ep_h, *const ucp_request_param_t) -> ucs_status_ptr_t = failed();
        ucp_mem_map(ucp_context_h, *const ucp_mem_map_params_t, *mut ucp_mem_h) -> ucs_status_t = ERROR;
        ucp_mem_unmap(ucp_context_h, ucp_mem_h) -> ucs_status_t = UCS_OK;
        ucp_mem_query(ucp_mem_h, *mut ucp_mem_attr_t) -> ucs_status_t = ERROR;
        ucp_rkey_pack(ucp_context_h, ucp_mem_h, *mut *mut c_void, *mut usize) -> ucs_status_t = ERROR;
        ucp_rkey_buffer_release(*mut c_void) -> () = ();
        ucp_ep_rkey_unpack(ucp_ep_h, *const c_void, *mut ucp_rkey_h) -> ucs_status_t = ERROR;
        ucp_rkey_ptr(ucp_rkey_h, u64, *mut *mut c_void) -> ucs_status_t = ERROR;
        ucp_rkey_destroy(ucp_rkey_h) -> () = ();
        ucp_worker_set_am_recv_handler(ucp_worker_h, *const ucp_am_handler_param_t) -> ucs_status_t = ERROR;
        ucp_am_send_nbx(ucp_ep_h, c_uint, *const c_void, usize, *const c_void, usize, *const ucp_request_param_t) -> ucs_status_ptr_t = failed();
        ucp_am_recv_data_nbx(ucp_worker_h, *mut c_void, *mut c_void, usize, *const ucp_request_param_t) -> ucs_status_ptr_t = failed();
        ucp_am_data_release(ucp_worker_h, *mut c_void) -> () = ();
        ucp_put_nbx(ucp_ep_h, *const c_void, usize, u64, ucp_rkey_h, *const ucp_request_param_t) -> ucs_status_ptr_t = failed();
        ucp_get_nbx(ucp_ep_h, *mut c_void, usize, u64, ucp_rkey_h, *const ucp_request_param_t) -> ucs_status_ptr_t = failed();
        ucp_request_check_status(*mut c_void) -> ucs_status_t = ERROR;
        ucp_request_cancel(ucp_worker_h, *mut c_void) -> () = ();
        ucp_request_free(*mut c_void) -> () = ();
        ucp_worker_fence(ucp_worker_h) -> ucs_status_t = ERROR;
        ucp_worker_flush_nbx(ucp_worker_h, *const ucp_request_param_t) -> ucs_status_ptr_t = ptr::null_mut();
        ucp_ep_query(ucp_ep_h, *mut ucp_ep_attr_t) -> ucs_status_t = ERROR;
    }
}
