//! Sent codes: a source's record of its target's code.

mod kept_images;

use std::collections::HashMap;
use std::ptr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use farjump_control::MAX_CODE;
use farjump_core::channel::FrameTemplate;
use farjump_core::image::{CodeId, FamilyId};
use farjump_loader::{Library, LibraryIdentity, LibraryImage, LinkedImage, Manifest};
pub(super) use kept_images::Flush;
use kept_images::KeptImages;

use super::forwarded::{Image, PassedImage};
use crate::{Error, InjectError, Mode};

/// The codes that a link has used, by code index. The target binds indexes in the order of frames. An index
/// is used again once its library is closed and nothing can refer to its old code any more
/// (`docs/design/store.md`).
// The fields that every call uses come first, side by side.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct SentCodes {
    /// The address of the library used last ([`Library::address`]), if its calls need nothing but the index;
    /// otherwise 0. A program that injects one function again and again pays one comparison. `recent` keeps
    /// the address from becoming that of another library.
    last_used: usize,
    /// The index of that library.
    last_index: u16,
    /// The index that [`SentCodes::find`] found last.
    last_found: u16,
    /// The library used last and its index, whatever its calls need.
    recent: Option<(LibraryIdentity, u16)>,
    entries: Vec<Code>,
    by_id: HashMap<CodeId, u16>,
    /// Indexes without code.
    free: Vec<u16>,
    kept: KeptImages,
}

#[derive(Debug)]
pub(crate) struct Code {
    pub(crate) id: CodeId,
    /// The images of its library, if there are several.
    family: Option<Box<Family>>,
    /// The ifunc's name.
    name: Box<str>,
    origin: Origin,
    pub(crate) known: Known,
    pub(crate) align_log2: u8,
    /// Time that the target took to place it, if it did on this link and reported it.
    pub(crate) link_time: Option<Duration>,
    /// The frame template of calls in a mode. It holds the target's epoch, so it belongs to this link.
    template: Option<(Mode, FrameTemplate)>,
    /// The turn of its last call, except for the code used last.
    turn: u64,
}

/// The images of a library for several platforms. The target may request each of them as long as the code has an index:
/// a function forwards itself to other machines.
#[derive(Debug)]
struct Family {
    id: FamilyId,
    manifest: Arc<Manifest>,
    images: Vec<LibraryImage>,
}

/// Source of a code's image: the target may request it as long as a frame that needs it has not run.
#[derive(Debug)]
enum Origin {
    /// A library, which is not kept open. Its image is kept until no frame needs it.
    Library(LibraryIdentity, Option<LibraryImage>),
    /// This process's own store, as long as the code is there: a target forwards code that came to it.
    Stored(Weak<LinkedImage>),
    /// An image for another machine, as long as this process keeps it.
    Passed(Weak<PassedImage>),
    /// The index is free.
    Nothing,
}

impl Code {
    /// Returns a copy of the image; `None` if none is kept, or it is too long for a control connection.
    pub(crate) fn image(&self) -> Option<Vec<u8>> {
        let copy = |image: &[u8]| (image.len() <= MAX_CODE).then(|| image.to_vec());
        match &self.origin {
            Origin::Library(_, image) => copy(image.as_ref()?.bytes()),
            Origin::Stored(linked) => copy(linked.upgrade()?.image()),
            Origin::Passed(passed) => copy(passed.upgrade()?.bytes()),
            Origin::Nothing => None,
        }
    }

    /// The image of the library that was used last by this index; empty if none is kept.
    #[inline]
    pub(crate) fn library_image(&self) -> &[u8] {
        match &self.origin {
            Origin::Library(_, Some(image)) => image.bytes(),
            _ => &[],
        }
    }

    /// The family that its frames name.
    #[inline]
    pub(crate) fn family(&self) -> Option<&FamilyId> {
        self.family.as_ref().map(|family| &family.id)
    }

    /// The ifunc's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether its library is closed, or its image dropped from the store, and no frame needs the image.
    fn is_closed(&self) -> bool {
        match &self.origin {
            Origin::Library(library, image) => image.is_none() && !library.is_open(),
            Origin::Stored(linked) => linked.strong_count() == 0,
            Origin::Passed(passed) => passed.strong_count() == 0,
            Origin::Nothing => false,
        }
    }
}

/// The target's knowledge of a code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Known {
    /// Nothing: the code has to travel.
    Nothing,
    /// Perhaps the code, from before a reconnect: its id has to travel, and the target requests the code if
    /// it lacks it.
    Perhaps,
    /// The index is bound on this link.
    Bound,
}

impl SentCodes {
    /// The index of `library`'s code, if it is the one used last.
    #[inline]
    pub(crate) fn recent_index(&self, library: &Library) -> Option<u16> {
        self.recent.as_ref().filter(|(recent, _)| recent.is(library)).map(|(_, index)| *index)
    }

