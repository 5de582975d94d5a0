//! Waits of threads on a shared link.
//!
//! A thread looks for a while, at first as its caller called it, then inside the function around its sleeps. Then one
//! of all threads that wait sleeps on the link, and the others until it has looked. On a link that is driven they all
//! sleep until the driver's look wakes them.

use std::hint::spin_loop;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::driver::DrivenByThread;
use super::patience::Patience;
use super::shared::{HeldLink, Shared, SharedLink};
use crate::Error;
use crate::link::{Link, Reply};

/// Time of looks before a wait looks inside the function around its sleeps: to take back Python's lock can take 5 ms
/// beside a thread that computes. Waking a sleeping target takes less than this time.
const HELD: Duration = Duration::from_micros(100);
/// Time of looks before a wait sleeps.
const SPIN: Duration = Duration::from_micros(150);
/// Number of looks between two checks whether another thread waits for the lock, or the target for this processor.
const LOOKS: u32 = 64;
/// Longest sleep between two looks.
const NAP: Duration = Duration::from_millis(10);

/// The reason why a wait ended without what it waited for.
#[derive(Debug)]
pub enum Ended {
    /// The check of the [`Patience`] returned `false`. It goes before an outcome that came with it.
    Interrupted,
    /// The time is over.
    TimedOut,
    /// The call failed, or the link.
    Failed(Error),
}

impl<E: Into<Error>> From<E> for Ended {
    fn from(error: E) -> Ended {
        Ended::Failed(error.into())
    }
}

impl SharedLink {
    /// Waits for the outcome of the call with this number ([`Pending::into_raw`](crate::Pending::into_raw)), on this
    /// thread. Sleeps without the lock. After [`Ended::Interrupted`] and [`Ended::TimedOut`] the call is still pending.
    ///
    /// # Errors
    /// The reason why there is no reply.
    pub fn wait(&self, number: u32, patience: &mut Patience<'_>) -> Result<Reply, Ended> {
        self.0.wait(number, patience)
    }

    /// Waits until `attempt` has a value, as [`SharedLink::wait`] does. It is called under the lock, about as often as
    /// the link has an event; on a link that is driven every 10 ms.
    ///
    /// # Errors
    /// The reason why there is no value.
    pub fn attempt<R: Send>(
        &self,
        patience: &mut Patience<'_>,
        attempt: impl FnMut(&Link) -> Option<R> + Send,
    ) -> Result<R, Ended> {
        Wait::new(&self.0, attempt, None).run(patience)
    }
}

impl Shared {
    pub(super) fn wait(&self, number: u32, patience: &mut Patience<'_>) -> Result<Reply, Ended> {
        let attempt = |link: &Link| link.poll_raw(number).transpose();
        Ok(Wait::new(self, attempt, Some(number)).run(patience)??)
    }
}

/// The result of several looks.
enum Looks<R> {
    Found(R),
    Nothing,
    /// The target waits for this processor.
    Yields,
    /// Another thread waits for the lock.
    IsWanted,
}

/// A wait of this thread.
struct Wait<'w, A> {
    shared: &'w Shared,
    attempt: A,
    /// The call that is waited for, if it is one.
    number: Option<u32>,
    /// The time of the first look that found nothing.
    begun: Option<Instant>,
    /// The number of leads that had ended before the last look.
    seen: usize,
    /// Keeps the thread awake that drives the link, if there is one.
    driver: Option<DrivenByThread>,
    waker: Option<Waker>,
}

impl<'w, R: Send, A: FnMut(&Link) -> Option<R> + Send> Wait<'w, A> {
    fn new(shared: &'w Shared, attempt: A, number: Option<u32>) -> Self {
        Wait { shared, attempt, number, begun: None, seen: 0, driver: None, waker: None }
    }

    fn run(mut self, patience: &mut Patience<'_>) -> Result<R, Ended> {
        let shared = self.shared;
        loop {
            let looked = match shared.try_hold(|held| self.look(held, HELD)) {
                Ok(looked) => looked?,
                // The thread that has the lock may need what this thread gives back while it sleeps.
                Err(look) => {
                    let (mut look, mut looked) = (Some(look), None);
                    patience.sleep(|| looked = look.take().map(|look| shared.hold(look)));
                    looked.unwrap_or(Ok(Ok(Looks::Nothing)))??
                }
            };
            match looked {
                Looks::Found(found) => return Ok(found),
                Looks::Nothing => break,
                Looks::Yields => thread::yield_now(),
                Looks::IsWanted => {}
            }
        }
        loop {
            let (until, mut turned) = (patience.end_of_turn(), Ok(None));
            patience.sleep(|| turned = self.turn(until));
            if let Some(found) = turned? {
                return Ok(found);
            }
            // An interruption goes before an outcome that came with it: giving up undoes what the call has done, and the
            // caller of an interrupted wait does not get its result.
            if !patience.may_continue() {
                return Err(Ended::Interrupted);
            }
            if patience.is_over() {
                let mut last = Ok(None);
                patience.sleep(|| last = self.attempt_once());
                return last?.ok_or(Ended::TimedOut);
            }
        }
    }

