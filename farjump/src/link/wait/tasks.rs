//! Wakers of the tasks that await a link, and the one of them that drives it.
//!
//! A task that awaits an outcome is woken when any poll of the link takes that outcome from the mailbox. So
//! that some task polls, one of them drives: it looks for frames, arms the link, and has its descriptor and a
//! timer wake it. The driver hands over when its own outcome comes or its future is dropped.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// Wakers of a link's tasks. As a waker, it wakes the driver.
#[derive(Debug, Default)]
pub(crate) struct Tasks(Mutex<Table>);

/// A task's reason to await a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Awaits {
    /// The outcome of the call in this slot.
    Outcome(u16),
    /// Credit. The number distinguishes the futures that await it.
    Credit(u64),
}

/// The role of a future in driving its link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Drives {
    /// Another future drives, or a task that awaits nothing.
    No,
    /// The future drives, or none did.
    Yes,
    /// The future takes the place of another one of the same task.
    Instead,
}

#[derive(Debug, Default)]
struct Table {
    /// Wakers of tasks that await an outcome, by slot.
    calls: Vec<Option<Waker>>,
    /// Number of those.
    count: usize,
    /// Slot of the last of them: its outcome is likely to come last too.
    last: usize,
    /// Wakers of tasks that await credit, the first of them first.
    credit: Vec<(u64, Waker)>,
    next_credit: u64,
    driver: Option<Awaits>,
    /// True if the driver was woken and has not polled since.
    is_woken: bool,
    /// Number of tasks and threads that drive the link and await nothing.
    drivers: usize,
}

impl Tasks {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers `waker` for [`Tasks::wake_call`], in place of an earlier one.
    pub(crate) fn set_call(&self, slot: u16, waker: &Waker) {
        let (mut table, slot) = (self.table(), usize::from(slot));
        if table.calls.len() <= slot {
            table.calls.resize(slot + 1, None);
        }
        table.last = slot;
        let replaced = match &mut table.calls[slot] {
            Some(known) if known.will_wake(waker) => None,
            Some(known) => Some(std::mem::replace(known, waker.clone())),
            none => {
                *none = Some(waker.clone());
                table.count += 1;
                None
            }
        };
        // The drop of a waker runs foreign code.
        drop(table);
        drop(replaced);
    }

    /// Wakes the task that awaits the call in this slot.
    pub(crate) fn wake_call(&self, slot: u16) {
        let mut table = self.table();
        let waker = table.remove_call(slot);
        let successor = table.hand_over(Awaits::Outcome(slot));
        drop(table);
        waker.into_iter().chain(successor).for_each(Waker::wake);
    }

    /// Forgets the task that awaited the call in this slot.
    pub(crate) fn unregister_call(&self, slot: u16) {
        let mut table = self.table();
        let waker = table.remove_call(slot);
        let successor = table.hand_over(Awaits::Outcome(slot));
        drop(table);
        drop(waker);
        successor.into_iter().for_each(Waker::wake);
    }

    /// Registers `waker` to be woken when there may be credit. `number` is that of an earlier call for the same future.
    pub(crate) fn set_credit(&self, number: Option<u64>, waker: &Waker) -> u64 {
        let mut table = self.table();
        let number = number.unwrap_or_else(|| {
            table.next_credit += 1;
            table.next_credit
        });
        let known = table.credit.iter().position(|(known, _)| *known == number);
        let replaced = match known {
            Some(at) => Some(std::mem::replace(&mut table.credit[at].1, waker.clone())),
            None => {
                table.credit.push((number, waker.clone()));
                None
            }
        };
        drop(table);
        drop(replaced);
        number
    }

    /// Forgets the task that awaited credit under this number, and wakes the next one: there may be more.
    pub(crate) fn unregister_credit(&self, number: u64) {
        let mut table = self.table();
        let known = table.credit.iter().position(|(known, _)| *known == number);
        let waker = known.map(|at| table.credit.remove(at));
        let successor = table.hand_over(Awaits::Credit(number));
        let next = table.credit.first().map(|(_, waker)| waker.clone());
        drop(table);
        drop(waker);
        successor.into_iter().chain(next).for_each(Waker::wake);
    }

