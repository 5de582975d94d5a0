//! Replies of commands.

use crate::Kv;
use crate::imports::{self as server, Bytes, RawPart};

/// The reply of a command.
pub struct Reply<'k> {
    kv: &'k Kv,
    number: u64,
}

/// A reply, or an element of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Part<'k> {
    /// A string or a status.
    Bytes(&'k [u8]),
    /// A number.
    Integer(i64),
    /// An array of this number of elements.
    Array(usize),
    /// None of these.
    Null,
}

impl<'k> Reply<'k> {
    pub(crate) fn new(kv: &'k Kv, number: u64) -> Reply<'k> {
        Reply { kv, number }
    }

    /// Returns the whole reply.
    pub fn whole(&self) -> Part<'k> {
        self.at(&[]).unwrap_or(Part::Null)
    }

    /// Returns the element that the indexes lead to, starting from the whole. `None` if there is none.
    pub fn at(&self, path: &[usize]) -> Option<Part<'k>> {
        let mut part = RawPart { kind: 0, reserved: 0, integer: 0, bytes: Bytes::EMPTY, len: 0 };
        // SAFETY: the path is valid for the call, and the result for a write.
        let got =
            unsafe { server::kv_reply(self.kv.raw(), self.number, path.as_ptr(), path.len(), &raw mut part) };
        (got == 0).then(|| match part.kind {
            // SAFETY: the reply stays until the call ends, and `Kv` is borrowed for `'k`, inside it.
            0 | 1 => Part::Bytes(unsafe { part.bytes.lent() }),
            2 => Part::Integer(part.integer),
            3 => Part::Array(part.len),
            _ => Part::Null,
        })
    }
}
