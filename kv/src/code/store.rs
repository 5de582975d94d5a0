//! The keys that hold code: one, or in a cluster one in a slot of each node.

use std::cmp::Reverse;

use super::seals::Seal;
use crate::api::{self, CallFlags, Context, Key, Str, context_flags};
use crate::code_key::{KEY, SLOTS, key_in, slot_of_key};

/// Least time between two searches of all keys that may have code, in microseconds. One search takes about a
/// millisecond.
pub(super) const LEAST_BETWEEN: u64 = 50_000;

/// A key that may have code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// [`KEY`].
    Key,
    /// The key in this slot.
    Slot(u16),
}

/// The keys with code that this node is known to have.
#[derive(Default)]
pub(super) struct Store {
    /// The known keys of a cluster's node.
    known: Vec<Place>,
    /// The time of the last search of all keys, by the server's clock.
    looked: Option<u64>,
}

impl Place {
    /// The key's name.
    pub(super) fn name(self) -> Vec<u8> {
        match self {
            Place::Key => KEY.to_vec(),
            Place::Slot(slot) => key_in(slot),
        }
    }

    /// A copy of the field of a name.
    pub(super) fn field(self, context: &Context<'_>, prefix: &[u8], name: &[u8]) -> Option<Str> {
        let key_name = Str::new(&self.name());
        let key = context.open(&key_name).filter(Key::is_hash)?;
        key.field(&Str::new(&field(prefix, name)))
    }

    /// Returns whether the key has code of this name.
    pub(super) fn has(self, context: &Context<'_>, name: &[u8]) -> bool {
        self.field(context, b"c:", name).is_some()
    }

    /// The seal of a name, valid or not.
    pub(super) fn seal(self, context: &Context<'_>, name: &[u8]) -> Option<Seal> {
        let key_name = Str::new(&self.name());
        let key = context.open(&key_name).filter(Key::is_hash)?;
        seal_in(&key, name)
    }

    /// Names for which the key has a seal, valid or not.
    pub(super) fn sealed_names(self, context: &Context<'_>) -> Vec<Vec<u8>> {
        let key_name = Str::new(&self.name());
        let key = context.open(&key_name).filter(Key::is_hash);
        key.map_or_else(Vec::new, |key| key.field_names(b"s:"))
    }

    /// The place of a key; `None` for a key that has no code of this module's.
    pub(super) fn of_key(key: &[u8]) -> Option<Place> {
        if key == KEY {
            return Some(Place::Key);
        }
        let slot = slot_of_key(key);
        (key.starts_with(KEY) && key == key_in(slot)).then_some(Place::Slot(slot))
    }

    /// Returns whether the key would be this server's: in a cluster, whether the node has its slot. A replica has only
    /// its primary's keys.
    pub(super) fn is_own(self, context: &Context<'_>) -> bool {
        if !context.in_cluster() || context.flags() & context_flags::REPLICA != 0 {
            return true;
        }
        let answer = context.call(c"exists", &CallFlags::READ, &[Str::new(&self.name())]);
        answer.is_some_and(|answer| answer.error().is_none())
    }

    /// Writes the fields of a name.
    ///
    /// # Errors
    /// The server's reason for refusing.
    pub(super) fn put(
        self,
        context: &Context<'_>,
        name: &[u8],
        library: &[u8],
        seal: &[u8],
    ) -> Result<(), String> {
        let words = [&self.name()[..], &field(b"c:", name), library, &field(b"s:", name), seal];
        write(context, c"hset", &words)
    }

    /// Removes the fields of a name.
    ///
    /// # Errors
    /// The server's reason for refusing.
    pub(super) fn remove(self, context: &Context<'_>, name: &[u8]) -> Result<(), String> {
        let words = [&self.name()[..], &field(b"c:", name), &field(b"s:", name)];
        write(context, c"hdel", &words)
    }

    /// Removes the code of a name, and leaves the seal of its deletion: replicas take no older code from then on. The
    /// seal comes first, because replicas note it when it is written.
    ///
    /// # Errors
    /// The server's reason for refusing.
    pub(super) fn delete(self, context: &Context<'_>, name: &[u8], seal: &[u8]) -> Result<(), String> {
        write(context, c"hset", &[&self.name()[..], &field(b"s:", name), seal])?;
        write(context, c"hdel", &[&self.name()[..], &field(b"c:", name)])
    }

    /// Names of the code in the key.
    pub(super) fn names(self, context: &Context<'_>) -> Vec<Vec<u8>> {
        let fields = context.call(c"hkeys", &CallFlags::READ, &[Str::new(&self.name())]);
        let Some(fields) = &fields else { return Vec::new() };
        let fields = fields.root();
        let all = (0..fields.len()).filter_map(|index| fields.element(index));
        all.filter_map(|field| field.bytes().strip_prefix(b"c:")).map(<[u8]>::to_vec).collect()
    }
}

