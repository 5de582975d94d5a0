//! A target's sessions, of which many may be idle. Sessions that bring frames are polled each time. The
//! others are polled in turn, or not at all where the system reports their events.
//!
//! Polling an idle mailbox costs little, but polling hundreds costs more than a call. So the cost of a poll
//! does not grow with the number of idle sources. Instead, the first frame of an idle source waits longer: by
//! one poll of each of the others. A target that slept polls all, because it cannot know which source woke
//! it. Polling a socket is a system call. One other system call reports all sockets with events, so a socket
//! is not polled before it is reported.

use std::ops::{Deref, DerefMut};

/// Sessions polled each time, whatever they bring.
const FEW: usize = 4;

/// The sessions, in no lasting order: the busy ones, then those polled in turn, then those whose events the
/// system reports.
// The fields that a poll of busy sessions uses come first.
#[repr(C)]
pub(super) struct Sessions<T> {
    all: Vec<T>,
    /// True if all sessions are busy: a poll then needs none of the following fields.
    all_busy: bool,
    busy: usize,
    /// The number of polled sessions. The system reports the events of those behind them.
    polled: usize,
    /// The idle session that is polled next.
    turn: usize,
    /// True if the next poll covers all sessions whose events the system does not report.
    sweep: bool,
    /// True if some sessions are polled whatever they bring, because the system does not report their events.
    mixed: bool,
    /// Whether `all_busy` stays false.
    in_turn: bool,
}

/// A session's class, as its target finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// Polled each time.
    Busy,
    /// Polled in turn.
    Idle,
    /// Left in its class.
    Unknown,
    /// Not polled before the system reports an event.
    Reported,
}

impl<T> Sessions<T> {
    /// No sessions.
    pub(super) fn new() -> Self {
        Sessions {
            all: Vec::new(),
            busy: 0,
            polled: 0,
            turn: 0,
            sweep: false,
            mixed: false,
            all_busy: true,
            in_turn: false,
        }
    }

    /// Makes each poll take the path for targets with idle sessions.
    pub(super) fn poll_in_turn(&mut self) {
        (self.in_turn, self.all_busy) = (true, false);
    }

    /// Adds a session as busy.
    pub(super) fn push(&mut self, session: T) {
        self.all.push(session);
        self.move_to_busy(self.all.len() - 1);
    }

    /// Removes a session; the index of others may change.
    pub(super) fn remove(&mut self, mut index: usize) -> T {
        if index < self.busy {
            self.busy -= 1;
            self.all.swap(index, self.busy);
            index = self.busy;
        }
        if index < self.polled {
            self.polled -= 1;
            self.all.swap(index, self.polled);
            index = self.polled;
        }
        let removed = self.all.swap_remove(index);
        self.note_all_busy();
        removed
    }

    fn note_all_busy(&mut self) {
        self.all_busy = self.busy == self.all.len() && !self.in_turn;
    }

    /// Returns whether all sessions are busy.
    #[inline(always)]
    pub(super) fn are_all_busy(&self) -> bool {
        self.all_busy
    }

    /// Takes all sessions. Later ones are polled as these were.
    pub(super) fn take(&mut self) -> Vec<T> {
        let (in_turn, all) = (self.in_turn, std::mem::replace(self, Self::new()).all);
        if in_turn {
            self.poll_in_turn();
        }
        all
    }

    /// Number of busy sessions, which come first.
    #[inline]
    pub(super) fn busy(&self) -> usize {
        self.busy
    }

    /// Number of sessions, from the first, whose events the system does not report.
    #[inline]
    pub(super) fn polled(&self) -> usize {
        self.polled
    }

    /// Returns whether the system reports events of some sessions, and polling the others costs no less than querying
    /// the system.
    pub(super) fn are_all_reported(&self) -> bool {
        !self.mixed
    }

    /// Number of sessions, from the first, that the poll that begins covers.
    #[inline]
    pub(super) fn due(&mut self) -> usize {
        if self.all_busy {
            return self.all.len();
        }
        match std::mem::take(&mut self.sweep) {
            true => self.polled,
            false => self.busy,
        }
    }

    /// The idle session whose turn it is.
    #[inline]
    pub(super) fn turn(&mut self) -> Option<usize> {
        if self.all_busy || self.busy == self.polled {
            return None;
        }
        self.turn += 1;
        if !(self.busy..self.polled).contains(&self.turn) {
            self.turn = self.busy;
        }
        Some(self.turn)
    }

    /// Makes a session that has brought frames busy.
    #[inline]
    pub(super) fn make_busy(&mut self, index: usize) {
        if !self.all_busy {
            self.move_to_busy(index);
        }
    }

    fn move_to_busy(&mut self, mut index: usize) {
        if index >= self.polled {
            self.all.swap(index, self.polled);
            index = self.polled;
            self.polled += 1;
        }
        if index >= self.busy {
            self.all.swap(index, self.busy);
            self.busy += 1;
        }
        self.note_all_busy();
    }

    /// Makes a session that is polled in turn one whose events the system reports. Another one takes its index.
    pub(super) fn report(&mut self, index: usize) {
        debug_assert!((self.busy..self.polled).contains(&index));
        self.polled -= 1;
        self.all.swap(index, self.polled);
    }

