//! The interface for authors of ifuncs in Rust: functions that are injected into another process.
//!
//! An ifunc is a `no_std` source file or crate with one [`ifunc!`], which makes the three routines that
//! farjump calls. Two run at the source and fill in the payload; `NAME_main` travels and runs at the target.
//!
//! ```
//! # use core::ffi::{c_char, c_int, c_void};
//! # #[unsafe(no_mangle)] extern "C" fn farjump_reply(_: *const c_void, _: usize) -> c_int { 0 }
//! # #[unsafe(no_mangle)] extern "C" fn farjump_panic(_: *const c_char, _: usize) -> ! { std::process::abort() }
//! // #![no_std]
//! use farjump_ifunc::{Data, Payload, ifunc, reply};
//!
//! ifunc! {
//!     name: zeroes,
//!     main: count_zeroes,
//!     target: &Data,
//! }
//!
//! /// Replies how many bytes of the target's data are zero.
//! fn count_zeroes(_payload: &Payload, data: &Data) {
//!     let zeroes = data.iter().filter(|&byte| byte == 0).count() as u64;
//!     let _ = reply(&zeroes.to_le_bytes());
//! }
//! # fn main() {}
//! ```
//! The file starts with `#![no_std]`.
//!
//! ```text
//! $ farjump build zeroes.rs -o libzeroes.so       (a source file: this crate need not be installed)
//! $ farjump build zeroes/   -o libzeroes.so       (a crate that depends on farjump-ifunc)
//! ```
//!
//! # What travels
//! Everything that `NAME_main` reaches: functions, constants, and statics, of which the target has one copy
//! as long as the code is in its store. Functions declared in an `extern "C"` block are looked up at the
//! target. There is no unwinding: a panic ends the call, its message reaches the source, and nothing is
//! dropped.
//!
//! Code that cannot panic is a few hundred bytes. `unwrap` on a `Result`, or a slice index that may be out of
//! range, adds Rust's formatting: some 10 KB. Iterators and `get` do not.

#![no_std]
#![deny(missing_docs)]

#[cfg(test)]
extern crate std;

mod data;
mod macros;
mod panic;
mod payload;
mod shared;

use core::ffi::{c_char, c_int, c_void};

pub use data::Data;
#[doc(hidden)]
pub use macros::{filled, payload, source_args, target};
#[doc(hidden)]
pub use panic::panicked;
pub use payload::Payload;

// Exports of every target, besides memcpy, memmove, memset and memcmp.
unsafe extern "C" {
    fn farjump_reply(bytes: *const c_void, len: usize) -> c_int;
    fn farjump_panic(message: *const c_char, len: usize) -> !;
    fn farjump_forward(
        peer: *const c_char,
        peer_len: usize,
        payload: *const c_void,
        payload_size: usize,
    ) -> c_int;
}

/// A reply that would have exceeded the target's limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyTooLong;

/// Appends `bytes` to the reply of this call, which is sent when the function returns. Also succeeds in a
/// one-way call.
///
/// # Errors
/// The reply would exceed the target's limit; nothing was appended.
#[inline]
pub fn reply(bytes: &[u8]) -> Result<(), ReplyTooLong> {
    // SAFETY: pointer and length are those of a slice.
    unsafe { reply_bytes(bytes.as_ptr(), bytes.len()) }
}

/// # Safety
/// `bytes` is valid for reads of `len` bytes. Other processes may write them meanwhile.
#[inline]
unsafe fn reply_bytes(bytes: *const u8, len: usize) -> Result<(), ReplyTooLong> {
    // SAFETY: this function's caller guarantees the bytes, and the target only copies them.
    match unsafe { farjump_reply(bytes.cast(), len) } {
        0 => Ok(()),
        _ => Err(ReplyTooLong),
    }
}

/// [`reply`] with the bytes of a value as they lie in memory.
///
/// # Errors
/// As for [`reply`].
#[inline]
pub fn reply_value<T: Plain + ?Sized>(value: &T) -> Result<(), ReplyTooLong> {
    // SAFETY: `Plain` guarantees that every one of these bytes is initialised; they are as long as the value.
    reply(unsafe { core::slice::from_raw_parts((&raw const *value).cast(), size_of_val(value)) })
}

/// Ends this call, and it alone: the source's wait fails with `message`, and the target continues. Values
/// that the function holds are not dropped. `panic!` does this too, and adds the place.
#[inline]
pub fn fail(message: &str) -> ! {
    // SAFETY: pointer and length are those of a str; the target copies it before it leaves the call.
    unsafe { farjump_panic(message.as_ptr().cast(), message.len()) }
}

/// The reason why a call is not forwarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NotForwarded {
    /// The target has no destination of that name.
    UnknownPeer,
    /// No frame to that destination can have so long a payload.
    TooLarge,
    /// 1024 calls, or as many bytes as fit a mailbox, are under way to that destination.
    Busy,
    /// This call is forwarded already: it has one reply.
    Twice,
}

