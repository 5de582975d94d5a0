//! Publishers.

use farjump::Patience;

use crate::client::Client;
use crate::client::sleeping::Nap;
use crate::error::Error;
use crate::owner::store::Store;
use crate::wire::handle::Handle;
use crate::wire::requests::Reader;

use crate::streams::path::{Place, Route, TopicReply};
use crate::streams::wire::{StreamOp, request};
use crate::streams::{MAX_STREAM_HANDLE, StreamFault};
use crate::{Overflow, PublisherConfig};

/// A publisher of handles in a topic. The topic's subscribers get them in the order in which they were published.
///
/// If it is dropped without [`Publisher::finish`], or its process ends, it leaves an entry that reports to subscribers
/// that it is gone.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use farjump_handles::{Patience, PublisherConfig, Store, SubscriberConfig};
///
/// let store = Store::new()?;
/// let mut subscriber = store.subscribe("frames", SubscriberConfig::default())?;
/// let mut publisher = store.publisher("frames", PublisherConfig::default())?;
/// publisher.publish_bytes("", &[b"first"])?;
/// publisher.finish()?;
/// let mut patience = Patience::of(std::time::Duration::from_secs(5));
/// while let Some(item) = subscriber.next(&mut patience)? {
///     assert_eq!(&*store.get(item.handle())?, b"first");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Publisher {
    place: Place,
    id: u64,
    overflow: Overflow,
    is_open: bool,
}

impl Publisher {
    fn open(route: Route, topic: &str, options: PublisherConfig) -> Result<Publisher, Error> {
        let place = Place::new(route, topic)?;
        if options.capacity == Some(0) {
            return Err(place.fault(StreamFault::Capacity));
        }
        let mut asked = request(StreamOp::Open);
        asked.text(topic).bytes(&options.capacity.unwrap_or(0).to_le_bytes());
        asked.bytes(&options.keep.to_le_bytes()).bytes(&options.await_subscribers.to_le_bytes());
        asked.u8((options.overflow == Overflow::DropOldest).into());
        let id = match place.exchange(&asked, 0, &mut place.route.patience())? {
            TopicReply::Done(fields) => Reader(&fields).u64(),
            TopicReply::Wait(_) => None,
        };
        let id = id.ok_or_else(|| place.route.malformed())?;
        Ok(Publisher { place, id, overflow: options.overflow, is_open: true })
    }

    /// The topic's name.
    pub fn topic(&self) -> &str {
        &self.place.topic
    }

    /// The number of this publisher in its store ([`Item::publisher`](crate::Item::publisher)).
    pub fn number(&self) -> u64 {
        self.id
    }

    /// Publishes the handle of an object of this store or of any other. The object stays as it is: its maker evicts it.
    /// Returns the entry's number in the topic.
    ///
    /// # Errors
    /// [`StreamFault::Full`] in [`Error::Stream`] when the topic stays full for the client's time limit, and the handle is
    /// not published. [`Error::Gone`], [`Error::WrongKey`] for an object of this store; [`StreamFault::LongHandle`];
    /// [`Error::TimedOut`], [`Error::Link`], after which the handle may have been published.
    pub fn publish(&mut self, handle: &Handle) -> Result<u64, Error> {
        self.publish_with(handle, false, &mut self.place.route.patience())
    }

    /// As [`Publisher::publish`], but the topic then owns the object, which must be one of its store's. The store
    /// evicts the object when all subscribers have received it and dropped its [`Item`](crate::Item)s.
    ///
    /// # Errors
    /// As [`Publisher::publish`], and [`StreamFault::Foreign`].
    pub fn give(&mut self, handle: &Handle) -> Result<u64, Error> {
        self.publish_with(handle, true, &mut self.place.route.patience())
    }

    /// Puts an object that consists of `parts`, and publishes it. The topic owns it, as by [`Publisher::give`].
    ///
    /// # Errors
    /// As [`Publisher::publish`], and [`Error::Full`], [`Error::TypeName`]. After an error there is no such object.
    pub fn publish_bytes(&mut self, type_name: &str, parts: &[&[u8]]) -> Result<u64, Error> {
        self.publish_bytes_with(type_name, parts, &mut self.place.route.patience())
    }

