//! Reading.

use std::ffi::c_int;

use super::fault::{Code, Fault, shown};
use super::{Bytes, Copy, Kv, MOST_LENT, beyond_call, other_slot};
use crate::api::{CallFlags, Context, Cursor, Item, Key, MAX_CURSORS, Str, StreamId, key_type};
use crate::code_key::slot_of_key;

/// The next element of a cursor, lent.
pub(super) enum Element {
    Scored(Bytes, f64),
    Entry(StreamId, usize),
    Pair(Bytes, Bytes),
    One(Bytes),
}

impl Kv {
    /// Opens `key` for `read`. `None` if there is no such key. `command` is the command that makes the same read, with
    /// `more` arguments.
    #[inline]
    fn look_up<T>(
        &self,
        (command, more): (&str, usize),
        key: &[u8],
        read: impl FnOnce(&Key<'_>) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        let mut state = self.state.borrow_mut();
        state.check_read(command, key, more)?;
        let name = state.name(key);
        let (in_cluster, slot) = (state.in_cluster, state.slot);
        drop(state);
        let found = self.lent.with(|context| {
            if in_cluster {
                check_slot(context, key, slot)?;
            }
            context.open(&name).map(|key| read(&key)).transpose()
        });
        let found =
            found.unwrap_or_else(|| Err(Fault::new(Code::NoCall, "no function runs on this thread")))?;
        if found.is_some() {
            self.state.borrow_mut().keep_name(name, key.len());
        }
        Ok(found)
    }

    /// Returns the type of a key. `None` if there is no such key.
    pub(super) fn kind(&self, key: &[u8]) -> Result<Option<c_int>, Fault> {
        self.look_up(("type", 0), key, |key| Ok(key.kind()))
    }

    /// Number of elements of a key, or bytes of a string.
    pub(super) fn len(&self, key: &[u8]) -> Result<Option<usize>, Fault> {
        self.look_up(("type", 0), key, |key| Ok(key.len()))
    }

    /// Returns the bytes of a string, in place.
    #[inline]
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Fault> {
        self.look_up(("get", 0), key, |open| match open.string() {
            Some((data, len)) => Ok(Bytes { data, len }),
            None => Err(wrong_type(key, "string")),
        })
    }

    /// The value of a hash's field.
    pub(super) fn hget(&self, key: &[u8], field: &[u8]) -> Result<Option<Bytes>, Fault> {
        let found = self.look_up(("hget", 1), key, |open| {
            is(open, key, key_type::HASH, "hash")?;
            Ok(open.field(&Str::new(field)))
        })?;
        self.lend_found(found.flatten())
    }

    /// An element of a list.
    pub(super) fn lindex(&self, key: &[u8], index: i64) -> Result<Option<Bytes>, Fault> {
        let found = self.look_up(("lindex", 1), key, |open| {
            is(open, key, key_type::LIST, "list")?;
            Ok(open.element(index))
        })?;
        self.lend_found(found.flatten())
    }

    /// The score of a sorted set's member.
    pub(super) fn zscore(&self, key: &[u8], member: &[u8]) -> Result<Option<f64>, Fault> {
        let found = self.look_up(("zscore", 1), key, |open| {
            is(open, key, key_type::ZSET, "sorted set")?;
            Ok(open.score(&Str::new(member)))
        })?;
        Ok(found.flatten())
    }

    fn lend_found(&self, found: Option<Str>) -> Result<Option<Bytes>, Fault> {
        let Some(found) = found else { return Ok(None) };
        self.act_at_end();
        self.state.borrow_mut().lend(Copy::Str(found)).map(Some)
    }

    /// Opens a cursor over the elements of a key; `None` if there is no such key.
    fn open_cursor(
        &self,
        (command, more): (&str, usize),
        key: &[u8],
        (kind, word): (c_int, &str),
        make: impl for<'c> FnOnce(Key<'c>) -> Result<Cursor<'c>, Fault>,
    ) -> Result<Option<u64>, Fault> {
        let mut state = self.state.borrow_mut();
        state.check_read(command, key, more)?;
        let (number, in_cluster, slot) = (state.next, state.in_cluster, state.slot);
        state.next += 1;
        drop(state);
        let name = Str::new(key);
        let mut outcome = Ok(());
        let opened = self.lent.open(number, |context| {
            let found = || -> Result<Option<Cursor<'_>>, Fault> {
                if in_cluster {
                    check_slot(context, key, slot)?;
                }
                let Some(open) = context.open(&name) else { return Ok(None) };
                is(&open, key, kind, word)?;
                make(open).map(Some)
            };
            match found() {
                Ok(cursor) => cursor,
                Err(fault) => {
                    outcome = Err(fault);
                    None
                }
            }
        });
        outcome?;
        if opened.is_none() && self.lent.are_too_many() {
            let text = format!("{MAX_CURSORS} cursors are open: close some by kv_close");
            return Err(Fault::new(Code::TooMany, text));
        }
        self.act_at_end();
        Ok(opened.map(|()| number))
    }

    /// A cursor over the members of a sorted set with scores from `min` to `max`.
    pub(super) fn zrange(&self, key: &[u8], min: f64, max: f64, reverse: bool) -> Result<Option<u64>, Fault> {
        if min.is_nan() || max.is_nan() {
            return Err(Fault::new(Code::BadArgument, "a bound of the scores is no number"));
        }
        self.open_cursor(("zrangebyscore", 2), key, (key_type::ZSET, "sorted set"), |open| {
            Cursor::scores(open, min, max, reverse).ok_or_else(|| no_cursor(key))
        })
    }

    /// A cursor over the entries of a stream.
    pub(super) fn xrange(
        &self,
        key: &[u8],
        first: StreamId,
        last: StreamId,
        reverse: bool,
    ) -> Result<Option<u64>, Fault> {
        self.open_cursor(("xrange", 2), key, (key_type::STREAM, "stream"), |open| {
            Cursor::entries(open, first, last, reverse).ok_or_else(|| no_cursor(key))
        })
    }

    /// A cursor over the fields of a hash.
    pub(super) fn fields(&self, key: &[u8]) -> Result<Option<u64>, Fault> {
        self.open_cursor(("hgetall", 0), key, (key_type::HASH, "hash"), |open| {
            Cursor::copies(&open, MOST_LENT).ok_or_else(|| too_large(key))
        })
    }

    /// A cursor over the members of a set.
    pub(super) fn members(&self, key: &[u8]) -> Result<Option<u64>, Fault> {
        self.open_cursor(("smembers", 0), key, (key_type::SET, "set"), |open| {
            Cursor::copies(&open, MOST_LENT).ok_or_else(|| too_large(key))
        })
    }

    /// Returns a cursor over the names that begin with `prefix`, among about `most` keys from `position` on, and the
    /// next position, 0 at the end.
    pub(super) fn scan(&self, prefix: &[u8], most: usize, position: u64) -> Result<(u64, u64), Fault> {
        let mut pattern = Vec::with_capacity(prefix.len() + 1);
        for &byte in prefix {
            if matches!(byte, b'*' | b'?' | b'[' | b']' | b'\\' | b'^') {
                pattern.push(b'\\');
            }
            pattern.push(byte);
        }
        pattern.push(b'*');
        let (position, most) = (position.to_string(), most.max(1).to_string());
        let words: [&[u8]; 6] = [b"scan", position.as_bytes(), b"match", &pattern, b"count", most.as_bytes()];
        self.check_command(&words)?;
        if self.state.borrow().slot.is_some() {
            let text = "kv_scan looks at all slots: in a cluster call the function by FJ.CALL without keys, or by a link";
            return Err(Fault::new(Code::OtherSlot, text));
        }
        let args: Vec<Str> = words[1..].iter().map(|word| Str::new(word)).collect();
        let answer = self.lent.with(|context| context.call(c"scan", &CallFlags::READ, &args)).flatten();
        let Some(answer) = answer else {
            return Err(Fault::new(Code::Failed, "the server did not run SCAN"));
        };
        if let Some(error) = answer.error() {
            return Err(Fault::new(Code::Failed, error));
        }
        let next = answer.root().element(0).map_or(&b""[..], |next| next.bytes());
        let next = std::str::from_utf8(next).ok().and_then(|next| next.parse().ok()).unwrap_or(0);
        let names = answer.root().element(1);
        let names = (0..names.map_or(0, |names| names.len())).filter_map(|index| names?.element(index));
        let names: Vec<Item> = names.map(|name| Item::One(name.bytes().to_vec())).collect();
        let mut state = self.state.borrow_mut();
        let number = state.next;
        state.next += 1;
        drop(state);
        if self.lent.open(number, |_| Some(Cursor::of(names))).is_none() {
            let text = format!("{MAX_CURSORS} cursors are open: close some by kv_close");
            return Err(Fault::new(Code::TooMany, text));
        }
        self.act_at_end();
        Ok((number, next))
    }

    /// The next element of a cursor; `None` at its end.
    pub(super) fn next(&self, cursor: u64) -> Result<Option<Element>, Fault> {
        self.advance(cursor, |cursor| cursor.next())
    }

    /// Returns the next field of the entry at a stream's cursor.
    pub(super) fn next_field(&self, cursor: u64) -> Result<Option<Element>, Fault> {
        self.advance(cursor, |cursor| cursor.next_field())
    }

    fn advance(
        &self,
        cursor: u64,
        step: impl FnOnce(&mut Cursor<'_>) -> Option<Item>,
    ) -> Result<Option<Element>, Fault> {
        let item = self.lent.with_cursor(cursor, step).ok_or_else(|| stale("cursor"))?;
        let Some(item) = item else { return Ok(None) };
        let mut state = self.state.borrow_mut();
        Ok(Some(match item {
            Item::Scored(member, score) => Element::Scored(state.lend(Copy::Str(member))?, score),
            Item::Entry(id, fields) => Element::Entry(id, fields),
            Item::Pair(field, value) => {
                Element::Pair(state.lend(Copy::Str(field))?, state.lend(Copy::Str(value))?)
            }
            Item::Copied(field, value) => {
                Element::Pair(state.lend(Copy::Vec(field))?, state.lend(Copy::Vec(value))?)
            }
            Item::One(name) => Element::One(state.lend(Copy::Vec(name))?),
        }))
    }

    /// Returns whether a cursor is over the entries of a stream.
    pub(super) fn is_stream(&self, cursor: u64) -> bool {
        let is_stream = |cursor: &mut Cursor<'_>| matches!(cursor, Cursor::Entries { .. });
        self.lent.with_cursor(cursor, is_stream).unwrap_or(false)
    }

    pub(super) fn close(&self, cursor: u64) -> Result<(), Fault> {
        if self.lent.close(cursor) { Ok(()) } else { Err(stale("cursor")) }
    }
}