/// Forwards this call to another target: the running function is injected, with `payload` as it is, into the
/// target that this one knows as `peer`. Its reply there, or that of a further forward, is the reply to this
/// call; in a one-way call there is none. [`Payload::forward`] does it with the payload that came. `payload`
/// is copied, and the call is sent when the function returns: not if it panics. If it is lost then, the
/// source gets the reason. Never waits.
///
/// Once the call is to be forwarded [`reply`] fails, and earlier replies are dropped.
///
/// # Errors
/// The call is unchanged: the function may reply, fail or try another destination.
#[inline]
pub fn forward(peer: &str, payload: &[u8]) -> Result<(), NotForwarded> {
    // SAFETY: pointer and length are those of a slice.
    unsafe { forward_bytes(peer, payload.as_ptr(), payload.len()) }
}

/// # Safety
/// `payload` is valid for reads of `len` bytes. Other processes may write them meanwhile.
#[inline]
unsafe fn forward_bytes(peer: &str, payload: *const u8, len: usize) -> Result<(), NotForwarded> {
    // SAFETY: pointer and length of the name are those of a str, this function's caller guarantees the
    // others, and the target copies.
    match unsafe { farjump_forward(peer.as_ptr().cast(), peer.len(), payload.cast(), len) } {
        0 => Ok(()),
        -1 => Err(NotForwarded::UnknownPeer),
        -2 => Err(NotForwarded::TooLarge),
        -4 => Err(NotForwarded::Twice),
        _ => Err(NotForwarded::Busy),
    }
}

/// Values that consist of nothing but their bytes.
///
/// # Safety
/// No byte of a value is padding, and it holds no pointer or reference. A structure is `#[repr(C)]`, and its
/// fields are `Plain` and leave no gaps.
pub unsafe trait Plain {}

macro_rules! plain {
    ($($type:ty)*) => {$(
        // SAFETY: a number has no padding.
        unsafe impl Plain for $type {}
    )*};
}

plain!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64);

