//! The compiler of bitcode: its results, and waking for them.

use crate::Error;
use crate::executor::Finished;
use crate::serve::Target;
use crate::serve::epoll::Event;
use crate::serve::session::Session;

impl Target<'_> {
    /// Takes the compiler's results: waiting frames continue, and optimised images replace first ones.
    ///
    /// # Errors
    /// When the system fails the target itself.
    #[cold]
    pub(in crate::serve) fn take_compiled(&mut self) -> Result<(), Error> {
        for done in self.shared.executor.take_compiled() {
            let finished = match self.shared.executor.finish(done, false) {
                Finished::Crowded(need, done) => {
                    let sessions = &mut self.sessions;
                    self.shared.executor.make_space(&need, |linked| Session::release(sessions, linked));
                    self.shared.executor.finish(*done, true)
                }
                other => other,
            };
            match finished {
                Finished::Settled(key) => {
                    self.shared.forwards.compiled(key);
                    self.idle.naps = 0;
                    let waiting = self.sessions.iter().filter(|session| session.awaits_compiler(key));
                    let waiting: Vec<u64> = waiting.map(|session| session.id).collect();
                    // Making one busy changes the places of others.
                    for waiting in waiting {
                        if let Some(index) = self.sessions.iter().position(|session| session.id == waiting) {
                            self.sessions.make_busy(index);
                        }
                    }
                }
                // No function runs now: this is between two polls of sessions.
                Finished::Exchanged(linked) => {
                    for session in self.sessions.iter_mut() {
                        session.codes.exchange(&linked);
                    }
                }
                Finished::Crowded(..) | Finished::Nothing => {}
            }
        }
        self.watch_compiler()
    }

    /// Watches the compiler's descriptor.
    ///
    /// # Errors
    /// The system's.
    pub(in crate::serve) fn watch_compiler(&mut self) -> Result<(), Error> {
        // An earlier one was closed, and is watched no longer.
        self.shared.executor.watch_compiler(|fd| self.watch.add(fd, Event::Compiler, false))
    }
}
