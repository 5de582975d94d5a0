//! The sleep of tasks that await a link in a tokio runtime.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use farjump_core::wait::Waiter;

use super::awaiting::Turn;
use super::tasks::{Awaits, Drives, Tasks};
use crate::Error;
use crate::link::{Link, TURNS_TO_IDLE};
use crate::tokio::Sleeper;
use crate::wait::LONGEST_SLEEP;

/// A link's descriptor and timer in a runtime, and the wait of the task that drives.
#[derive(Debug)]
pub(in crate::link) struct Reactor {
    waiter: Waiter,
    sleeper: Sleeper,
    /// Wakes the task that drives.
    waker: Waker,
    /// Time until which the timer needs no renewal while the driver is awake.
    timer_runs_until: Option<Instant>,
}

impl Reactor {
    fn new(link: &Link, tasks: &Arc<Tasks>) -> Result<Reactor, Error> {
        let waiter = Waiter::new(link.inner.borrow().settings.task_wait);
        Ok(Reactor {
            waiter,
            sleeper: Sleeper::new(link.as_fd()?)?,
            waker: Waker::from(Arc::clone(tasks)),
            timer_runs_until: None,
        })
    }

    /// Looks for frames in some turns, unless the link stays asleep.
    fn look(&mut self, link: &Link, turns: u32) -> Result<Turn, Error> {
        if link.inner.borrow().is_watch_armed() {
            match self.sleeper.poll(&mut Context::from_waker(&self.waker))? {
                Poll::Pending => return Ok(Turn::Sleep),
                Poll::Ready(was_event) => {
                    link.disarm();
                    // An event is likely to have others behind it; a timer is not.
                    if was_event {
                        self.waiter.reset();
                    }
                }
            }
        }
        let mut inner = link.inner.borrow_mut();
        let sleeps = inner.turn_of_task(&mut self.waiter, turns)?;
        inner.tasks().wake_for_credit();
        Ok(if sleeps { Turn::Sleep } else { Turn::Again })
    }

    /// Arranges the next wake of the task that drives: at once, or by an event.
    fn rest(&mut self, link: &Link, tasks: &Arc<Tasks>, turn: Turn) -> Result<(), Error> {
        if turn == Turn::Sleep {
            if !link.inner.borrow().is_watch_armed() {
                match link.arm()? {
                    Some(longest) => {
                        self.sleeper.set(longest);
                        self.timer_runs_until = None;
                    }
                    None => {
                        link.disarm();
                        self.waiter.reset();
                        self.look_again(tasks);
                        return Ok(());
                    }
                }
            }
            if self.sleeper.poll(&mut Context::from_waker(&self.waker))?.is_pending() {
                return Ok(());
            }
            link.disarm();
        }
        self.look_again(tasks);
        Ok(())
    }

    /// Makes the driver look again after other tasks. The timer runs meanwhile, in case the driver does not.
    fn look_again(&mut self, tasks: &Arc<Tasks>) {
        let now = Instant::now();
        if self.timer_runs_until.is_none_or(|until| until <= now) {
            self.sleeper.set(LONGEST_SLEEP);
            let _ = self.sleeper.poll_timer(&mut Context::from_waker(&self.waker));
            self.timer_runs_until = Some(now + LONGEST_SLEEP / 2);
        }
        tasks.wake_by_ref();
    }
}

impl Link {
    /// Looks for frames on behalf of all tasks, if the future that awaits this drives.
    pub(in crate::link) fn look_for(
        &self,
        tasks: &Arc<Tasks>,
        awaits: Awaits,
        waker: &Waker,
    ) -> Result<Turn, Error> {
        let turns = match tasks.may_drive(awaits, waker) {
            Drives::No => return Ok(Turn::Driven),
            Drives::Yes => TURNS_TO_IDLE,
            // The other future may have looked just now.
            Drives::Instead => 1,
        };
        let mut reactor = self.reactor.borrow_mut();
        if reactor.as_ref().is_none_or(|reactor| !reactor.sleeper.is_of_this_runtime()) {
            self.disarm();
            *reactor = Some(Box::new(Reactor::new(self, tasks)?));
        }
        reactor.as_mut().map_or(Ok(Turn::Again), |reactor| reactor.look(self, turns))
    }

    /// Makes the task the driver if it has looked, and arranges its next wake.
    pub(in crate::link) fn rest_for(
        &self,
        tasks: &Arc<Tasks>,
        awaits: Awaits,
        turn: Turn,
    ) -> Result<(), Error> {
        if turn == Turn::Driven {
            return Ok(());
        }
        tasks.drives(awaits);
        let mut reactor = self.reactor.borrow_mut();
        reactor.as_mut().map_or(Ok(()), |reactor| reactor.rest(self, tasks, turn))
    }

    /// Ends the sleep if no task awaits the link any more: the target need not wake it then.
    pub(in crate::link) fn rest_if_unused(&self) {
        let Ok(reactor) = self.reactor.try_borrow() else { return };
        if reactor.is_some()
            && let Ok(mut inner) = self.inner.try_borrow_mut()
            && inner.is_watch_armed()
            && !inner.tasks().has_own_task()
            && inner.tasks().is_empty()
        {
            inner.disarm_watch();
        }
    }
}
