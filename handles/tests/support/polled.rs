//! A target with a store that has a file, polled by the test itself. Unit tests include this file too: it names the types
//! that its parent does.

use std::time::{Duration, Instant};

use farjump::{Key, Link, Mode, Pending, Target};

use super::Store;

pub(crate) struct PolledOwner {
    pub(crate) store: Store,
    pub(crate) target: Target<'static>,
    key: Option<Key>,
    _folder: tempfile::TempDir,
}

impl PolledOwner {
    /// Listens by `transport` (`shm`, `tcp`), with a store of `capacity` bytes and a file of `file`.
    pub(crate) fn new(transport: &str, capacity: u64, file: u64) -> PolledOwner {
        let folder = farjump_fixtures::folder();
        let (address, key) = match transport {
            "tcp" => ("tcp:127.0.0.1:0".to_owned(), Some(Key::from_bytes([7; Key::LEN]))),
            _ => (format!("unix:{}", folder.path().join("owner.sock").display()), None),
        };
        let store = Store::options().capacity(capacity).spill(folder.path(), file).build().unwrap();
        let mut builder = Target::listen(&address).objects(store.service());
        if let Some(key) = &key {
            builder = builder.key(key.clone());
        }
        PolledOwner { store, target: builder.build().unwrap(), key, _folder: folder }
    }

    /// Runs `act` on a thread of its own, and polls the target until it returns.
    pub(crate) fn polled<T: Send>(&mut self, act: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let acting = scope.spawn(act);
            while !acting.is_finished() {
                self.target.poll().unwrap();
                std::thread::yield_now();
            }
            acting.join().unwrap()
        })
    }

    /// A link in mode local.
    pub(crate) fn link(&mut self) -> Link {
        let (address, key) = (self.target.address(), self.key.clone());
        let link = self.polled(move || {
            let mut builder = Link::builder(&address);
            if let Some(key) = key {
                builder = builder.key(key);
            }
            builder.connect().unwrap()
        });
        link.set_mode(Mode::Local);
        link
    }

    /// Polls until the reply is there. Returns it, and the number of polls.
    pub(crate) fn reply(&mut self, pending: &mut Pending<'_>) -> (Vec<u8>, u32) {
        let mut polls = 0;
        let mut reply = None;
        self.poll_until("a reply", |_| {
            reply = pending.poll().unwrap().map(|reply| reply.to_vec());
            polls += u32::from(reply.is_none());
            reply.is_some()
        });
        (reply.unwrap_or_default(), polls)
    }

    /// Polls until `what` is there.
    pub(crate) fn poll_until(&mut self, what: &str, mut is_there: impl FnMut(&Target<'_>) -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !is_there(&self.target) {
            self.target.poll().unwrap();
            assert!(Instant::now() < end, "{what} does not come");
        }
    }
}