    /// As [`Publisher::publish_bytes`], with a time limit or a check of the caller's.
    ///
    /// # Errors
    /// As [`Publisher::publish_bytes`], and [`Error::Interrupted`].
    pub fn publish_bytes_with(
        &mut self,
        type_name: &str,
        parts: &[&[u8]],
        patience: &mut Patience<'_>,
    ) -> Result<u64, Error> {
        let handle = match &self.place.route {
            Route::Client(client) => client.put_parts(type_name, parts, patience)?,
            Route::Store(store) => {
                let len = parts.iter().map(|part| part.len()).sum();
                store.put_with(type_name, len, |mut into| {
                    for part in parts {
                        let (filled, rest) = into.split_at_mut(part.len());
                        filled.copy_from_slice(part);
                        into = rest;
                    }
                })?
            }
        };
        self.publish_with(&handle, true, patience).inspect_err(|_| {
            // If the entry exists nevertheless, subscribers skip it.
            self.place.route.evict(&handle);
        })
    }

    /// As [`Publisher::give`] if `is_owned`, and as [`Publisher::publish`] otherwise, with a time limit or a check of the
    /// caller's.
    ///
    /// # Errors
    /// As those, and [`Error::Interrupted`].
    pub fn publish_with(
        &mut self,
        handle: &Handle,
        is_owned: bool,
        patience: &mut Patience<'_>,
    ) -> Result<u64, Error> {
        let bytes = handle.to_bytes();
        if bytes.len() > MAX_STREAM_HANDLE {
            return Err(self.place.fault(StreamFault::LongHandle { len: bytes.len() }));
        }
        let mut asked = request(StreamOp::Publish);
        asked.u64(self.id).u8(is_owned.into()).bytes(&bytes);
        let mut nap = Nap::default();
        loop {
            match self.place.exchange(&asked, handle.number(), patience)? {
                TopicReply::Done(fields) => {
                    return Reader(&fields).u64().ok_or_else(|| self.place.route.malformed());
                }
                TopicReply::Wait(wait) => {
                    if self.overflow == Overflow::Refuse
                        || !self.place.route.sleep(wait, &mut nap, patience)?
                    {
                        return Err(self.place.fault(StreamFault::Full));
                    }
                }
            }
        }
    }

    /// Ends this publisher. The stream ends when all publishers have ended, for each subscriber that has received all
    /// entries.
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::Link`].
    pub fn finish(mut self) -> Result<(), Error> {
        self.finish_with(&mut self.place.route.patience())
    }

    /// As [`Publisher::finish`], with a time limit or a check of the caller's. Finishing again does nothing.
    ///
    /// # Errors
    /// As [`Publisher::finish`], and [`Error::Interrupted`].
    pub fn finish_with(&mut self, patience: &mut Patience<'_>) -> Result<(), Error> {
        if !self.is_open {
            return Ok(());
        }
        let mut asked = request(StreamOp::Finish);
        asked.u64(self.id).u8(1);
        // The request is on its way, whatever the outcome.
        self.is_open = false;
        self.place.exchange(&asked, 0, patience).map(drop)
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        if self.is_open {
            let mut asked = request(StreamOp::Finish);
            asked.u64(self.id).u8(0);
            self.place.route.notify(&asked);
        }
    }
}

impl Client {
    /// Opens a topic at this owner to publish in it. Makes the topic if it does not exist.
    ///
    /// # Errors
    /// [`Error::Stream`] with [`StreamFault::Name`], [`StreamFault::Capacity`], [`StreamFault::Differs`] or a bound;
    /// [`Error::Full`]; [`Error::TimedOut`], [`Error::Link`].
    pub fn publisher(&self, topic: &str, options: PublisherConfig) -> Result<Publisher, Error> {
        Publisher::open(Route::Client(self.clone()), topic, options)
    }

    /// Discards a topic that has neither publishers nor subscribers, and evicts the objects that it owns. Use it for a
    /// topic whose entries no subscriber takes. Returns `false` if there is no such topic.
    ///
    /// # Errors
    /// [`StreamFault::InUse`] in [`Error::Stream`]; [`Error::TimedOut`], [`Error::Link`].
    pub fn discard_topic(&self, topic: &str) -> Result<bool, Error> {
        Route::Client(self.clone()).discard(topic)
    }
}

impl Store {
    /// Opens a topic of this store to publish in it. Makes the topic if it does not exist.
    ///
    /// # Errors
    /// As [`Client::publisher`].
    pub fn publisher(&self, topic: &str, options: PublisherConfig) -> Result<Publisher, Error> {
        Publisher::open(Route::Store(self.clone()), topic, options)
    }

    /// As [`Client::discard_topic`].
    ///
    /// # Errors
    /// [`StreamFault::InUse`] in [`Error::Stream`].
    pub fn discard_topic(&self, topic: &str) -> Result<bool, Error> {
        Route::Store(self.clone()).discard(topic)
    }
}
