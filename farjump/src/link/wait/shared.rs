//! Links that threads, tasks and event loops share.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};
use std::time::Duration;

use farjump_os::Owner;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::tasks::Tasks;
use super::users::Driver;
use super::wake::{Lead, Wake};
use crate::link::{Link, Reply};
use crate::{Error, InjectError, WaitError};

/// Maximum number of calls to be undone that a link awaits. Replies to further ones are dropped.
const MAX_LATE: usize = 1024;

/// A link that any number of threads and of tasks on any threads use, each by a clone of it.
///
/// Its futures are [`Send`]: they may be spawned on a runtime of several threads. A separate task drives it
/// ([`SharedLink::spawn`], [`SharedLink::drive`]) or a thread ([`SharedLink::drive_by_thread`]), so no task waits for
/// another one to be polled. Threads that wait ([`SharedLink::wait`]) need no driver. Calls share a lock, which they
/// hold while they write a frame or look for frames, never during a sleep. The link closes when the last clone and the
/// last pending call are dropped, or by [`SharedLink::close`]. In a forked child its methods fail with
/// [`WaitError::Forked`].
///
/// Tasks of one thread may also share a [`Link`] by reference, and pay for no lock.
#[derive(Clone, Debug)]
pub struct SharedLink(pub(super) Arc<Shared>);

#[derive(Debug)]
pub(super) struct Shared {
    held: Mutex<HeldLink>,
    /// The thread that holds the lock, by [`this_thread`]; 0 for none.
    holder: AtomicUsize,
    /// Number of threads that wait for the lock.
    wanted: AtomicUsize,
    /// Calls that were dropped while another thread, or a caller of this one, held the lock.
    pub(super) dropped: Mutex<Vec<Abandoned>>,
    /// Number of these calls.
    pub(super) drops: AtomicUsize,
    /// Number of calls to be undone.
    pub(super) lates: AtomicUsize,
    /// The lead of the thread that sleeps on the link for all threads, and its sleeper once one has slept.
    pub(super) lead: Lead,
    pub(super) sleeper: OnceLock<Sleeper>,
    /// The thread that drives the link, once there is one.
    pub(super) driver: Mutex<Option<Arc<Driver>>>,
    pub(super) tasks: Arc<Tasks>,
    pub(super) address: Arc<str>,
    pub(super) owner: Owner,
}

/// A shared link whose lock is held.
#[derive(Debug)]
pub struct HeldLink {
    /// `None` once closed.
    pub(super) link: Option<Link>,
    pub(super) sleepers: Vec<Arc<Wake>>,
    /// Calls whose late replies are to be undone.
    pub(super) late: VecDeque<Late>,
    pub(super) shared: Weak<Shared>,
    tasks: Arc<Tasks>,
    address: Arc<str>,
}

impl HeldLink {
    /// The link; `None` once it was closed.
    pub fn link(&self) -> Option<&Link> {
        self.link.as_ref()
    }

    /// The link.
    ///
    /// # Errors
    /// [`WaitError::Closed`] once it was closed.
    pub fn open(&self) -> Result<&Link, Error> {
        self.link.as_ref().ok_or_else(|| WaitError::Closed { peer: self.address.to_string() }.into())
    }

    /// Runs `act` on the link. If it takes outcomes, wakes all other sleepers, for which they may be.
    ///
    /// # Errors
    /// [`WaitError::Closed`] once the link was closed.
    pub fn look<R>(&self, own: Option<&Sleeper>, act: impl FnOnce(&Link) -> R) -> Result<R, Error> {
        let link = self.open()?;
        let before = link.news();
        let done = act(link);
        if link.news() != before {
            self.wake_others(own);
        }
        Ok(done)
    }

    /// Wakes all sleepers but `own`. Call it after a look that may have taken an event of theirs.
    pub fn wake_others(&self, own: Option<&Sleeper>) {
        for wake in &self.sleepers {
            if wake.is_asleep() && own.is_none_or(|own| !Arc::ptr_eq(&own.wake, wake)) {
                wake.ring();
            }
        }
    }

    /// Stops the target from waking this process, unless another sleeper sleeps, or a task drives the link and arms it.
    pub(super) fn disarm(&self) {
        if !self.tasks.has_own_task() {
            self.disarm_driver();
        }
    }

    /// As [`HeldLink::disarm`], for the task that drives the link.
    pub(super) fn disarm_driver(&self) {
        if let Some(link) = self.link()
            && !self.sleepers.iter().any(|wake| wake.is_asleep())
        {
            link.disarm();
        }
    }

    /// Wakes all sleepers, also those that do not sleep now.
    fn ring_all(&self) {
        self.sleepers.iter().for_each(|wake| wake.ring());
    }

    fn remove_sleeper(&mut self, wake: &Arc<Wake>) {
        self.sleepers.retain(|other| !Arc::ptr_eq(other, wake));
        self.disarm();
    }
}

