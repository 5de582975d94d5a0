//! A game in which a word goes to and fro, and who waits for it sleeps without an end: one lost wake-up and it hangs.

use std::sync::atomic::{AtomicU64, Ordering, compiler_fence, fence};

use farjump_core::transport::{Endpoint, LocalMemory, RemoteMemory};
use rustix::event::{PollFd, PollFlags, poll};

/// How often the ball goes to and fro.
pub(crate) const ROUNDS: u64 = 20_000;
/// Offset of the ball in a region, in bytes.
const BALL: usize = 4096;
/// Offset of "the peer sleeps" in a region, in bytes.
const ASLEEP: usize = 8;

/// One side of it.
pub(crate) struct Player {
    local: Box<dyn LocalMemory>,
    remote: Box<dyn RemoteMemory>,
    sleeps: u64,
}

impl Player {
    pub(crate) fn new(endpoint: Endpoint) -> Player {
        let Endpoint::OneSided { local, remote } = endpoint else { panic!("shm is one-sided") };
        Player { local, remote, sleeps: 0 }
    }

    fn here(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: inside the region, aligned, mapped as long as `self`, and accessed by atomics only.
        unsafe { AtomicU64::from_ptr(self.local.base().add(offset).as_ptr().cast()) }
    }

    fn there(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.remote.mapped().unwrap().add(offset).as_ptr().cast()) }
    }

    /// Stores the ball, and wakes the peer if it sleeps: as core does for a frame.
    fn throw(&mut self, ball: u64) {
        self.there(BALL).store(ball, Ordering::Release);
        match self.remote.store_load_ordered() {
            true => compiler_fence(Ordering::SeqCst),
            false => fence(Ordering::SeqCst),
        }
        if self.here(ASLEEP).load(Ordering::Relaxed) == 1 {
            self.remote.ring().unwrap();
        }
    }

    /// Waits for the ball: awake for `patience` looks, then asleep without an end. A lost ring hangs here.
    fn catch(&mut self, ball: u64, patience: u64) {
        for _ in 0..patience {
            if self.here(BALL).load(Ordering::Acquire) == ball {
                return;
            }
        }
        loop {
            self.there(ASLEEP).store(1, Ordering::Release);
            assert!(self.local.before_sleep().unwrap());
            if self.here(BALL).load(Ordering::Acquire) != ball {
                let bell = self.local.descriptor().unwrap();
                // Without an end: that nothing is lost is what is shown.
                poll(&mut [PollFd::from_borrowed_fd(bell, PollFlags::IN)], None).unwrap();
                self.sleeps += 1;
            }
            self.there(ASLEEP).store(0, Ordering::Relaxed);
            self.local.after_sleep().unwrap();
            if self.here(BALL).load(Ordering::Acquire) == ball {
                return;
            }
        }
    }

    /// Plays all rounds, throwing first. Returns how often it slept.
    pub(crate) fn begin(mut self) -> u64 {
        for round in 1..=ROUNDS {
            self.throw(round);
            self.catch(round, round % 700);
        }
        self.sleeps
    }

    /// Plays all rounds, catching first. Returns how often it slept.
    pub(crate) fn answer(mut self) -> u64 {
        for round in 1..=ROUNDS {
            self.catch(round, round % 500);
            self.throw(round);
        }
        self.sleeps
    }
}