    /// Makes the next poll cover all sessions.
    pub(super) fn sweep(&mut self) {
        self.sweep = true;
    }

    /// Returns whether there are so few sessions that all are polled each time, unless the system reports their events
    /// anyway.
    pub(super) fn are_few(&self) -> bool {
        self.all.len() <= FEW
    }

    /// Sorts the busy sessions by the class that `find` returns for each.
    pub(super) fn settle(&mut self, mut find: impl FnMut(&mut T) -> Found) {
        let (few, single) = (self.are_few(), self.all.len() == 1);
        if few {
            self.busy = self.polled;
        }
        self.mixed = self.busy != self.polled;
        let mut index = 0;
        while index < self.busy {
            let found = find(&mut self.all[index]);
            self.mixed |= matches!(found, Found::Idle | Found::Unknown);
            match found {
                Found::Reported if !single => {
                    self.busy -= 1;
                    self.polled -= 1;
                    self.all.swap(index, self.busy);
                    self.all.swap(self.busy, self.polled);
                }
                Found::Idle if !few => {
                    self.busy -= 1;
                    self.all.swap(index, self.busy);
                }
                _ => index += 1,
            }
        }
        self.note_all_busy();
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

    /// `count` sessions, named by numbers, of which those in `brought` have brought frames.
    fn settled(count: u32, brought: &[u32]) -> Sessions<u32> {
        let mut sessions = Sessions::new();
        (0..count).for_each(|name| sessions.push(name));
        sessions.settle(|name| idle(brought.contains(name)));
        sessions
    }

    fn idle(brought: bool) -> Found {
        if brought { Found::Busy } else { Found::Idle }
    }

    /// The sessions that one poll covers.
    fn looks(sessions: &mut Sessions<u32>) -> Vec<u32> {
        let due = sessions.due();
        let turn = sessions.turn();
        (0..due).chain(turn).map(|index| sessions[index]).collect()
    }

    #[test]
    fn a_poll_covers_all_busy_sessions_and_one_other() {
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
    fn those_that_come_when_all_were_taken_are_polled_as_those_were() {
        for in_turn in [false, true] {
            let mut sessions = Sessions::new();
            if in_turn {
                sessions.poll_in_turn();
            }
            sessions.push(1);
            assert_eq!(sessions.are_all_busy(), !in_turn);
            assert_eq!(sessions.take(), [1]);
            sessions.push(2);
            assert_eq!(sessions.are_all_busy(), !in_turn);
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
        sessions.settle(|_| Found::Idle);
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
        sessions.settle(|_| Found::Idle);
        assert_eq!(looks(&mut sessions).len(), 1);
        sessions.remove(0);
        sessions.settle(|_| Found::Idle);
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

    /// As [`settled`], where the system reports the events of sessions with even names.
    fn settled_reported(count: u32, brought: &[u32]) -> Sessions<u32> {
        let mut sessions = settled(0, &[]);
        (0..count).for_each(|name| sessions.push(name));
        sessions.settle(|name| match (brought.contains(name), *name % 2) {
            (true, _) => Found::Busy,
            (false, 0) => Found::Reported,
            (false, _) => Found::Idle,
        });
        sessions
    }

    #[test]
    fn a_reported_session_is_not_polled_before_it_becomes_busy() {
        let mut sessions = settled_reported(100, &[3, 4]);
        assert!(!sessions.are_all_reported());
        for _ in 0..3 {
            sessions.sweep();
            let mut seen: Vec<_> = (0..99).flat_map(|_| looks(&mut sessions)).collect();
            seen.sort_unstable();
            seen.dedup();
            assert!(seen.iter().copied().eq((0..100).filter(|name| name % 2 == 1 || *name == 4)));
        }
        let index = sessions.iter().position(|name| *name == 60).unwrap();
        assert!(index >= sessions.polled());
        sessions.make_busy(index);
        assert!(looks(&mut sessions).contains(&60));
        assert_eq!(sessions.len(), 100);
    }

    #[test]
    fn a_single_reported_session_is_polled_and_several_are_not() {
        for (count, left) in [(1, 1), (2, 0), (300, 0)] {
            let mut sessions = settled(0, &[]);
            (0..count).for_each(|name| sessions.push(name));
            sessions.settle(|_| Found::Reported);
            assert!(sessions.are_all_reported());
            assert_eq!((looks(&mut sessions).len(), sessions.polled()), (left, left), "of {count}");
        }
    }

    #[test]
    fn removing_one_keeps_reported_sessions_apart_from_polled_ones() {
        for gone in 0..20 {
            let mut sessions = settled_reported(20, &[3, 4]);
            let index = sessions.iter().position(|name| *name == gone).unwrap();
            assert_eq!(sessions.remove(index), gone);
            let mut left: Vec<_> = sessions.iter().copied().collect();
            left.sort_unstable();
            assert!(left.iter().copied().eq((0..20).filter(|name| *name != gone)));
            assert_eq!(sessions.busy(), if [3, 4].contains(&gone) { 1 } else { 2 });
            let polled = sessions.polled();
            assert!(sessions[polled..].iter().all(|name| name % 2 == 0 && *name != 4));
            assert!(sessions[..polled].iter().all(|name| name % 2 == 1 || *name == 4));
        }
    }
}