/// A sleeper on a [`SharedLink`], made by [`HeldLink::add_sleeper`]: an event loop that looks for the
/// outcomes of its calls.
///
/// Its descriptor ([`AsFd`]) is readable when the link has an event, and when another user of the link may have taken
/// an event. Watch it, and do not read it. Between [`HeldLink::begin_sleep`] and [`HeldLink::end_sleep`] the program
/// sleeps on it without the link's lock. The link's end makes it readable too.
#[derive(Debug)]
pub struct Sleeper {
    pub(super) shared: Weak<Shared>,
    pub(super) wake: Arc<Wake>,
    pub(super) epoll: OwnedFd,
}

impl Sleeper {
    /// Sleeps until the descriptor is readable, for `longest` at most. Returns whether it is readable.
    pub(super) fn sleep(&self, longest: Duration) -> bool {
        // A signal ends the sleep early; the caller checks for it.
        let longest = Timespec::try_from(longest).ok();
        poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], longest.as_ref()).is_ok_and(|ready| ready != 0)
    }
}

impl AsFd for Sleeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.wake.asleep.store(false, Ordering::Relaxed);
        if let Some(shared) = self.shared.upgrade() {
            shared.try_remove_sleeper(&self.wake);
        }
    }
}

/// Takes back what a late reply brings.
pub(super) type Undo = Box<dyn FnOnce(&Link, Reply) + Send>;

/// A call that was dropped.
#[derive(Debug)]
pub(super) struct Abandoned {
    pub(super) number: u32,
    pub(super) undo: Option<Late>,
}

/// A call to be undone, by its number. A call keeps its number until its outcome is taken, so no later call can get the
/// reply to one of these.
pub(super) struct Late(pub(super) u32, pub(super) Undo);

impl fmt::Debug for Late {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Late").field(&self.0).finish_non_exhaustive()
    }
}

/// A number that identifies this thread among those that run.
fn this_thread() -> usize {
    thread_local!(static HERE: Cell<u8> = const { Cell::new(0) });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

/// The link, while the lock is held.
pub(super) struct Locked<'s> {
    held: MutexGuard<'s, HeldLink>,
    holder: &'s AtomicUsize,
}

impl Locked<'_> {
    /// As [`HeldLink::look`].
    pub(super) fn look<R>(&self, act: impl FnOnce(&Link) -> R) -> Result<R, Error> {
        self.held.look(None, act)
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.holder.store(0, Ordering::Relaxed);
    }
}

