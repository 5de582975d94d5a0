//! What a link's target knows of the code that this source has used.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use farjump_control::MAX_CODE;
use farjump_core::channel::Stamp;
use farjump_core::image::{CodeId, Machine};
use farjump_loader::{Library, LibraryIdentity, LibraryImage, Linked};

use crate::{Error, Mode};

/// The code that a link has used. The position is the code index; indices are never reused within a link, and the target
/// binds them in the order of frames.
#[derive(Debug, Default)]
pub(crate) struct Codes {
    entries: Vec<Code>,
    by_id: HashMap<CodeId, u16>,
    /// The library used last with its index, if calls of it need nothing but the index: a program that injects one function
    /// again and again pays one comparison.
    quick: Option<(LibraryIdentity, u16)>,
    /// The library used last with its index, whatever calls of it need.
    recent: Option<(LibraryIdentity, u16)>,
}

#[derive(Debug)]
pub(crate) struct Code {
    pub(crate) id: CodeId,
    pub(crate) origin: Origin,
    pub(crate) known: Known,
    pub(crate) align_log2: u8,
    /// How long the target took to place it, if it did on this link and told.
    pub(crate) link_time: Option<Duration>,
    /// What calls in a mode send of it each time. Of this link: the target's epoch is in it.
    stamp: Option<(Mode, Stamp)>,
}

/// Where the image of a code is: the target may ask for it again at any time.
#[derive(Debug)]
pub(crate) enum Origin {
    /// Of a library: the ifunc's name and the image, which is kept in memory. The library is not kept.
    Library(Box<str>, LibraryImage),
    /// In this process's own store, as long as that holds it: a target forwards what came to it.
    Held(Weak<Linked>, Box<str>),
}

impl Code {
    /// The ifunc's name.
    pub(crate) fn name(&self) -> &str {
        match &self.origin {
            Origin::Library(name, _) | Origin::Held(_, name) => name,
        }
    }

    /// A copy of the image; `None` if it is held no longer, or is too long for a control connection.
    pub(crate) fn image(&self) -> Option<Vec<u8>> {
        let copy = |image: &[u8]| (image.len() <= MAX_CODE).then(|| image.to_vec());
        match &self.origin {
            Origin::Library(_, image) => copy(image.bytes()),
            Origin::Held(linked, _) => copy(linked.upgrade()?.image()),
        }
    }
}

/// What the target knows of a code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Known {
    /// Nothing: the code has to travel.
    Nothing,
    /// Perhaps the code, from before a reconnect: its id has to travel, and the target asks if it has it no longer.
    Perhaps,
    /// The index is bound on this link.
    Bound,
}

impl Codes {
    /// The index of the code in `library` for `machine`.
    ///
    /// # Errors
    /// When the library has payload routines that are not loaded, or no image for the target's machine, or all indices are
    /// taken.
    pub(crate) fn index(&mut self, library: &Library, machine: Machine) -> Result<u16, Error> {
        if let Some((_, index)) = self.recent.as_ref().filter(|(recent, _)| recent.is(library)) {
            return Ok(*index);
        }
        library.check_payload()?;
        let image = library.image_for(machine)?;
        let id = image.id();
        let index = match self.by_id.get(&id) {
            Some(&index) => index,
            None => {
                let origin = Origin::Library(library.name().into(), image.clone());
                self.add(id, origin, image.payload_align_log2())?
            }
        };
        // Of several copies of a library with the same code it is the one at hand whose payload routines are to run.
        self.recent = Some((library.identity(), index));
        Ok(index)
    }

    /// The next call of `library`'s code, which has this index, may go the quick way if it needs nothing but the index.
    pub(crate) fn warm(&mut self, library: &Library, index: u16) {
        let code = &self.entries[usize::from(index)];
        self.quick =
            (code.known == Known::Bound && code.align_log2 == 0).then(|| (library.identity(), index));
    }

    /// The index of code that this process holds for others.
    ///
    /// # Errors
    /// When all indices are taken.
    pub(crate) fn index_held(&mut self, linked: &Arc<Linked>) -> Result<u16, Error> {
        let (id, align_log2) = (linked.id(), linked.payload_align_log2());
        let origin = Origin::Held(Arc::downgrade(linked), linked.name().into());
        if let Some(&index) = self.by_id.get(&id) {
            // What was held before may have been given up, and have come again.
            self.entries[usize::from(index)].origin = origin;
            return Ok(index);
        }
        self.add(id, origin, align_log2)
    }

    /// A new index, for code that has none.
    fn add(&mut self, id: CodeId, origin: Origin, align_log2: u8) -> Result<u16, Error> {
        let index = u16::try_from(self.entries.len()).map_err(|_| Error::TooManyFunctions)?;
        self.by_id.insert(id, index);
        let known = Known::Nothing;
        self.entries.push(Code { id, origin, known, align_log2, link_time: None, stamp: None });
        Ok(index)
    }

    /// The index of `library`'s code, if it is the one used last, is bound, and asks for no alignment of its own.
    #[inline(always)]
    pub(crate) fn quick(&self, library: &Library) -> Option<u16> {
        self.quick.as_ref().filter(|(quick, _)| quick.is(library)).map(|(_, index)| *index)
    }

    /// Whether `library` is the one used last, and its code has this index.
    #[inline(always)]
    pub(crate) fn is_recent(&self, library: &Library, index: u16) -> bool {
        self.recent.as_ref().is_some_and(|(recent, its)| recent.is(library) && *its == index)
    }

    /// The next call of any code is to go the long way.
    pub(crate) fn cool(&mut self) {
        self.quick = None;
    }

    /// The index of `library`'s code and what its calls in this mode send of that, if it is the one used last and that is known.
    #[inline]
    pub(crate) fn stamped(&self, library: &Library, mode: Mode) -> Option<(u16, &Stamp)> {
        let (_, index) = self.recent.as_ref().filter(|(recent, _)| recent.is(library))?;
        let (_, stamp) =
            self.get((*index).into()).stamp.as_ref().filter(|(made_for, _)| *made_for == mode)?;
        Some((*index, stamp))
    }

    /// What calls of the code with this index send of it in a mode in which they all do.
    pub(crate) fn set_stamp(&mut self, index: u16, mode: Mode, stamp: Stamp) {
        self.entries[usize::from(index)].stamp = Some((mode, stamp));
    }

    /// The name of the code with this index, which may be one that no code has.
    pub(crate) fn name(&self, index: usize) -> Option<&str> {
        self.entries.get(index).map(Code::name)
    }

    /// The code with an index that this table gave.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> &Code {
        &self.entries[index]
    }

    /// The target has bound the index, or refused it.
    pub(crate) fn set_known(&mut self, index: usize, known: Known) {
        self.cool();
        if let Some(code) = self.entries.get_mut(index) {
            code.known = known;
        }
    }

    /// The target has placed the code.
    pub(crate) fn set_link_time(&mut self, index: usize, time: Duration) {
        if let Some(code) = self.entries.get_mut(index) {
            code.link_time = Some(time);
        }
    }

    pub(crate) fn by_id(&self, id: &CodeId) -> Option<&Code> {
        self.by_id.get(id).map(|&index| &self.entries[usize::from(index)])
    }

    /// A new link to the same address: what was bound is at best in the target's store.
    pub(crate) fn unbind(&mut self) {
        self.cool();
        // The target may be on another machine now.
        self.recent = None;
        for code in &mut self.entries {
            (code.link_time, code.stamp) = (None, None);
            if code.known == Known::Bound {
                code.known = Known::Perhaps;
            }
        }
    }
}