    /// Looks under the lock until `most` after the first look, or until another thread needs lock or processor.
    fn look(&mut self, held: &HeldLink, most: Duration) -> Result<Looks<R>, Error> {
        self.seen = self.shared.lead.rounds();
        held.look(None, |link| {
            for looks in 1_u32.. {
                if let Some(found) = (self.attempt)(link) {
                    return Looks::Found(found);
                }
                let begun = *self.begun.get_or_insert_with(Instant::now);
                if looks.is_multiple_of(LOOKS) {
                    if begun.elapsed() >= most {
                        break;
                    }
                    if link.may_share_processor() {
                        return Looks::Yields;
                    }
                    if self.shared.is_wanted() {
                        return Looks::IsWanted;
                    }
                }
                spin_loop();
            }
            Looks::Nothing
        })
    }

    fn attempt_once(&mut self) -> Result<Option<R>, Error> {
        self.seen = self.shared.lead.rounds();
        self.shared.hold(|held| held.look(None, &mut self.attempt))?
    }

    /// Looks for a while the first time, then sleeps, until `until`. Does not look after that time: a check is due.
    fn turn(&mut self, until: Instant) -> Result<Option<R>, Error> {
        // The check may have forked.
        self.shared.check_process()?;
        while self.begun.is_none_or(|begun| begun.elapsed() < SPIN) {
            match self.shared.hold(|held| self.look(held, SPIN))?? {
                Looks::Found(found) => return Ok(Some(found)),
                Looks::Nothing => break,
                Looks::Yields => thread::yield_now(),
                Looks::IsWanted => {}
            }
        }
        loop {
            let longest = until.saturating_duration_since(Instant::now()).min(NAP);
            let found = match self.shared.tasks.has_own_task() {
                true => self.sleep_driven(longest)?,
                false => self.sleep(longest, until)?,
            };
            if found.is_some() || Instant::now() >= until {
                return Ok(found);
            }
        }
    }

    /// Sleeps on the link for all threads, or until another thread that does so has looked. Looks before: another
    /// thread's look may have taken an event that came since this one's.
    fn sleep(&mut self, longest: Duration, until: Instant) -> Result<Option<R>, Error> {
        let shared = self.shared;
        let Some(_leads) = shared.lead.take(self.seen, longest) else {
            return if Instant::now() < until { self.attempt_once() } else { Ok(None) };
        };
        let sleeper = shared.sleeper()?;
        self.seen = shared.lead.rounds();
        let (found, may) = shared.hold(|held| {
            let found = held.look(Some(sleeper), &mut self.attempt)?;
            let may = if found.is_none() { held.begin_sleep(sleeper) } else { None };
            Ok::<_, Error>((found, may))
        })??;
        let Some(may) = may else { return Ok(found) };
        let came = sleeper.sleep(may.min(longest));
        let is_due = Instant::now() >= until;
        shared.hold(|held| {
            if !held.end_sleep(sleeper) && came {
                held.wake_others(Some(sleeper));
            }
            if is_due { Ok(None) } else { held.look(Some(sleeper), &mut self.attempt) }
        })?
    }

    /// Sleeps until the look of a driver takes the outcome.
    fn sleep_driven(&mut self, longest: Duration) -> Result<Option<R>, Error> {
        if self.driver.is_none() {
            self.driver = self.shared.awake_driver();
        }
        let (number, waker) = (self.number, &mut self.waker);
        let found = self.shared.hold(|held| {
            held.look(None, |link| {
                let found = (self.attempt)(link);
                if found.is_none()
                    && let Some(number) = number
                {
                    let waker = waker.get_or_insert_with(|| Arc::new(Unpark(thread::current())).into());
                    link.inner.borrow_mut().wake_on_outcome(number, waker);
                }
                found
            })
        })??;
        if found.is_none() {
            thread::park_timeout(longest);
        }
        Ok(found)
    }
}

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
