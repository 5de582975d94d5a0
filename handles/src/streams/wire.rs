//! Requests about topics as bytes, and the owner's replies to them.
//!
//! They travel like the requests about objects. `docs/guide/handles-streams.md` has the table.

use std::sync::{Arc, MutexGuard};

use farjump::objects::RequestState;

use crate::error::Error;
use crate::owner::shared::Shared;
use crate::owner::table::{Source, Table};
use crate::owner::topics::Topics;
use crate::wire::refusal::{NoMemory, Refusal};
use crate::wire::requests::{MAX_RELEASES, Reader, Status, Writer};

use crate::owner::topic::{Next, Published, Refused, Wait};
use crate::streams::StreamFault;
use crate::{Overflow, PublisherConfig, SubscriberConfig};

/// The requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum StreamOp {
    /// `topic, capacity u32 (0 for that of the topic), keep u32, awaited u32, overflow u8`. Replied: `publisher u64`.
    Open = 64,
    /// `publisher u64, is owned u8, handle`. Replied: `number u64`; a [`WAIT`] where the topic is full.
    Publish = 65,
    /// `publisher u64, has finished u8`. Replied: nothing more.
    Finish = 66,
    /// `topic, from oldest u8, publishers u32`. Replied: `subscriber u64, number u64` of the first entry.
    Subscribe = 67,
    /// `subscriber u64, count u16, that many numbers u64 to release, from u64`. Replied: `kind u8` and the fields of that; a
    /// [`WAIT`] where there is no entry yet.
    Next = 68,
    /// `subscriber u64, count u16, numbers u64`: releases items.
    Release = 69,
    /// `subscriber u64, from u64`. Replied: nothing more.
    Unsubscribe = 70,
    /// `topic`. Replied: `1 u8` if it was there.
    Discard = 71,
}

impl StreamOp {
    pub(crate) fn from_number(number: u8) -> Option<StreamOp> {
        const ALL: [StreamOp; 8] = [
            StreamOp::Open,
            StreamOp::Publish,
            StreamOp::Finish,
            StreamOp::Subscribe,
            StreamOp::Next,
            StreamOp::Release,
            StreamOp::Unsubscribe,
            StreamOp::Discard,
        ];
        ALL.get(usize::from(number).checked_sub(64)?).copied()
    }
}

/// Begins a reply that makes the source wait: `offset u64, value u32` of the word which changes.
pub(crate) const WAIT: u8 = 64;
/// Begins a reply that refuses: `code u8, first u32, second u32`.
pub(crate) const REFUSED: u8 = 65;

/// Kinds of entries.
pub(crate) const ITEM: u8 = 0;
pub(crate) const PUBLISHER_GONE: u8 = 1;
pub(crate) const END: u8 = 2;

/// A request.
pub(crate) fn request(op: StreamOp) -> Writer {
    Writer(vec![op as u8])
}

/// Carries out a request whose operation was read, and writes the reply. Returns `None` if the request is malformed.
pub(crate) fn respond<'t>(
    shared: &'t Arc<Shared>,
    table: impl FnOnce() -> MutexGuard<'t, Table>,
    source: Source,
    op: StreamOp,
    fields: Reader<'_>,
    reply: &mut Writer,
) -> Option<RequestState> {
    reply.0.clear();
    // Wherever both are locked, the topics are locked before the table.
    let mut topics = shared.topics();
    let mut table = table();
    let answered = done(&mut topics, &mut table, source, op, fields, reply);
    topics.continue_work(&mut table);
    let answered = answered?;
    if let Err(refused) = answered {
        reply.0.clear();
        if let Refused::NoMemory(none) = &refused
            && let Some(answer) = none.retry()
        {
            return Some(answer);
        }
        refuse(refused, reply);
    }
    Some(RequestState::Done)
}

fn flag(fields: &mut Reader<'_>) -> Option<bool> {
    match fields.u8()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn number32(fields: &mut Reader<'_>) -> Option<u32> {
    Some(u32::from_le_bytes(fields.bytes(4)?.try_into().ok()?))
}

fn topic<'a>(fields: &mut Reader<'a>) -> Option<&'a str> {
    fields.text().filter(|name| !name.is_empty())
}

