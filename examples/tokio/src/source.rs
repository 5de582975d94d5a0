//! A link whose calls are awaited.

use std::io;

use farjump::{Error, InjectError, Library, Link, Reply};
use tokio::sync::Notify;

use crate::Failed;
use crate::descriptor::Wakeup;

/// A link that several tasks of one thread use. A link may move to another thread, but no two threads use it,
/// so its tasks do not move (`spawn_local`).
pub(crate) struct Source {
    link: Link,
    wakeup: Wakeup,
    /// Notifies tasks that another one has polled, and may have taken their outcomes from the mailbox.
    looked: Notify,
}

impl Source {
    pub(crate) fn new(link: Link) -> Result<Source, Failed> {
        let wakeup = Wakeup::of(link.as_fd()?)?;
        Ok(Source { link, wakeup, looked: Notify::new() })
    }

    /// Injects the function of `library`, and awaits its reply. Dropping the future, as a time limit does,
    /// cancels the call.
    ///
    /// # Errors
    /// As `Link::inject` and `Pending::wait`.
    pub(crate) async fn inject(&self, library: &Library, args: &[u8]) -> Result<Reply, Failed> {
        let mut call = loop {
            match self.link.try_inject(library, args) {
                Err(Error::Inject(InjectError::Full)) => self.news().await?,
                injected => break injected?,
            }
        };
        let answer = loop {
            match call.poll().transpose() {
                Some(answer) => break answer,
                None => self.news().await?,
            }
        };
        self.looked.notify_waiters();
        Ok(answer?)
    }

    /// Sleeps until an event has come on the link, for any call, or a task has polled.
    async fn news(&self) -> Result<(), Failed> {
        let looked = self.looked.notified();
        let longest = self.link.arm().inspect_err(|_| self.looked.notify_waiters())?;
        let slept: io::Result<()> = match longest {
            Some(longest) => tokio::select! {
                slept = self.wakeup.sleep(longest) => slept,
                () = looked => Ok(()),
            },
            // The event may be for others.
            None => {
                self.looked.notify_waiters();
                Ok(())
            }
        };
        // From here to the next `arm` there is no await: other sleepers are woken by the event, or notified.
        self.link.disarm();
        Ok(slept?)
    }
}
