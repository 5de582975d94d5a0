//! A store that serves one target: it replies to the target's sources, and serves the functions that run there.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use farjump::objects::{
    Bell, Lender, Lent, LingeringPeer, ObjectError, ObjectPage, Objects, Region, Request, RequestState,
    SourceMemory,
};

use crate::owner::lenders::Lenders;
use crate::owner::shared::Shared;
use crate::owner::table::{Source, Table};
use crate::streams::wire::{self, StreamOp};
use crate::wire::handle::{Handle, MAX_HANDLE};
use crate::wire::refusal::{ClaimFailed, NoMemory, Refusal};
use crate::wire::requests::{MAX_CLAIMS, MAX_REQUEST, MIN_LENT, Op, Reader, Status, VERSION, Writer};

/// A [`Store`](crate::Store) for [`TargetBuilder::objects`](farjump::TargetBuilder::objects).
#[derive(Debug)]
pub struct Service {
    shared: Arc<Shared>,
    /// The target's number in the store.
    target: u32,
    /// Objects that the running function has made.
    made: Vec<u64>,
    /// Sources that are to repeat their last request, whose releases are already done. The value is the number of
    /// failures of the file before the first try.
    again: BTreeMap<u64, u64>,
    /// The bell that the thread of the store's file rings.
    bell: Option<Arc<Bell>>,
    lenders: Lenders,
    /// The first bytes of the present request.
    head: Vec<u8>,
}

/// A request that no client of this library sends.
const MALFORMED: &str =
    "the request to the store is malformed: the source may be of another version of farjump";

