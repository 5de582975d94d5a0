//! Elements of keys, one after the other.

use std::ffi::{c_long, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::api::functions::functions;
use crate::api::keys::Key;
use crate::api::strings::{Str, bytes_of};
use crate::api::types::{OK, RawKey, RawString, STREAM_REVERSE, StreamId};

/// The element at a cursor.
#[derive(Debug)]
pub(crate) enum Item {
    /// A member of a sorted set, and its score.
    Scored(Str, f64),
    /// The next entry of a stream, and the number of its fields.
    Entry(StreamId, usize),
    /// A field of a hash or of a stream's entry, and its value.
    Pair(Str, Str),
    /// A member of a set, or the name of a key.
    One(Vec<u8>),
    /// A field of a hash, and its value.
    Copied(Vec<u8>, Vec<u8>),
}

/// An iteration over the elements of an open key, or over copied elements.
#[derive(Debug)]
pub(crate) enum Cursor<'c> {
    /// The members of a sorted set in a range of scores.
    Scores { key: Key<'c>, reverse: bool, begun: bool },
    /// The entries of a stream.
    Entries { key: Key<'c>, fields: usize },
    /// Copied elements.
    Copies(std::vec::IntoIter<Item>),
}

impl<'c> Cursor<'c> {
    /// The members of a sorted set whose scores are at least `min` and at most `max`. The caller has checked the key's type.
    pub(crate) fn scores(key: Key<'c>, min: f64, max: f64, reverse: bool) -> Option<Cursor<'c>> {
        let first = match reverse {
            false => functions().zset_first_in_score_range(),
            true => functions().zset_last_in_score_range(),
        };
        // SAFETY: the key is open, and the server checks its type.
        let started = unsafe { first(key.raw(), min, max, 0, 0) };
        (started == OK).then_some(Cursor::Scores { key, reverse, begun: false })
    }

    /// The entries of a stream from `first` to `last`. The caller has checked the key's type.
    pub(crate) fn entries(
        key: Key<'c>,
        first: StreamId,
        last: StreamId,
        reverse: bool,
    ) -> Option<Cursor<'c>> {
        let (mut first, mut last) = (first, last);
        let flags = if reverse { STREAM_REVERSE } else { 0 };
        // SAFETY: the key is open, and the server checks its type. It copies both ids.
        let started =
            unsafe { functions().stream_iterator_start()(key.raw(), flags, &raw mut first, &raw mut last) };
        (started == OK).then_some(Cursor::Entries { key, fields: 0 })
    }

    /// Copies of a hash's fields and values, or of a set's members: at most `most` bytes. `None` if there are more. The
    /// caller has checked the key's type.
    pub(crate) fn copies(key: &Key<'_>, most: usize) -> Option<Cursor<'static>> {
        let mut copied = Copied { items: Vec::new(), space: Some(most) };
        let is_whole = scan(key, &mut |name, value| copied.add(name, value));
        is_whole.then(|| Cursor::Copies(copied.items.into_iter()))
    }

    /// Returns a cursor over copied elements.
    pub(crate) fn of(items: Vec<Item>) -> Cursor<'static> {
        Cursor::Copies(items.into_iter())
    }

    /// The next element; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Item> {
        // The server finds the next entry from the end of this one. Backwards, it would end if fields were left out.
        while self.next_field().is_some() {}
        match self {
            Cursor::Scores { key, reverse, begun } => {
                if std::mem::replace(begun, true) {
                    let step =
                        if *reverse { functions().zset_range_prev() } else { functions().zset_range_next() };
                    // SAFETY: the key is open, and its iteration was started.
                    unsafe { step(key.raw()) };
                }
                // SAFETY: as above.
                if unsafe { functions().zset_range_end_reached()(key.raw()) } != 0 {
                    return None;
                }
                let mut score = 0.0;
                // SAFETY: as above. The reference to the member is the caller's.
                let member = unsafe {
                    Str::owned(functions().zset_range_current_element()(key.raw(), &raw mut score))
                };
                member.map(|member| Item::Scored(member, score))
            }
            Cursor::Entries { key, fields } => {
                let (mut id, mut count): (StreamId, c_long) = (StreamId { ms: 0, seq: 0 }, 0);
                // SAFETY: the key is open, and its iteration was started.
                let found =
                    unsafe { functions().stream_iterator_next_id()(key.raw(), &raw mut id, &raw mut count) };
                *fields = if found == OK { usize::try_from(count).unwrap_or(0) } else { 0 };
                (found == OK).then_some(Item::Entry(id, *fields))
            }
            Cursor::Copies(items) => items.next(),
        }
    }

    /// Returns the next field of the stream's entry at the cursor. `None` if there is none left.
    pub(crate) fn next_field(&mut self) -> Option<Item> {
        let Cursor::Entries { key, fields } = self else { return None };
        *fields = fields.checked_sub(1)?;
        let (mut field, mut value): (*mut RawString, *mut RawString) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the key is open, and its iteration stands at an entry with more fields.
        let found =
            unsafe { functions().stream_iterator_next_field()(key.raw(), &raw mut field, &raw mut value) };
        if found != OK {
            return None;
        }
        // SAFETY: both references are the caller's.
        let (field, value) = unsafe { (Str::owned(field), Str::owned(value)) };
        Some(Item::Pair(field?, value?))
    }
}

impl Drop for Cursor<'_> {
    fn drop(&mut self) {
        match self {
            // SAFETY: the key is open, and its iteration was started.
            Cursor::Scores { key, .. } => unsafe { functions().zset_range_stop()(key.raw()) },
            // SAFETY: as above.
            Cursor::Entries { key, .. } => unsafe {
                functions().stream_iterator_stop()(key.raw());
            },
            Cursor::Copies(_) => {}
        }
    }
}

