//! Moves of objects to the file and back, by the file's thread.
//!
//! An object that moves keeps its block and its place until the job is settled, even if it ends meanwhile. An object on
//! its way to the file can still be claimed, and then stays in memory.

use super::memory::Made;
use super::{Source, Table};
use crate::owner::allocator::Block;
use crate::owner::spill::{Direction, Done, Job};
use crate::owner::table::object::State;
use crate::wire::refusal::{ClaimFailed, Lack, NoMemory, Refusal};

impl Table {
    /// Returns the failure of a request that has to wait for a job, and when to make it again: at once if a job has
    /// ended.
    pub(super) fn later(&self) -> NoMemory {
        let has_news = self.spill.as_ref().is_none_or(|spill| spill.has_news());
        NoMemory::of_time(if has_news { Lack::OfTurn } else { Lack::OfFile })
    }

    /// Starts to write the unused object whose last use is longest ago to the file, unless jobs under way already free
    /// `lacking` bytes.
    pub(super) fn spill_oldest(&mut self, lacking: u64) -> Made {
        let Some(spill) = &mut self.spill else { return Made::Nothing };
        if !spill.thread().is_here() {
            return Made::Nothing;
        }
        let leaving = spill.leaving();
        if leaving >= lacking || (leaving != 0 && !spill.takes_more()) {
            return Made::Later;
        }
        let otherwise = |made: Made| if leaving != 0 { Made::Later } else { made };
        if spill.thread().failures() > self.turn.failures() {
            return otherwise(Made::Failed);
        }
        let Some((_, number)) = self.unused.first_key_value() else {
            return match leaving == 0 && self.end_oldest_hold() {
                true => Made::Space,
                false => otherwise(Made::Nothing),
            };
        };
        if !spill.takes_more() {
            // All jobs are reads.
            return Made::Later;
        }
        let number = *number;
        self.turn.visit(1);
        let Some(object) = self.objects.get_mut(&number) else { return Made::Nothing };
        let Some(block) = object.block else { return Made::Nothing };
        let before = spill.visits();
        let place = spill.take(object.len);
        self.turn.visit((spill.visits() - before) as u32);
        let Some(place) = place else {
            log::warn!("objects are not written to the store's file: it has its limit of bytes");
            return otherwise(Made::Nothing);
        };
        object.moves = Some(Direction::Out);
        self.unused.pop_first();
        spill.begin(Job { number, direction: Direction::Out, block, place, len: object.len });
        Made::Space
    }

    /// Starts to read an object back from the file for `source`, which waits for it unless it is a function.
    pub(super) fn recall(&mut self, source: Source, number: u64) -> Result<(), ClaimFailed> {
        let Some(object) = self.objects.get_mut(&number) else { return Ok(()) };
        let (Some(place), len) = (object.place, object.len) else { return Ok(()) };
        // In a forked child, nothing comes from the file.
        let is_here = self.spill.as_ref().is_some_and(|spill| spill.thread().is_here());
        if object.is_lost || !is_here {
            return Err(Refusal::Lost.into());
        }
        if object.moves.is_none() {
            // The claim keeps the object: if it ends meanwhile, nothing of it is freed.
            object.claims += 1;
            let began = self.begin_recall(number, place, len);
            self.unclaim(number, 1);
            began?;
        }
        let Some(object) = self.objects.get_mut(&number) else { return Err(Refusal::Gone.into()) };
        if !matches!(source, Source::Call(_)) && self.awaited.insert((source, number)) {
            object.awaited += 1;
        }
        Err(self.later().into())
    }

    /// Takes memory for an object, and starts to read it from its place.
    fn begin_recall(&mut self, number: u64, place: Block, len: u64) -> Result<(), ClaimFailed> {
        if self.spill.as_ref().is_none_or(|spill| !spill.takes_more()) {
            return Err(self.later().into());
        }
        let block = self.take(len)?;
        let object = self.objects.get_mut(&number).filter(|object| !matches!(object.state, State::Evicted));
        // Making space takes jobs, too.
        let spill = self.spill.as_mut().filter(|spill| spill.takes_more());
        match (object, spill) {
            (Some(object), Some(spill)) => {
                object.moves = Some(Direction::In);
                spill.begin(Job { number, direction: Direction::In, block, place, len });
                Ok(())
            }
            (object, _) => {
                let is_gone = object.is_none();
                self.give_back(block);
                Err(if is_gone { Refusal::Gone.into() } else { self.later().into() })
            }
        }
    }

    /// Ends the wait of `source` for an object: it claims one, makes another request, or is gone.
    pub(crate) fn await_nothing(&mut self, source: Source) {
        while let Some(awaited) = self.awaited.range((source, 0)..=(source, u64::MAX)).next().copied() {
            self.awaited.remove(&awaited);
            self.turn.visit(1);
            if let Some(object) = self.objects.get_mut(&awaited.1) {
                object.awaited -= 1;
                self.note_unused(awaited.1);
            }
        }
    }

    /// Settles an ended job of the file's thread. Returns `false` if there is none.
    pub(super) fn settle_next(&mut self) -> bool {
        let done = self.spill.as_mut().and_then(|spill| spill.next_done());
        done.map(|done| self.settle(done)).is_some()
    }

    fn settle(&mut self, (job, outcome): Done) {
        let Job { number, direction, block, place, .. } = job;
        self.turn.visit(1);
        let Some(object) = self.objects.get_mut(&number) else { return };
        object.moves = None;
        match (direction, outcome) {
            (Direction::Out, Ok(())) if object.claims == 0 && !matches!(object.state, State::Evicted) => {
                (object.block, object.place) = (None, Some(place));
                self.give_back(block);
            }
            (Direction::Out, outcome) => {
                if let Err(error) = outcome {
                    log::warn!("objects are not written to the store's file: {error}");
                }
                self.free_place(place);
            }
            (Direction::In, Ok(())) => {
                (object.block, object.place) = (Some(block), None);
                self.free_place(place);
            }
            (Direction::In, Err(error)) => {
                log::warn!("object {number} cannot be read from the store's file: {error}");
                object.is_lost = true;
                self.give_back(block);
            }
        }
        // The object ends now, or may go to the file again.
        self.unclaim(number, 0);
    }

    /// Number of jobs of the file's thread that are not settled.
    #[cfg(test)]
    pub(crate) fn jobs(&self) -> usize {
        self.spill.as_ref().map_or(0, |spill| spill.in_flight())
    }

    /// Bytes of the file that are used.
    #[cfg(test)]
    pub(crate) fn file_used(&self) -> u64 {
        self.spill.as_ref().map_or(0, |spill| spill.used())
    }

    /// Frees a place in the file.
    pub(super) fn free_place(&mut self, place: Block) {
        let Some(spill) = &mut self.spill else { return };
        let before = spill.visits();
        spill.free(place);
        self.turn.visit((spill.visits() - before) as u32);
    }
}