impl Service {
    pub(crate) fn new(shared: Arc<Shared>, target: u32) -> Service {
        Service {
            shared,
            target,
            made: Vec::new(),
            again: BTreeMap::new(),
            bell: None,
            lenders: Lenders::default(),
            head: vec![0; MAX_REQUEST],
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.shared.table()
    }

    fn respond(
        &mut self,
        number: u64,
        request: Request<'_>,
        head: &mut [u8],
        reply: &mut Writer,
        limit: usize,
        before: Option<u64>,
    ) -> Option<Result<RequestState, Failed>> {
        let source = Source::Link(self.target, number);
        let is_again = before.is_some();
        let table = || match before {
            Some(failures) => self.shared.table_after(failures),
            None => self.shared.table(),
        };
        let copied = request.copy_to(0, head);
        let mut fields = Reader(head.get(..copied)?);
        let op = fields.u8()?;
        if let Some(op) = StreamOp::from_number(op) {
            // No request about a topic is longer than the copied bytes.
            return (request.len() == copied)
                .then(|| wire::respond(&self.shared, table, source, op, fields, reply))?
                .map(Ok);
        }
        let op = Op::from_number(op)?;
        reply.u8(Status::Done as u8);
        // Contents behind the fields are read from the request itself, which may be longer than the copied bytes.
        let behind = |fields: &Reader<'_>| copied - fields.0.len();
        let mut table = table();
        match op {
            Op::Hello => {
                fields.u8()?;
                reply.u8(VERSION).u64(table.epoch).u64(table.capacity());
                let addresses = self.shared.addresses();
                reply.u8(addresses.len() as u8);
                for address in &*addresses {
                    reply.u16(address.len() as u16).bytes(address.as_bytes());
                }
                reply.u8(self.shared.file().is_some().into());
            }
            Op::Put => {
                let (reserved, key, type_name) = (fields.u64()?, fields.key()?, fields.text()?);
                let from = behind(&fields);
                let len = request.len().checked_sub(from)? as u64;
                let (made, offset) = match table.allocate(source, len, type_name) {
                    Ok(made) => made,
                    Err(none) => return Some(Err(none.into())),
                };
                let into = table.region().region.at(offset, len)?;
                // SAFETY: the block was just allocated, so nothing else uses it.
                unsafe { request.copy_to_memory(from, into) };
                let done = match reserved {
                    0 => table.commit(source, made),
                    reserved => table.set(source, reserved, key, made),
                };
                if let Err(refusal) = done {
                    table.abandon(made);
                    return Some(Err(refusal.into()));
                }
                reply.u64(made).bytes(&table.key(made).0);
            }
            Op::Allocate => {
                let (len, type_name) = (fields.u64()?, fields.text()?);
                match table.allocate(source, len, type_name) {
                    Ok((number, offset)) => reply.u64(number).bytes(&table.key(number).0).u64(offset),
                    Err(none) => return Some(Err(none.into())),
                };
            }
            Op::Write => {
                let (number, at) = (fields.u64()?, fields.u64()?);
                let from = behind(&fields);
                let len = request.len().checked_sub(from)? as u64;
                let Some((offset, all)) = table.unfinished(source, number) else {
                    return Some(Err(Refusal::Gone.into()));
                };
                if at.checked_add(len).is_none_or(|end| end > all) {
                    return None;
                }
                let into = table.region().region.at(offset + at, len)?;
                // SAFETY: the block is that of an object which this source writes, and no reader has it yet.
                unsafe { request.copy_to_memory(from, into) };
            }
            Op::Commit => {
                let (number, reserved, key) = (fields.u64()?, fields.u64()?, fields.key()?);
                let done = match reserved {
                    0 => table.commit(source, number),
                    reserved => table.set(source, reserved, key, number),
                };
                if let Err(refusal) = done {
                    if table.unfinished(source, number).is_some() {
                        table.abandon(number);
                    }
                    return Some(Err(refusal.into()));
                }
            }
            Op::Claim | Op::ClaimLent => {
                release(&mut table, source, &mut fields, is_again)?;
                let (object, key) = (fields.u64()?, fields.key()?);
                let claimed = match table.claim(source, object, key) {
                    Ok(claimed) => claimed,
                    Err(failed) => return Some(Err(failed.into())),
                };
                reply.u64(claimed.claim).u64(claimed.offset).u64(claimed.len);
                if op == Op::ClaimLent && claimed.len >= MIN_LENT {
                    reply.bytes(self.lenders.lend(&mut table, source, claimed));
                }
            }
            Op::Release => release(&mut table, source, &mut fields, false)?,
            Op::Hold => {
                let (object, key) = (fields.u64()?, fields.key()?);
                if let Err(failed) = table.hold(source, object, key) {
                    return Some(Err(failed.into()));
                }
            }
            Op::Read => {
                let (claim, at, len) = (fields.u64()?, fields.u64()?, fields.u64()?);
                let Some(claimed) = table.claimed(source, claim) else {
                    return Some(Err(Refusal::Gone.into()));
                };
                let len = len.min(claimed.len.saturating_sub(at)).min((limit as u64).checked_sub(1)?);
                let from = table.region().region.at(claimed.offset.checked_add(at)?, len)?;
                // SAFETY: the object is claimed, so its bytes stay while the table is locked, and nothing writes them.
                reply.bytes(unsafe { std::slice::from_raw_parts(from.as_ptr(), len as usize) });
            }
            Op::Evict => {
                let (number, key) = (fields.u64()?, fields.key()?);
                if table.unfinished(source, number).is_some() && table.key(number).is(&key) {
                    table.abandon(number);
                    reply.u8(1);
                    return Some(Ok(RequestState::Done));
                }
                match table.evict(number, key) {
                    Ok(was_there) => reply.u8(was_there.into()),
                    Err(refusal) => return Some(Err(refusal.into())),
                };
            }
            Op::Exists => {
                let (number, key) = (fields.u64()?, fields.key()?);
                match table.exists(number, key) {
                    Ok(is_there) => reply.u8(is_there.into()),
                    Err(refusal) => return Some(Err(refusal.into())),
                };
            }
            Op::Reserve => match table.reserve(source, fields.text()?) {
                Ok(number) => {
                    reply.u64(number).bytes(&table.key(number).0);
                }
                Err(none) => return Some(Err(none.into())),
            },
            Op::Lease => {
                let (number, key, time) = (fields.u64()?, fields.key()?, fields.u64()?);
                if let Err(refusal) = table.lease(number, key, Duration::from_millis(time)) {
                    return Some(Err(refusal.into()));
                }
            }
            Op::Count => {
                let (number, key, difference) = (fields.u64()?, fields.key()?, fields.u64()?);
                match table.count(number, key, difference.cast_signed()) {
                    Ok(count) => reply.u64(count),
                    Err(refusal) => return Some(Err(refusal.into())),
                };
            }
        }
        Some(Ok(RequestState::Done))
    }
}

/// Releases the claims that a request lists, unless an earlier try has.
fn release(table: &mut Table, source: Source, fields: &mut Reader<'_>, is_again: bool) -> Option<()> {
    let count = fields.u16().map(usize::from).filter(|count| *count <= MAX_CLAIMS)?;
    for _ in 0..count {
        let claim = fields.u64()?;
        if !is_again {
            table.release(source, claim);
        }
    }
    Some(())
}

/// A well-formed request that cannot be done.
enum Failed {
    Refused(Refusal),
    NoMemory(NoMemory),
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        Failed::Refused(refusal)
    }
}

