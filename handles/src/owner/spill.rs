//! The file for objects for which a store has no memory, and the thread that reads and writes it.
//!
//! The thread does one job after the other, in their order. Of the store's locks it takes only that of its queue, and
//! not while it reads or writes. A job's memory and its part of the file belong to the job until the store has settled
//! it ([`Table::settle_next`](crate::owner::table::Table)).

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use farjump::objects::Bell;
use farjump::{SystemError, SystemOperation};
use farjump_os::{deferred_close, fork_count};
use rustix::fs::{Mode, OFlags, open};

use crate::error::Error;
use crate::owner::allocator::{Allocator, Block};
use crate::region::OwnRegion;

/// Least number of bytes of the file that an object takes.
const SECTOR: u64 = 512;
/// Maximum number of jobs under way.
const MOST_JOBS: usize = 64;
/// Bytes between two checks whether the store has ended.
const PART: usize = 4 << 20;

/// The direction of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// From memory to the file.
    Out,
    /// From the file to memory.
    In,
}

/// The copy of an object's bytes from its memory to a place in the file, or back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// The object's number.
    pub(crate) number: u64,
    pub(crate) direction: Direction,
    /// The part of the region.
    pub(crate) block: Block,
    /// The part of the file.
    pub(crate) place: Block,
    /// The object's length in bytes.
    pub(crate) len: u64,
}

/// A job that has ended.
pub(crate) type Done = (Job, io::Result<()>);

/// State that a store shares with the thread of its file.
#[derive(Debug)]
pub(crate) struct FileThread {
    file: File,
    region: Arc<OwnRegion>,
    queue: Mutex<Queue>,
    /// Signals that there is a job, or that the store has ended.
    work: Condvar,
    /// Signals that a job has ended.
    news: Condvar,
    /// Number of jobs that have ended. Changed under the lock of the queue.
    ended: AtomicU64,
    /// Number of settled jobs that failed to write.
    failures: AtomicU64,
    is_closed: AtomicBool,
    /// Number of forks before the thread was started: a forked child has no such thread.
    forks: u64,
}

#[derive(Default, Debug)]
struct Queue {
    jobs: VecDeque<Job>,
    done: VecDeque<Done>,
    /// Bells to ring when a job has ended.
    bells: Vec<Arc<Bell>>,
    #[cfg(test)]
    gate: gate::Gate,
}

