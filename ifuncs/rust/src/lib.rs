//! The interface for authors of ifuncs in Rust: functions that are injected into another process.
//!
//! An ifunc is a `no_std` source file or crate with one function that is marked [`#[ifunc]`](macro@ifunc). The
//! attribute makes the three routines that farjump calls: two fill in the payload at the source, and
//! `NAME_main` travels and runs at the target.
//!
//! ```
//! # use core::ffi::{c_char, c_int, c_void};
//! # #[unsafe(no_mangle)] extern "C" fn farjump_reply(_: *const c_void, _: usize) -> c_int { 0 }
//! # #[unsafe(no_mangle)] extern "C" fn farjump_panic(_: *const c_char, _: usize) -> ! { std::process::abort() }
//! # #[unsafe(no_mangle)] extern "C" fn farjump_private_copy(_: *const c_void, _: usize, _: usize) -> *mut c_void { std::ptr::null_mut() }
//! # #[unsafe(no_mangle)] extern "C" fn store_get(_: usize, key: u64) -> u64 { key }
//! # fn main() {}
//! # mod author {
//! // #![no_std]
//! #![forbid(unsafe_code)]
//! use farjump_ifunc::{ifunc, imports, target_args};
//!
//! #[target_args]
//! struct Store;
//!
//! #[imports]
//! extern "C" {
//!     fn store_get(store: &Store, key: u64) -> u64;
//! }
//!
//! /// Replies the sum of the rows with these keys.
//! #[ifunc]
//! fn sum(keys: &[u64], store: &Store) -> u64 {
//!     keys.iter().map(|&key| store_get(store, key)).sum()
//! }
//! # }
//! ```
//! The file starts with `#![no_std]`.
//!
//! ```text
//! $ farjump build sum.rs -o libsum.so       (a source file: this crate need not be installed)
//! $ farjump build sum/   -o libsum.so       (a crate that depends on farjump-ifunc)
//! ```
//!
//! # What travels
//! Everything that `NAME_main` reaches: functions, constants, and statics, of which the target has one copy
//! as long as the code is in its store. Functions declared in an [`imports`] block are looked up at the
//! target. There is no unwinding: a panic ends the call, its message reaches the source, and nothing is
//! dropped.
//!
//! Code that cannot panic is a few hundred bytes. `unwrap` on a `Result`, or a slice index that may be out of
//! range, adds Rust's formatting: some 10 KB. Iterators and `get` do not.
//!
//! # Features
//! The crate has no features.

#![no_std]
#![deny(missing_docs)]

// The attributes name this crate from outside, also in its own tests.
extern crate self as farjump_ifunc;
#[cfg(test)]
extern crate std;

mod data;
mod macros;
mod panic;
mod parameters;
mod payload;
mod plain;
mod shared;
mod signature;

use core::ffi::{c_char, c_int, c_void};

pub use data::Data;
/// Implements [`trait@Plain`] for a structure.
pub use farjump_ifunc_macros::Plain;
/// Makes a function the ifunc of its source file or crate.
///
/// The function takes the payload, then the target's arguments. Either may be missing, but the first parameter is
/// always the payload. [`FromPayload`] has the types of the payload, [`IntoReply`] those of the reply, which the
/// function returns. The second parameter is `&T` or `&mut T` of a [`TargetArgs`] type, or `*mut T` of any. Where it is
/// a reference, a null `target_args` ends the call with a message.
///
/// | argument | what |
/// |---|---|
/// | `name = "NAME"` | NAME of the routines; without it, the function's |
/// | `payload(max_size = PATH, init = PATH)` | routines that make the payload at the source, of `fn(args: &[u8]) -> usize` and `fn(space: &mut Payload, args: &[u8]) -> Result<usize, i32>`. Without them the payload is a copy of the arguments, and a source need not load the library |
/// | `payload_align = BYTES` | a power of two from 8 to 4096: the payload is placed at a multiple of it |
///
/// `init` returns the number of bytes used, or a number other than 0 that farjump reports as its failure (0 becomes
/// −1). `space` holds bytes of earlier payloads.
///
/// The library states the size and alignment of arguments and reply, which a typed call compares with its
/// own (`Library::typed`).
///
/// While `farjump build` compiles (`--cfg farjump_ifunc`), the attribute also brings the panic handler, which
/// sends message and place of a panic to the source.
pub use farjump_ifunc_macros::ifunc;
/// Declares functions that the target exports.
///
/// ```
/// # use farjump_ifunc::{imports, target_args};
/// # #[target_args] struct Store;
/// #[imports]
/// extern "C" {
///     fn store_get(store: &Store, key: u64) -> u64;
/// }
/// ```
/// The attribute is the promise that the target's functions of these names have these types, and that any
/// values of these types may be passed. Nothing checks it: the target looks up the name alone, as a linker
/// does. A function that takes a raw pointer stays `unsafe` to call, and so does one that is written
/// `unsafe fn`.
pub use farjump_ifunc_macros::imports;
/// Declares the type behind `target_args`: the second parameter of an [`#[ifunc]`](macro@ifunc) is a
/// reference to it.
///
/// ```
/// # use farjump_ifunc::target_args;
/// #[target_args]
/// struct Store; // opaque: the function only passes it on
/// # mod other { use farjump_ifunc::target_args;
/// #[target_args]
/// struct Counter { calls: u64 }
/// # }
/// ```
/// The structure is laid out as a C compiler would (`#[repr(C)]`, unless another `repr` is written). The
/// attribute is the promise of [`TargetArgs`], for every target that the ifunc is sent to. Nothing checks it.
pub use farjump_ifunc_macros::target_args;
#[doc(hidden)]
pub use macros::{filled, payload, source_args, target};
#[doc(hidden)]
pub use panic::panicked;
#[doc(hidden)]
pub use parameters::ShortCopy;
pub use parameters::{FromPayload, IntoReply};
pub use payload::Payload;
pub use plain::Plain;
#[doc(hidden)]
pub use plain::is_plain;
#[doc(hidden)]
pub use signature::{Shape, Signature};