impl From<NoMemory> for Failed {
    fn from(none: NoMemory) -> Self {
        Failed::NoMemory(none)
    }
}

impl From<ClaimFailed> for Failed {
    fn from(failed: ClaimFailed) -> Self {
        match failed {
            ClaimFailed::Refused(refusal) => Failed::Refused(refusal),
            ClaimFailed::NoMemory(none) => Failed::NoMemory(none),
        }
    }
}

impl Failed {
    /// Returns when to make the request again.
    fn retry(&self) -> Option<RequestState> {
        match self {
            Failed::NoMemory(none) => none.retry(),
            Failed::Refused(_) => None,
        }
    }

    fn write(self, reply: &mut Writer) {
        reply.0.clear();
        match self {
            Failed::Refused(Refusal::Gone) => reply.u8(Status::Gone as u8),
            Failed::Refused(Refusal::WrongKey) => reply.u8(Status::WrongKey as u8),
            Failed::Refused(Refusal::Unset(offset)) => reply.u8(Status::Unset as u8).u64(offset),
            Failed::Refused(Refusal::NotReserved) => reply.u8(Status::NotReserved as u8),
            Failed::Refused(Refusal::Lost) => reply.u8(Status::Lost as u8),
            Failed::NoMemory(none) => none.write(reply),
        };
    }
}

// SAFETY: objects begin at multiples of the allocator's unit, which is 64 bytes, and are mapped as long as the store. The
// block of a claim by `Source::Call` is freed by the next `call_ended` at the earliest, and so is a block that `create`
// has made. No finished object is written. The region is a memfd with seals (`region.rs`), and has its own descriptor
// for processes that only read.
unsafe impl Objects for Service {
    fn listening(&mut self, address: &str) {
        self.shared.add_address(address);
    }

    fn bell(&mut self) -> Result<Option<Arc<Bell>>, farjump::Error> {
        let Some(file) = self.shared.file() else { return Ok(None) };
        let bell = Arc::new(Bell::new()?);
        file.add_bell(Arc::clone(&bell));
        if let Some(before) = self.bell.replace(Arc::clone(&bell)) {
            file.remove_bell(&before);
        }
        Ok(Some(bell))
    }

    fn source_began(&mut self, source: u64, lender: Option<Box<dyn Lender>>, memory: SourceMemory) {
        let source = Source::Link(self.target, source);
        self.lenders.add(source, lender);
        self.table().source_began(source, memory);
    }

    fn request(
        &mut self,
        source: u64,
        request: Request<'_>,
        reply: &mut Vec<u8>,
        limit: usize,
    ) -> Result<RequestState, String> {
        let mut response = Writer(std::mem::take(reply));
        let mut head = std::mem::take(&mut self.head);
        let before = self.again.remove(&source);
        let first = before.unwrap_or_else(|| self.shared.failures());
        let answered = self.respond(source, request, &mut head, &mut response, limit, before);
        self.head = head;
        let done = match answered {
            Some(Ok(answered)) => Ok(answered),
            Some(Err(failed)) => Ok(failed.retry().unwrap_or_else(|| {
                failed.write(&mut response);
                RequestState::Done
            })),
            None => Err(MALFORMED.to_owned()),
        };
        if done.as_ref().is_ok_and(|state| *state != RequestState::Done) {
            self.again.insert(source, first);
        }
        *reply = response.0;
        done
    }

