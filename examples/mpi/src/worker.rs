//! A thread in which MPI works.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::Duration;

use crate::pool::{Pool, nudge};

/// How long it leaves MPI alone.
const PAUSE: Duration = Duration::from_micros(50);

/// A thread that lets MPI work for other ranks until this is dropped.
///
/// For an MPI that moves what is written into this rank's memory only while this rank is in one of its functions: a rank that
/// waits for something else, farjump's control connection for one, would keep the other waiting in a flush. It uses the pool, so it
/// has to be dropped before that is freed.
#[must_use = "dropping it ends the thread"]
pub struct Worker {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system gives none.
    pub fn start(pool: &Pool) -> std::io::Result<Worker> {
        let ended = Arc::new(AtomicBool::new(false));
        let (told, pool) = (Arc::clone(&ended), pool.clone());
        let thread = Builder::new().name("mpi".into()).spawn(move || {
            // An error comes to whoever uses the window next, too.
            while !told.load(Ordering::Relaxed) && nudge(&pool).is_ok() {
                sleep(PAUSE);
            }
        })?;
        Ok(Worker { ended, thread: Some(thread) })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // It has no panic to tell of.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
