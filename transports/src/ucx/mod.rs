//! UCX: frames over all of its transports, by the library of the distribution.
//!
//! [`put`] is the backend `ucx-put`, which writes frames into the peer's memory. [`am`] is `ucx-am`, which
//! sends each frame as an active message. The library is opened at the first use of a backend; neither the
//! build nor other backends need it. UCX itself reads its environment variables (`UCX_TLS`, `UCX_NET_DEVICES`, …), as
//! in any program; farjump excludes some of its transports (`tls.rs`). It logs to standard output unless `UCX_LOG_FILE`
//! is set (to `stderr`, for example) when the library is opened.

mod address;
pub mod am;
mod context;
mod device_memlock;
mod inherited;
mod lanes;
mod locality;
mod mapping_query;
#[doc(hidden)]
pub mod mappings;
pub mod put;
mod settings;
mod shared_memory;
mod tls;
mod worker;

pub use am::{Am, PortClosing};
pub use put::Put;

use std::ffi::CStr;

use farjump_core::transport::Cause;
use farjump_ucx_sys::{
    UCS_ERR_CANCELED, UCS_ERR_CONNECTION_RESET, UCS_ERR_ENDPOINT_TIMEOUT, UCS_ERR_NOT_CONNECTED,
    UCS_ERR_REJECTED, UCS_ERR_SHMEM_SEGMENT, Ucx, ucp_ep_h, ucs_status_t,
};

/// Names the UCX transports of a UCX endpoint's lanes, each once, in UCX's order: `posix`, `cma`.
///
/// # Safety
/// `end` is an open UCX endpoint, and no other thread uses its worker.
#[doc(hidden)]
pub unsafe fn transports_of(ucx: &Ucx, endpoint: ucp_ep_h) -> Vec<String> {
    lanes::Lanes::of(ucx, endpoint).transports()
}

/// Returns UCX's text for a status.
fn words(ucx: &Ucx, status: ucs_status_t) -> String {
    // SAFETY: the function accepts every number, also one that is not a status.
    let text = unsafe { ucx.ucs_status_string(status) };
    // SAFETY: UCX returns a constant, or a buffer of this thread that the next such call fills.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Returns the cause for a failed send or receive.
fn moving(ucx: &Ucx, status: ucs_status_t) -> Cause {
    match status {
        UCS_ERR_CANCELED
        | UCS_ERR_CONNECTION_RESET
        | UCS_ERR_ENDPOINT_TIMEOUT
        | UCS_ERR_NOT_CONNECTED
        | UCS_ERR_REJECTED
        // The memory for the path to the peer is gone.
        | UCS_ERR_SHMEM_SEGMENT => Cause::PeerGone,
        other => Cause::System(format!("UCX reports: {}", words(ucx, other))),
    }
}
