//! Access to the owner of a topic: a client's link, or calls within the owner's process.

use std::sync::Arc;
use std::time::Duration;

use farjump::{Patience, objects};

use crate::ClientConfig;
use crate::client::Client;
use crate::client::sleeping::{Nap, sleep_on_word};
use crate::error::Error;
use crate::owner::store::Store;
use crate::owner::table::Source;
use crate::wire::handle::Handle;
use crate::wire::requests::{Op, Reader, Writer};

use crate::owner::topic::Wait;
use crate::streams::wire::{Outcome, StreamOp, outcome, request, respond};
use crate::streams::{self, StreamFault};

/// Time for a reply, even for a caller that waits less for an entry: otherwise a reply could be lost.
const REPLY: Duration = Duration::from_secs(1);
/// Time after which a sleeping waiter requests again, so that it notices that the owner is gone.
const REPEAT_AFTER: Duration = Duration::from_secs(1);

/// The route to reach the owner.
#[derive(Clone, Debug)]
pub(crate) enum Route {
    Client(Client),
    Store(Store),
}

/// A reply whose beginning [`outcome`] has read.
pub(crate) enum TopicReply {
    /// The fields of the request's reply.
    Done(Vec<u8>),
    Wait(Wait),
}

impl Route {
    /// Sends a request about a topic, and about an object of this number if it names one.
    pub(crate) fn exchange(
        &self,
        request: &Writer,
        topic: &str,
        number: u64,
        patience: &mut Patience<'_>,
    ) -> Result<TopicReply, Error> {
        let reply = match self {
            Route::Client(client) => {
                let reply =
                    patience.with_at_least(REPLY, |patience| client.0.exchange(&request.0, patience))?;
                reply.into_vec()
            }
            Route::Store(store) => {
                let mut reply = Writer::default();
                self.respond_locally(store, request, &mut reply).ok_or_else(|| self.malformed())?;
                reply.0
            }
        };
        match outcome(&reply, topic, number).ok_or_else(|| self.malformed())?? {
            Outcome::Done(fields) => Ok(TopicReply::Done(fields.0.to_vec())),
            Outcome::Wait(wait) => Ok(TopicReply::Wait(wait)),
        }
    }

    fn respond_locally(&self, store: &Store, request: &Writer, reply: &mut Writer) -> Option<()> {
        let mut fields = Reader(&request.0);
        let op = StreamOp::from_number(fields.u8()?)?;
        let (shared, failures) = (&store.0, store.0.failures());
        shared.until_done(|| {
            match respond(shared, || shared.table_after(failures), Source::Owner, op, fields, reply) {
                Some(objects::RequestState::Done) => Ok(Some(())),
                None => Ok(None),
                Some(other) => Err(other),
            }
        })
    }

    /// Sends a request whose reply concerns no caller. If it fails, the link has failed, and the owner ends everything
    /// that this process has.
    pub(crate) fn notify(&self, request: &Writer) {
        match self {
            Route::Client(client) => _ = client.0.notify(&request.0),
            Route::Store(store) => _ = self.respond_locally(store, request, &mut Writer::default()),
        }
    }

    /// Evicts an object, without waiting for the reply.
    pub(crate) fn evict(&self, handle: &Handle) {
        match self {
            Route::Client(client) => {
                let mut asked = Writer::request(Op::Evict);
                asked.u64(handle.number).bytes(&handle.key.0);
                let _ = client.0.notify(&asked.0);
            }
            Route::Store(store) => _ = store.evict(handle),
        }
    }

    pub(crate) fn malformed(&self) -> Error {
        match self {
            Route::Client(client) => client.0.malformed(),
            Route::Store(_) => Error::Protocol {
                address: "this process".to_owned(),
                what: "its reply is malformed".to_owned(),
            },
        }
    }

    /// Patience for callers without their own.
    pub(crate) fn patience(&self) -> Patience<'static> {
        match self {
            Route::Client(client) => client.0.patience(),
            Route::Store(_) => Patience::of(ClientConfig::default().timeout),
        }
    }

    /// Discards a topic.
    pub(crate) fn discard(&self, topic: &str) -> Result<bool, Error> {
        check_topic(topic)?;
        let mut asked = request(StreamOp::Discard);
        asked.text(topic);
        match self.exchange(&asked, topic, 0, &mut self.patience())? {
            TopicReply::Done(fields) => Ok(Reader(&fields).u8().ok_or_else(|| self.malformed())? != 0),
            TopicReply::Wait(_) => Err(self.malformed()),
        }
    }

    /// Sleeps until the word changes, a second is over, or the caller's patience ends. Returns `Ok(false)` when the
    /// patience is over.
    pub(crate) fn sleep(
        &self,
        wait: Wait,
        nap: &mut Nap,
        patience: &mut Patience<'_>,
    ) -> Result<bool, Error> {
        let region = match self {
            Route::Client(client) => client.0.region().ok(),
            Route::Store(store) => Some(&store.0.region().region),
        };
        sleep_on_word(region, wait, REPEAT_AFTER, nap, patience)
    }
}

/// The checked name of a topic, and the route to reach its owner.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) route: Route,
    pub(crate) topic: Arc<str>,
}

impl Place {
    pub(crate) fn new(route: Route, topic: &str) -> Result<Place, Error> {
        check_topic(topic)?;
        Ok(Place { route, topic: topic.into() })
    }

    pub(crate) fn exchange(
        &self,
        request: &Writer,
        number: u64,
        patience: &mut Patience<'_>,
    ) -> Result<TopicReply, Error> {
        self.route.exchange(request, &self.topic, number, patience)
    }

    pub(crate) fn fault(&self, fault: StreamFault) -> Error {
        fault.of(&self.topic)
    }
}

impl StreamFault {
    pub(crate) fn of(self, topic: &str) -> Error {
        Error::Stream { topic: topic.to_owned(), fault: self }
    }
}

/// Checks the name of a topic.
fn check_topic(topic: &str) -> Result<(), Error> {
    match topic.len() {
        1..=streams::MAX_TOPIC_NAME => Ok(()),
        len => {
            let end = topic.char_indices().map(|(at, _)| at).take_while(|at| *at <= 40).last().unwrap_or(0);
            Err(StreamFault::Name { len }.of(&topic[..end]))
        }
    }
}