    /// The index of `image`, which is the code of `library` for the target, and becomes the code used last.
    ///
    /// # Errors
    /// When all indexes are taken.
    pub(crate) fn switch_to(&mut self, library: &Library, image: &LibraryImage) -> Result<u16, Error> {
        let id = image.id();
        let index = match self.by_id.get(&id) {
            Some(&index) => index,
            None => self.add(id, library.name(), image.payload_align_log2())?,
        };
        self.drop_recent();
        self.keep_image(index, library, image);
        // Of several copies of a library with the same code, the payload routines of the caller's copy must
        // run.
        self.recent = Some((library.identity(), index));
        Ok(index)
    }

    /// The index of `image`, which was compiled from the source of `library`, and is not called yet.
    ///
    /// # Errors
    /// When all indexes are taken.
    #[cfg(feature = "build")]
    pub(crate) fn index_compiled(&mut self, library: &Library, image: &LibraryImage) -> Result<u16, Error> {
        let index = match self.by_id.get(&image.id()) {
            Some(&index) => index,
            None => self.add(image.id(), library.name(), image.payload_align_log2())?,
        };
        self.keep_image(index, library, image);
        Ok(index)
    }

    /// Notes that frames may need `image` of `library`, the code with this index.
    fn keep_image(&mut self, index: u16, library: &Library, image: &LibraryImage) {
        let code = &mut self.entries[usize::from(index)];
        code.turn = self.kept.turn();
        if !matches!(&code.origin, Origin::Library(_, Some(_))) {
            self.kept.add(index);
        }
        code.origin = Origin::Library(library.identity(), Some(image.clone()));
        let Some(manifest) = library.manifest().filter(|_| code.family.is_none()) else { return };
        // Code for one CPU is not in the manifest, but must reach other CPUs all the same.
        if library.images().len() > 1 || !manifest.contains(&image.id()) {
            let images = library.images().to_vec();
            code.family =
                Some(Box::new(Family { id: manifest.id(), manifest: Arc::clone(manifest), images }));
            if code.known == Known::Bound {
                // Another library's frames have bound it, and named no family.
                (code.known, code.template) = (Known::Perhaps, None);
            }
        }
    }

    /// Lets the next call look for its code again.
    pub(crate) fn drop_recent(&mut self) {
        // Before `recent`, which keeps the address.
        self.cool();
        if let Some((_, before)) = self.recent.take() {
            // Its calls until now may have taken the fast path, which notes no turn.
            self.entries[usize::from(before)].turn = self.kept.turn();
        }
    }

    /// Lets the next call of `library`'s code, which has this index, take the fast path if it needs nothing
    /// but the index.
    pub(crate) fn warm(&mut self, library: &Library, index: u16) {
        let code = &self.entries[usize::from(index)];
        if code.known == Known::Bound && code.align_log2 == 0 && self.is_recent(library, index) {
            (self.last_used, self.last_index) = (library.address(), index);
        } else {
            self.cool();
        }
    }

    /// The index of the code with this id, and the target's knowledge of the code.
    #[inline]
    pub(crate) fn find(&mut self, id: &CodeId) -> Option<(u16, Known)> {
        let last = self.entries.get(usize::from(self.last_found));
        let index = match last.filter(|last| last.id == *id && !matches!(last.origin, Origin::Nothing)) {
            Some(_) => self.last_found,
            None => *self.by_id.get(id)?,
        };
        self.last_found = index;
        Some((index, self.get(index.into()).known))
    }

    /// The index of the image by which stored code, which came from a source, is forwarded.
    ///
    /// # Errors
    /// When all indexes are taken.
    pub(crate) fn index_forwarded(
        &mut self,
        linked: &Arc<LinkedImage>,
        image: Image<'_>,
    ) -> Result<u16, Error> {
        let (id, align_log2) = (linked.id(), linked.payload_align_log2());
        let (sent, origin) = match image {
            Image::Bound(index) => {
                let code = &mut self.entries[usize::from(index)];
                code.turn = self.kept.turn();
                let is_noted = |weak: &Weak<LinkedImage>| ptr::eq(weak.as_ptr(), Arc::as_ptr(linked));
                if code.id == id && !matches!(&code.origin, Origin::Stored(weak) if is_noted(weak)) {
                    // The code may have been dropped, and have come again.
                    code.origin = Origin::Stored(Arc::downgrade(linked));
                }
                return Ok(index);
            }
            Image::Own => (id, Origin::Stored(Arc::downgrade(linked))),
            Image::Stored(other) => (other.id(), Origin::Stored(Arc::downgrade(other))),
            Image::Passed(other) => (other.id(), Origin::Passed(Arc::downgrade(other))),
        };
        let index = match self.by_id.get(&sent) {
            Some(&index) => index,
            None => self.add(sent, linked.name(), align_log2)?,
        };
        let code = &mut self.entries[usize::from(index)];
        code.turn = self.kept.turn();
        code.origin = origin;
        Ok(index)
    }

