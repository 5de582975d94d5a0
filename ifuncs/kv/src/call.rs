//! Keys, arguments and answers, numbers and time.

use core::ops::Deref;

use crate::imports as server;
use crate::{Fault, Kv, found};

/// Most bytes of a number's text: `KV_NUMBER`.
const NUMBER: usize = 32;

/// The text of a number.
#[derive(Clone, Copy)]
pub struct Text {
    bytes: [u8; NUMBER],
    len: usize,
}

impl Deref for Text {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// A key or an argument that came with the call. It stays until the call ends, so that writes may name it.
#[derive(Clone, Copy)]
pub struct Word(server::Bytes);

impl Deref for Word {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the module keeps these bytes until the call ends. A word does not outlive the call: only a static would,
        // and the pointer in a word is not `Sync`.
        unsafe { self.0.lent() }
    }
}

impl Kv {
    /// Takes the payload of a call by a link for keys and arguments: an array of bulk strings in RESP, `numkeys key ... arg ...` as
    /// behind the name in `FJ.CALL`. Does nothing in a call by `FJ.CALL`. So a function that calls it first works both
    /// ways.
    ///
    /// # Errors
    /// [`Fault::BadArgument`] for another payload, [`Fault::TooMany`] if the call has 64 MiB of copies.
    pub fn words(&self, payload: &[u8]) -> Result<(), Fault> {
        // SAFETY: the payload's bytes are valid for the call, which copies them.
        let got = unsafe { server::kv_words(self.raw(), payload.as_ptr().cast(), payload.len()) };
        found(got, ()).map(drop)
    }

    /// A key that came with the call; `None` if there is none, and for calls by a link before [`Kv::words`].
    pub fn key(&self, index: usize) -> Option<Word> {
        let mut key = server::Bytes::EMPTY;
        // SAFETY: the result is valid for a write.
        let got = unsafe { server::kv_key(self.raw(), index, &raw mut key) };
        (got == 0).then_some(Word(key))
    }

    /// An argument that came with the call; `None` if there is none, and for calls by a link before [`Kv::words`].
    pub fn arg(&self, index: usize) -> Option<Word> {
        let mut arg = server::Bytes::EMPTY;
        // SAFETY: the result is valid for a write.
        let got = unsafe { server::kv_arg(self.raw(), index, &raw mut arg) };
        (got == 0).then_some(Word(arg))
    }

    /// Number of the keys that came with the call.
    pub fn keys(&self) -> usize {
        // SAFETY: it takes no pointer but this.
        usize::try_from(unsafe { server::kv_keys(self.raw()) }).unwrap_or(0)
    }

    /// Number of the arguments that came with the call.
    pub fn args(&self) -> usize {
        // SAFETY: it takes no pointer but this.
        usize::try_from(unsafe { server::kv_args(self.raw()) }).unwrap_or(0)
    }

    /// Answers with a whole number. A function that answers replies no bytes.
    ///
    /// # Errors
    /// [`Fault::TooMany`] if the answer is longer than the target permits, which ends the call.
    pub fn reply_integer(&self, value: i64) -> Result<(), Fault> {
        // SAFETY: it takes no pointer but this.
        found(unsafe { server::kv_answer_integer(self.raw(), value) }, ()).map(drop)
    }

    /// Answers with a number, which clients of version 2 of the server's protocol get as a string.
    ///
    /// # Errors
    /// [`Fault::BadArgument`] for NaN, and as [`Kv::reply_integer`].
    pub fn reply_double(&self, value: f64) -> Result<(), Fault> {
        // SAFETY: it takes no pointer but this.
        found(unsafe { server::kv_answer_double(self.raw(), value) }, ()).map(drop)
    }

    /// Answers with bytes.
    ///
    /// # Errors
    /// As [`Kv::reply_integer`].
    pub fn reply_string(&self, bytes: &[u8]) -> Result<(), Fault> {
        // SAFETY: the bytes are valid for the call, which copies them.
        let got = unsafe { server::kv_answer_string(self.raw(), bytes.as_ptr().cast(), bytes.len()) };
        found(got, ()).map(drop)
    }

    /// Begins an array: the next `count` values are its elements, and may be arrays.
    ///
    /// # Errors
    /// As [`Kv::reply_integer`].
    pub fn reply_array(&self, count: usize) -> Result<(), Fault> {
        // SAFETY: it takes no pointer but this.
        found(unsafe { server::kv_answer_array(self.raw(), count) }, ()).map(drop)
    }

    /// Returns the number that INCR reads in this text: no blank, no `+`, no zero in front.
    pub fn integer(&self, text: &[u8]) -> Option<i64> {
        let mut value = 0;
        // SAFETY: the text is valid for the call, and the result for a write.
        let got =
            unsafe { server::kv_parse_integer(self.raw(), text.as_ptr().cast(), text.len(), &raw mut value) };
        (got == 0).then_some(value)
    }

    /// Returns the number that ZADD reads in this text, in decimal digits.
    pub fn double(&self, text: &[u8]) -> Option<f64> {
        let mut value = 0.0;
        // SAFETY: as in `integer`.
        let got =
            unsafe { server::kv_parse_double(self.raw(), text.as_ptr().cast(), text.len(), &raw mut value) };
        (got == 0).then_some(value)
    }

    /// The text of a whole number.
    pub fn integer_text(&self, value: i64) -> Text {
        let mut text = Text { bytes: [0; NUMBER], len: 0 };
        // SAFETY: the text has space for `KV_NUMBER` bytes, and the length is valid for a write.
        unsafe { server::kv_format_integer(self.raw(), value, text.bytes.as_mut_ptr(), &raw mut text.len) };
        text
    }

    /// Returns the shortest text that reads as the same number. `None` for NaN.
    pub fn double_text(&self, value: f64) -> Option<Text> {
        let mut text = Text { bytes: [0; NUMBER], len: 0 };
        // SAFETY: as in `integer_text`.
        let got = unsafe {
            server::kv_format_double(self.raw(), value, text.bytes.as_mut_ptr(), &raw mut text.len)
        };
        (got == 0).then_some(text)
    }

    /// The server's clock: microseconds since 1970.
    pub fn time(&self) -> u64 {
        let mut now = 0;
        // SAFETY: the result is valid for a write.
        unsafe { server::kv_time(self.raw(), &raw mut now) };
        now
    }
}
