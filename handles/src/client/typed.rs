//! Handles to values of a type.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use farjump::Patience;

use crate::client::Client;
use crate::client::view::View;
use crate::error::Error;
use crate::owner::store::Store;
use crate::wire::handle::Handle;

/// The name of a type in handles: the same in all programs that exchange them, whatever compiler made them.
pub trait TypeName {
    /// The name, of at most 255 bytes.
    fn type_name() -> String;
}

macro_rules! names {
    ($($plain:ident)*) => { $(
        impl TypeName for $plain {
            fn type_name() -> String {
                stringify!($plain).to_owned()
            }
        }
    )* };
}
names!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64 bool char String);

impl<T: TypeName> TypeName for [T] {
    fn type_name() -> String {
        format!("[{}]", T::type_name())
    }
}

impl<T: TypeName> TypeName for Vec<T> {
    fn type_name() -> String {
        format!("Vec<{}>", T::type_name())
    }
}

/// A [`Handle`] to a `T`. A `T` is plain data, which is read in place ([`Client::get_value`]), or a type of serde's,
/// which is decoded (feature `serde`). Everything that takes a `&Handle` also takes a typed one.
pub struct TypedHandle<T: ?Sized> {
    handle: Handle,
    of: PhantomData<fn() -> Box<T>>,
}

impl<T: ?Sized> Clone for TypedHandle<T> {
    fn clone(&self) -> Self {
        TypedHandle { handle: self.handle.clone(), of: PhantomData }
    }
}

impl<T: ?Sized> fmt::Debug for TypedHandle<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.handle, out)
    }
}

impl<T: ?Sized> PartialEq for TypedHandle<T> {
    fn eq(&self, other: &Self) -> bool {
        self.handle == other.handle
    }
}

impl<T: ?Sized> Eq for TypedHandle<T> {}

impl<T: ?Sized> Deref for TypedHandle<T> {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl<T: TypeName + ?Sized> TypedHandle<T> {
    /// Returns the handle as a handle to a `T`.
    ///
    /// # Errors
    /// [`Error::Type`] for a handle whose object has a type of another name.
    pub fn new(handle: Handle) -> Result<TypedHandle<T>, Error> {
        if handle.type_name() == T::type_name() {
            return Ok(TypedHandle { handle, of: PhantomData });
        }
        Err(other::<T>(&handle, "that is another type".to_owned()))
    }

    /// The handle without its type.
    pub fn into_handle(self) -> Handle {
        self.handle
    }
}

#[cold]
fn other<T: TypeName + ?Sized>(handle: &Handle, why: String) -> Error {
    let found = handle.type_name().to_owned();
    Error::Type { number: handle.number(), found, requested: T::type_name(), why }
}

/// A value in place in an object's bytes.
pub struct Value<T: ?Sized> {
    view: View,
    of: PhantomData<fn() -> Box<T>>,
}

impl<T: FromBytes + KnownLayout + Immutable + ?Sized> Value<T> {
    /// # Errors
    /// [`Error::Type`] for bytes that are no `T`.
    fn new(handle: &Handle, view: View) -> Result<Value<T>, Error>
    where
        T: TypeName,
    {
        match T::ref_from_bytes(&view) {
            Ok(_) => Ok(Value { view, of: PhantomData }),
            Err(fault) => Err(other::<T>(handle, format!("its {} bytes are none: {fault}", view.len()))),
        }
    }

    /// The bytes.
    pub fn into_view(self) -> View {
        self.view
    }
}

impl<T: FromBytes + KnownLayout + Immutable + ?Sized> Deref for Value<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match T::ref_from_bytes(&self.view) {
            Ok(value) => value,
            Err(_) => unreachable!("length and alignment were checked, and do not change"),
        }
    }
}

impl<T: FromBytes + KnownLayout + Immutable + fmt::Debug + ?Sized> fmt::Debug for Value<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, out)
    }
}

