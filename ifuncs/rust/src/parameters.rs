//! The first parameter of an ifunc, and its result.

use core::mem::MaybeUninit;
use core::slice;

use crate::signature::Shape;
use crate::{Payload, Plain, fail, private_copy, reply_value};

/// Types that the first parameter of an `#[ifunc]` can have.
///
/// | type | payload |
/// |---|---|
/// | `&[T]`, `&mut [T]` | any number of values |
/// | `&T`, `&mut T` | one value |
/// | `&str` | UTF-8 |
/// | `&Payload`, `&mut Payload` | any bytes, where they lie: see [`Payload`] |
/// | `()`, or no parameter | nothing; without a parameter the payload is ignored |
///
/// `T` is [`Plain`] of any alignment. The first five are copies which belong to the call: the payload itself
/// lies in memory that the source may be able to write at any time. A payload of another length ends the call
/// with a message, and so does one of `&str` that is not UTF-8.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no type of a payload",
    label = "the first parameter of an ifunc is its payload",
    note = "use `&[T]` or `&T` of plain data (integers, floats, arrays of them, structs with #[derive(Plain)]), `&str`, \
            `&Payload`, or `_: ()` if there is none"
)]
pub trait FromPayload<'p>: Sized {
    /// The bytes that the type takes.
    #[doc(hidden)]
    const SHAPE: Shape;

    /// The value that the payload holds. `short` is the place of a short copy.
    #[doc(hidden)]
    fn from_payload(payload: &'p mut Payload, short: &'p mut ShortCopy) -> Self;
}

/// Longest payload that is copied to the stack, in bytes.
const SHORT: usize = 256;

/// Space for the copy of a short payload.
#[doc(hidden)]
#[repr(C, align(16))]
pub struct ShortCopy([MaybeUninit<u8>; SHORT]);

impl ShortCopy {
    /// Nothing yet.
    #[inline(always)]
    #[expect(clippy::new_without_default, reason = "the macro calls it by this name")]
    pub fn new() -> ShortCopy {
        ShortCopy([MaybeUninit::uninit(); SHORT])
    }
}

/// Returns a copy of the payload, aligned for `T`, that no other code of any process uses during `'p`. The copy lies in
/// `short` if it fits, otherwise in memory of the target.
#[inline(always)]
fn copy_of<'p, T>(payload: &'p Payload, short: &'p mut ShortCopy) -> *mut T {
    if payload.len() <= SHORT && align_of::<T>() <= align_of::<ShortCopy>() {
        let at = short.0.as_mut_ptr().cast::<u8>();
        // SAFETY: the space has at least as many bytes, and is borrowed for this alone.
        unsafe { payload.copy_all_to(at) };
        return at.cast();
    }
    private_copy(payload, align_of::<T>()).cast()
}

/// The error message for a payload of another length than its type's, made at compile time.
struct WrongLength<T>(core::marker::PhantomData<T>);

impl<T> WrongLength<T> {
    const ONE: Sentence = Sentence::new("the payload is no value of ", size_of::<T>(), " bytes");
    const MANY: Sentence = Sentence::new("the payload is no array of values of ", size_of::<T>(), " bytes");
}

/// A text with a number in it.
struct Sentence {
    bytes: [u8; 56],
    len: usize,
}

impl Sentence {
    const fn new(before: &str, number: usize, after: &str) -> Sentence {
        let mut sentence = Sentence { bytes: [0; 56], len: 0 };
        sentence.push(before.as_bytes());
        let mut divisor = 1;
        while number / divisor >= 10 {
            divisor *= 10;
        }
        while divisor > 0 {
            sentence.push(&[b'0' + (number / divisor % 10) as u8]);
            divisor /= 10;
        }
        sentence.push(after.as_bytes());
        sentence
    }

    const fn push(&mut self, text: &[u8]) {
        let mut index = 0;
        while index < text.len() {
            self.bytes[self.len] = text[index];
            self.len += 1;
            index += 1;
        }
    }

    const fn as_str(&self) -> &str {
        let (text, _) = self.bytes.split_at(self.len);
        match str::from_utf8(text) {
            Ok(text) => text,
            Err(_) => "",
        }
    }
}

/// The values of a payload, and their number.
#[inline(always)]
fn values<'p, T: Plain>(payload: &'p Payload, short: &'p mut ShortCopy) -> (*mut T, usize) {
    const { assert!(size_of::<T>() != 0, "a payload of values without bytes has no number of them") };
    if !payload.len().is_multiple_of(size_of::<T>()) {
        fail(const { WrongLength::<T>::MANY.as_str() })
    }
    (copy_of(payload, short), payload.len() / size_of::<T>())
}

