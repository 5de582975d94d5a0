//! The interface for functions in Redis or Valkey, in Rust. It is the same as `farjump_kv.h`, with lifetimes: lent
//! bytes cannot outlive the call, or a write. The call's own keys and arguments outlive writes.
//!
//! ```ignore
//! #![no_std]
//! #![forbid(unsafe_code)]
//! use farjump_ifunc::ifunc;
//! use farjump_kv_ifunc::Kv;
//!
//! /// Replies the length of the string whose key is the payload.
//! #[ifunc]
//! fn length(key: &[u8], kv: &mut Kv) -> u64 {
//!     match kv.get(key) {
//!         Ok(value) => value.map_or(0, |value| value.len() as u64),
//!         Err(fault) => kv.fail(fault),
//!     }
//! }
//! ```
//! A crate with this function depends on `farjump-ifunc` and this one; `farjump build FOLDER -o liblength.so` builds it.
//!
//! Reading borrows the [`Kv`], and writing borrows it exclusively. So the compiler ensures that bytes and cursors end
//! before the first write. All writes of a function reach replicas and the append-only file as one transaction.

#![no_std]
#![deny(missing_docs)]

mod call;
mod cursors;
mod fault;
mod imports;
mod replies;

use core::ffi::c_int;
use core::marker::PhantomData;

pub use call::{Text, Word};
pub use cursors::{Entries, Entry, Names, Pairs, Scores};
pub use fault::Fault;
use imports as server;
pub use imports::StreamId;
pub use replies::{Part, Reply};

/// The server's data: `target_args` of functions in the server.
#[repr(C)]
pub struct Kv {
    opaque: [u8; 0],
    /// Only for the thread that the function runs on.
    thread: PhantomData<*mut ()>,
}

// SAFETY: the module passes a pointer of its own, which is valid until the function ends. This type has no bytes: nothing
// is read or written through it.
unsafe impl farjump_ifunc::TargetArgs for Kv {}

/// The type of a key's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// A string.
    String,
    /// A list.
    List,
    /// A hash.
    Hash,
    /// A set.
    Set,
    /// A sorted set.
    SortedSet,
    /// A stream.
    Stream,
    /// A type of a module's.
    Module,
}

/// Returns the result of a function: `result` if its number `got` is `KV_OK`.
fn found<T>(got: c_int, result: T) -> Result<Option<T>, Fault> {
    match got {
        0 => Ok(Some(result)),
        1 => Ok(None),
        fault => Err(Fault::of(fault)),
    }
}

impl Kv {
    /// Returns the pointer that the module's functions take and ignore.
    pub(crate) fn raw(&self) -> *const Kv {
        self
    }

    /// The type of a key's value; `None` if there is no such key.
    ///
    /// # Errors
    /// [`Fault::Denied`], [`Fault::OtherSlot`].
    pub fn kind(&self, key: &[u8]) -> Result<Option<Kind>, Fault> {
        // SAFETY: the key's bytes are valid for the call.
        match unsafe { server::kv_type(self.raw(), key.as_ptr().cast(), key.len()) } {
            0 => Ok(None),
            1 => Ok(Some(Kind::String)),
            2 => Ok(Some(Kind::List)),
            3 => Ok(Some(Kind::Hash)),
            4 => Ok(Some(Kind::Set)),
            5 => Ok(Some(Kind::SortedSet)),
            7 => Ok(Some(Kind::Stream)),
            fault if fault < 0 => Err(Fault::of(fault)),
            _ => Ok(Some(Kind::Module)),
        }
    }

    /// Number of a key's elements, or of a string's bytes; `None` if there is no such key.
    ///
    /// # Errors
    /// As [`Kv::kind`].
    pub fn len(&self, key: &[u8]) -> Result<Option<usize>, Fault> {
        let mut len = 0;
        // SAFETY: the key's bytes are valid for the call, and the result for a write.
        let got = unsafe { server::kv_len(self.raw(), key.as_ptr().cast(), key.len(), &raw mut len) };
        found(got, len)
    }

    /// The bytes of a string, where the server has them: nothing is copied. `None` if there is no such key.
    ///
    /// # Errors
    /// [`Fault::WrongType`], and as [`Kv::kind`].
    #[inline]
    pub fn get(&self, key: &[u8]) -> Result<Option<&[u8]>, Fault> {
        let mut value = server::Bytes::EMPTY;
        // SAFETY: the key's bytes are valid for the call, and the result for a write.
        let got = unsafe { server::kv_get(self.raw(), key.as_ptr().cast(), key.len(), &raw mut value) };
        // SAFETY: the bytes stay until the call ends or writes, which needs this value exclusively.
        Ok(found(got, value)?.map(|value| unsafe { value.lent() }))
    }

    /// The value of a hash's field; a copy. `None` if there is no such key or field.
    ///
    /// # Errors
    /// [`Fault::TooMany`] if the call has 64 MiB of copies, and as [`Kv::get`].
    pub fn hget(&self, key: &[u8], field: &[u8]) -> Result<Option<&[u8]>, Fault> {
        let mut value = server::Bytes::EMPTY;
        // SAFETY: as in `get`.
        let got = unsafe {
            server::kv_hget(
                self.raw(),
                key.as_ptr().cast(),
                key.len(),
                field.as_ptr().cast(),
                field.len(),
                &raw mut value,
            )
        };
        // SAFETY: as in `get`.
        Ok(found(got, value)?.map(|value| unsafe { value.lent() }))
    }

