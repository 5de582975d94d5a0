//! Keys with code that commands about data have removed, moved or copied. This module writes the code again.
//!
//! FLUSHALL, FLUSHDB, DEL, RENAME and MOVE remove a key, and SWAPDB moves it to another database. In a cluster a key
//! goes with its slot, and the keys of slots that come from another node are copies beside the node's own. Writing
//! waits for the hook before the loop's sleep. A write inside an event would reach replicas before the command that
//! caused the event.

use std::cell::{Cell, RefCell};

use super::seals::{Content, Named, Seal};
use super::store::{LEAST_BETWEEN, Place, may_write};
use super::{Code, named};
use crate::api::{self, Context};

/// The events of keys with code since the last repair. Events may come while code runs.
#[derive(Default)]
pub(crate) struct Happened {
    /// Whether some keys may be gone.
    are_lost: Cell<bool>,
    /// Databases that have changed places.
    swapped: RefCell<Vec<(i32, i32)>>,
    /// Keys of a cluster that others than this module have written.
    arrived: RefCell<Vec<Place>>,
}

impl Happened {
    /// Notes that keys may be gone.
    pub(crate) fn lost(&self) {
        self.are_lost.set(true);
    }

    /// Notes that two databases have changed places.
    pub(crate) fn swapped(&self, first: i32, second: i32) {
        add(&self.swapped, (first, second));
    }

    /// Notes that a key of a cluster was written, but not by this module.
    pub(super) fn arrived(&self, place: Place) {
        add(&self.arrived, place);
    }

    /// Returns whether a database may have the code of another.
    pub(super) fn has_swapped(&self, database: i32) -> bool {
        self.swapped.borrow().iter().any(|(first, second)| [*first, *second].contains(&database))
    }

    pub(super) fn wants_look(&self) -> bool {
        self.are_lost.get() || !self.swapped.borrow().is_empty() || !self.arrived.borrow().is_empty()
    }
}

fn add<T: PartialEq>(to: &RefCell<Vec<T>>, new: T) {
    let mut all = to.borrow_mut();
    if !all.contains(&new) {
        all.push(new);
    }
}

impl Code {
    /// The events of keys with code.
    pub(crate) fn happened(&self) -> &std::rc::Rc<Happened> {
        &self.happened
    }

    /// Returns all keys with code of this server. In a cluster, marks all but the node's own key for merging.
    pub(super) fn all(&mut self, context: &Context<'_>) -> Vec<Place> {
        let places = self.store.all(context);
        if self.key.is_some() {
            places.iter().skip(1).for_each(|place| self.happened.arrived(*place));
        }
        places
    }

    /// Restores the contents of keys with code, if the server may write, and has not tried just now.
    pub(super) fn restore(&mut self, context: &Context<'_>) {
        let now = api::now();
        if self.restored.is_some_and(|last| now - last < LEAST_BETWEEN) || !may_write(context) {
            return;
        }
        self.restored = Some(now);
        let (are_lost, swapped) = (self.happened.are_lost.take(), self.happened.swapped.take());
        let mut done = Ok(());
        if are_lost || !swapped.is_empty() {
            let all = self.newest.all();
            for (of, seal, _) in &all {
                done = done.and(remove_elsewhere(context, of, *seal, &swapped));
            }
            for (of, seal, content) in all {
                let has_swapped = swapped.iter().any(|(first, second)| [*first, *second].contains(&of.0));
                let put =
                    context.in_database(of.0, || self.put_again(context, &of, seal, &content, has_swapped));
                done = done.and(put.unwrap_or(Ok(())));
            }
        }
        done = done.and(self.merge(context));
        match done {
            Ok(()) => self.has_complained = false,
            // Each call of such code tries again, so the log has this only once.
            Err(_) if self.has_complained => {}
            Err(error) => {
                self.has_complained = true;
                log::warn!("loaded code runs from memory, and is in no key: {error}");
            }
        }
    }

    /// Writes the code or deletion of a name, if its key lacks it. Fields that others have put there stay, and calls
    /// report the fault in them.
    fn put_again(
        &mut self,
        context: &Context<'_>,
        of: &Named,
        seal: Seal,
        content: &Content,
        has_swapped: bool,
    ) -> Result<(), String> {
        let name = &of.1;
        let places = self.store.known(context);
        let found = places.iter().find_map(|place| Some((*place, place.seal(context, name)?)));
        let place = match found {
            Some((place, there)) if there == seal => {
                let is_whole = !matches!(content, Content::Library(_)) || place.has(context, name);
                (!is_whole).then_some(place)
            }
            Some((place, _)) => has_swapped.then_some(place),
            None => self.store.writable(context),
        };
        place.map_or(Ok(()), |place| put(context, place, name, seal, content))
    }

    /// Moves the code of all keys that have come with slots into the node's own key.
    fn merge(&mut self, context: &Context<'_>) -> Result<(), String> {
        let arrived = self.happened.arrived.take();
        let arrived = arrived.into_iter().filter(|place| !place.sealed_names(context).is_empty());
        let (here, coming): (Vec<_>, Vec<_>) = arrived.partition(|place| place.is_own(context));
        // The slots of these keys are on their way.
        coming.into_iter().for_each(|place| self.happened.arrived(place));
        here.iter().for_each(|place| self.store.add(*place));
        let Some(own) = self.store.known(context).first().copied() else { return Ok(()) };
        let mut done = Ok(());
        for place in here.into_iter().filter(|place| *place != own) {
            for name in place.sealed_names(context) {
                done = done.and(self.merge_name(context, own, place, &name));
            }
        }
        done
    }

    fn merge_name(
        &mut self,
        context: &Context<'_>,
        own: Place,
        place: Place,
        name: &[u8],
    ) -> Result<(), String> {
        let of = named(context, name);
        self.learn_name(context, place, &of);
        let (Some(key), Some(seal)) = (self.key, place.seal(context, name)) else { return Ok(()) };
        let library = place.field(context, b"c:", name);
        let is_right = seal.is_of(&key, &of, None)
            || library.is_some_and(|library| seal.is_of(&key, &of, Some(library.bytes())));
        if !is_right {
            return Ok(());
        }
        if let Some((newest, content)) = self.newest.get(&of)
            && own.seal(context, name) != Some(newest)
        {
            put(context, own, name, newest, &content)?;
        }
        place.remove(context, name)
    }
}

/// Writes the fields of a name.
fn put(
    context: &Context<'_>,
    place: Place,
    name: &[u8],
    seal: Seal,
    content: &Content,
) -> Result<(), String> {
    match content {
        Content::Library(library) => place.put(context, name, library, &seal.to_bytes()),
        Content::Deleted => place.delete(context, name, &seal.to_bytes()),
        Content::Gone => Ok(()),
    }
}

/// Removes the code of a database from the databases with which it has changed places.
fn remove_elsewhere(
    context: &Context<'_>,
    of: &Named,
    seal: Seal,
    swapped: &[(i32, i32)],
) -> Result<(), String> {
    let others = swapped.iter().filter_map(|pair| match *pair {
        (first, second) if first == of.0 => Some(second),
        (first, second) if second == of.0 => Some(first),
        _ => None,
    });
    let mut done = Ok(());
    for other in others {
        let remove = || match Place::Key.seal(context, &of.1) == Some(seal) {
            true => Place::Key.remove(context, &of.1),
            false => Ok(()),
        };
        done = done.and(context.in_database(other, remove).unwrap_or(Ok(())));
    }
    done
}