/// The value of a payload.
#[inline(always)]
fn value<'p, T: Plain>(payload: &'p Payload, short: &'p mut ShortCopy) -> *mut T {
    if payload.len() != size_of::<T>() {
        fail(const { WrongLength::<T>::ONE.as_str() })
    }
    copy_of(payload, short)
}

impl<'p, T: Plain> FromPayload<'p> for &'p [T] {
    const SHAPE: Shape = Shape::many::<T>();

    #[inline(always)]
    fn from_payload(payload: &'p mut Payload, short: &'p mut ShortCopy) -> Self {
        let (at, count) = values(payload, short);
        // SAFETY: `values` returns `count` aligned values, valid for `'p`, that nothing else uses. Any bytes are a
        // value (`Plain`).
        unsafe { slice::from_raw_parts(at, count) }
    }
}

impl<'p, T: Plain> FromPayload<'p> for &'p mut [T] {
    const SHAPE: Shape = Shape::many::<T>();

    #[inline(always)]
    fn from_payload(payload: &'p mut Payload, short: &'p mut ShortCopy) -> Self {
        let (at, count) = values(payload, short);
        // SAFETY: as for `&[T]`.
        unsafe { slice::from_raw_parts_mut(at, count) }
    }
}

impl<'p, T: Plain> FromPayload<'p> for &'p T {
    const SHAPE: Shape = Shape::one::<T>();

    #[inline(always)]
    fn from_payload(payload: &'p mut Payload, short: &'p mut ShortCopy) -> Self {
        // SAFETY: `value` returns the address of an aligned value, valid for `'p`, that nothing else uses. Any bytes
        // are a value (`Plain`).
        unsafe { &*value(payload, short) }
    }
}

impl<'p, T: Plain> FromPayload<'p> for &'p mut T {
    const SHAPE: Shape = Shape::one::<T>();

    #[inline(always)]
    fn from_payload(payload: &'p mut Payload, short: &'p mut ShortCopy) -> Self {
        // SAFETY: as for `&T`.
        unsafe { &mut *value(payload, short) }
    }
}

impl<'p> FromPayload<'p> for &'p str {
    const SHAPE: Shape = Shape::many::<u8>();

    #[inline(always)]
    fn from_payload(payload: &'p mut Payload, short: &'p mut ShortCopy) -> Self {
        let text = str::from_utf8(FromPayload::from_payload(payload, short));
        text.unwrap_or_else(|_| fail("the payload is no UTF-8, which this function takes"))
    }
}

impl<'p> FromPayload<'p> for &'p Payload {
    const SHAPE: Shape = Shape::ANY;

    #[inline(always)]
    fn from_payload(payload: &'p mut Payload, _: &'p mut ShortCopy) -> Self {
        payload
    }
}

impl<'p> FromPayload<'p> for &'p mut Payload {
    const SHAPE: Shape = Shape::ANY;

    #[inline(always)]
    fn from_payload(payload: &'p mut Payload, _: &'p mut ShortCopy) -> Self {
        payload
    }
}

impl<'p> FromPayload<'p> for () {
    const SHAPE: Shape = Shape::one::<()>();

    #[inline(always)]
    fn from_payload(payload: &'p mut Payload, _: &'p mut ShortCopy) -> Self {
        if !payload.is_empty() {
            fail("there is a payload, and this function takes none")
        }
    }
}

/// Types that an `#[ifunc]` can return.
///
/// | type | reply |
/// |---|---|
/// | a [`Plain`] type | its bytes |
/// | `()`, or no type | nothing but the function's own calls of [`reply`](crate::reply) |
/// | `Result<T, &str>` | as for `T`; an error ends the call, and its text reaches the source |
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no type of a reply",
    label = "an ifunc returns its reply",
    note = "return plain data (an integer, a float, an array of them, a #[derive(Plain)] struct), nothing, or `Result<_, &str>` \
            of these; for a reply of any length call `farjump_ifunc::reply`"
)]
pub trait IntoReply {
    /// The bytes that the type gives.
    #[doc(hidden)]
    const SHAPE: Shape;

    /// Appends the value to the reply.
    #[doc(hidden)]
    fn reply(self);
}

impl IntoReply for () {
    const SHAPE: Shape = Shape::ANY;

    #[inline(always)]
    fn reply(self) {}
}

impl<T: Plain> IntoReply for T {
    const SHAPE: Shape = Shape::one::<T>();

    #[inline(always)]
    fn reply(self) {
        // If it exceeds the target's limit, the target fails the call.
        let _ = reply_value(&self);
    }
}

impl<T: IntoReply> IntoReply for Result<T, &str> {
    const SHAPE: Shape = T::SHAPE;

    #[inline(always)]
    fn reply(self) {
        match self {
            Ok(value) => value.reply(),
            Err(message) => fail(message),
        }
    }
}