// Exports of every target, besides memcpy, memmove, memset, memcmp, bcmp and strlen.
unsafe extern "C" {
    fn farjump_reply(bytes: *const c_void, len: usize) -> c_int;
    fn farjump_panic(message: *const c_char, len: usize) -> !;
    fn farjump_forward(
        peer: *const c_char,
        peer_len: usize,
        payload: *const c_void,
        payload_size: usize,
    ) -> c_int;
    fn farjump_again(payload: *const c_void, payload_size: usize) -> c_int;
    fn farjump_make(code: *const c_void, len: usize, id: *mut u8) -> c_int;
    fn farjump_inject(
        id: *const u8,
        peer: *const c_char,
        peer_len: usize,
        payload: *const c_void,
        payload_size: usize,
    ) -> c_int;
    fn farjump_object(
        handle: *const c_void,
        handle_len: usize,
        data: *mut *const c_void,
        size: *mut usize,
    ) -> c_int;
    fn farjump_new_object(len: usize, data: *mut *mut c_void) -> c_int;
    fn farjump_private_copy(bytes: *const c_void, len: usize, align: usize) -> *mut c_void;
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
    /// This call has sent as many messages as the target allows.
    TooOften,
    /// The call has made as many hops as the target allows. The target reports this to the call's source.
    TooFar,
    /// The target lets no function make code.
    NotAllowed,
}

impl NotForwarded {
    /// The meaning of a number that the target returned.
    fn check(code: c_int) -> Result<(), NotForwarded> {
        Err(match code {
            0 => return Ok(()),
            -1 => NotForwarded::UnknownPeer,
            -2 => NotForwarded::TooLarge,
            -4 => NotForwarded::TooOften,
            -5 => NotForwarded::TooFar,
            -6 => NotForwarded::NotAllowed,
            _ => NotForwarded::Busy,
        })
    }
}

/// Forwards this call to another target: injects the running function, with `payload` unchanged, into the target that
/// this one knows as `peer`. [`Payload::forward`] does so with the payload of the call. A call may be forwarded several
/// times, to several destinations. The target copies `payload`, and sends the messages when the function returns, but
/// not if it panics. Never waits.
///
/// The reply to this call is its own bytes, then the replies to its forwards as they arrive. A one-way call has none.
/// If forwards are lost on their way, the source gets the replies to the others, the number of lost ones, and the
/// reason for the first loss.
///
/// # Errors
/// Nothing is sent: the function may reply, fail, try another destination, or try later ([`again`]).
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
    NotForwarded::check(unsafe { farjump_forward(peer.as_ptr().cast(), peer.len(), payload.cast(), len) })
}

/// Runs the function again on this target, with `payload`, after other calls have had their turn. Everything else is as
/// for [`forward`].
///
/// # Errors
/// As for [`forward`].
#[inline]
pub fn again(payload: &[u8]) -> Result<(), NotForwarded> {
    // SAFETY: pointer and length are those of a slice, and the target copies.
    NotForwarded::check(unsafe { farjump_again(payload.as_ptr().cast(), payload.len()) })
}

/// The id of code: the hash of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CodeId(pub [u8; 16]);

