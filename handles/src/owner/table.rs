//! The objects of a store: their places, their users and their ends.
//!
//! An object is never freed while a reader uses it. Each reader has a *claim*, which is counted for its source. Later
//! requests find an evicted object gone, and its memory is freed with its last claim. A source that ends loses its
//! claims, however it ends.
//!
//! No step takes longer with more objects: ordered maps find everything, and move one node at a time as they grow. A
//! [turn](crate::owner::turn) visits a bounded number of objects, and leaves the rest of its work to later turns
//! (`docs/design/objects.md`).

pub(crate) mod accounts;
mod ends;
pub(crate) mod holds;
mod listing;
mod memory;
mod moves;
pub(crate) mod object;
pub(crate) mod quarantine;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use farjump::objects::{Loan, SourceMemory};
use rustix::thread::futex;

use crate::owner::allocator::{Allocator, Block, UNIT};
use crate::owner::spill::{FileThread, Spill};
use crate::owner::table::accounts::{Accounts, CLAIM, LOAN};
use crate::owner::table::holds::Holds;
use crate::owner::table::object::{Object, State};
use crate::owner::table::quarantine::Quarantine;
use crate::owner::turn::Turn;
use crate::region::OwnRegion;
use crate::wire::handle::Key;
use crate::wire::refusal::{ClaimFailed, Lack, NoMemory, Refusal};

/// A user of objects: a link of a target, or this process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Source {
    /// This process, through a [`Store`](crate::Store).
    Owner,
    /// The function that runs in the target of this number.
    Call(u32),
    /// The link of this number at the target of this number.
    Link(u32, u64),
}

/// A claimed object. Its bytes do not change until the claim is released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Claimed {
    pub(crate) claim: u64,
    /// Offset in the region, in bytes.
    pub(crate) offset: u64,
    /// Length in bytes.
    pub(crate) len: u64,
}

/// The word of a reserved number without contents.
const UNSET: u32 = 0;
/// The word of a reserved number that was evicted.
const EVICTED: u32 = u32::MAX;

/// Returns the bytes of the region that an object of this length takes.
fn lines(len: u64) -> u64 {
    len.max(1).next_multiple_of(UNIT)
}

/// The objects of a store.
#[derive(Debug)]
pub(crate) struct Table {
    region: Arc<OwnRegion>,
    memory: Allocator,
    spill: Option<Spill>,
    accounts: Accounts,
    objects: BTreeMap<u64, Box<Object>>,
    /// The objects by their last use.
    by_use: BTreeMap<u64, u64>,
    /// Objects that may go to the file, because they are unused, by their last use.
    unused: BTreeMap<u64, u64>,
    /// Claims by their source and number. A source may have several of one object. One entry always stays, so that a
    /// source that claims one object after another takes no node of the heap each time.
    claims: BTreeMap<(Source, u64), u64>,
    /// The loans of claimed objects. They end before the claims do.
    loans: BTreeMap<(Source, u64), Loan>,
    /// Objects that their sources have not finished.
    unfinished: BTreeSet<(Source, u64)>,
    /// Objects on their way from the file, by the sources that wait for them.
    awaited: BTreeSet<(Source, u64)>,
    leases: BTreeSet<(Instant, u64)>,
    /// Ended sources that have left claims or unfinished objects.
    ending: VecDeque<Source>,
    /// Evicted objects without claims whose memory is not free yet.
    dying: Vec<u64>,
    /// Evicted objects that were held.
    unheld: Vec<u64>,
    /// The number of the last object.
    last: u64,
    /// The number of uses so far.
    uses: u64,
    pub(crate) turn: Turn,
    pub(crate) quarantine: Quarantine,
    pub(crate) holds: Holds,
    pub(crate) epoch: u64,
    secret: [u8; 32],
}

impl Table {
    pub(crate) fn new(region: Arc<OwnRegion>, spill: Option<Spill>, epoch: u64, secret: [u8; 32]) -> Table {
        Table {
            memory: Allocator::new(region.region.len(), UNIT),
            region,
            spill,
            accounts: Accounts::default(),
            objects: BTreeMap::new(),
            by_use: BTreeMap::new(),
            unused: BTreeMap::new(),
            claims: BTreeMap::from([((Source::Owner, 0), 0)]),
            loans: BTreeMap::new(),
            unfinished: BTreeSet::new(),
            awaited: BTreeSet::new(),
            leases: BTreeSet::new(),
            ending: VecDeque::new(),
            dying: Vec::new(),
            unheld: Vec::new(),
            last: 0,
            uses: 0,
            turn: Turn::default(),
            quarantine: Quarantine::default(),
            holds: Holds::default(),
            epoch,
            secret,
        }
    }

