//! A peer whose UCX drops all messages: its worker has no active messages, so UCX has no handler for any of them. UCX
//! reports no error in either process; waits end by their deadlines.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed};
use std::time::{Duration, Instant};

use farjump_fixtures::altered::Altered;
use farjump_fixtures::raw_target::RawTarget;
use farjump_transports::ucx::Am;
use farjump_ucx_sys::{
    UCP_FEATURE_TAG, UCP_PARAM_FIELD_FEATURES, UCS_OK, Ucx, ucp_context_h, ucp_params_t, ucp_worker_h,
    ucp_worker_params_t,
};

use crate::helper::{has_ucx_tcp, this_test};
use crate::paths::{Path, am, on_paths};
use crate::support::{Place, library, timed_out};

/// The UCX transports that farjump's messages use.
const PATHS: [Path; 3] = [
    am("ucx-am over posix", &[("UCX_TLS", "posix,self"), ("UCX_LOG_LEVEL", "warn")]),
    am("ucx-am over sysv", &[("UCX_TLS", "sysv,self"), ("UCX_LOG_LEVEL", "warn")]),
    am("ucx-am over tcp", &[("UCX_TLS", "tcp,self"), ("UCX_LOG_LEVEL", "warn")]),
];
/// Limit of waits for replies that never come.
const SHORT: Duration = Duration::from_millis(500);
/// Calls that UCX drops.
const SENT: usize = 200;
/// Most lines about them in UCX's log: one at each doubling, and two about farjump's other messages.
const DROPS_REPORTED: usize = 9;

/// A UCX worker that drops all of farjump's messages, in a context of its own.
struct Deaf {
    ucx: &'static Ucx,
    context: ucp_context_h,
    worker: AtomicPtr<c_void>,
}

impl Deaf {
    fn create() -> Deaf {
        let ucx = Ucx::open().unwrap();
        let (mut config, mut context, mut worker) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: UCX reads the fields that the masks name, and zeroes are valid for all others; the variables for
        // the results have their types.
        unsafe {
            assert_eq!(ucx.ucp_config_read(ptr::null(), ptr::null(), &mut config), UCS_OK);
            let mut params: ucp_params_t = MaybeUninit::zeroed().assume_init();
            params.field_mask = u64::from(UCP_PARAM_FIELD_FEATURES);
            params.features = u64::from(UCP_FEATURE_TAG);
            assert_eq!(ucx.ucp_init(&params, config, &mut context), UCS_OK);
            ucx.ucp_config_release(config);
            let params: ucp_worker_params_t = MaybeUninit::zeroed().assume_init();
            assert_eq!(ucx.ucp_worker_create(context, &params, &mut worker), UCS_OK);
        }
        Deaf { ucx, context, worker: AtomicPtr::new(worker.cast()) }
    }

    fn worker(&self) -> ucp_worker_h {
        self.worker.load(Relaxed).cast()
    }

    fn address(&self) -> Vec<u8> {
        let (mut start, mut len) = (ptr::null_mut(), 0);
        // SAFETY: the worker exists, and the bytes that UCX has written are copied before they are released.
        unsafe {
            assert_eq!(self.ucx.ucp_worker_get_address(self.worker(), &mut start, &mut len), UCS_OK);
            let bytes = std::slice::from_raw_parts(start.cast::<u8>(), len).to_vec();
            self.ucx.ucp_worker_release_address(self.worker(), start);
            bytes
        }
    }

    fn progress(&self) {
        // SAFETY: the worker exists, and only the target's thread uses it.
        unsafe { self.ucx.ucp_worker_progress(self.worker()) };
    }
}

impl Drop for Deaf {
    fn drop(&mut self) {
        // SAFETY: `create` made them, and nothing uses them any more.
        unsafe {
            self.ucx.ucp_worker_destroy(self.worker());
            self.ucx.ucp_cleanup(self.context);
        }
    }
}

// SAFETY: only the thread of the handshake and the replies uses the worker; the others hold the value without
// using it.
unsafe impl Send for Deaf {}
// SAFETY: the worker is used by one thread alone, so shared references do not race.
unsafe impl Sync for Deaf {}

/// The number at `at` in postcard's encoding, seven bits a byte and the lowest first, and the offset behind it.
fn number_at(bytes: &[u8], at: usize) -> (usize, usize) {
    let len = 1 + bytes[at..].iter().position(|byte| byte & 0x80 == 0).unwrap();
    let number = bytes[at..at + len].iter().rev().fold(0, |sum, byte| sum << 7 | usize::from(byte & 0x7f));
    (number, at + len)
}

/// An endpoint address with another worker's address as its last field.
fn readdressed(reported: &[u8], worker: &[u8]) -> Vec<u8> {
    const HEAD: usize = 20;
    let behind = |at| number_at(reported, at).1;
    // Window and longest frame, then the machine as text, and two namespaces.
    let (text_len, text) = number_at(reported, behind(behind(HEAD)));
    let mut bytes = reported[..behind(behind(text + text_len))].to_vec();
    let mut len = worker.len();
    while len > 0x7f {
        bytes.push(len as u8 | 0x80);
        len >>= 7;
    }
    bytes.push(len as u8);
    bytes.extend(worker);
    let follow = (bytes.len() - HEAD) as u32;
    bytes[16..HEAD].copy_from_slice(&follow.to_le_bytes());
    let sum = crc32fast::hash(&[&bytes[..12], &bytes[16..]].concat());
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn waits_time_out_with_short_logs_when_ucx_drops_all_messages() {
    let said = on_paths(this_test!(), &PATHS, |path| {
        let place = Place::new();
        let deaf = Arc::new(Deaf::create());
        let over = Arc::new(AtomicBool::new(false));
        let am = if has_ucx_tcp() { Am::with_tcp() } else { Am::new() };
        let stated = deaf.address();
        let transport = Altered::new(am).stating(move |bytes| *bytes = readdressed(bytes, &stated)).boxed();
        let ends = Arc::clone(&over);
        let target = RawTarget::start_by(&place.address(), transport, move |target| {
            while !ends.load(Relaxed) {
                deaf.progress();
            }
            drop(target);
        });
        let link = path.link(&place).send_timeout(SHORT).connect().unwrap();
        let echo = library("echo");
        for _ in 0..SENT {
            link.send(&echo, &[7; 8]).unwrap();
        }
        let began = Instant::now();
        timed_out(link.flush(SHORT));
        assert!(began.elapsed() >= SHORT);
        // A call that spends all of the credit, one without credit, and one whose reply is awaited.
        link.send(&echo, &vec![7; 60_000]).unwrap();
        timed_out(link.send(&echo, &vec![7; 60_000]));
        timed_out(link.inject(&echo, &[7; 8]).unwrap().wait(SHORT));
        drop(link);
        over.store(true, Relaxed);
        target.join().unwrap();
    });
    for said in said {
        let lines = said.lines().filter(|line| line.contains("UCX  WARN") || line.contains("UCX  ERROR"));
        let lines: Vec<_> = lines.collect();
        let dropped = lines.iter().filter(|line| line.contains("got active message id")).count();
        assert!(
            (1..=DROPS_REPORTED).contains(&dropped) && lines.len() < 2 * DROPS_REPORTED,
            "{dropped} of {lines:#?}"
        );
        assert!(!said.contains("payload ") && !said.contains("ucs_log_print_backtrace"), "{said}");
    }
}