/// Gives the target code that this call has made, an image or bitcode, so that [`inject`] can send it messages. The
/// target copies the code, and keeps it in its store like other code.
///
/// # Errors
/// [`NotForwarded::NotAllowed`] unless the target lets functions make code; [`NotForwarded::TooLarge`];
/// [`NotForwarded::TooOften`].
#[inline]
pub fn make(code: &[u8]) -> Result<CodeId, NotForwarded> {
    let mut id = CodeId([0; 16]);
    // SAFETY: pointer and length are those of a slice, and 16 bytes are written to as many.
    NotForwarded::check(unsafe { farjump_make(code.as_ptr().cast(), code.len(), id.0.as_mut_ptr()) })?;
    Ok(id)
}

/// Sends a message to code that the target has, or that this call has made: at the destination `peer` as [`forward`]
/// does, or here as [`again`] does. If the code cannot be placed or compiled there, the message is lost, and the source
/// gets the reason.
///
/// # Errors
/// As for [`forward`], and [`NotForwarded::NotAllowed`].
#[inline]
pub fn inject(code: &CodeId, peer: Option<&str>, payload: &[u8]) -> Result<(), NotForwarded> {
    let peer = peer.unwrap_or_default();
    // SAFETY: pointers and lengths are those of an array, a str and a slice, and the target copies.
    NotForwarded::check(unsafe {
        farjump_inject(
            code.0.as_ptr(),
            peer.as_ptr().cast(),
            peer.len(),
            payload.as_ptr().cast(),
            payload.len(),
        )
    })
}

/// The reason why there is no object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NoObject {
    /// The target has no store of objects.
    NoStore,
    /// The bytes are no handle, or one of another version.
    NoHandle,
    /// The object is another target's.
    Elsewhere,
    /// The object was evicted, or the target has restarted.
    Gone,
    /// The handle's key is not the object's.
    WrongKey,
    /// The store has no memory for the object.
    Full,
    /// The handle was reserved, and has no contents yet.
    Unset,
    /// The store is reading or writing its file for the object. Call [`again`] with the payload, and return before the
    /// function has replied or made anything. The target runs it again once the store has read or written, as often as
    /// needed.
    Spilled,
}

impl NoObject {
    /// The meaning of a number that the target returned.
    fn check(code: c_int) -> Result<(), NoObject> {
        Err(match code {
            0 => return Ok(()),
            -2 => NoObject::NoHandle,
            -3 => NoObject::Elsewhere,
            -4 => NoObject::Gone,
            -5 => NoObject::WrongKey,
            -6 => NoObject::Full,
            -7 => NoObject::Unset,
            -8 => NoObject::Spilled,
            _ => NoObject::NoStore,
        })
    }
}

/// Reads the object of an encoded handle in place, in the target's store. The object starts at a multiple of 64 bytes.
/// Only `read` may use its bytes: the target keeps them for this call. If the object lies in the store's file, this
/// function returns [`NoObject::Spilled`], and the store reads the object back meanwhile. The object of a call by its
/// handle ([`at`]) is back before the call starts.
///
/// # Errors
/// The target has no such object, or cannot lend it at present.
#[inline]
pub fn object<R>(handle: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<R, NoObject> {
    let (mut data, mut size) = (core::ptr::null(), 0);
    // SAFETY: pointer and length are those of a slice, and both words are written.
    NoObject::check(unsafe { farjump_object(handle.as_ptr().cast(), handle.len(), &mut data, &mut size) })?;
    // SAFETY: the target lends `size` bytes until the call ends, and `read` can keep none of them.
    Ok(read(unsafe { core::slice::from_raw_parts(data.cast(), size) }))
}

/// Reads the object and the arguments in the payload of a call that was made by a handle (`Client::call` of
/// `farjump-handles`).
///
/// # Errors
/// As for [`object`].
#[inline]
pub fn at<R>(payload: &[u8], read: impl FnOnce(&[u8], &[u8]) -> R) -> Result<R, NoObject> {
    let word = |at: usize| {
        let bytes = payload.get(at..at + 4)?;
        Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize)
    };
    let parts = (|| {
        let (len, args) = (word(0)?, word(4)?);
        Some((payload.get(8..8_usize.checked_add(len)?)?, payload.get(args..)?))
    })();
    let (handle, args) = parts.ok_or(NoObject::NoHandle)?;
    object(handle, |bytes| read(bytes, args))
}

/// Makes an object of `len` bytes in the target's store, which `write` fills. The bytes are not zeroed before. The
/// object exists once the ifunc has returned, unless it fails. The target appends its handle to the reply.
///
/// # Errors
/// [`NoObject::NoStore`], [`NoObject::Full`]; [`NoObject::Spilled`] while the store writes other objects to its file to
/// make space.
#[inline]
pub fn new_object(len: usize, write: impl FnOnce(&mut [u8])) -> Result<(), NoObject> {
    let mut data = core::ptr::null_mut();
    // SAFETY: the word is written.
    NoObject::check(unsafe { farjump_new_object(len, &mut data) })?;
    // SAFETY: the target lends `len` bytes to this call alone, until it ends.
    write(unsafe { core::slice::from_raw_parts_mut(data.cast(), len) });
    Ok(())
}