impl FileThread {
    fn start(file: File, region: Arc<OwnRegion>) -> Result<Arc<FileThread>, Error> {
        fork_count::watch();
        let thread = Arc::new(FileThread {
            file,
            region,
            queue: Mutex::default(),
            work: Condvar::new(),
            news: Condvar::new(),
            ended: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            forks: fork_count::count(),
        });
        let runs = Arc::clone(&thread);
        deferred_close::spawn("farjump-spill", move || runs.run()).map_err(|source| {
            farjump::Error::from(SystemError { operation: SystemOperation::StartThread, source })
        })?;
        Ok(thread)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether this process has the thread. A forked child has its parent's file, but no thread for it.
    pub(crate) fn is_here(&self) -> bool {
        self.forks == fork_count::count()
    }

    /// Number of jobs that have ended so far.
    pub(crate) fn ended(&self) -> u64 {
        self.ended.load(Ordering::Acquire)
    }

    /// Number of jobs that failed to write so far.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Rings `bell` whenever a job has ended.
    pub(crate) fn add_bell(&self, bell: Arc<Bell>) {
        if self.is_here() {
            self.lock().bells.push(bell);
        }
    }

    pub(crate) fn remove_bell(&self, bell: &Arc<Bell>) {
        if self.is_here() {
            self.lock().bells.retain(|other| !Arc::ptr_eq(other, bell));
        }
    }

    /// Waits until more than `ended` jobs have ended. A job must be under way, so the wait ends. Returns at once in a
    /// forked child.
    pub(crate) fn wait_for_news(&self, ended: u64) {
        if !self.is_here() {
            return;
        }
        let mut queue = self.lock();
        while self.ended() == ended {
            queue = self.news.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Does jobs until the store has ended.
    fn run(&self) {
        let mut queue = self.lock();
        while !self.is_closed.load(Ordering::Relaxed) {
            let Some(job) = queue.take() else {
                queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            #[cfg(test)]
            let fault = queue.gate.fault(job.direction);
            drop(queue);
            let outcome = catch_unwind(AssertUnwindSafe(|| self.carry_out(&job)));
            let outcome =
                outcome.unwrap_or_else(|_| Err(io::Error::other("the thread of the file panicked")));
            #[cfg(test)]
            let outcome = fault.map_or(outcome, Err);
            queue = self.lock();
            queue.done.push_back((job, outcome));
            self.ended.fetch_add(1, Ordering::Release);
            self.news.notify_all();
            queue.bells.iter().for_each(|bell| bell.ring());
        }
    }

    /// Copies the bytes of a job, in parts.
    fn carry_out(&self, job: &Job) -> io::Result<()> {
        let data = self.region.region.at(job.block.offset(), job.len);
        let data = data.ok_or_else(|| io::Error::other("its memory is not the store's"))?;
        let len = job.len as usize;
        for at in (0..len).step_by(PART) {
            if self.is_closed.load(Ordering::Relaxed) {
                return Err(io::Error::other("the store has ended"));
            }
            let (part, place) = (PART.min(len - at), job.place.offset() + at as u64);
            // SAFETY: the `len` bytes lie in the region, which `self` keeps mapped.
            let start = unsafe { data.as_ptr().add(at) };
            match job.direction {
                Direction::Out => {
                    // SAFETY: the bytes are those of a finished object, which nothing writes. Its block stays in use
                    // until the job is settled.
                    let bytes = unsafe { std::slice::from_raw_parts(start, part) };
                    self.file.write_all_at(bytes, place)?;
                }
                Direction::In => {
                    // SAFETY: the block was taken for this job, and nothing else uses it before the job is settled.
                    let into = unsafe { std::slice::from_raw_parts_mut(start, part) };
                    self.file.read_exact_at(into, place)?;
                }
            }
        }
        Ok(())
    }
}

impl Queue {
    /// Takes the next job.
    fn take(&mut self) -> Option<Job> {
        #[cfg(test)]
        if !self.jobs.is_empty() && !self.gate.lets_pass() {
            return None;
        }
        self.jobs.pop_front()
    }
}

/// A file without a name, which ends with its process, and the jobs of its thread.
#[derive(Debug)]
pub(crate) struct Spill {
    space: Allocator,
    thread: Arc<FileThread>,
    /// Number of jobs that are not settled.
    in_flight: usize,
    /// Number of jobs that are settled.
    settled: u64,
    /// Bytes of objects that jobs write to the file.
    leaving: u64,
}

impl Spill {
    /// Makes a file of at most `capacity` bytes in the folder `folder`, for the objects of `region`.
    pub(crate) fn create(folder: &Path, capacity: u64, region: Arc<OwnRegion>) -> Result<Spill, Error> {
        let failed = |source| Error::File { path: folder.to_path_buf(), source };
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = match open(folder, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => File::from(file),
            Err(errno) => return Err(failed(errno.into())),
        };
        let thread = FileThread::start(file, region)?;
        let space = Allocator::new(capacity, SECTOR);
        Ok(Spill { space, thread, in_flight: 0, settled: 0, leaving: 0 })
    }

    pub(crate) fn thread(&self) -> &Arc<FileThread> {
        &self.thread
    }

    /// Number of places visited since the file was made.
    pub(crate) fn visits(&self) -> u64 {
        self.space.visits()
    }

    /// Bytes of the heap that the file's allocator takes.
    pub(crate) fn heap(&self) -> u64 {
        self.space.heap()
    }

    /// Bytes of memory that become free if all jobs under way succeed.
    pub(crate) fn leaving(&self) -> u64 {
        self.leaving
    }

    /// Returns whether the thread takes another job.
    pub(crate) fn takes_more(&self) -> bool {
        self.in_flight < MOST_JOBS
    }

    /// Returns whether a job has ended that is not settled.
    pub(crate) fn has_news(&self) -> bool {
        self.thread.ended() != self.settled
    }

    /// Takes a place for an object.
    pub(crate) fn take(&mut self, len: u64) -> Option<Block> {
        self.space.take(len)
    }

    /// Frees the place of an object.
    pub(crate) fn free(&mut self, place: Block) {
        self.space.give_back(place);
    }

    /// Number of jobs that are not settled.
    #[cfg(test)]
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Bytes of the file that are used.
    #[cfg(test)]
    pub(crate) fn used(&self) -> u64 {
        self.space.used()
    }

    /// Gives the thread a job.
    pub(crate) fn begin(&mut self, job: Job) {
        self.in_flight += 1;
        if job.direction == Direction::Out {
            self.leaving += job.block.len();
        }
        self.thread.lock().jobs.push_back(job);
        self.thread.work.notify_one();
    }

    /// Takes the next job that has ended.
    pub(crate) fn next_done(&mut self) -> Option<Done> {
        if !self.has_news() || !self.thread.is_here() {
            return None;
        }
        let (job, outcome) = self.thread.lock().done.pop_front()?;
        (self.in_flight, self.settled) = (self.in_flight - 1, self.settled + 1);
        if job.direction == Direction::Out {
            self.leaving -= job.block.len();
            self.thread.failures.fetch_add(outcome.is_err().into(), Ordering::Relaxed);
        }
        Some((job, outcome))
    }
}

impl Drop for Spill {
    fn drop(&mut self) {
        // A forked child does not have the thread, which may have held the lock.
        if self.thread.is_here() {
            // Under the lock, so that the thread sees the change or is woken.
            let _queue = self.thread.lock();
            self.thread.is_closed.store(true, Ordering::Relaxed);
            self.thread.work.notify_all();
        }
    }
}

/// Jobs that a test stops, or makes fail.
#[cfg(test)]
mod gate {
    use super::*;

    #[derive(Debug, Default)]
    pub(super) struct Gate {
        /// Number of jobs that may run. All unless set.
        passes: Option<u64>,
        faults: Vec<(Direction, rustix::io::Errno)>,
    }

    impl Gate {
        pub(super) fn lets_pass(&mut self) -> bool {
            match &mut self.passes {
                None => true,
                Some(0) => false,
                Some(passes) => {
                    *passes -= 1;
                    true
                }
            }
        }

        pub(super) fn fault(&mut self, direction: Direction) -> Option<io::Error> {
            let at = self.faults.iter().position(|fault| fault.0 == direction)?;
            Some(self.faults.remove(at).1.into())
        }
    }

    impl FileThread {
        /// Lets `jobs` more jobs run, or all.
        pub(crate) fn let_pass(&self, jobs: Option<u64>) {
            self.lock().gate.passes = jobs;
            self.work.notify_all();
        }

        /// Makes a job of this direction fail.
        pub(crate) fn fail(&self, direction: Direction, errno: rustix::io::Errno) {
            self.lock().gate.faults.push((direction, errno));
        }

        /// Number of jobs that wait for the thread.
        pub(crate) fn waiting(&self) -> usize {
            self.lock().jobs.len()
        }
    }
}