fn done(
    topics: &mut Topics,
    table: &mut Table,
    source: Source,
    op: StreamOp,
    mut fields: Reader<'_>,
    reply: &mut Writer,
) -> Option<Result<(), Refused>> {
    reply.u8(Status::Done as u8);
    let done = match op {
        StreamOp::Open => {
            let name = topic(&mut fields)?;
            let (capacity, keep) = (number32(&mut fields)?, number32(&mut fields)?);
            let options = PublisherConfig {
                capacity: Some(capacity).filter(|capacity| *capacity != 0),
                keep,
                await_subscribers: number32(&mut fields)?,
                overflow: if flag(&mut fields)? { Overflow::DropOldest } else { Overflow::Wait },
            };
            topics.open(table, source, name, &options).map(|id| _ = reply.u64(id))
        }
        StreamOp::Publish => {
            let (id, is_owned) = (fields.u64()?, flag(&mut fields)?);
            topics.publish(table, source, id, is_owned, fields.0).map(|published| match published {
                Published::As(number) => _ = reply.u64(number),
                Published::Full(wait) => write_wait(wait, reply),
            })
        }
        StreamOp::Finish => {
            let (id, has_finished) = (fields.u64()?, flag(&mut fields)?);
            topics.finish(table, source, id, has_finished)
        }
        StreamOp::Subscribe => {
            let name = topic(&mut fields)?;
            let options =
                SubscriberConfig { from_now: !flag(&mut fields)?, publishers: number32(&mut fields)? };
            topics.subscribe(table, source, name, &options).map(|(id, first)| _ = reply.u64(id).u64(first))
        }
        StreamOp::Next | StreamOp::Release => {
            let id = fields.u64()?;
            let count = fields.u16().filter(|count| usize::from(*count) <= MAX_RELEASES)?;
            for _ in 0..count {
                topics.release(table, source, id, fields.u64()?);
            }
            match op {
                StreamOp::Release => Ok(()),
                _ => {
                    let from = fields.u64()?;
                    topics.next(table, source, id, from).map(|next| write_next(next, reply))
                }
            }
        }
        StreamOp::Unsubscribe => {
            let (id, from) = (fields.u64()?, fields.u64()?);
            topics.unsubscribe(table, source, id, from)
        }
        StreamOp::Discard => {
            topics.discard(table, topic(&mut fields)?).map(|was_there| _ = reply.u8(was_there.into()))
        }
    };
    Some(done)
}

fn write_wait(wait: Wait, reply: &mut Writer) {
    reply.0.clear();
    reply.u8(WAIT).u64(wait.offset).bytes(&wait.value.to_le_bytes());
}

fn write_next(next: Next, reply: &mut Writer) {
    match next {
        Next::Empty(wait) => write_wait(wait, reply),
        Next::End { lost } => _ = reply.u8(END).u64(lost),
        Next::Item { number, lost, publisher, is_owned, handle } => {
            reply.u8(ITEM).u64(lost).u64(number).u64(publisher).u8(is_owned.into()).bytes(&handle);
        }
        Next::PublisherGone { number, lost, publisher, published } => {
            reply.u8(PUBLISHER_GONE).u64(lost).u64(number).u64(publisher).u64(published);
        }
    }
}

fn plain(status: Status, reply: &mut Writer) {
    reply.u8(status as u8);
}

fn refuse(refused: Refused, reply: &mut Writer) {
    let (code, first, second) = match refused {
        Refused::Object(Refusal::Gone | Refusal::Unset(_)) => return plain(Status::Gone, reply),
        Refused::Object(Refusal::WrongKey) => return plain(Status::WrongKey, reply),
        Refused::Object(Refusal::NotReserved) => return plain(Status::NotReserved, reply),
        Refused::Object(Refusal::Lost) => return plain(Status::Lost, reply),
        Refused::NoMemory(none) => {
            none.write(reply);
            return;
        }
        Refused::Unknown => (0, 0, 0),
        Refused::Topics => (1, 0, 0),
        Refused::Members => (2, 0, 0),
        Refused::Capacity => (3, 0, 0),
        Refused::Differs(capacity, keep) => (4, capacity, keep),
        Refused::Holds(most) => (5, most, 0),
        Refused::NoHandle => (6, 0, 0),
        Refused::Foreign => (7, 0, 0),
        Refused::InUse => (8, 0, 0),
    };
    reply.u8(REFUSED).u8(code).bytes(&u32::to_le_bytes(first)).bytes(&u32::to_le_bytes(second));
}

/// A reply of the owner.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome<'a> {
    /// The fields of the request's reply.
    Done(Reader<'a>),
    Wait(Wait),
}

/// Reads a reply to a request about `topic` and the object `number`. Returns `None` if it is malformed.
pub(crate) fn outcome<'a>(reply: &'a [u8], topic: &str, number: u64) -> Option<Result<Outcome<'a>, Error>> {
    let mut fields = Reader(reply);
    let first = fields.u8()?;
    if first == WAIT {
        let offset = fields.u64()?;
        return Some(Ok(Outcome::Wait(Wait { offset, value: number32(&mut fields)? })));
    }
    if first == REFUSED {
        let (code, first, second) = (fields.u8()?, number32(&mut fields)?, number32(&mut fields)?);
        let fault = match code {
            0 => StreamFault::Unknown,
            1 => StreamFault::Topics,
            2 => StreamFault::Members,
            3 => StreamFault::Capacity,
            4 => StreamFault::Differs { capacity: first, keep: second },
            5 => StreamFault::Holds { most: first },
            6 => StreamFault::NoHandle,
            7 => StreamFault::Foreign,
            8 => StreamFault::InUse,
            _ => return None,
        };
        return Some(Err(fault.of(topic)));
    }
    Some(match Status::from_number(first)? {
        Status::Done => Ok(Outcome::Done(fields)),
        Status::Gone => Err(Error::Gone { number, why: crate::error::GoneWhy::Evicted }),
        Status::WrongKey => Err(Error::WrongKey { number }),
        Status::NotReserved => Err(Error::NotReserved { number }),
        Status::Lost => Err(Error::Gone { number, why: crate::error::GoneWhy::Lost }),
        Status::SourceFull => Err(Error::SourceFull { requested: fields.u64()? }),
        Status::Full => Err(NoMemory::read(&mut fields)?.into()),
        Status::Unset => return None,
    })
}