#[cold]
pub(super) fn stale(what: &str) -> Fault {
    let text = format!("the {what} is of an earlier call, is closed, or was ended by a write: open it again");
    Fault::new(Code::Stale, text)
}

#[cold]
fn wrong_type(key: &[u8], word: &str) -> Fault {
    Fault::new(Code::WrongType, format!("key {} is no {word}", shown(key)))
}

#[cold]
fn no_cursor(key: &[u8]) -> Fault {
    Fault::new(Code::Failed, format!("the server does not iterate over key {}", shown(key)))
}

#[cold]
fn too_large(key: &[u8]) -> Fault {
    let text =
        format!("key {} has more than {} MiB of elements: read them by name", shown(key), MOST_LENT >> 20);
    Fault::new(Code::TooMany, text)
}

/// Checks a key's type.
fn is(open: &Key<'_>, key: &[u8], kind: c_int, word: &str) -> Result<(), Fault> {
    if open.kind() == kind { Ok(()) } else { Err(wrong_type(key, word)) }
}

/// Checks that a key is this node's, and of the call's slot if it has one. The server checks only commands, and not
/// keys that a module opens.
fn check_slot(context: &Context<'_>, key: &[u8], slot: Option<u16>) -> Result<(), Fault> {
    if slot.is_some_and(|slot| slot != slot_of_key(key)) {
        return Err(beyond_call(key));
    }
    let answer = context.call(c"exists", &CallFlags::READ, &[Str::new(key)]);
    match answer.and_then(|answer| answer.error()) {
        None => Ok(()),
        Some(_) => Err(other_slot(key)),
    }
}
