//! A thread in which MPI makes progress, and one that ends the job when a call of MPI waits too long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::Duration;

use mpi::environment::Universe;

use crate::pool::{Pool, nudge};

/// Longest time that [`finalize`] waits for MPI.
const FINALIZE: Duration = Duration::from_secs(60);

/// Pause between two probes.
const PAUSE: Duration = Duration::from_micros(50);

/// Checks for overdue calls in the time that one may wait.
const LOOKS: u32 = 8;

/// A thread that lets MPI make progress for other ranks until this is dropped.
///
/// Some MPIs write into a rank's window only while that rank calls MPI. A rank that waits for another event,
/// such as farjump's control connection, would keep the writer waiting. [`Pool::needs_worker`] says whether
/// the MPI is one of these. Links and targets then fail to open without a worker.
///
/// MPI has no time limit for a call. If a call for this window waits longer than the worker's patience, a second thread
/// prints the call and its rank on standard error, and aborts the process. `mpirun` then ends the other ranks. That
/// thread never calls MPI: MPICH holds its lock while a flush waits, and blocks all other threads.
///
/// The worker uses the pool, so it has to be dropped before the pool is freed.
#[must_use = "dropping it ends the threads"]
pub struct Worker {
    ended: Arc<AtomicBool>,
    worker: Option<JoinHandle<()>>,
    /// Nothing is sent: the watcher ends when this is dropped.
    watched: Option<Sender<()>>,
    watcher: Option<JoinHandle<()>>,
    pool: Pool,
}

impl Worker {
    /// Default limit of a call's wait.
    pub const PATIENCE: Duration = Duration::from_secs(120);

    /// Starts a worker with [`Worker::PATIENCE`].
    ///
    /// # Errors
    /// If the system gives no threads.
    pub fn start(pool: &Pool) -> std::io::Result<Worker> {
        Worker::with_patience(pool, Worker::PATIENCE)
    }

    /// Starts a worker if `pool` needs one.
    ///
    /// # Errors
    /// If the system gives no threads.
    pub fn where_needed(pool: &Pool) -> std::io::Result<Option<Worker>> {
        pool.needs_worker().then(|| Worker::start(pool)).transpose()
    }

    /// Starts a worker that aborts the process when a call waits longer than `patience`.
    ///
    /// # Errors
    /// If the system gives no threads.
    pub fn with_patience(pool: &Pool, patience: Duration) -> std::io::Result<Worker> {
        let ended = Arc::new(AtomicBool::new(false));
        let (announced, served) = (Arc::clone(&ended), pool.clone());
        let worker = Builder::new().name("mpi".into()).spawn(move || {
            // The next user of the window gets an error of the probe, too.
            while !announced.load(Ordering::Relaxed) && nudge(&served).is_ok() {
                sleep(PAUSE);
            }
        })?;
        pool.add_worker();
        let mut started =
            Worker { ended, worker: Some(worker), watched: None, watcher: None, pool: pool.clone() };
        let (watched, ends) = mpsc::channel::<()>();
        let served = pool.clone();
        started.watcher = Some(Builder::new().name("mpi-watch".into()).spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = ends.recv_timeout(patience / LOOKS) {
                if let Some(why) = overdue(&served, patience) {
                    eprintln!("{why}");
                    std::process::abort();
                }
            }
        })?);
        started.watched = Some(watched);
        Ok(started)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // Neither thread panics. The worker may wait for another thread's call, so it is watched to its end.
        let _ = self.worker.take().map(JoinHandle::join);
        drop(self.watched.take());
        let _ = self.watcher.take().map(JoinHandle::join);
        self.pool.remove_worker();
    }
}

/// Names the call that has waited longer than `patience`.
fn overdue(pool: &Pool, patience: Duration) -> Option<String> {
    let wait = pool.longest_wait().filter(|wait| wait.since.elapsed() > patience)?;
    let (own, call, rank, limit) = (pool.rank(), wait.call, wait.rank, patience.as_secs());
    Some(format!(
        "rank {own}: {call} has waited more than {limit} s for rank {rank}, which calls nothing of MPI: keep a Worker in each rank \
         until all links and targets are gone. The job is ended"
    ))
}

/// Ends MPI. MPI has no time limit for that, and MPICH 4.0 over UCX's sockets sometimes waits for ever. After
/// a minute, a thread prints a message on standard error and aborts the process.
pub fn finalize(universe: Universe) {
    let (done, ended) = mpsc::channel::<()>();
    let watcher = Builder::new().name("mpi-watch".into()).spawn(move || {
        if let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(FINALIZE) {
            let limit = FINALIZE.as_secs();
            eprintln!(
                "MPI_Finalize has not returned for {limit} s. The work of this rank was done. With MPICH over UCX's sockets, try \
                 another MPI, or UCX_TLS without tcp. The process is ended"
            );
            std::process::abort();
        }
    });
    drop(universe);
    drop(done);
    // It does not panic. Without it MPI ends too.
    let _ = watcher.map(JoinHandle::join);
}