    /// The thread of the file, if there is one.
    pub(crate) fn file_thread(&self) -> Option<&Arc<FileThread>> {
        self.spill.as_ref().map(Spill::thread)
    }

    pub(crate) fn region(&self) -> &OwnRegion {
        &self.region
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.memory.capacity()
    }

    /// Makes the costs of `source` count in `memory` until it ends.
    pub(crate) fn source_began(&mut self, source: Source, memory: SourceMemory) {
        self.accounts.add(source, memory);
    }

    /// Returns the key to an object. It cannot be made without the store's secret.
    pub(crate) fn key(&self, number: u64) -> Key {
        let hash = blake3::keyed_hash(&self.secret, &number.to_le_bytes());
        let mut key = [0; 16];
        key.copy_from_slice(&hash.as_bytes()[..16]);
        Key(key)
    }

    /// Returns the word in a block.
    fn word(&self, word: Block) -> &AtomicU32 {
        let start = self.region.region.at(word.offset(), 4).expect("blocks lie in the region");
        // SAFETY: the four bytes are in the region, which is mapped for writing as long as the table. They lie on a
        // line of their own that the allocator has given to this word. If other processes change them, they do so by
        // atomic operations.
        unsafe { AtomicU32::from_ptr(start.as_ptr().cast()) }
    }

    fn wake(&self, word: Block, value: u32) {
        let word = self.word(word);
        word.store(value, Ordering::Release);
        // Its errors concern no waiter: waiters look again by themselves.
        let _ = futex::wake(word, futex::Flags::empty(), u32::MAX);
    }

