//! UCX's log of dropped messages: a warning, a dump and a backtrace for each, 14 lines in 1.13. A peer may send any
//! number, so this module thins them: it shows the first, and then one at every power of two. All other log messages of
//! UCX pass.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use libloading::os::unix::Library as File;

/// `ucs_log_func_rc_t`: keeps the message from later handlers.
const STOP: c_int = 0;
const CONTINUE: c_int = 1;

/// `ucs_log_func_t`. The last argument is a `va_list`, which is a pointer, or passed by one, on 64-bit x86
/// and Arm.
type Handler = unsafe extern "C" fn(
    *const c_char,
    c_uint,
    *const c_char,
    c_int,
    *const c_void,
    *const c_char,
    *mut c_void,
) -> c_int;

/// Makes UCX pass all of its log messages to [`thin`]. If the function, which no header guarantees, is missing, UCX
/// logs everything unchanged.
pub(crate) fn thin_out(ucx: &File) {
    type Push = unsafe extern "C" fn(Handler);
    // SAFETY: UCX has had this function with this type since 1.8; 1.13.1 and 1.22.0 were checked.
    if let Ok(push) = unsafe { ucx.get::<Push>(b"ucs_log_push_handler\0") } {
        // SAFETY: the handler stays valid as long as the process, and any thread may call it.
        unsafe { push(thin) };
    }
}

unsafe extern "C" fn thin(
    _file: *const c_char,
    _line: c_uint,
    function: *const c_char,
    _level: c_int,
    _component: *const c_void,
    message: *const c_char,
    _values: *mut c_void,
) -> c_int {
    static DROPPED: AtomicU64 = AtomicU64::new(0);
    if function.is_null() || message.is_null() {
        return CONTINUE;
    }
    // SAFETY: UCX passes terminated texts, valid during the call.
    let (function, message) = unsafe { (CStr::from_ptr(function), CStr::from_ptr(message)) };
    match is_shown(function.to_bytes(), message.to_bytes(), || DROPPED.fetch_add(1, Relaxed) + 1) {
        true => CONTINUE,
        false => STOP,
    }
}

/// Returns whether a message is shown; `count` returns the number of dropped messages, this one included.
fn is_shown(function: &[u8], message: &[u8], count: impl FnOnce() -> u64) -> bool {
    if message.starts_with(b"got active message id") {
        return count().is_power_of_two();
    }
    // 1.13 and 1.22 write sizes by %zu.
    !message.starts_with(b"payload %") && function != b"ucs_log_print_backtrace"
}

#[cfg(test)]
mod tests {
    use farjump_fixtures::helper_process::{passed, role, test_in_role};
    use farjump_fixtures::this_test;
    use libloading::os::unix::{RTLD_LOCAL, RTLD_NOW};

    use super::*;
    use crate::open::tests::alone;

    #[test]
    fn dropped_messages_are_shown_less_and_less_and_all_else_always() {
        let mut dropped = 0;
        let mut shown = |function: &[u8], message: &[u8]| {
            is_shown(function, message, || {
                dropped += 1;
                dropped
            })
        };
        let stub = b"uct_iface_stub_am_handler";
        let all = (0..1000).filter(|_| shown(stub, b"got active message id %d, but no handler installed"));
        assert_eq!(all.count(), 10);
        assert!(!shown(stub, b"payload %zu of %zu bytes:\n%s"));
        assert!(!shown(b"ucs_log_print_backtrace", b" %2d  %s"));
        assert!(shown(b"ucp_worker_create", b"no memory"));
    }

    /// The part of `ucs_log_component_config_t` that the log reads, with space for more.
    #[repr(C)]
    struct Component {
        level: c_int,
        rest: [u8; 124],
    }

    /// Logs a thousand dropped messages and one other by UCX's own function, which calls the handlers.
    fn play() {
        crate::Ucx::open().unwrap();
        type Dispatch = unsafe extern "C" fn(
            *const c_char,
            c_uint,
            *const c_char,
            c_int,
            *const Component,
            *const c_char,
            ...
        );
        // SAFETY: loaded already.
        let file = unsafe { File::open(Some("libucs.so.0"), RTLD_NOW | RTLD_LOCAL) }.unwrap();
        // SAFETY: the type is that of UCX's `ucs_log_dispatch`.
        let log = unsafe { file.get::<Dispatch>(b"ucs_log_dispatch\0") }.unwrap();
        let component = Component { level: 2, rest: [0; 124] };
        let warn = |function: &CStr, message: &CStr| {
            // SAFETY: terminated texts, and as many numbers as the formats name.
            unsafe { log(c"f.c".as_ptr(), 1, function.as_ptr(), 2, &component, message.as_ptr(), 17_i32) };
        };
        for _ in 0..1000 {
            warn(c"stub", c"got active message id %d, but no handler installed");
            warn(c"stub", c"payload %d of 17 bytes");
            warn(c"ucs_log_print_backtrace", c" %2d somewhere");
        }
        warn(c"other", c"another thing %d");
    }

    #[test]
    fn ucxs_own_log_has_no_line_for_each_dropped_message() {
        if !role().is_empty() {
            return play();
        }
        let _alone = alone();
        if let Err(why) = crate::Ucx::open() {
            return println!("skipped: {why}");
        }
        let said = passed(test_in_role(this_test!(), &["logs"]).env("UCX_LOG_FILE", "stderr")).err;
        let lines = |part: &str| said.lines().filter(|line| line.contains(part)).count();
        assert_eq!(
            (lines("no handler installed"), lines("payload"), lines("somewhere"), lines("another thing")),
            (10, 0, 0, 1),
            "{said}"
        );
    }
}