impl Store {
    /// Puts plain data: a value, or a slice.
    ///
    /// # Errors
    /// As [`Store::put_as`].
    pub fn put_value<T: IntoBytes + Immutable + TypeName + ?Sized>(
        &self,
        value: &T,
    ) -> Result<TypedHandle<T>, Error> {
        let handle = self.put_as(&T::type_name(), value.as_bytes())?;
        Ok(TypedHandle { handle, of: PhantomData })
    }

    /// The value of an object, in place.
    ///
    /// # Errors
    /// As [`Store::get`], and [`Error::Type`].
    pub fn get_value<T>(&self, handle: &TypedHandle<T>) -> Result<Value<T>, Error>
    where
        T: FromBytes + KnownLayout + Immutable + TypeName + ?Sized,
    {
        Value::new(handle, self.get(handle)?)
    }
}

impl Client {
    /// Puts plain data: a value, or a slice.
    ///
    /// # Errors
    /// As [`Client::put_parts`].
    pub fn put_value<T: IntoBytes + Immutable + TypeName + ?Sized>(
        &self,
        value: &T,
    ) -> Result<TypedHandle<T>, Error> {
        let mut patience: Patience<'_> = self.0.patience();
        let handle = self.put_parts(&T::type_name(), &[value.as_bytes()], &mut patience)?;
        Ok(TypedHandle { handle, of: PhantomData })
    }

    /// The value of an object. It is in place if the owner's memory is mapped.
    ///
    /// # Errors
    /// As [`Client::get`], and [`Error::Type`].
    pub fn get_value<T>(&self, handle: &TypedHandle<T>) -> Result<Value<T>, Error>
    where
        T: FromBytes + KnownLayout + Immutable + TypeName + ?Sized,
    {
        Value::new(handle, self.get(handle)?)
    }
}

/// Values of types that serde knows, in postcard's encoding.
#[cfg(feature = "serde")]
mod serialized {
    use serde::Serialize;
    use serde::de::DeserializeOwned;

    use super::{Client, Error, Handle, PhantomData, Store, TypeName, TypedHandle, View, other};

    fn encode<T: Serialize + TypeName>(value: &T) -> Result<Vec<u8>, Error> {
        postcard::to_stdvec(value)
            .map_err(|error| Error::Encode { of: T::type_name(), why: error.to_string() })
    }

    fn decode<T: DeserializeOwned + TypeName>(handle: &Handle, view: &View) -> Result<T, Error> {
        postcard::from_bytes(view).map_err(|error| other::<T>(handle, error.to_string()))
    }

    impl Store {
        /// Encodes a value and puts it.
        ///
        /// # Errors
        /// As [`Store::put_as`], and [`Error::Encode`].
        pub fn put_serde<T: Serialize + TypeName>(&self, value: &T) -> Result<TypedHandle<T>, Error> {
            let handle = self.put_as(&T::type_name(), &encode(value)?)?;
            Ok(TypedHandle { handle, of: PhantomData })
        }

        /// Decodes the value of an object.
        ///
        /// # Errors
        /// As [`Store::get`], and [`Error::Type`].
        pub fn get_serde<T: DeserializeOwned + TypeName>(&self, handle: &TypedHandle<T>) -> Result<T, Error> {
            decode(handle, &self.get(handle)?)
        }
    }

    impl Client {
        /// Encodes a value and puts it.
        ///
        /// # Errors
        /// As [`Client::put_parts`], and [`Error::Encode`].
        pub fn put_serde<T: Serialize + TypeName>(&self, value: &T) -> Result<TypedHandle<T>, Error> {
            let bytes = encode(value)?;
            let handle = self.put_parts(&T::type_name(), &[&bytes], &mut self.0.patience())?;
            Ok(TypedHandle { handle, of: PhantomData })
        }

        /// Decodes the value of an object.
        ///
        /// # Errors
        /// As [`Client::get`], and [`Error::Type`].
        pub fn get_serde<T: DeserializeOwned + TypeName>(&self, handle: &TypedHandle<T>) -> Result<T, Error> {
            decode(handle, &self.get(handle)?)
        }
    }
}