    /// An element of a list: the first for 0, the last for -1; a copy. `None` if there is no such key or element.
    ///
    /// # Errors
    /// As [`Kv::hget`].
    pub fn lindex(&self, key: &[u8], index: i64) -> Result<Option<&[u8]>, Fault> {
        let mut value = server::Bytes::EMPTY;
        // SAFETY: as in `get`.
        let got =
            unsafe { server::kv_lindex(self.raw(), key.as_ptr().cast(), key.len(), index, &raw mut value) };
        // SAFETY: as in `get`.
        Ok(found(got, value)?.map(|value| unsafe { value.lent() }))
    }

    /// The score of a sorted set's member; `None` if there is no such key or member.
    ///
    /// # Errors
    /// As [`Kv::get`].
    pub fn zscore(&self, key: &[u8], member: &[u8]) -> Result<Option<f64>, Fault> {
        let mut score = 0.0;
        // SAFETY: as in `get`.
        let got = unsafe {
            server::kv_zscore(
                self.raw(),
                key.as_ptr().cast(),
                key.len(),
                member.as_ptr().cast(),
                member.len(),
                &raw mut score,
            )
        };
        found(got, score)
    }

    /// Sets a string, as SET does.
    ///
    /// # Errors
    /// [`Fault::Paused`], [`Fault::NoMemory`], [`Fault::ReadOnly`], [`Fault::Failed`], and as [`Kv::kind`].
    pub fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Fault> {
        // SAFETY: all bytes are valid for the call. All lent bytes have ended, because this value is borrowed
        // exclusively.
        let got = unsafe {
            server::kv_set(self.raw(), key.as_ptr().cast(), key.len(), value.as_ptr().cast(), value.len())
        };
        found(got, ()).map(drop)
    }

    /// Deletes a key, as DEL does. Returns whether there was one.
    ///
    /// # Errors
    /// As [`Kv::set`].
    pub fn del(&mut self, key: &[u8]) -> Result<bool, Fault> {
        // SAFETY: as in `set`.
        let got = unsafe { server::kv_del(self.raw(), key.as_ptr().cast(), key.len()) };
        Ok(found(got, ())?.is_some())
    }

    /// Makes a key expire after `milliseconds`, as PEXPIRE does. Returns whether there was one.
    ///
    /// # Errors
    /// As [`Kv::set`].
    pub fn expire(&mut self, key: &[u8], milliseconds: i64) -> Result<bool, Fault> {
        // SAFETY: as in `set`.
        let got = unsafe { server::kv_expire(self.raw(), key.as_ptr().cast(), key.len(), milliseconds) };
        Ok(found(got, ())?.is_some())
    }

    /// Sets a hash's field, as HSET does.
    ///
    /// # Errors
    /// As [`Kv::set`].
    pub fn hset(&mut self, key: &[u8], field: &[u8], value: &[u8]) -> Result<(), Fault> {
        // SAFETY: as in `set`.
        let got = unsafe {
            server::kv_hset(
                self.raw(),
                key.as_ptr().cast(),
                key.len(),
                field.as_ptr().cast(),
                field.len(),
                value.as_ptr().cast(),
                value.len(),
            )
        };
        found(got, ()).map(drop)
    }

    /// Sets the score of a sorted set's member, as ZADD does.
    ///
    /// # Errors
    /// [`Fault::BadArgument`] for a score that is no number, and as [`Kv::set`].
    pub fn zadd(&mut self, key: &[u8], member: &[u8], score: f64) -> Result<(), Fault> {
        // SAFETY: as in `set`.
        let got = unsafe {
            server::kv_zadd(
                self.raw(),
                key.as_ptr().cast(),
                key.len(),
                member.as_ptr().cast(),
                member.len(),
                score,
            )
        };
        found(got, ()).map(drop)
    }

    /// Runs any command that a script may run, but none of the module's: its name and arguments, at most `N`. SELECT is
    /// in effect until the function ends. Other commands that act on a client, such as WAIT, are refused.
    ///
    /// # Errors
    /// [`Fault::Failed`] if it replies an error, [`Fault::BadArgument`], and as [`Kv::set`].
    pub fn command<const N: usize>(&mut self, words: [&[u8]; N]) -> Result<Reply<'_>, Fault> {
        let words = words.map(server::Bytes::of);
        let mut reply = 0;
        // SAFETY: as in `set`.
        let got = unsafe { server::kv_command(self.raw(), words.as_ptr(), words.len(), &raw mut reply) };
        found(got, reply)?;
        Ok(Reply::new(self, reply))
    }

    /// Ends the call with the server's message for the last error. `fault` shows that there was one.
    pub fn fail(&self, fault: Fault) -> ! {
        let _ = fault;
        let mut text = server::Bytes::EMPTY;
        // SAFETY: the result is valid for a write.
        unsafe { server::kv_error(self.raw(), &raw mut text) };
        // SAFETY: the message stays until the next error.
        let text = unsafe { text.lent() };
        farjump_ifunc::fail(core::str::from_utf8(text).unwrap_or("a call to the server has failed"))
    }
}
