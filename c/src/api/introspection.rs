//! Information: the library's version, the transports of this machine, and a target's stored code.

use std::ffi::{CString, c_char, c_int, c_void};

use farjump::StoredImage;

use crate::api::c_text::c_text;
use crate::api::catch::guarded;
use crate::api::last_error::Failure;
use crate::api::library::farjump_code_id_t;
use crate::api::status::farjump_status_t::{self, *};

/// One image in a target's store. The structure and its texts belong to the library, and are valid until the
/// callback returns; it may grow at its end.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct farjump_image_t {
    /// Its code id.
    pub id: farjump_code_id_t,
    /// The name under which it first came.
    pub name: *const c_char,
    /// The program that brought it first, and its process id, as text for people.
    pub source: *const c_char,
    /// Length of the image in bytes.
    pub bytes: u64,
    /// Time taken to place it, in nanoseconds.
    pub link_ns: u64,
    /// Calls of it.
    pub calls: u64,
    /// Total time of these calls, in nanoseconds. Of short ones only some are timed: an estimate.
    pub time_ns: u64,
    /// Time since its last call, in nanoseconds; since it came, if it was never called.
    pub last_use_ns: u64,
}

/// Runs for each image in a target's store.
pub type farjump_image_fn = Option<unsafe extern "C" fn(user: *mut c_void, image: *const farjump_image_t)>;

/// An image and its texts, for the time of one callback to C.
pub(crate) struct ImageInfo {
    image: farjump_image_t,
    texts: [CString; 2],
}

impl From<&StoredImage> for ImageInfo {
    fn from(stored: &StoredImage) -> ImageInfo {
        let ns = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        ImageInfo {
            image: farjump_image_t {
                id: farjump_code_id_t { bytes: stored.id.0 },
                name: std::ptr::null(),
                source: std::ptr::null(),
                bytes: stored.bytes as u64,
                link_ns: ns(stored.link_time),
                calls: stored.calls,
                time_ns: ns(stored.time),
                last_use_ns: ns(stored.last_use),
            },
            texts: [c_text(&stored.name), c_text(&stored.source)],
        }
    }
}

/// Passes each image to C.
pub(crate) fn each_image(images: impl Iterator<Item = ImageInfo>, mut each: impl FnMut(&farjump_image_t)) {
    for ImageInfo { image, texts: [name, source] } in images {
        each(&farjump_image_t { name: name.as_ptr(), source: source.as_ptr(), ..image });
    }
}

/// A transport, as it appears before there is a peer. The structure and its texts belong to the library, and
/// are valid until the callback returns; it may grow at its end.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct farjump_transport_t {
    /// Its name, as the options `transport` take it.
    pub name: *const c_char,
    /// Reachable peers, in words: `this machine`.
    pub reaches: *const c_char,
    /// NULL if it can be used on this machine; else the reason and the remedy, in a sentence for people.
    pub why_not: *const c_char,
    /// Longest frame in bytes; 0 where it cannot be used.
    pub max_frame: u64,
}

/// Runs for each transport.
pub type farjump_transport_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, transport: *const farjump_transport_t)>;

/// Runs `callback`, with `user`, for each transport that farjump knows, usable here or not, in a fixed order.
/// Looking at those of UCX and verbs loads their libraries. Any thread may call this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_transports(
    callback: farjump_transport_fn,
    user: *mut c_void,
) -> farjump_status_t {
    guarded(|| {
        let callback = callback.ok_or_else(|| Failure::null("callback"))?;
        for backend in farjump::transports::available() {
            let (name, reaches) = (c_text(backend.name), c_text(backend.reaches));
            let (max_frame, why_not) = match &backend.usable {
                Ok(can) => (can.max_frame as u64, None),
                Err(why) => (0, Some(c_text(why))),
            };
            let transport = farjump_transport_t {
                name: name.as_ptr(),
                reaches: reaches.as_ptr(),
                why_not: why_not.as_ref().map_or(std::ptr::null(), |why| why.as_ptr()),
                max_frame,
            };
            // SAFETY: the header requires a function of this type, which takes this pointer.
            unsafe { callback(user, &transport) };
        }
        Ok(FARJUMP_OK)
    })
}

/// Returns the version of the running library: the sum of 10000 times the first number, 100 times the second,
/// and the third. FARJUMP_VERSION is the version of the header. Any thread may call this.
#[unsafe(no_mangle)]
pub extern "C" fn farjump_version() -> c_int {
    VERSION
}

/// Returns the same version as a text: `0.1.0`. It is constant.
#[unsafe(no_mangle)]
pub extern "C" fn farjump_version_string() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The version as a number.
pub(crate) const VERSION: c_int = number(env!("CARGO_PKG_VERSION_MAJOR")) * 10_000
    + number(env!("CARGO_PKG_VERSION_MINOR")) * 100
    + number(env!("CARGO_PKG_VERSION_PATCH"));

/// Returns the number that the digits of `text` form.
const fn number(text: &str) -> c_int {
    let (bytes, mut number, mut at) = (text.as_bytes(), 0, 0);
    while at < bytes.len() {
        number = number * 10 + (bytes[at] - b'0') as c_int;
        at += 1;
    }
    number
}