    /// Wakes the first task that awaits credit; another one the next time.
    pub(crate) fn wake_for_credit(&self) {
        let mut table = self.table();
        if table.credit.is_empty() {
            return;
        }
        table.credit.rotate_left(1);
        let waker = table.credit.last().map(|(_, waker)| waker.clone());
        drop(table);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Wakes all tasks, and forgets them.
    pub(crate) fn wake_all(&self) {
        let mut table = self.table();
        let wakers = table.everyone();
        let replaced = (std::mem::take(&mut table.calls), std::mem::take(&mut table.credit));
        table.count = 0;
        drop(table);
        drop(replaced);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Returns whether the future that awaits `awaits`, which `waker` polls, drives the link.
    pub(crate) fn may_drive(&self, awaits: Awaits, waker: &Waker) -> Drives {
        let table = self.table();
        match table.driver {
            _ if table.drivers > 0 => Drives::No,
            None => Drives::Yes,
            Some(driver) if driver == awaits => Drives::Yes,
            // The task of both futures may poll only this one for long.
            Some(driver) if table.waker(driver).is_some_and(|known| known.will_wake(waker)) => {
                Drives::Instead
            }
            Some(_) => Drives::No,
        }
    }

    /// Makes the task that awaits this the driver, which polls now.
    #[cfg(any(test, feature = "tokio"))]
    pub(crate) fn drives(&self, awaits: Awaits) {
        let mut table = self.table();
        (table.driver, table.is_woken) = (Some(awaits), false);
    }

    /// Returns whether a task that awaits nothing itself drives.
    pub(crate) fn has_own_task(&self) -> bool {
        self.table().drivers > 0
    }

    /// Notes that a task that awaits nothing itself drives from now on. Returns the wakers of all tasks, to be woken
    /// without a lock, if it is the first.
    #[must_use]
    pub(crate) fn add_driver(&self) -> Vec<Waker> {
        let mut table = self.table();
        table.drivers += 1;
        if table.drivers == 1 { table.everyone() } else { Vec::new() }
    }

    /// Notes that such a task has ended. Returns the wakers of all tasks if it was the last.
    #[must_use]
    pub(crate) fn remove_driver(&self) -> Vec<Waker> {
        let mut table = self.table();
        table.drivers -= 1;
        if table.drivers == 0 { table.everyone() } else { Vec::new() }
    }

    /// Returns whether no task awaits the link.
    pub(crate) fn is_empty(&self) -> bool {
        let table = self.table();
        table.count == 0 && table.credit.is_empty()
    }
}

impl Table {
    fn remove_call(&mut self, slot: u16) -> Option<Waker> {
        let waker = self.calls.get_mut(usize::from(slot))?.take()?;
        self.count -= 1;
        Some(waker)
    }

    /// If `leaver` drives, makes another task the driver and returns its waker.
    fn hand_over(&mut self, leaver: Awaits) -> Option<Waker> {
        if self.driver != Some(leaver) {
            return None;
        }
        let successor =
            self.last_call().or_else(|| self.credit.first().map(|(number, _)| Awaits::Credit(*number)));
        (self.driver, self.is_woken) = (successor, successor.is_some());
        self.waker(successor?).cloned()
    }

    /// Returns the awaited call in the slot used last, or in one before it.
    fn last_call(&mut self) -> Option<Awaits> {
        if self.count == 0 {
            return None;
        }
        let (before, behind) = self.calls.split_at((self.last + 1).min(self.calls.len()));
        let at = before.iter().rposition(Option::is_some);
        self.last = at.or_else(|| Some(before.len() + behind.iter().rposition(Option::is_some)?))?;
        Some(Awaits::Outcome(self.last as u16))
    }

    fn waker(&self, awaits: Awaits) -> Option<&Waker> {
        match awaits {
            Awaits::Outcome(slot) => self.calls.get(usize::from(slot))?.as_ref(),
            Awaits::Credit(number) => {
                self.credit.iter().find(|(known, _)| *known == number).map(|(_, waker)| waker)
            }
        }
    }

    /// The wakers of all tasks, of which none drives from now on.
    fn everyone(&mut self) -> Vec<Waker> {
        (self.driver, self.is_woken) = (None, false);
        self.calls.iter().flatten().chain(self.credit.iter().map(|(_, waker)| waker)).cloned().collect()
    }
}

impl Wake for Tasks {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    /// Wakes the driver. If it was woken before and has not polled since, its task does something else, and
    /// may do so for long: then all tasks are woken, and the first that polls drives.
    fn wake_by_ref(self: &Arc<Self>) {
        let mut table = self.table();
        let driver = table.driver.filter(|_| !table.is_woken).and_then(|driver| table.waker(driver).cloned());
        match driver {
            Some(driver) => {
                table.is_woken = true;
                drop(table);
                driver.wake();
            }
            None => {
                let wakers = table.everyone();
                drop(table);
                wakers.iter().for_each(Waker::wake_by_ref);
            }
        }
    }
}

#[cfg(test)]
pub(in crate::link) mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A waker that counts its wakes.
    #[derive(Default)]
    pub(in crate::link) struct Counted(AtomicUsize);

    impl Counted {
        pub(in crate::link) fn wakes(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn counted<const N: usize>() -> [(Arc<Counted>, Waker); N] {
        std::array::from_fn(|_| {
            let counted = Arc::new(Counted::default());
            (Arc::clone(&counted), Waker::from(counted))
        })
    }

    #[test]
    fn an_event_wakes_only_the_driver_and_its_outcome_a_successor() {
        let (tasks, wakers) = (Arc::new(Tasks::default()), counted::<3>());
        for (slot, (_, waker)) in wakers.iter().enumerate() {
            tasks.set_call(slot as u16, waker);
        }
        let wakes = || wakers.each_ref().map(|(counted, _)| counted.wakes());
        let drives = |slot: u16| tasks.may_drive(Awaits::Outcome(slot), &wakers[usize::from(slot) % 3].1);
        assert_eq!(drives(0), Drives::Yes);
        tasks.drives(Awaits::Outcome(0));
        assert_eq!(drives(1), Drives::No);
        assert_eq!(tasks.may_drive(Awaits::Outcome(1), &wakers[0].1), Drives::Instead, "of the same task");
        tasks.wake_by_ref();
        assert_eq!(wakes(), [1, 0, 0]);
        tasks.drives(Awaits::Outcome(0));
        tasks.wake_call(1);
        assert_eq!(wakes(), [1, 1, 0], "not the driver: nothing to hand over");
        tasks.wake_call(0);
        assert_eq!(wakes(), [2, 1, 1], "the last one has to drive now");
        assert_eq!([drives(2), drives(0)], [Drives::Yes, Drives::No]);
        tasks.drives(Awaits::Outcome(2));
        tasks.unregister_call(2);
        assert!(tasks.is_empty());
        assert_eq!(drives(1), Drives::Yes);
        assert_eq!(wakes(), [2, 1, 1]);
    }

    #[test]
    fn a_driver_that_does_not_poll_when_woken_loses_its_place() {
        let (tasks, wakers) = (Arc::new(Tasks::default()), counted::<3>());
        tasks.set_call(0, &wakers[0].1);
        tasks.set_call(1, &wakers[1].1);
        let number = tasks.set_credit(None, &wakers[2].1);
        tasks.drives(Awaits::Outcome(0));
        tasks.wake_by_ref();
        tasks.wake_by_ref();
        assert_eq!(wakers.each_ref().map(|(counted, _)| counted.wakes()), [2, 1, 1]);
        assert_eq!(tasks.may_drive(Awaits::Credit(number), &wakers[2].1), Drives::Yes);
        assert_eq!(tasks.may_drive(Awaits::Outcome(1), &wakers[1].1), Drives::Yes);
    }

    #[test]
    fn credit_goes_round() {
        let (tasks, wakers) = (Arc::new(Tasks::default()), counted::<2>());
        let numbers = wakers.each_ref().map(|(_, waker)| tasks.set_credit(None, waker));
        let wakes = || wakers.each_ref().map(|(counted, _)| counted.wakes());
        tasks.wake_for_credit();
        assert_eq!(wakes(), [1, 0]);
        tasks.wake_for_credit();
        assert_eq!(wakes(), [1, 1]);
        assert_eq!(tasks.set_credit(Some(numbers[0]), &wakers[0].1), numbers[0]);
        tasks.unregister_credit(numbers[0]);
        assert_eq!(wakes(), [1, 2], "there may be more for the next");
        tasks.unregister_credit(numbers[1]);
        assert!(tasks.is_empty());
    }
}