    /// Adds code that has no index.
    fn add(&mut self, id: CodeId, name: &str, align_log2: u8) -> Result<u16, Error> {
        let code = Code {
            id,
            family: None,
            name: name.into(),
            origin: Origin::Nothing,
            known: Known::Nothing,
            align_log2,
            link_time: None,
            template: None,
            turn: 0,
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.entries[usize::from(index)] = code;
                index
            }
            None => {
                let index = u16::try_from(self.entries.len())
                    .map_err(|_| Error::Inject(InjectError::TooManyFunctions))?;
                self.entries.push(code);
                index
            }
        };
        self.by_id.insert(id, index);
        Ok(index)
    }

    /// The index of `library`'s code, if it is the one used last, is bound, and has no alignment of its own.
    #[inline(always)]
    pub(crate) fn last_used(&self, library: &Library) -> Option<u16> {
        (self.last_used == library.address()).then_some(self.last_index)
    }

    /// Returns whether `library` is the one used last, and its code has this index.
    #[inline(always)]
    pub(crate) fn is_recent(&self, library: &Library, index: u16) -> bool {
        self.recent.as_ref().is_some_and(|(recent, its)| recent.is(library) && *its == index)
    }

    /// Sends the next call of any code along the general path.
    pub(crate) fn cool(&mut self) {
        self.last_used = 0;
    }

    /// The index and the frame template of `library`'s code in this mode, if it is the one used last and both
    /// are known.
    #[inline]
    pub(crate) fn with_template(&self, library: &Library, mode: Mode) -> Option<(u16, &FrameTemplate)> {
        let (_, index) = self.recent.as_ref().filter(|(recent, _)| recent.is(library))?;
        let (_, template) =
            self.get((*index).into()).template.as_ref().filter(|(made_for, _)| *made_for == mode)?;
        Some((*index, template))
    }

    /// Sets the frame template for this code index and mode.
    pub(crate) fn set_template(&mut self, index: u16, mode: Mode, template: FrameTemplate) {
        self.entries[usize::from(index)].template = Some((mode, template));
    }

    /// The name of the code with this index, if there is such code.
    pub(crate) fn name(&self, index: usize) -> Option<&str> {
        self.entries.get(index).map(Code::name)
    }

    /// The code with an index that this table gave.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> &Code {
        &self.entries[index]
    }

    /// Notes that the target has bound the index, or refused it.
    pub(crate) fn set_known(&mut self, index: usize, known: Known) {
        self.cool();
        if let Some(code) = self.entries.get_mut(index) {
            code.known = known;
        }
    }

    /// Notes that the target has placed the code.
    pub(crate) fn set_link_time(&mut self, index: usize, time: Duration) {
        if let Some(code) = self.entries.get_mut(index) {
            code.link_time = Some(time);
        }
    }

    /// The name of the code `id`, and a copy of its image: code that was sent, or an image for another platform of a
    /// library that was. `None` if none is kept, or it is too long for a control connection.
    pub(crate) fn image_of(&self, id: &CodeId) -> Option<(&str, Vec<u8>)> {
        if let Some(&index) = self.by_id.get(id) {
            let code = &self.entries[usize::from(index)];
            if let Some(image) = code.image() {
                return Some((code.name(), image));
            }
        }
        self.entries.iter().find_map(|code| {
            let image = code.family.as_ref()?.images.iter().find(|image| image.id() == *id)?;
            (image.bytes().len() <= MAX_CODE).then(|| (code.name(), image.bytes().to_vec()))
        })
    }

    /// The manifest of a family that a frame named.
    pub(crate) fn manifest(&self, family: &FamilyId) -> Option<&Arc<Manifest>> {
        let families = self.entries.iter().filter_map(|code| code.family.as_ref());
        families.into_iter().find(|known| known.id == *family).map(|known| &known.manifest)
    }

    /// Prepares for a new link to the same address: bound codes are at best in the target's store.
    pub(crate) fn unbind(&mut self) {
        // Before `recent`, which keeps the address.
        self.cool();
        // The target may be on another machine now.
        self.recent = None;
        self.kept = KeptImages::default();
        for code in &mut self.entries {
            (code.link_time, code.template, code.turn) = (None, None, 0);
            // All calls have ended.
            if let Origin::Library(_, image) = &mut code.origin {
                *image = None;
            }
            if code.known == Known::Bound {
                code.known = Known::Perhaps;
            }
        }
    }
}