impl Shared {
    /// Waits for the lock, unless this thread has it: a handler or a payload routine then runs inside a call.
    pub(super) fn lock(&self) -> Result<Locked<'_>, Error> {
        self.check_process()?;
        match self.try_lock() {
            Some(locked) => Ok(locked),
            None if self.holder.load(Ordering::Relaxed) == this_thread() => Err(InjectError::Busy.into()),
            None => {
                self.wanted.fetch_add(1, Ordering::Relaxed);
                let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
                self.wanted.fetch_sub(1, Ordering::Relaxed);
                Ok(self.locked(held))
            }
        }
    }

    pub(super) fn try_lock(&self) -> Option<Locked<'_>> {
        match self.held.try_lock() {
            Ok(held) => Some(self.locked(held)),
            Err(TryLockError::Poisoned(poisoned)) => Some(self.locked(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn locked<'s>(&'s self, mut held: MutexGuard<'s, HeldLink>) -> Locked<'s> {
        self.holder.store(this_thread(), Ordering::Relaxed);
        if self.drops.load(Ordering::Acquire) != 0 {
            self.cancel_dropped(&mut held);
        }
        Locked { held, holder: &self.holder }
    }

    /// Cancels the calls that were dropped, or keeps them until their late replies are undone.
    fn cancel_dropped(&self, held: &mut HeldLink) {
        let dropped = std::mem::take(&mut *self.dropped.lock().unwrap_or_else(PoisonError::into_inner));
        self.drops.fetch_sub(dropped.len(), Ordering::AcqRel);
        for Abandoned { number, undo } in dropped {
            match (undo, &held.link) {
                (_, None) => self.lates.store(0, Ordering::Relaxed),
                (None, Some(link)) => link.abandon(number),
                (Some(late), Some(_)) if held.late.len() < MAX_LATE => held.late.push_back(late),
                (Some(_), Some(link)) => {
                    log::warn!(
                        "{MAX_LATE} calls to {} were given up and have no reply yet: what a further one brings stays \
                         with the target until this link ends",
                        held.address
                    );
                    self.lates.fetch_sub(1, Ordering::Relaxed);
                    link.abandon(number);
                }
            }
        }
    }

    /// Runs `act` under the lock.
    pub(super) fn hold<R>(&self, act: impl FnOnce(&mut HeldLink) -> R) -> Result<R, Error> {
        Ok(act(&mut self.lock()?.held))
    }

    /// As [`Shared::hold`] if no thread has the lock. Returns `act` otherwise.
    pub(super) fn try_hold<R, A: FnOnce(&mut HeldLink) -> R>(&self, act: A) -> Result<R, A> {
        match self.try_lock() {
            Some(mut locked) => Ok(act(&mut locked.held)),
            None => Err(act),
        }
    }

    /// Returns whether a thread waits for the lock.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) != 0
    }

    /// Returns whether this process shared the link. Locks of a forked child may be held by threads that it lacks.
    pub(super) fn is_own(&self) -> bool {
        self.owner.is_this()
    }

    pub(super) fn check_process(&self) -> Result<(), Error> {
        if self.is_own() {
            return Ok(());
        }
        Err(WaitError::Forked { peer: self.address.to_string(), parent: self.owner.pid() }.into())
    }

    /// Removes the sleeper of an event loop that has ended; later if the lock is taken.
    fn try_remove_sleeper(&self, wake: &Arc<Wake>) {
        // A forked child leaves the parent's link as it is.
        if self.is_own() {
            let _ = self.try_hold(|held| held.remove_sleeper(wake));
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Event loops that still read the link, and the thread that drives it, see its end. In a forked child they
        // are the parent's.
        if self.is_own() {
            self.held.get_mut().unwrap_or_else(PoisonError::into_inner).ring_all();
            if let Some(driver) = self.driver.get_mut().unwrap_or_else(PoisonError::into_inner) {
                driver.is_closed.store(true, Ordering::Release);
                driver.wake.ring();
            }
        }
    }
}

impl SharedLink {
    /// Shares a link among threads, or among tasks for which [`SharedLink::drive`] drives it.
    pub fn new(link: Link) -> SharedLink {
        let (tasks, owner, address) = {
            let mut inner = link.inner.borrow_mut();
            (Arc::clone(inner.tasks()), inner.owner(), Arc::<str>::from(inner.address()))
        };
        SharedLink(Arc::new_cyclic(|shared| Shared {
            held: Mutex::new(HeldLink {
                link: Some(link),
                sleepers: Vec::new(),
                late: VecDeque::new(),
                shared: Weak::clone(shared),
                tasks: Arc::clone(&tasks),
                address: Arc::clone(&address),
            }),
            holder: AtomicUsize::new(0),
            wanted: AtomicUsize::new(0),
            dropped: Mutex::default(),
            drops: AtomicUsize::new(0),
            lates: AtomicUsize::new(0),
            lead: Lead::default(),
            sleeper: OnceLock::new(),
            driver: Mutex::default(),
            tasks,
            address,
            owner,
        }))
    }

    /// Runs `act` on the link, for methods that do not wait: [`Link::stats`], [`Link::set_mode`]. Other tasks and their
    /// threads wait meanwhile: do not call a method that waits.
    ///
    /// # Errors
    /// [`InjectError::Busy`] from a handler of this link; [`WaitError::Closed`]; [`WaitError::Forked`].
    pub fn with<R>(&self, act: impl FnOnce(&Link) -> R) -> Result<R, Error> {
        self.0.hold(|held| held.look(None, act))?
    }

    /// As [`SharedLink::with`], for programs that sleep on the link in an event loop of their own
    /// ([`HeldLink::add_sleeper`]), and on a link that may be closed.
    ///
    /// # Errors
    /// [`InjectError::Busy`] from a handler of this link; [`WaitError::Forked`].
    pub fn hold<R>(&self, act: impl FnOnce(&mut HeldLink) -> R) -> Result<R, Error> {
        self.0.hold(act)
    }

    /// As [`SharedLink::hold`], if no thread has the lock. Otherwise returns `act`.
    ///
    /// # Errors
    /// `act`, which did not run.
    pub fn try_hold<R, A: FnOnce(&mut HeldLink) -> R>(&self, act: A) -> Result<R, A> {
        self.0.try_hold(act)
    }

    /// Closes the link, and wakes all that wait for it. What is pending on it, and later uses, end with
    /// [`WaitError::Closed`]. A closed link stays as it is.
    ///
    /// # Errors
    /// [`InjectError::Busy`] from a handler of this link; [`WaitError::Forked`].
    pub fn close(&self) -> Result<(), Error> {
        let link = self.0.hold(|held| {
            held.ring_all();
            held.late.clear();
            held.link.take()
        })?;
        self.0.lates.store(0, Ordering::Relaxed);
        self.0.tasks.wake_all();
        // The thread that drives the link ends.
        if let Some(driver) = &*self.0.driver.lock().unwrap_or_else(PoisonError::into_inner) {
            driver.wake.ring();
        }
        drop(link);
        Ok(())
    }
}
