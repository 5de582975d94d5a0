//! A link with an account of its calls and outcomes.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use farjump::{Error, Library, Link, Pending, Reply, WaitError};

use crate::journal::{Journal, LINKS, Ledger, name};
use crate::support::{PATIENCE, to_words, words};

/// Properties of a frame.
#[derive(Clone, Copy, Default)]
pub(crate) struct Shape {
    /// Words of payload beyond those of every frame.
    pub(crate) payload: u64,
    /// Words of reply beyond those of every reply.
    pub(crate) reply: u64,
    /// Whether the target holds the call until the ledger releases it.
    pub(crate) held: bool,
}

/// A link, and its journal in the ledger.
pub(crate) struct CountedLink<'a> {
    pub(crate) link: &'a Link,
    address: &'a str,
    ledger: &'a Ledger,
    number: u64,
    journal: &'a Journal,
    next: Cell<u64>,
}

/// A pending call.
pub(crate) struct Call<'a> {
    pending: Pending<'a>,
    number: u64,
    reply: u64,
}

impl<'a> CountedLink<'a> {
    /// Opens the journal of a link that was just made.
    pub(crate) fn open(link: &'a Link, address: &'a str, ledger: &'a Ledger) -> CountedLink<'a> {
        let number = ledger.pages().links.fetch_add(1, Ordering::AcqRel);
        assert!(number < LINKS as u64, "more links than the ledger has journals for");
        CountedLink { link, address, ledger, number, journal: ledger.journal(number), next: Cell::new(0) }
    }

    /// Sends a frame by `send`, under the next number.
    fn post<T>(
        &self,
        shape: Shape,
        send: impl FnOnce(&'a Link, &[u8]) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (number, name) = (self.next.get(), name(self.number, self.next.get()));
        let mut payload = vec![name, shape.held.into(), shape.reply];
        let head = payload.len() as u64;
        payload.extend((head..head + shape.payload).map(|word| name + word));
        self.journal.started.store(number + 1, Ordering::Release);
        let sent = send(self.link, &words(&payload))?;
        self.journal.sent.store(number + 1, Ordering::Release);
        self.next.set(number + 1);
        Ok(sent)
    }

    pub(crate) fn send(&self, entry: &Library, shape: Shape) -> Result<(), Error> {
        self.post(shape, |link, payload| link.send(entry, payload))
    }

    pub(crate) fn try_send(&self, entry: &Library, shape: Shape) -> Result<(), Error> {
        self.post(shape, |link, payload| link.try_send(entry, payload))
    }

    pub(crate) fn inject(&self, entry: &Library, shape: Shape) -> Result<Call<'a>, Error> {
        let pending = self.post(shape, |link, payload| link.inject(entry, payload))?;
        Ok(Call { pending, number: self.next.get() - 1, reply: shape.reply })
    }

    /// Waits for the outcome of a call. Outcomes are awaited in the order of their calls.
    pub(crate) fn settle(&self, call: Call<'_>) -> Result<(), Error> {
        let Call { pending, number, reply } = call;
        self.settled(number, reply, pending.wait(PATIENCE))
    }

    /// Polls for the outcome; returns the call if it has not come.
    pub(crate) fn look<'b>(&self, mut call: Call<'b>) -> Result<Option<Call<'b>>, Error> {
        match call.pending.poll().transpose() {
            None => Ok(Some(call)),
            Some(answer) => self.settled(call.number, call.reply, answer).map(|()| None),
        }
    }

    fn settled(&self, number: u64, reply: u64, answer: Result<Reply, Error>) -> Result<(), Error> {
        let Journal { replied, replies, failed, failures, .. } = self.journal;
        let add_one = |word: &std::sync::atomic::AtomicU64| word.fetch_add(1, Ordering::AcqRel);
        match answer {
            Ok(bytes) => {
                let found = to_words(&bytes);
                let own = name(self.number, number);
                assert_eq!(found.len() as u64, reply + 2, "a reply of another length");
                assert_eq!(found[0], own, "the answer to another call");
                assert_eq!(self.ledger.ran_at(found[1]), own, "the log says that another call ran there");
                assert!((0..).zip(&found[2..]).all(|(word, found)| *found == own + word), "a damaged reply");
                assert_eq!(failed.load(Ordering::Acquire), 0, "an answer after one that was lost");
                assert!(number >= replied.swap(number + 1, Ordering::AcqRel), "answers out of order");
                add_one(replies);
                Ok(())
            }
            Err(error) => {
                self.is_gone(&error);
                let _ = failed.compare_exchange(0, number + 1, Ordering::AcqRel, Ordering::Relaxed);
                add_one(failures);
                Err(error)
            }
        }
    }

    /// Checks that the error is the end of the target, by its name.
    pub(crate) fn is_gone(&self, error: &Error) {
        assert!(
            matches!(error, Error::Wait(WaitError::PeerGone { peer, .. }) if peer == self.address),
            "{error}"
        );
    }
}