// SAFETY: the elements follow each other without gaps, and are plain.
unsafe impl<T: Plain> Plain for [T] {}
// SAFETY: the elements follow each other without gaps, and are plain, as in slices.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// Types that a target can pass as `target_args`, for an ifunc to name as its `target`.
///
/// # Safety
/// The implementer guarantees, for every target that the ifunc is sent to, that `target_args` is null or
/// points at a valid value of this type, laid out as a C compiler would (`#[repr(C)]` or
/// `#[repr(transparent)]`), which stays valid until `NAME_main` returns. Until then no other code writes to
/// it where the ifunc takes `&T`, and no other code accesses it where it takes `&mut T`.
pub unsafe trait TargetArgs {}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::RefCell;
    use std::vec::Vec;

    std::thread_local! {
        static REPLIED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    const LIMIT: usize = 64;

    #[unsafe(no_mangle)]
    unsafe extern "C" fn farjump_reply(bytes: *const c_void, len: usize) -> c_int {
        // SAFETY: the caller is `reply`, which passes a slice.
        let bytes = unsafe { core::slice::from_raw_parts(bytes.cast::<u8>(), len) };
        REPLIED.with_borrow_mut(|replied| {
            if replied.len() + len > LIMIT {
                return -1;
            }
            replied.extend_from_slice(bytes);
            0
        })
    }

    #[unsafe(no_mangle)]
    extern "C" fn farjump_panic(_: *const c_char, _: usize) -> ! {
        std::process::abort()
    }

    /// A target whose only destination is `next`, and whose result depends on the payload's one byte.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn farjump_forward(
        peer: *const c_char,
        peer_len: usize,
        payload: *const c_void,
        payload_size: usize,
    ) -> c_int {
        // SAFETY: the caller is `forward`, which passes a str and a slice.
        let (peer, payload) = unsafe {
            (
                core::slice::from_raw_parts(peer.cast::<u8>(), peer_len),
                core::slice::from_raw_parts(payload.cast::<u8>(), payload_size),
            )
        };
        match (peer, payload) {
            (b"next", [code]) => -c_int::from(*code),
            _ => -1,
        }
    }

    #[test]
    fn a_call_is_forwarded_or_the_reason_said() {
        assert_eq!(forward("next", &[0]), Ok(()));
        assert_eq!(forward("nex", &[0]), Err(NotForwarded::UnknownPeer));
        let codes = [1, 2, 3, 4].map(|code| forward("next", &[code]).unwrap_err());
        let expected =
            [NotForwarded::UnknownPeer, NotForwarded::TooLarge, NotForwarded::Busy, NotForwarded::Twice];
        assert_eq!(codes, expected);
    }

    #[repr(transparent)]
    struct Sum(u64);

    // SAFETY: the tests below pass a pointer to a Sum of their own.
    unsafe impl TargetArgs for Sum {}

    fn add(payload: &mut Payload, sum: &mut Sum) {
        sum.0 += payload.iter().map(u64::from).sum::<u64>();
        payload.fill(0);
        let _ = reply_value(&[sum.0, 7]);
    }

    ifunc! {
        name: farjump_test_add,
        main: add,
        target: &mut Sum,
        payload: { max_size: doubled, init: double },
        payload_align: 256,
    }

    fn doubled(args: &[u8]) -> usize {
        args.len() * 2
    }

    fn double(space: &mut Payload, args: &[u8]) -> Result<usize, i32> {
        if args.contains(&0) {
            return Err(0);
        }
        let once = space.write_at(0, args);
        Ok(once + space.write_at(once, args))
    }

    fn touch(payload: &Payload) {
        let _ = payload.reply_from(0);
    }

    ifunc! {
        name: farjump_test_touch,
        main: touch,
    }

    unsafe extern "C" {
        fn farjump_test_add_main(payload: *mut c_void, len: usize, args: *mut c_void);
        fn farjump_test_add_payload_get_max_size(args: *mut c_void, len: usize) -> usize;
        fn farjump_test_add_payload_init_shrink(
            payload: *mut c_void,
            size: *mut usize,
            args: *mut c_void,
            len: usize,
        ) -> c_int;
        fn farjump_test_touch_main(payload: *mut c_void, len: usize, args: *mut c_void);
        fn farjump_test_touch_payload_get_max_size(args: *mut c_void, len: usize) -> usize;
        fn farjump_test_touch_payload_init(p: *mut c_void, len: usize, args: *mut c_void, n: usize) -> c_int;
    }

    fn init_add(space: &mut [u8], args: &mut [u8]) -> (c_int, usize) {
        let mut size = space.len();
        let (to, from) = (space.as_mut_ptr().cast(), args.as_mut_ptr().cast());
        // SAFETY: both are slices of the lengths passed.
        let result = unsafe { farjump_test_add_payload_init_shrink(to, &mut size, from, args.len()) };
        (result, size)
    }

    #[test]
    fn the_three_routines_do_what_the_functions_say() {
        let mut args = *b"abc";
        let from = args.as_mut_ptr().cast();
        // SAFETY: a slice of the length passed.
        assert_eq!(unsafe { farjump_test_add_payload_get_max_size(from, 3) }, 6);
        let mut space = [0; 8];
        assert_eq!(init_add(&mut space, &mut args), (0, 6));
        assert_eq!(&space, b"abcabc\0\0");

        let mut sum = Sum(1);
        // SAFETY: a slice of the length passed, and the target's own type.
        unsafe { farjump_test_add_main(space.as_mut_ptr().cast(), 6, (&raw mut sum).cast()) };
        assert_eq!(sum.0, 1 + 2 * 294);
        assert_eq!(space, [0; 8]);
        let mut expected = 589_u64.to_le_bytes().to_vec();
        expected.extend(7_u64.to_le_bytes());
        REPLIED.with_borrow(|replied| assert_eq!(*replied, expected));
    }

    #[test]
    fn a_failing_init_never_looks_like_success() {
        assert_eq!(init_add(&mut [0; 8], &mut [1, 0]).0, -1);
    }

    #[test]
    fn arguments_are_copied_and_null_is_no_bytes() {
        let mut args = [1_u8, 2, 3];
        let from: *mut c_void = args.as_mut_ptr().cast();
        let mut space = [9_u8; 4];
        let to: *mut c_void = space.as_mut_ptr().cast();
        // SAFETY: slices of the lengths passed, or null with 0.
        unsafe {
            assert_eq!(farjump_test_touch_payload_get_max_size(from, 3), 3);
            assert_eq!(farjump_test_touch_payload_init(to, 3, from, 3), 0);
            assert_eq!(farjump_test_touch_payload_init(to, 2, from, 3), -1);
            assert_eq!(farjump_test_touch_payload_init(to, 0, core::ptr::null_mut(), 0), 0);
            farjump_test_touch_main(to, 4, core::ptr::null_mut());
            farjump_test_touch_main(core::ptr::null_mut(), 0, core::ptr::null_mut());
        }
        REPLIED.with_borrow(|replied| assert_eq!(*replied, [1, 2, 3, 9]));
    }

    #[test]
    fn a_reply_over_the_limit_is_an_error_and_leaves_it_as_it_was() {
        assert_eq!(reply(&[1; LIMIT]), Ok(()));
        assert_eq!(reply(&[2]), Err(ReplyTooLong));
        REPLIED.with_borrow(|replied| assert_eq!(*replied, [1; LIMIT]));
    }
}