impl Store {
    /// The known keys with code. In a cluster, those that are still this node's.
    pub(super) fn known(&mut self, context: &Context<'_>) -> Vec<Place> {
        if !context.in_cluster() {
            return vec![Place::Key];
        }
        self.known.retain(|place| place.is_own(context));
        self.known.clone()
    }

    /// All keys with code, after a search of every possible one.
    pub(super) fn all(&mut self, context: &Context<'_>) -> Vec<Place> {
        if context.in_cluster() {
            self.looked = Some(api::now());
            present(context).filter(|place| place.is_own(context)).for_each(|place| self.add(place));
        }
        self.known(context)
    }

    /// Notes a key with code of this node.
    pub(super) fn add(&mut self, place: Place) {
        if !self.known.contains(&place) {
            self.known.push(place);
        }
    }

    /// Returns whether all keys may be searched again.
    pub(super) fn is_due(&self) -> bool {
        self.looked.is_none_or(|looked| api::now() - looked >= LEAST_BETWEEN)
    }

    /// Returns the keys that have code of this name, that of the highest generation first. Searches all keys if the
    /// known ones have none, at a limited rate.
    pub(super) fn find(&mut self, context: &Context<'_>, name: &[u8]) -> Vec<Place> {
        let has = |place: &Place| place.has(context, name);
        let mut found: Vec<Place> = self.known(context).into_iter().filter(has).collect();
        if found.is_empty() && context.in_cluster() && self.is_due() {
            found = self.all(context).into_iter().filter(has).collect();
        }
        found.sort_by_cached_key(|place| Reverse(place.seal(context, name).map(Seal::generation)));
        found
    }

    /// Returns the key to write to. `None` if this node has no slot, or does not know the cluster.
    pub(super) fn writable(&mut self, context: &Context<'_>) -> Option<Place> {
        if let Some(known) = self.known(context).first() {
            return Some(*known);
        }
        // The last slot: slots that move to other nodes are mostly the first ones.
        let place = (0..SLOTS).rev().map(Place::Slot).find(|place| place.is_own(context))?;
        self.known.push(place);
        Some(place)
    }
}

/// Returns the existing keys with code, in a cluster whether or not the node has their slot. Opening a key checks no
/// slot, and takes a fraction of a command's time.
pub(super) fn present(context: &Context<'_>) -> impl Iterator<Item = Place> {
    let slots = if context.in_cluster() { SLOTS } else { 0 };
    let all = std::iter::once(Place::Key).chain((0..slots).map(Place::Slot));
    all.filter(|place| context.open(&Str::new(&place.name())).is_some())
}

/// Returns the seal of a name in a key with code, valid or not.
pub(super) fn seal_in(key: &Key<'_>, name: &[u8]) -> Option<Seal> {
    key.field(&Str::new(&field(b"s:", name))).and_then(|found| Seal::read(found.bytes()))
}

/// Refuses work on keys of other slots where Valkey would read and write them in the wrong slot.
pub(super) fn refuse_together(context: &Context<'_>) -> Result<(), String> {
    const TOGETHER: std::ffi::c_int = context_flags::SCRIPT | context_flags::MULTI;
    match context.in_cluster() && context.flags() & TOGETHER != 0 {
        true => Err("in a cluster FJ.LOAD and FJ.DELETE are for themselves: take them out of the transaction or script".to_owned()),
        false => Ok(()),
    }
}

/// Returns whether the server may write for itself.
pub(super) fn may_write(context: &Context<'_>) -> bool {
    const NO: std::ffi::c_int = context_flags::READONLY | context_flags::REPLICA | context_flags::OOM;
    !api::must_not_write() && context.flags() & NO == 0
}

/// The name of a field.
pub(super) fn field(prefix: &[u8], name: &[u8]) -> Vec<u8> {
    [prefix, name].concat()
}

/// Runs a command that writes a key.
fn write(context: &Context<'_>, command: &'static std::ffi::CStr, words: &[&[u8]]) -> Result<(), String> {
    if api::must_not_write() {
        return Err("the server holds writes back (CLIENT PAUSE, or a failover): try again later".to_owned());
    }
    let words: Vec<Str> = words.iter().map(|word| Str::new(word)).collect();
    let answer = context.call(command, &CallFlags::WRITE, &words);
    let answer = answer.ok_or_else(|| "the server did not write the code's key".to_owned())?;
    match answer.error() {
        None => Ok(()),
        Some(error) => Err(error),
    }
}
