//! Typed functions: libraries whose arguments and replies are values of types known to the program.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;

use farjump_core::frame::INLINE_PAYLOAD;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::error::{Error, OtherType, TypedPart};
use crate::library::Library;
use crate::library::signature::Shape;

/// Types of the arguments of a typed call: plain data without padding (`zerocopy::IntoBytes`), slices of it,
/// and `str`. `()` stands for no arguments.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the arguments of a typed call",
    label = "this is no plain data",
    note = "use integers, floats, arrays and slices of them, `str`, and types with #[derive(IntoBytes, Immutable)] of zerocopy"
)]
pub trait TypedArgs {
    /// The bytes of any value of the type.
    const SHAPE: Shape;

    /// The bytes of this value.
    fn payload(&self) -> &[u8];
}

impl<T: IntoBytes + Immutable> TypedArgs for T {
    const SHAPE: Shape = Shape::One { size: size_of::<T>(), align: align_of::<T>() };

    #[inline(always)]
    fn payload(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl<T: IntoBytes + Immutable> TypedArgs for [T] {
    const SHAPE: Shape = many::<T>();

    #[inline(always)]
    fn payload(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl TypedArgs for str {
    const SHAPE: Shape = many::<u8>();

    #[inline(always)]
    fn payload(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// Types of the reply of a typed call: plain data of any bytes (`zerocopy::FromBytes`), or `[T]` for any number of such
/// values, returned as a `Vec<T>`. `()` stands for no reply.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the reply of a typed call",
    label = "not any bytes are a value of this",
    note = "use integers, floats, arrays and slices (`[T]`) of them, `()`, and types with #[derive(FromBytes)] of zerocopy"
)]
pub trait TypedReply {
    /// The bytes of any value of the type.
    const SHAPE: Shape;
    /// The value that a call returns.
    type Value;

    /// Reads the value from these bytes, at any address; `None` if they have another length.
    fn from_reply(bytes: &[u8]) -> Option<Self::Value>;
}

impl<T: FromBytes> TypedReply for T {
    const SHAPE: Shape = Shape::One { size: size_of::<T>(), align: align_of::<T>() };
    type Value = T;

    #[inline(always)]
    fn from_reply(bytes: &[u8]) -> Option<T> {
        T::read_from_bytes(bytes).ok()
    }
}

impl<T: FromBytes> TypedReply for [T] {
    const SHAPE: Shape = many::<T>();
    type Value = Vec<T>;

    fn from_reply(bytes: &[u8]) -> Option<Vec<T>> {
        let values = bytes.chunks_exact(size_of::<T>());
        if !values.remainder().is_empty() {
            return None;
        }
        values.map(|value| T::read_from_bytes(value).ok()).collect()
    }
}

const fn many<T>() -> Shape {
    assert!(size_of::<T>() != 0, "any number of values without bytes has no bytes to count them by");
    Shape::Many { size: size_of::<T>(), align: align_of::<T>() }
}

/// The function of a library, with the types of its arguments and its reply ([`Library::typed`]). `A` and `R`
/// may be slices.
///
/// A clone is another handle on the same library.
pub struct TypedFunction<A: ?Sized, R: ?Sized> {
    library: Library,
    types: PhantomData<fn(&A) -> PhantomData<R>>,
}

impl<A: ?Sized, R: ?Sized> TypedFunction<A, R> {
    /// The library.
    #[inline(always)]
    pub fn library(&self) -> &Library {
        &self.library
    }
}

impl<A: ?Sized, R: ?Sized> Clone for TypedFunction<A, R> {
    fn clone(&self) -> Self {
        TypedFunction { library: self.library.clone(), types: PhantomData }
    }
}

impl<A: ?Sized, R: ?Sized> fmt::Debug for TypedFunction<A, R> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("TypedFunction")
            .field("library", &self.library)
            .field("arguments", &type_name::<A>())
            .field("reply", &type_name::<R>())
            .finish()
    }
}

impl Library {
    /// The function of this library, for typed calls: `library.typed::<[u64], u64>()`. Calls pass the bytes of
    /// arguments of type `A`, and read the reply as an `R`.
    ///
    /// If the library states the size and alignment of its own types ([`Library::signature`]), this method compares
    /// them, once and not with each call. A function of any number of values also takes an array of them. If it states
    /// none, like a library built from C, the payload must be aligned enough for `A`. No check covers the meaning of
    /// the bytes: an `f64` passes for a `u64`.
    ///
    /// # Errors
    /// [`Error::OtherType`] and [`Error::TypeAlign`] for types that the function does not have, and
    /// [`Error::NotLoaded`] for a library that has to be loaded.
    pub fn typed<A: TypedArgs + ?Sized, R: TypedReply + ?Sized>(&self) -> Result<TypedFunction<A, R>, Error> {
        self.check_payload()?;
        if let Some(signature) = self.signature() {
            let other = |part, stated, passed, type_name: &'static str| {
                let (name, text) = (self.name().to_owned(), signature.text.clone());
                Err(Error::OtherType(Box::new(OtherType { name, text, part, stated, passed, type_name })))
            };
            if !signature.arguments.takes(A::SHAPE) {
                return other(TypedPart::Arguments, signature.arguments, A::SHAPE, type_name::<A>());
            }
            // A reply of an array can be read as any number of its values, but not vice versa.
            if signature.reply != Shape::Any && !R::SHAPE.takes(signature.reply) {
                return other(TypedPart::Reply, signature.reply, R::SHAPE, type_name::<R>());
            }
        } else if self.payload_is_args() {
            self.check_alignment(A::SHAPE, type_name::<A>())?;
        }
        Ok(TypedFunction { library: self.clone(), types: PhantomData })
    }

    /// Checks that payloads of this shape, which functions read in place, are aligned for their values.
    fn check_alignment(&self, shape: Shape, type_name: &'static str) -> Result<(), Error> {
        let (needed, is_long) = match shape {
            Shape::Any => return Ok(()),
            Shape::One { size, align } => (align, size > INLINE_PAYLOAD),
            Shape::Many { align, .. } => (align, false),
        };
        for image in self.images() {
            let given = match image.payload_align_log2() {
                0 if is_long => 64,
                0 => 8,
                log2 => 1 << log2,
            };
            if needed > given {
                return Err(Error::TypeAlign { name: self.name().to_owned(), type_name, needed, given });
            }
        }
        Ok(())
    }
}
