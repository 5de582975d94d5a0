//! Subscribers, and their items.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use farjump::Patience;

use crate::client::Client;
use crate::client::sleeping::Nap;
use crate::error::Error;
use crate::owner::store::Store;
use crate::wire::handle::Handle;
use crate::wire::requests::{MAX_RELEASES, Reader, Writer};

use crate::SubscriberConfig;
use crate::streams::StreamFault;
use crate::streams::path::{Place, Route, TopicReply};
use crate::streams::wire::{END, ITEM, PUBLISHER_GONE, StreamOp, request};

/// Least length of an object, in bytes, that the subscriber releases without waiting.
const LARGE: u64 = 256 << 10;

/// A subscriber gets the handles that are published in a topic, in order.
///
/// Once it is dropped, it delays no publisher.
#[derive(Debug)]
pub struct Subscriber {
    shared: Arc<Subscription>,
    /// The number of the next entry.
    next: u64,
    lost: u64,
}

/// State that a subscriber and its items share.
#[derive(Debug)]
struct Subscription {
    place: Place,
    id: u64,
    /// Items to be released with the next request.
    released: Mutex<Vec<u64>>,
    has_left: AtomicBool,
}

/// An entry of a topic: the handle of an object.
///
/// An object that the topic owns stays until all subscribers have received it and dropped their items. Clones of the
/// handle do not keep the object. A [`View`](crate::View) keeps its bytes.
pub struct Item {
    handle: Handle,
    number: u64,
    publisher: u64,
    lost: u64,
    /// The subscription, for an object that the topic owns.
    held: Option<Arc<Subscription>>,
}

impl Item {
    /// The handle.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The entry's number in the topic. Numbers ascend, not always by one.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The number of the entry's publisher, unique in the store.
    pub fn publisher(&self) -> u64 {
        self.publisher
    }

    /// Number of entries that were dropped between the item before and this one, because this subscriber was too slow.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns whether the topic owns the object.
    pub fn is_owned(&self) -> bool {
        self.held.is_some()
    }
}

impl fmt::Debug for Item {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Item")
            .field("handle", &self.handle)
            .field("number", &self.number)
            .field("publisher", &self.publisher)
            .field("lost", &self.lost)
            .field("is_owned", &self.is_owned())
            .finish()
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        if let Some(subscription) = &self.held {
            subscription.release(self.number, self.handle.len());
        }
    }
}

impl Subscription {
    fn release(&self, number: u64, len: u64) {
        let is_due = {
            let mut released = self.released.lock().unwrap_or_else(PoisonError::into_inner);
            released.push(number);
            len >= LARGE || released.len() >= MAX_RELEASES || self.has_left.load(Ordering::Relaxed)
        };
        if is_due {
            self.send_all_releases();
        }
    }

    fn send_all_releases(&self) {
        loop {
            let mut asked = request(StreamOp::Release);
            asked.u64(self.id);
            if self.add_releases(&mut asked).is_empty() {
                return;
            }
            self.place.route.notify(&asked);
        }
    }

    /// Adds releases to a request, and returns them.
    fn add_releases(&self, asked: &mut Writer) -> Vec<u64> {
        let mut released = self.released.lock().unwrap_or_else(PoisonError::into_inner);
        let from = released.len().saturating_sub(MAX_RELEASES);
        let taken = released.split_off(from);
        asked.u16(taken.len() as u16);
        taken.iter().for_each(|number| _ = asked.u64(*number));
        taken
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.send_all_releases();
    }
}

impl Subscriber {
    fn new(route: Route, topic: &str, options: &SubscriberConfig) -> Result<Subscriber, Error> {
        let place = Place::new(route, topic)?;
        let mut asked = request(StreamOp::Subscribe);
        asked.text(topic).u8((!options.from_now).into()).bytes(&options.publishers.to_le_bytes());
        let made = match place.exchange(&asked, 0, &mut place.route.patience())? {
            TopicReply::Done(fields) => {
                let mut fields = Reader(&fields);
                fields.u64().zip(fields.u64())
            }
            TopicReply::Wait(_) => None,
        };
        let (id, next) = made.ok_or_else(|| place.route.malformed())?;
        let (released, has_left) = (Mutex::default(), AtomicBool::new(false));
        Ok(Subscriber { shared: Arc::new(Subscription { place, id, released, has_left }), next, lost: 0 })
    }