    /// Returns whether there is an object of this number that was not evicted.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.objects.get(&number).is_some_and(|object| !matches!(object.state, State::Evicted))
    }

    /// Adds an object. Returns its number.
    fn add(&mut self, mut object: Object) -> u64 {
        (self.last, self.uses) = (self.last + 1, self.uses + 1);
        object.last_use = self.uses;
        self.by_use.insert(self.uses, self.last);
        self.objects.insert(self.last, Box::new(object));
        self.turn.visit(1);
        self.last
    }

    /// Makes this the last use of an object.
    fn touch(&mut self, number: u64) {
        let Some(object) = self.objects.get_mut(&number) else { return };
        self.turn.visit(1);
        if object.last_use == self.uses {
            return;
        }
        self.by_use.remove(&object.last_use);
        self.unused.remove(&object.last_use);
        self.uses += 1;
        object.last_use = self.uses;
        self.by_use.insert(self.uses, number);
    }

    /// Lets the object go to the file when memory is lacking, unless it is in use.
    fn note_unused(&mut self, number: u64) {
        if self.spill.is_some()
            && let Some(object) = self.objects.get(&number)
            && matches!(object.state, State::Present)
            && !object.is_kept()
            && object.awaited == 0
            && object.block.is_some()
        {
            self.unused.insert(object.last_use, number);
        }
    }

    /// Takes memory for an object of `source`, which writes `len` bytes there, and then [`Table::commit`]s it.
    pub(crate) fn allocate(
        &mut self,
        source: Source,
        len: u64,
        type_name: &str,
    ) -> Result<(u64, u64), NoMemory> {
        let block = self.take_for(source, len, Object::heap(type_name.len()))?;
        let mut object = Object::new(State::Unfinished(source), source, type_name);
        (object.block, object.len) = (Some(block), len);
        let number = self.add(object);
        self.unfinished.insert((source, number));
        self.accounts.hold(source, lines(len));
        Ok((number, block.offset()))
    }

    /// Removes an object from the unfinished ones.
    fn remove_unfinished(&mut self, source: Source, number: u64, len: u64) {
        if self.unfinished.remove(&(source, number)) {
            self.accounts.uncount(source, lines(len));
        }
    }

    /// Bytes of the objects that `source` has claimed or not finished.
    pub(crate) fn held_by(&self, source: Source) -> u64 {
        self.accounts.held(source)
    }

    /// Returns the offset at which `source` writes the object that it allocated, and the object's length.
    pub(crate) fn unfinished(&self, source: Source, number: u64) -> Option<(u64, u64)> {
        let object = self.objects.get(&number)?;
        match (&object.state, object.block) {
            (State::Unfinished(by), Some(block)) if *by == source => Some((block.offset(), object.len)),
            _ => None,
        }
    }

    /// Finishes an object whose contents are written.
    pub(crate) fn commit(&mut self, source: Source, number: u64) -> Result<(), Refusal> {
        match self.objects.get_mut(&number) {
            Some(object) if matches!(object.state, State::Unfinished(by) if by == source) => {
                object.state = State::Present;
                let len = object.len;
                self.remove_unfinished(source, number, len);
                self.touch(number);
                self.note_unused(number);
                Ok(())
            }
            _ => Err(Refusal::Gone),
        }
    }

    /// Drops an object that was allocated and not written.
    pub(crate) fn abandon(&mut self, number: u64) {
        self.evict_now(number);
    }

    /// Reserves a number for `source`.
    pub(crate) fn reserve(&mut self, source: Source, type_name: &str) -> Result<u64, NoMemory> {
        let word = self.take_for(source, UNIT, Object::heap(type_name.len()))?;
        self.word(word).store(UNSET, Ordering::Relaxed);
        let mut object = Object::new(State::Reserved, source, type_name);
        object.word = Some(word);
        Ok(self.add(object))
    }

    /// Makes the object `contents`, which `source` has written, the contents of a reserved number, in place of earlier ones.
    pub(crate) fn set(
        &mut self,
        source: Source,
        number: u64,
        key: Key,
        contents: u64,
    ) -> Result<(), Refusal> {
        let found = self.check(number, key)?;
        let Some(word) = found.word else {
            self.abandon(contents);
            return Err(Refusal::NotReserved);
        };
        self.commit(source, contents)?;
        let len = self.objects.get(&contents).map_or(0, |object| object.len);
        let Some(reserved) = self.objects.get_mut(&number) else { return Err(Refusal::Gone) };
        let before = reserved.contents.replace(contents);
        (reserved.state, reserved.len) = (State::Present, len);
        if let Some(before) = before {
            self.end(before);
        }
        let value = self.word(word).load(Ordering::Relaxed).wrapping_add(1);
        self.wake(word, value.clamp(UNSET + 1, EVICTED - 1));
        Ok(())
    }

    /// Returns the object of a handle, after a check of its key.
    pub(crate) fn check(&mut self, number: u64, key: Key) -> Result<&Object, Refusal> {
        self.end_leases();
        // Compared first, so that the reply to a wrong key does not reveal which objects exist.
        if !self.key(number).is(&key) {
            return Err(Refusal::WrongKey);
        }
        self.turn.visit(1);
        match self.objects.get(&number).map(|object| &**object) {
            None => Err(Refusal::Gone),
            Some(Object { state: State::Evicted | State::Unfinished(_), .. }) => Err(Refusal::Gone),
            // Many leases end at once, and the turn of this one has not come.
            Some(object) if object.lease.is_some_and(|until| until <= self.turn.now()) => Err(Refusal::Gone),
            Some(object) => Ok(object),
        }
    }

    /// Claims an object for `source`.
    pub(crate) fn claim(&mut self, source: Source, number: u64, key: Key) -> Result<Claimed, ClaimFailed> {
        if !self.awaited.is_empty() {
            self.await_nothing(source);
        }
        let found = self.check(number, key)?;
        let claim = match (found.word, found.contents) {
            (Some(word), None) => return Err(Refusal::Unset(word.offset()).into()),
            (_, contents) => contents.unwrap_or(number),
        };
        self.recall(source, claim)?;
        self.charge_claim(source, claim)?;
        self.touch(claim);
        let Some(object) = self.objects.get_mut(&claim) else { return Err(Refusal::Gone.into()) };
        let Some(block) = object.block else { return Err(Refusal::Gone.into()) };
        object.claims += 1;
        let claimed = Claimed { claim, offset: block.offset(), len: object.len };
        let last_use = object.last_use;
        self.unused.remove(&last_use);
        let count = self.claims.entry((source, claim)).or_insert(0);
        *count += 1;
        if *count == 1 {
            self.accounts.hold(source, lines(claimed.len));
        }
        Ok(claimed)
    }

    /// Charges the first claim of `source` to an object that it can claim.
    fn charge_claim(&mut self, source: Source, claim: u64) -> Result<(), NoMemory> {
        let is_there = self.objects.get(&claim).is_some_and(|object| object.block.is_some());
        if !is_there || self.claims.contains_key(&(source, claim)) {
            return Ok(());
        }
        self.charge_reader(source, CLAIM)
    }

    /// As [`Table::charge`], for memory that a source needs to read: even a full store can be read.
    pub(crate) fn charge_reader(&mut self, source: Source, bytes: u64) -> Result<(), NoMemory> {
        if self.held() + bytes > self.capacity() + self.beside() {
            return Err(self.no_memory(bytes, Lack::Memory));
        }
        match self.accounts.charge(source, bytes) {
            true => Ok(()),
            false => Err(self.no_memory(bytes, Lack::OfSource)),
        }
    }

    /// Returns the object that `source` has claimed by this number.
    pub(crate) fn claimed(&mut self, source: Source, claim: u64) -> Option<Claimed> {
        self.claims.get(&(source, claim))?;
        self.turn.visit(1);
        let object = self.objects.get(&claim)?;
        Some(Claimed { claim, offset: object.block?.offset(), len: object.len })
    }

    /// The loan of a claimed object.
    pub(crate) fn loan(&self, source: Source, claim: u64) -> Option<&Loan> {
        self.loans.get(&(source, claim))
    }

    /// Keeps a loan of a claimed object for as long as its source's claims to it, if the source may have one more.
    pub(crate) fn add_loan(&mut self, source: Source, claim: u64, loan: Loan) {
        if self.claims.contains_key(&(source, claim)) && self.charge(source, LOAN).is_ok() {
            self.loans.insert((source, claim), loan);
        }
    }

    /// Evicts an object: later requests find it gone. Returns whether the object existed.
    pub(crate) fn evict(&mut self, number: u64, key: Key) -> Result<bool, Refusal> {
        match self.check(number, key) {
            Ok(_) => {
                self.end(number);
                Ok(true)
            }
            Err(Refusal::Gone) => Ok(false),
            Err(refusal) => Err(refusal),
        }
    }

    /// Returns whether there is an object, or a reserved number.
    pub(crate) fn exists(&mut self, number: u64, key: Key) -> Result<bool, Refusal> {
        match self.check(number, key) {
            Ok(_) => Ok(true),
            Err(Refusal::Gone) => Ok(false),
            Err(refusal) => Err(refusal),
        }
    }

    /// Evicts the object after `time`. Removes the lease if `time` is zero.
    pub(crate) fn lease(&mut self, number: u64, key: Key, time: Duration) -> Result<(), Refusal> {
        self.check(number, key)?;
        // A time beyond the range of the clock never comes.
        let until = self.turn.now().checked_add(time).filter(|_| !time.is_zero());
        let Some(object) = self.objects.get_mut(&number) else { return Err(Refusal::Gone) };
        if let Some(before) = std::mem::replace(&mut object.lease, until) {
            self.leases.remove(&(before, number));
        }
        if let Some(until) = until {
            self.leases.insert((until, number));
        }
        Ok(())
    }

    /// Changes the count of references by `difference`. Evicts the object when the count comes to 0.
    pub(crate) fn count(&mut self, number: u64, key: Key, difference: i64) -> Result<u64, Refusal> {
        self.check(number, key)?;
        let Some(object) = self.objects.get_mut(&number) else { return Err(Refusal::Gone) };
        let count = object.references.unwrap_or(0).saturating_add_signed(difference);
        object.references = Some(count);
        if count == 0 {
            self.end(number);
        }
        Ok(count)
    }

    /// Returns the name of an object's type, and the object's length.
    pub(crate) fn describe(&self, number: u64) -> Option<(Arc<str>, u64)> {
        let object = self.objects.get(&number)?;
        Some((Arc::clone(&object.type_name), object.len))
    }
}

#[cfg(test)]
mod tests;