/// Elements copied so far.
struct Copied {
    items: Vec<Item>,
    /// Bytes that may still come. `None` once there were too many.
    space: Option<usize>,
}

impl Copied {
    /// Copies an element. Returns whether there was space for it.
    fn add(&mut self, name: &[u8], value: Option<&[u8]>) -> bool {
        // Each element also costs its two vectors.
        let len = name.len() + value.map_or(0, <[u8]>::len) + size_of::<Item>();
        self.space = self.space.and_then(|space| space.checked_sub(len));
        if self.space.is_some() {
            self.items.push(match value {
                Some(value) => Item::Copied(name.to_vec(), value.to_vec()),
                None => Item::One(name.to_vec()),
            });
        }
        self.space.is_some()
    }
}

impl Key<'_> {
    /// Returns the names of a hash's fields that begin with `prefix`, without the prefix. The caller has checked the
    /// key's type.
    pub(crate) fn field_names(&self, prefix: &[u8]) -> Vec<Vec<u8>> {
        let mut names = Vec::new();
        scan(self, &mut |field, _| {
            names.extend(field.strip_prefix(prefix).map(<[u8]>::to_vec));
            true
        });
        names
    }
}

/// A function that takes an element: a field of a hash and its value, or a member of a set. It returns whether to
/// continue.
type Taker<'t> = &'t mut dyn FnMut(&[u8], Option<&[u8]>) -> bool;

/// A function that takes the elements of a key, and whether it has always continued.
struct Scan<'s> {
    element: Taker<'s>,
    continued: bool,
}

/// Calls `element` with each element of a hash or a set, as long as it returns `true`. Returns whether it always did.
/// The caller has checked the key's type.
fn scan(key: &Key<'_>, element: Taker<'_>) -> bool {
    let mut scan = Scan { element, continued: true };
    // SAFETY: the function takes no arguments.
    let cursor = unsafe { functions().scan_cursor_create()() };
    // SAFETY: key and cursor are alive. The server calls the callback only inside this call, on this thread, with this
    // address.
    while unsafe { functions().scan_key()(key.raw(), cursor, give_element, (&raw mut scan).cast()) } != 0
        && scan.continued
    {}
    // SAFETY: the cursor was made above, and is not used after this.
    unsafe { functions().scan_cursor_destroy()(cursor) };
    scan.continued
}

/// The callback that the server calls for an element of a hash or a set.
unsafe extern "C" fn give_element(
    _key: *mut RawKey,
    field: *mut RawString,
    value: *mut RawString,
    scan: *mut c_void,
) {
    // SAFETY: `scan` passes the address of one, which nothing else uses meanwhile.
    let scan = unsafe { &mut *scan.cast::<Scan<'_>>() };
    // SAFETY: the server lends both strings for this call; a set's members have no value.
    let (name, value) =
        unsafe { (bytes_of(field), if value.is_null() { None } else { Some(bytes_of(value)) }) };
    if scan.continued {
        let went_on = catch_unwind(AssertUnwindSafe(|| (scan.element)(name, value)));
        scan.continued = went_on.unwrap_or(false);
    }
}
