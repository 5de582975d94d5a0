//! Elements of keys, one after the other. Cursors borrow the [`Kv`], so that nothing writes while one is open, and close when
//! they are dropped.

use core::marker::PhantomData;
use core::ptr;

use crate::imports::{self as server, Bytes, StreamId};
use crate::{Fault, Kv, found};

/// A cursor that is open.
struct Open<'k> {
    kv: &'k Kv,
    number: u64,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        // SAFETY: it takes numbers.
        unsafe { server::kv_close(self.kv.raw(), self.number) };
    }
}

/// Members of a sorted set, with their scores.
pub struct Scores<'k>(Open<'k>);

/// Entries of a stream.
pub struct Entries<'k>(Open<'k>);

/// An entry of a stream. Read its fields before the next entry.
pub struct Entry<'e, 'k> {
    /// The entry's id.
    pub id: StreamId,
    /// Number of the entry's fields.
    pub fields: usize,
    open: &'e Open<'k>,
}

/// Fields of a hash, with their values.
pub struct Pairs<'k>(Open<'k>);

/// Members of a set, or names of keys.
pub struct Names<'k> {
    open: Open<'k>,
    lent: PhantomData<&'k [u8]>,
}

impl Kv {
    /// Members of a sorted set with scores from `min` to `max`, both included, by rising scores or, if `reverse`, by falling
    /// ones. `None` if there is no such key.
    ///
    /// # Errors
    /// [`Fault::WrongType`], [`Fault::BadArgument`] for a bound that is no number, [`Fault::TooMany`] if 64 cursors are open,
    /// [`Fault::Denied`], [`Fault::OtherSlot`].
    pub fn zrange(&self, key: &[u8], min: f64, max: f64, reverse: bool) -> Result<Option<Scores<'_>>, Fault> {
        let mut number = 0;
        // SAFETY: the key's bytes are valid for the call, and the result for a write.
        let got = unsafe {
            server::kv_zrange(
                self.raw(),
                key.as_ptr().cast(),
                key.len(),
                min,
                max,
                reverse.into(),
                &raw mut number,
            )
        };
        Ok(found(got, number)?.map(|number| Scores(Open { kv: self, number })))
    }

    /// All entries of a stream, by rising ids or, if `reverse`, by falling ones. `None` if there is no such key.
    ///
    /// # Errors
    /// As [`Kv::zrange`].
    pub fn xrange(&self, key: &[u8], reverse: bool) -> Result<Option<Entries<'_>>, Fault> {
        let mut number = 0;
        // SAFETY: as in `zrange`; null bounds are those of the stream.
        let got = unsafe {
            server::kv_xrange(
                self.raw(),
                key.as_ptr().cast(),
                key.len(),
                ptr::null(),
                ptr::null(),
                reverse.into(),
                &raw mut number,
            )
        };
        Ok(found(got, number)?.map(|number| Entries(Open { kv: self, number })))
    }

    /// All fields of a hash with their values, in no order; copies. `None` if there is no such key.
    ///
    /// # Errors
    /// [`Fault::TooMany`] if the hash has more than 64 MiB, and as [`Kv::zrange`].
    pub fn fields(&self, key: &[u8]) -> Result<Option<Pairs<'_>>, Fault> {
        let mut number = 0;
        // SAFETY: as in `zrange`.
        let got = unsafe { server::kv_fields(self.raw(), key.as_ptr().cast(), key.len(), &raw mut number) };
        Ok(found(got, number)?.map(|number| Pairs(Open { kv: self, number })))
    }

    /// All members of a set, in no order; copies. `None` if there is no such key.
    ///
    /// # Errors
    /// As [`Kv::fields`].
    pub fn members(&self, key: &[u8]) -> Result<Option<Names<'_>>, Fault> {
        let mut number = 0;
        // SAFETY: as in `zrange`.
        let got = unsafe { server::kv_members(self.raw(), key.as_ptr().cast(), key.len(), &raw mut number) };
        Ok(found(got, number)?.map(|number| Names { open: Open { kv: self, number }, lent: PhantomData }))
    }

    /// Returns names of keys that begin with `prefix`, among about `most` keys of the database from `position` on,
    /// which is 0 at first. Also returns the next position, 0 at the end. A name may come twice.
    ///
    /// # Errors
    /// As [`Kv::zrange`].
    pub fn scan(&self, prefix: &[u8], most: usize, position: u64) -> Result<(Names<'_>, u64), Fault> {
        let (mut number, mut position) = (0, position);
        // SAFETY: as in `zrange`; the position is also valid for a read.
        let got = unsafe {
            server::kv_scan(
                self.raw(),
                prefix.as_ptr().cast(),
                prefix.len(),
                most,
                &raw mut position,
                &raw mut number,
            )
        };
        found(got, ())?;
        Ok((Names { open: Open { kv: self, number }, lent: PhantomData }, position))
    }
}

impl<'k> Iterator for Scores<'k> {
    type Item = Result<(&'k [u8], f64), Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        let (mut member, mut score) = (Bytes::EMPTY, 0.0);
        // SAFETY: both results are valid for writes.
        let got =
            unsafe { server::kv_zset_next(self.0.kv.raw(), self.0.number, &raw mut member, &raw mut score) };
        // SAFETY: the copy stays until the call ends, and `Kv` is borrowed for `'k`, inside it.
        found(got, (member, score))
            .transpose()
            .map(|found| found.map(|(m, score)| (unsafe { m.lent() }, score)))
    }
}

impl<'k> Entries<'k> {
    /// The next entry; `None` at the end.
    ///
    /// # Errors
    /// [`Fault::TooMany`] if the call has 64 MiB of copies.
    pub fn next_entry(&mut self) -> Result<Option<Entry<'_, 'k>>, Fault> {
        let (mut id, mut fields) = (StreamId { ms: 0, seq: 0 }, 0);
        // SAFETY: both results are valid for writes.
        let got =
            unsafe { server::kv_stream_next(self.0.kv.raw(), self.0.number, &raw mut id, &raw mut fields) };
        Ok(found(got, ())?.map(|()| Entry { id, fields, open: &self.0 }))
    }
}

/// A field and its value.
type Pair<'k> = (&'k [u8], &'k [u8]);

/// The next field and its value.
fn next_pair<'k>(open: &Open<'k>) -> Option<Result<Pair<'k>, Fault>> {
    let (mut field, mut value) = (Bytes::EMPTY, Bytes::EMPTY);
    // SAFETY: both results are valid for writes.
    let got = unsafe { server::kv_pair_next(open.kv.raw(), open.number, &raw mut field, &raw mut value) };
    // SAFETY: the copies stay until the call ends, and `Kv` is borrowed for `'k`, inside it.
    found(got, ()).transpose().map(|found| found.map(|()| unsafe { (field.lent(), value.lent()) }))
}

impl<'k> Iterator for Entry<'_, 'k> {
    type Item = Result<Pair<'k>, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        next_pair(self.open)
    }
}

impl<'k> Iterator for Pairs<'k> {
    type Item = Result<Pair<'k>, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        next_pair(&self.0)
    }
}

impl<'k> Iterator for Names<'k> {
    type Item = Result<&'k [u8], Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut name = Bytes::EMPTY;
        // SAFETY: the result is valid for a write.
        let got = unsafe { server::kv_name_next(self.open.kv.raw(), self.open.number, &raw mut name) };
        // SAFETY: the copy stays until the call ends, and `Kv` is borrowed for `'k`, inside it.
        found(got, ()).transpose().map(|found| found.map(|()| unsafe { name.lent() }))
    }
}