    /// The topic's name.
    pub fn topic(&self) -> &str {
        &self.shared.place.topic
    }

    /// Number of entries that were dropped so far because this subscriber was too slow.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Waits for the next entry. Returns `None` when all publishers have finished and the subscriber has received all
    /// entries. The stream continues if further publishers come. After an error the same entry comes again, except for
    /// [`StreamFault::PublisherGone`].
    ///
    /// # Errors
    /// [`Error::Stream`] with [`StreamFault::NoEntry`] when the time is over; with [`StreamFault::PublisherGone`] once for each
    /// publisher that ended without finishing, after its entries; with [`StreamFault::Holds`]. [`Error::Interrupted`],
    /// [`Error::TimedOut`], [`Error::Link`] if the owner is gone.
    pub fn next(&mut self, patience: &mut Patience<'_>) -> Result<Option<Item>, Error> {
        let mut nap = Nap::default();
        loop {
            let shared = &self.shared;
            let mut asked = request(StreamOp::Next);
            asked.u64(shared.id);
            let released = shared.add_releases(&mut asked);
            asked.u64(self.next);
            let answer = shared.place.exchange(&asked, 0, patience).inspect_err(|_| {
                // The request may not have been sent. A second release of an item has no effect.
                shared.released.lock().unwrap_or_else(PoisonError::into_inner).extend(released);
            });
            match answer? {
                TopicReply::Done(fields) => return self.entry(Reader(&fields)),
                TopicReply::Wait(wait) => {
                    if !shared.place.route.sleep(wait, &mut nap, patience)? {
                        return Err(shared.place.fault(StreamFault::NoEntry(patience.timeout())));
                    }
                }
            }
        }
    }

    fn entry(&mut self, mut fields: Reader<'_>) -> Result<Option<Item>, Error> {
        let shared = Arc::clone(&self.shared);
        let malformed = || shared.place.route.malformed();
        let (kind, lost) = fields.u8().zip(fields.u64()).ok_or_else(malformed)?;
        let lost_now = lost.saturating_sub(std::mem::replace(&mut self.lost, lost));
        if kind == END {
            return Ok(None);
        }
        let (number, publisher) = fields.u64().zip(fields.u64()).ok_or_else(malformed)?;
        self.next = number.saturating_add(1);
        match kind {
            ITEM => {
                let is_owned = fields.u8().ok_or_else(malformed)? != 0;
                let handle = Handle::from_bytes(fields.0)?;
                let held = is_owned.then(|| Arc::clone(&shared));
                Ok(Some(Item { handle, number, publisher, lost: lost_now, held }))
            }
            PUBLISHER_GONE => {
                let published = fields.u64().ok_or_else(malformed)?;
                Err(shared.place.fault(StreamFault::PublisherGone { publisher, published }))
            }
            _ => Err(malformed()),
        }
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.shared.has_left.store(true, Ordering::Relaxed);
        self.shared.send_all_releases();
        let mut asked = request(StreamOp::Unsubscribe);
        asked.u64(self.shared.id).u64(self.next);
        self.shared.place.route.notify(&asked);
    }
}

impl Client {
    /// Subscribes to a topic at this owner. It need not have publishers yet.
    ///
    /// # Errors
    /// [`Error::Stream`] with [`StreamFault::Name`] or a bound; [`Error::Full`]; [`Error::TimedOut`], [`Error::Link`].
    pub fn subscribe(&self, topic: &str, options: SubscriberConfig) -> Result<Subscriber, Error> {
        Subscriber::new(Route::Client(self.clone()), topic, &options)
    }
}

impl Store {
    /// Subscribes to a topic of this store. It need not have publishers yet.
    ///
    /// # Errors
    /// As [`Client::subscribe`].
    pub fn subscribe(&self, topic: &str, options: SubscriberConfig) -> Result<Subscriber, Error> {
        Subscriber::new(Route::Store(self.clone()), topic, &options)
    }
}