    fn resolve(&mut self, handle: Request<'_>) -> Result<Lent, ObjectError> {
        let mut bytes = [0; MAX_HANDLE];
        if handle.len() > bytes.len() {
            return Err(ObjectError::NoHandle);
        }
        let len = handle.copy_to(0, &mut bytes);
        let handle = Handle::from_bytes(&bytes[..len]).map_err(|_| ObjectError::NoHandle)?;
        if handle.epoch != self.table().epoch {
            // The handle is from before the owner's restart, or of another owner.
            let is_here = handle.addresses.iter().any(|address| self.shared.addresses().contains(address));
            return Err(if is_here { ObjectError::Gone } else { ObjectError::Elsewhere });
        }
        let source = Source::Call(self.target);
        let claimed =
            self.shared.without_waiting(|table| match table.claim(source, handle.number, handle.key) {
                Ok(claimed) => Ok(Ok(claimed)),
                Err(ClaimFailed::Refused(refusal)) => Ok(Err(refusal)),
                Err(ClaimFailed::NoMemory(none)) => Err(none),
            });
        let claimed = claimed?.map_err(|refusal| match refusal {
            Refusal::WrongKey => ObjectError::WrongKey,
            Refusal::Unset(_) => ObjectError::Unset,
            Refusal::Gone | Refusal::NotReserved | Refusal::Lost => ObjectError::Gone,
        })?;
        // The call itself has a claim from here on.
        self.table().end_hold_on(claimed.claim);
        let data = self.shared.region().region.at(claimed.offset, claimed.len).ok_or(ObjectError::Gone)?;
        Ok(Lent { data, len: claimed.len as usize })
    }

    fn create(&mut self, len: usize) -> Result<Lent, ObjectError> {
        let source = Source::Call(self.target);
        let (number, offset) = self.shared.without_waiting(|table| table.allocate(source, len as u64, ""))?;
        let data = self.shared.region().region.at(offset, len as u64).ok_or(ObjectError::Full)?;
        self.made.push(number);
        Ok(Lent { data, len })
    }

    fn call_ended(&mut self, returned: bool, reply: &mut Vec<u8>) {
        let made = std::mem::take(&mut self.made);
        let source = Source::Call(self.target);
        let mut table = self.shared.table();
        for number in made {
            if !returned || table.commit(source, number).is_err() {
                table.abandon(number);
                continue;
            }
            if let Some(handle) = self.shared.handle(&table, number) {
                reply.extend(handle.to_bytes());
            }
        }
        table.release_all(source);
    }

    fn source_ended(&mut self, source: u64, peer: Option<LingeringPeer>) {
        self.again.remove(&source);
        let source = Source::Link(self.target, source);
        // A turn of its own.
        self.table().end_holds_of(source);
        self.lenders.remove(source);
        let mut topics = self.shared.topics();
        let mut table = self.table();
        topics.source_ended(&mut table, source);
        table.link_ended(source, peer);
    }

    fn lingering(&mut self) -> usize {
        let mut table = self.table();
        table.end_quarantine();
        table.quarantine.len()
    }

    fn continue_work(&mut self) -> bool {
        self.shared.continue_work()
    }

    fn region(&self, may_write: bool) -> Option<Region<'_>> {
        let (region, epoch) = (self.shared.region(), self.table().epoch);
        Some(Region { descriptor: region.descriptor(may_write)?, len: region.region.len(), epoch })
    }

    fn list(&mut self, from: u64, most: usize) -> ObjectPage {
        self.table().list(from, most)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let (Some(file), Some(bell)) = (self.shared.file(), &self.bell) {
            file.remove_bell(bell);
        }
        // No target is left to continue the work.
        while self.shared.continue_work() {}
    }
}

#[cfg(test)]
mod tests;
