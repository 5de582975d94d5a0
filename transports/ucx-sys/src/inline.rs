//! The macros and inline functions of UCX's headers.

use crate::{UCP_DATATYPE_CONTIG, UCP_DATATYPE_SHIFT, UCS_ERR_LAST, UCS_INPROGRESS};
use crate::{Ucx, ucp_config_t, ucp_context_h, ucp_datatype_t, ucp_params_t, ucs_status_ptr_t, ucs_status_t};

/// The first address that is a negative status code.
const FIRST_ERROR: usize = UCS_ERR_LAST as isize as usize;

/// Returns whether the result of a function is an error (`ucs/type/status.h`).
#[expect(non_snake_case, reason = "the header's name")]
#[inline]
pub fn UCS_PTR_IS_ERR(returned: ucs_status_ptr_t) -> bool {
    returned.addr() >= FIRST_ERROR
}

/// Returns whether the result of a function is a request, which must be freed (`ucs/type/status.h`). A result that is
/// neither a request nor an error means that the operation is done.
#[expect(non_snake_case, reason = "the header's name")]
#[inline]
pub fn UCS_PTR_IS_PTR(returned: ucs_status_ptr_t) -> bool {
    returned.addr().wrapping_sub(1) < FIRST_ERROR - 1
}

/// The status that a function returned; [`UCS_INPROGRESS`] for a request (`ucs/type/status.h`).
#[expect(non_snake_case, reason = "the header's name")]
#[inline]
pub fn UCS_PTR_STATUS(returned: ucs_status_ptr_t) -> ucs_status_t {
    // Not a request, so a status, which fits the type.
    if UCS_PTR_IS_PTR(returned) { UCS_INPROGRESS } else { returned.addr() as ucs_status_t }
}

/// The datatype of contiguous elements of `size` bytes (`ucp/api/ucp.h`).
#[inline]
pub const fn ucp_dt_make_contig(size: usize) -> ucp_datatype_t {
    ((size as ucp_datatype_t) << UCP_DATATYPE_SHIFT) | UCP_DATATYPE_CONTIG as ucp_datatype_t
}

impl Ucx {
    /// Makes a context, for a caller that uses the structures of 1.13, like the header's `ucp_init`.
    ///
    /// # Safety
    /// The rules of `ucp_init` in `ucp/api/ucp.h`: `params` and `context` are valid, `config` is valid or
    /// null.
    pub unsafe fn ucp_init(
        &self,
        params: *const ucp_params_t,
        config: *const ucp_config_t,
        context: *mut ucp_context_h,
    ) -> ucs_status_t {
        let (major, minor) = crate::API;
        // SAFETY: the caller keeps the header's rules (see Safety).
        unsafe { self.ucp_init_version(major, minor, params, config, context) }
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;
    use crate::{UCS_ERR_NO_MESSAGE, UCS_ERR_TIMED_OUT, UCS_OK};

    #[test]
    fn returned_pointers_decode_as_done_error_or_request() {
        let done = ptr::null_mut();
        assert!(!UCS_PTR_IS_ERR(done) && !UCS_PTR_IS_PTR(done));
        assert_eq!(UCS_PTR_STATUS(done), UCS_OK);
        for error in [UCS_ERR_NO_MESSAGE, UCS_ERR_TIMED_OUT, UCS_ERR_LAST] {
            let returned = ptr::without_provenance_mut(error as isize as usize);
            assert!(UCS_PTR_IS_ERR(returned) && !UCS_PTR_IS_PTR(returned), "{error}");
            assert_eq!(UCS_PTR_STATUS(returned), error);
        }
        let mut request = 0u64;
        let returned = ptr::from_mut(&mut request).cast();
        assert!(!UCS_PTR_IS_ERR(returned) && UCS_PTR_IS_PTR(returned));
        assert_eq!(UCS_PTR_STATUS(returned), UCS_INPROGRESS);
    }

    #[test]
    fn bytes_are_the_contiguous_datatype_8() {
        assert_eq!(ucp_dt_make_contig(1), 8);
        assert_eq!(ucp_dt_make_contig(3), 24);
    }
}