/// Returns a copy of the payload, aligned to `align` (a power of two), that no other code of any process uses. The copy
/// is valid until the call ends, and each call makes only one.
fn private_copy(payload: &Payload, align: usize) -> *mut u8 {
    // SAFETY: the payload is valid for reads of its length, and the target only copies it.
    let copy = unsafe { farjump_private_copy(payload.as_ptr().cast(), payload.len(), align) };
    if copy.is_null() {
        fail("the target has no memory for a copy of the payload")
    }
    copy.cast()
}

/// Types that a target can pass as `target_args`: [`target_args`] declares one.
///
/// # Safety
/// The implementer guarantees the following for every target that the ifunc is sent to. `target_args` is null or points
/// at a valid value of this type, laid out as a C compiler would (`#[repr(C)]` or `#[repr(transparent)]`). The value
/// stays valid until `NAME_main` returns. Until then no other code writes to it where the ifunc takes `&T`, and no
/// other code accesses it where the ifunc takes `&mut T`.
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

    #[unsafe(no_mangle)]
    unsafe extern "C" fn farjump_make(code: *const c_void, len: usize, id: *mut u8) -> c_int {
        // SAFETY: the caller is `make`, which passes a slice, and space for an id.
        unsafe {
            let code = core::slice::from_raw_parts(code.cast::<u8>(), len);
            id.write_bytes(code[0], 16);
            -c_int::from(code[0])
        }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn farjump_inject(
        id: *const u8,
        peer: *const c_char,
        peer_len: usize,
        payload: *const c_void,
        payload_size: usize,
    ) -> c_int {
        // SAFETY: the caller is `inject`, which passes an id.
        assert_eq!(unsafe { id.cast::<[u8; 16]>().read() }, [0; 16]);
        match peer_len {
            // SAFETY: the arguments are those of this function.
            0 => unsafe { farjump_again(payload, payload_size) },
            // SAFETY: the same.
            _ => unsafe { farjump_forward(peer, peer_len, payload, payload_size) },
        }
    }

    #[test]
    fn code_is_made_and_gets_messages_or_the_reason_is_said() {
        let id = make(&[0, 1]).unwrap();
        assert_eq!(id, CodeId([0; 16]));
        assert_eq!(make(&[6]), Err(NotForwarded::NotAllowed));
        assert_eq!(inject(&id, None, &[0]), Ok(()));
        assert_eq!(inject(&id, None, &[5]), Err(NotForwarded::TooFar));
        assert_eq!(inject(&id, Some("next"), &[3]), Err(NotForwarded::Busy));
        assert_eq!(inject(&id, Some("nobody"), &[0]), Err(NotForwarded::UnknownPeer));
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn farjump_again(payload: *const c_void, payload_size: usize) -> c_int {
        // SAFETY: the caller is `again`, which passes a slice.
        let payload = unsafe { core::slice::from_raw_parts(payload.cast::<u8>(), payload_size) };
        -c_int::from(payload[0])
    }

    #[test]
    fn a_call_is_forwarded_or_the_reason_said() {
        assert_eq!(forward("next", &[0]), Ok(()));
        assert_eq!(forward("nex", &[0]), Err(NotForwarded::UnknownPeer));
        let expected = [
            NotForwarded::UnknownPeer,
            NotForwarded::TooLarge,
            NotForwarded::Busy,
            NotForwarded::TooOften,
            NotForwarded::TooFar,
        ];
        assert_eq!([1, 2, 3, 4, 5].map(|code| forward("next", &[code]).unwrap_err()), expected);
        assert_eq!(again(&[0]), Ok(()));
        assert_eq!([1, 2, 3, 4, 5].map(|code| again(&[code]).unwrap_err()), expected);
    }

    #[target_args]
    struct Sum(u64);

    #[ifunc(name = "farjump_test_add", payload(max_size = doubled, init = double), payload_align = 256)]
    fn add(payload: &mut Payload, sum: &mut Sum) {
        sum.0 += payload.iter().map(u64::from).sum::<u64>();
        payload.fill(0);
        let _ = reply_value(&[sum.0, 7]);
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

    #[ifunc(name = "farjump_test_touch")]
    fn touch(payload: &Payload) {
        let _ = payload.reply_from(0);
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
    fn a_reply_over_the_limit_fails_and_keeps_the_earlier_reply() {
        assert_eq!(reply(&[1; LIMIT]), Ok(()));
        assert_eq!(reply(&[2]), Err(ReplyTooLong));
        REPLIED.with_borrow(|replied| assert_eq!(*replied, [1; LIMIT]));
    }
}
