//! The sessions of a target, of which many may be idle: those that bring frames are looked at in each poll, the others in turn.
//!
//! A look at an idle mailbox costs little, but a look at hundreds costs more than a call. So the cost of a poll does not
//! grow with the number of idle sources; what grows is the time until the first frame of one that was idle is seen, by a
//! look for each of the others. A target that slept looks at all, because it cannot know who woke it.

use std::ops::{Deref, DerefMut};

/// So many are looked at in each poll whatever they bring.
const FEW: usize = 4;

/// The sessions, in no order that lasts.
pub(super) struct Sessions<T> {
    /// The busy ones first.
    all: Vec<T>,
    busy: usize,
    /// The idle one that is looked at next.
    turn: usize,
    /// The next poll looks at all.
    sweep: bool,
}

impl<T> Sessions<T> {
    /// None yet.
    pub(super) fn new() -> Self {
        Sessions { all: Vec::new(), busy: 0, turn: 0, sweep: false }
    }

    /// One more, which is taken to be busy.
    pub(super) fn push(&mut self, session: T) {
        self.all.push(session);
        self.make_busy(self.all.len() - 1);
    }

    /// Takes one away; the index of others may change.
    pub(super) fn remove(&mut self, mut index: usize) -> T {
        if index < self.busy {
            self.busy -= 1;
            self.all.swap(index, self.busy);
            index = self.busy;
        }
        self.all.swap_remove(index)
    }

    /// All of them.
    pub(super) fn take(&mut self) -> Vec<T> {
        std::mem::replace(self, Self::new()).all
    }

    /// How many, from the first, are busy.
    #[inline]
    pub(super) fn busy(&self) -> usize {
        self.busy
    }

    /// How many, from the first, the poll that begins looks at.
    #[inline]
    pub(super) fn due(&mut self) -> usize {
        match std::mem::take(&mut self.sweep) {
            true => self.all.len(),
            false => self.busy,
        }
    }

    /// The idle one whose turn it is.
    #[inline]
    pub(super) fn turn(&mut self) -> Option<usize> {
        if self.busy == self.all.len() {
            return None;
        }
        self.turn += 1;
        if !(self.busy..self.all.len()).contains(&self.turn) {
            self.turn = self.busy;
        }
        Some(self.turn)
    }

    /// It has brought something.
    #[inline]
    pub(super) fn make_busy(&mut self, index: usize) {
        if index >= self.busy {
            self.all.swap(index, self.busy);
            self.busy += 1;
        }
    }

    /// Has the next poll look at all.
    pub(super) fn sweep(&mut self) {
        self.sweep = true;
    }

    /// Those that have brought nothing since this was last asked, as `has_brought` says, are idle from now on.
    pub(super) fn settle(&mut self, mut has_brought: impl FnMut(&mut T) -> bool) {
        if self.all.len() <= FEW {
            self.busy = self.all.len();
            return;
        }
        let mut index = 0;
        while index < self.busy {
            if has_brought(&mut self.all[index]) {
                index += 1;
            } else {
                self.busy -= 1;
                self.all.swap(index, self.busy);
            }
        }
    }
}

impl<T> Deref for Sessions<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.all
    }
}

impl<T> DerefMut for Sessions<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `count` sessions, named by numbers, of which those in `brought` have brought something.
    fn settled(count: u32, brought: &[u32]) -> Sessions<u32> {
        let mut sessions = Sessions::new();
        (0..count).for_each(|name| sessions.push(name));
        sessions.settle(|name| brought.contains(name));
        sessions
    }

    /// Those that one poll looks at.
    fn looks(sessions: &mut Sessions<u32>) -> Vec<u32> {
        let due = sessions.due();
        let turn = sessions.turn();
        (0..due).chain(turn).map(|index| sessions[index]).collect()
    }

    #[test]
    fn a_poll_looks_at_the_busy_ones_and_one_other_however_many_there_are() {
        for count in [5, 100, 1000] {
            let mut sessions = settled(count, &[2, 4]);
            for _ in 0..2 * count {
                let looked = looks(&mut sessions);
                assert_eq!(looked.len(), 3, "of {count}");
                assert!(looked.contains(&2) && looked.contains(&4));
            }
        }
    }

    #[test]
    fn every_idle_one_has_its_turn_within_as_many_polls() {
        let mut sessions = settled(100, &[7]);
        for _ in 0..3 {
            let mut seen: Vec<_> = (0..99).flat_map(|_| looks(&mut sessions)).collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), 100);
        }
    }

    #[test]
    fn one_that_brings_something_is_busy_until_it_does_not() {
        let mut sessions = settled(100, &[]);
        assert_eq!(looks(&mut sessions).len(), 1);
        let index = sessions.iter().position(|name| *name == 55).unwrap();
        sessions.make_busy(index);
        assert!(looks(&mut sessions).contains(&55));
        assert!(looks(&mut sessions).contains(&55));
        sessions.settle(|_| false);
        assert_eq!(looks(&mut sessions).len(), 1);
    }

    #[test]
    fn a_sweep_looks_at_all_once() {
        let mut sessions = settled(100, &[]);
        sessions.sweep();
        assert!(looks(&mut sessions).len() >= 100);
        assert_eq!(looks(&mut sessions).len(), 1);
    }

    #[test]
    fn few_are_all_looked_at_whatever_they_bring() {
        let mut sessions = settled(FEW as u32, &[]);
        assert_eq!(looks(&mut sessions).len(), FEW);
        sessions.push(9);
        sessions.settle(|_| false);
        assert_eq!(looks(&mut sessions).len(), 1);
        sessions.remove(0);
        sessions.settle(|_| false);
        assert_eq!(looks(&mut sessions).len(), FEW);
    }

    #[test]
    fn taking_one_away_loses_no_other_and_keeps_the_busy_ones_busy() {
        for gone in 0..20 {
            let mut sessions = settled(20, &[3, 5, 8]);
            let index = sessions.iter().position(|name| *name == gone).unwrap();
            assert_eq!(sessions.remove(index), gone);
            let mut left: Vec<_> = sessions.iter().copied().collect();
            left.sort_unstable();
            assert!(left.iter().copied().eq((0..20).filter(|name| *name != gone)));
            let looked = looks(&mut sessions);
            assert!([3, 5, 8].iter().filter(|name| **name != gone).all(|name| looked.contains(name)));
            assert_eq!(looked.len(), if [3, 5, 8].contains(&gone) { 3 } else { 4 });
        }
    }
}
