//! A thread that drives a link, as its users see it.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use farjump_os::Owner;

use super::tasks::Tasks;
use super::wake::Wake;
use crate::Error;

/// State that a thread which drives a link shares with the callers for which it does so.
#[derive(Debug)]
pub(super) struct Driver {
    users: Mutex<Users>,
    /// True if the link is gone.
    pub(super) is_closed: AtomicBool,
    /// Rung when another field has changed.
    pub(super) wake: Arc<Wake>,
    tasks: Arc<Tasks>,
    owner: Owner,
}

#[derive(Debug, Default)]
struct Users {
    count: usize,
    /// True if the thread has ended because the link failed.
    has_ended: bool,
}

impl Users {
    /// Returns whether tasks may await the link.
    fn are_served(&self) -> bool {
        self.count > 0 && !self.has_ended
    }
}

impl Driver {
    /// A driver without a user, of a link that `owner` shared.
    pub(super) fn new(tasks: &Arc<Tasks>, owner: Owner) -> Result<Driver, Error> {
        Ok(Driver {
            users: Mutex::default(),
            is_closed: AtomicBool::new(false),
            wake: Wake::new()?,
            tasks: Arc::clone(tasks),
            owner,
        })
    }

    pub(super) fn add_user(&self) {
        let mut is_first = false;
        self.change(|users| {
            users.count += 1;
            is_first = users.count == 1;
        });
        if is_first {
            self.wake.ring();
        }
    }

    pub(super) fn remove_user(&self) {
        // In a forked child a thread of the parent may have the lock.
        if self.owner.is_this() {
            self.change(|users| users.count -= 1);
        }
    }

    /// Notes that the thread has ended.
    pub(super) fn end(&self) {
        self.change(|users| users.has_ended = true);
    }

    pub(super) fn has_users(&self) -> bool {
        self.users().count > 0
    }

    pub(super) fn has_ended(&self) -> bool {
        self.users().has_ended
    }

    fn users(&self) -> MutexGuard<'_, Users> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the users. Wakes all tasks if that makes the link one that is driven, or no longer is.
    fn change(&self, change: impl FnOnce(&mut Users)) {
        let mut users = self.users();
        let before = users.are_served();
        change(&mut users);
        let wakers = match (before, users.are_served()) {
            (false, true) => self.tasks.add_driver(),
            (true, false) => self.tasks.remove_driver(),
            _ => Vec::new(),
        };
        // Wakers run foreign code.
        drop(users);
        wakers.into_iter().for_each(Waker::wake);
    }
}
