//! Releasing images and indexes of libraries that are closed (`docs/design/store.md`).
//!
//! A frame may wait at the target for its code. So a link keeps the image of the code that it used last, and
//! of all others until a frame sent behind theirs has run. A *mark* is such a frame: a call with a reply, or
//! a flush of the link's own. Turns order calls and marks: every mark ends a turn.

use super::{Code, Known, Origin, SentCodes};

/// Images kept before the link sends a flush to learn which of them are needed no more.
const IMAGES: usize = 32;
/// Indexes in use before the link looks for those of closed libraries.
const INDEXES: usize = 256;

/// The images that a link keeps, by code index, and its marks.
#[derive(Debug, Default)]
pub(super) struct KeptImages {
    turn: u64,
    indexes: Vec<u16>,
    /// Number of images at which the next flush is due, beyond [`IMAGES`].
    most_images: usize,
    /// Number of indexes at which the next flush is due, beyond [`INDEXES`].
    most_indexes: usize,
    /// Call with a reply, and the turn that it ended.
    call: Option<(u32, u64)>,
    flush: Flush,
}

/// A flush of the link's own, which shows that no frame and no refusal refers to codes of earlier turns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Flush {
    #[default]
    None,
    /// The token of a flush that was sent, and the turn that it ended.
    Sent(u32, u64),
    /// It has run: the turn that it ended, and the number of refusals that the target had sent by then.
    Ran(u64, u64),
}

impl KeptImages {
    /// The current turn.
    pub(super) fn turn(&self) -> u64 {
        self.turn
    }

    /// Notes that the image of the code with this index is kept.
    pub(super) fn add(&mut self, index: u16) {
        self.indexes.push(index);
    }

    /// Ends the turn; returns its number.
    fn end_turn(&mut self) -> u64 {
        let turn = self.turn;
        self.turn += 1;
        turn
    }
}

impl SentCodes {
    /// Makes the call with this token a mark, if none is under way: it was sent last, and wants a reply.
    pub(crate) fn mark(&mut self, token: u32) {
        if self.kept.call.is_none() && self.kept.indexes.len() > 1 {
            self.kept.call = Some((token, self.kept.end_turn()));
        }
    }

    /// Releases the images that are needed no more, if the mark has an outcome.
    pub(crate) fn end_mark(&mut self, is_in_flight: impl FnOnce(u32) -> bool) {
        if let Some((token, turn)) = self.kept.call
            && !is_in_flight(token)
        {
            self.kept.call = None;
            self.release_images(turn);
        }
    }

    /// The flush that is under way.
    pub(crate) fn flush(&self) -> Flush {
        self.kept.flush
    }

    /// Returns whether to send a flush: so many images are kept, or so many indexes in use, that some of them may be of
    /// closed libraries.
    pub(crate) fn needs_flush(&self) -> bool {
        let used = self.entries.len() - self.free.len();
        matches!(self.kept.flush, Flush::None)
            && (self.kept.indexes.len() >= self.kept.most_images.max(IMAGES)
                || self.free.is_empty() && used >= self.kept.most_indexes.max(INDEXES))
    }

    /// Notes a flush that was sent with this token.
    pub(crate) fn flush_sent(&mut self, token: u32) {
        self.kept.flush = Flush::Sent(token, self.kept.end_turn());
    }

    /// Notes that the flush has run, and the number of refusals that the target had sent by then.
    pub(crate) fn flush_ran(&mut self, refusals: u64) {
        if let Flush::Sent(_, turn) = self.kept.flush {
            self.kept.flush = Flush::Ran(turn, refusals);
            self.release_images(turn);
        }
    }

    /// Notes that the flush failed.
    pub(crate) fn flush_failed(&mut self) {
        self.kept.flush = Flush::None;
    }

    /// Frees the indexes of closed libraries: the refusals from before the flush have been read. `is_pending` returns
    /// whether a call of an index's code has no outcome.
    pub(crate) fn flush_settled(&mut self, is_pending: impl Fn(u16) -> bool) {
        let Flush::Ran(turn, _) = self.kept.flush else { return };
        self.kept.flush = Flush::None;
        let recent = self.recent.as_ref().map(|(_, index)| *index);
        for index in 0..=u16::MAX {
            let Some(code) = self.entries.get_mut(usize::from(index)) else { break };
            let is_unused = recent != Some(index) && code.turn <= turn;
            if is_unused && code.is_closed() && !is_pending(index) {
                self.by_id.remove(&code.id);
                code.clear();
                self.free.push(index);
            }
        }
        // The lowest index is taken next: the target's table is as long as the highest one.
        self.free.sort_unstable_by(|a, b| b.cmp(a));
        self.kept.most_indexes = 2 * (self.entries.len() - self.free.len());
    }

    /// Releases the images of codes whose last call was before the end of `turn`.
    fn release_images(&mut self, turn: u64) {
        let recent = self.recent.as_ref().map(|(_, index)| *index);
        let entries = &mut self.entries;
        self.kept.indexes.retain(|&index| {
            let code = &mut entries[usize::from(index)];
            if recent == Some(index) || code.turn > turn {
                return true;
            }
            if let Origin::Library(library, image) = &mut code.origin {
                *image = None;
                if !library.is_open() {
                    // It may hold the image, too.
                    code.template = None;
                }
            }
            false
        });
        self.kept.most_images = 2 * self.kept.indexes.len();
    }
}

impl Code {
    /// Drops everything that an index without code does not need.
    fn clear(&mut self) {
        self.origin = Origin::Nothing;
        (self.name, self.family) = (Box::default(), None);
        (self.known, self.template, self.link_time) = (Known::Nothing, None, None);
    }
}
