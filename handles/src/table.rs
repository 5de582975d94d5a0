//! The objects of a store: where they lie, who uses them, when they go.
//!
//! An object that somebody reads is never freed under him. Each reader has a *claim*, counted for his source; an evicted
//! object is gone for all who come later, and its memory is freed with its last claim. A source that ends gives up its
//! claims, however it ends.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use farjump::objects::{Loan, ObjectListing, ObjectState, StoredObject};
use rustix::thread::futex;

use crate::allocator::{Allocator, Block, UNIT};
use crate::handle::Key;
use crate::object::{Object, State};
use crate::refusal::{ClaimFailed, NoMemory, Refusal};
use crate::region::OwnRegion;
use crate::spill::Spill;

/// Who uses objects: a link of a target, or this process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Source {
    /// This process, through a [`Store`](crate::Store).
    Owner,
    /// The function that runs in this target of the store's.
    Call(u32),
    /// The link of this number of that target.
    Link(u32, u64),
}

/// A claimed object. Its bytes stay as they are until the claim is released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Claimed {
    pub(crate) claim: u64,
    /// Offset in the region, in bytes.
    pub(crate) offset: u64,
    /// Length in bytes.
    pub(crate) len: u64,
}

/// The claims of one source to one object.
#[derive(Default, Debug)]
struct Claims {
    count: u64,
    /// The object is lent to the source. Ends before the claims do.
    loan: Option<Loan>,
}

/// The word of a reserved number: it has no contents.
const UNSET: u32 = 0;
/// The word of a reserved number that was evicted.
const EVICTED: u32 = u32::MAX;

/// The objects of a store.
#[derive(Debug)]
pub(crate) struct Table {
    region: Arc<OwnRegion>,
    memory: Allocator,
    spill: Option<Spill>,
    objects: HashMap<u64, Object>,
    /// Claims by their source and number, of which each source may have several.
    claims: HashMap<Source, HashMap<u64, Claims>>,
    /// The number of the last object.
    last: u64,
    /// Counts uses.
    uses: u64,
    leases: BTreeSet<(Instant, u64)>,
    pub(crate) epoch: u64,
    secret: [u8; 32],
}

impl Table {
    pub(crate) fn new(region: Arc<OwnRegion>, spill: Option<Spill>, epoch: u64, secret: [u8; 32]) -> Table {
        Table {
            memory: Allocator::new(region.region.len()),
            region,
            spill,
            objects: HashMap::new(),
            claims: HashMap::new(),
            last: 0,
            uses: 0,
            leases: BTreeSet::new(),
            epoch,
            secret,
        }
    }

    pub(crate) fn region(&self) -> &OwnRegion {
        &self.region
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.memory.capacity()
    }

    /// The key to an object: nobody without the store's secret can make it.
    pub(crate) fn key(&self, number: u64) -> Key {
        let hash = blake3::keyed_hash(&self.secret, &number.to_le_bytes());
        let mut key = [0; 16];
        key.copy_from_slice(&hash.as_bytes()[..16]);
        Key(key)
    }

    fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Where the block lies.
    fn word(&self, word: Block) -> &AtomicU32 {
        let start = self.region.region.at(word.offset(), 4).expect("blocks lie in the region");
        // SAFETY: the four bytes are in the region, which is mapped for writing as long as the table, on a line of their own
        // that the allocator has given to this word. Other processes change them by atomic operations if at all.
        unsafe { AtomicU32::from_ptr(start.as_ptr().cast()) }
    }

    fn wake(&self, word: Block, value: u32) {
        let word = self.word(word);
        word.store(value, Ordering::Release);
        // No error of it concerns the waiters: they look again by themselves.
        let _ = futex::wake(word, futex::Flags::empty(), u32::MAX);
    }

    /// Takes memory, and makes space for it by the file if there is one.
    pub(crate) fn take(&mut self, len: u64) -> Result<Block, NoMemory> {
        self.end_leases();
        loop {
            if let Some(block) = self.memory.take(len) {
                return Ok(block);
            }
            if len > self.memory.capacity() || !self.spill_oldest() {
                return Err(NoMemory {
                    asked: len,
                    used: self.memory.used(),
                    capacity: self.memory.capacity(),
                    largest: self.memory.largest(),
                });
            }
        }
    }

    /// Gives memory back that was taken for something else than an object.
    pub(crate) fn give_back(&mut self, block: Block) {
        self.memory.give_back(block);
    }

    /// Whether there is an object of this number that was not evicted.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.objects.get(&number).is_some_and(|object| !matches!(object.state, State::Evicted))
    }

    /// Writes the object that nobody uses and that was used longest ago to the file. `false` if there is none, or no file.
    fn spill_oldest(&mut self) -> bool {
        let Some(spill) = &mut self.spill else { return false };
        let unused = |object: &&mut Object| {
            matches!(object.state, State::Present) && object.claims == 0 && object.block.is_some()
        };
        let oldest = self.objects.values_mut().filter(unused).min_by_key(|object| object.last_use);
        let Some(object) = oldest else { return false };
        let Some(block) = object.block else { return false };
        let Some(data) = self.region.region.at(block.offset(), object.len) else { return false };
        // SAFETY: the block is this object's, of `len` bytes; nobody writes a finished object.
        let bytes = unsafe { std::slice::from_raw_parts(data.as_ptr(), object.len as usize) };
        match spill.write(bytes) {
            Ok(place) => {
                object.state = State::Spilled(place);
                object.block = None;
                self.memory.give_back(block);
                true
            }
            Err(error) => {
                log::warn!("objects are not written to a file: {error}");
                false
            }
        }
    }

    /// Memory for an object of `source`, which writes `len` bytes there, and then [`Table::commit`]s it.
    pub(crate) fn allocate(
        &mut self,
        source: Source,
        len: u64,
        type_name: &str,
    ) -> Result<(u64, u64), NoMemory> {
        let block = self.take(len)?;
        let number = self.next_number();
        let mut object = Object::new(State::Unfinished(source), type_name);
        (object.block, object.len) = (Some(block), len);
        self.objects.insert(number, object);
        Ok((number, block.offset()))
    }

    /// Where `source` writes the object that it allocated, and its length.
    pub(crate) fn unfinished(&self, source: Source, number: u64) -> Option<(u64, u64)> {
        let object = self.objects.get(&number)?;
        match (&object.state, object.block) {
            (State::Unfinished(by), Some(block)) if *by == source => Some((block.offset(), object.len)),
            _ => None,
        }
    }

    /// The contents are written.
    pub(crate) fn commit(&mut self, source: Source, number: u64) -> Result<(), Refusal> {
        self.uses += 1;
        let uses = self.uses;
        match self.objects.get_mut(&number) {
            Some(object) if matches!(object.state, State::Unfinished(by) if by == source) => {
                (object.state, object.last_use) = (State::Present, uses);
                Ok(())
            }
            _ => Err(Refusal::Gone),
        }
    }

    /// Gives up an object that was allocated and not written.
    pub(crate) fn abandon(&mut self, number: u64) {
        self.remove(number);
    }

    /// Reserves a number.
    pub(crate) fn reserve(&mut self, type_name: &str) -> Result<u64, NoMemory> {
        let word = self.take(UNIT)?;
        self.word(word).store(UNSET, Ordering::Relaxed);
        let number = self.next_number();
        let mut object = Object::new(State::Reserved, type_name);
        object.word = Some(word);
        self.objects.insert(number, object);
        Ok(number)
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

    /// The object of a handle.
    pub(crate) fn check(&mut self, number: u64, key: Key) -> Result<&Object, Refusal> {
        self.end_leases();
        // Compared first, so that the answer to a wrong key does not tell what there is.
        if !self.key(number).is(&key) {
            return Err(Refusal::WrongKey);
        }
        match self.objects.get(&number) {
            None => Err(Refusal::Gone),
            Some(Object { state: State::Evicted | State::Unfinished(_), .. }) => Err(Refusal::Gone),
            Some(object) => Ok(object),
        }
    }

    /// Claims an object for `source`.
    pub(crate) fn claim(&mut self, source: Source, number: u64, key: Key) -> Result<Claimed, ClaimFailed> {
        let found = self.check(number, key)?;
        let claim = match (found.word, found.contents) {
            (Some(word), None) => return Err(Refusal::Unset(word.offset()).into()),
            (_, contents) => contents.unwrap_or(number),
        };
        self.recall(claim)?;
        self.uses += 1;
        let Some(object) = self.objects.get_mut(&claim) else { return Err(Refusal::Gone.into()) };
        let Some(block) = object.block else { return Err(Refusal::Gone.into()) };
        object.claims += 1;
        object.last_use = self.uses;
        let claimed = Claimed { claim, offset: block.offset(), len: object.len };
        self.claims.entry(source).or_default().entry(claim).or_default().count += 1;
        Ok(claimed)
    }

    /// Reads an object back from the file.
    fn recall(&mut self, number: u64) -> Result<(), ClaimFailed> {
        let Some(object) = self.objects.get(&number) else { return Ok(()) };
        let (State::Spilled(place), len) = (&object.state, object.len) else { return Ok(()) };
        let place = *place;
        let block = self.take(len)?;
        let into = self.region.region.at(block.offset(), len).expect("blocks lie in the region");
        let Some(spill) = &mut self.spill else { return Ok(()) };
        // SAFETY: the block was taken just now: nobody else uses it.
        let into = unsafe { std::slice::from_raw_parts_mut(into.as_ptr(), len as usize) };
        match spill.read(place, into) {
            Ok(()) => {
                if let Some(object) = self.objects.get_mut(&number) {
                    (object.state, object.block) = (State::Present, Some(block));
                }
                Ok(())
            }
            Err(error) => {
                log::warn!("object {number} is lost: its file cannot be read: {error}");
                self.memory.give_back(block);
                self.remove(number);
                Err(Refusal::Gone.into())
            }
        }
    }

    /// What `source` has claimed by this number.
    pub(crate) fn claimed(&self, source: Source, claim: u64) -> Option<Claimed> {
        self.claims.get(&source)?.get(&claim)?;
        let object = self.objects.get(&claim)?;
        Some(Claimed { claim, offset: object.block?.offset(), len: object.len })
    }

    /// The loan of a claimed object.
    pub(crate) fn loan(&self, source: Source, claim: u64) -> Option<&Loan> {
        self.claims.get(&source)?.get(&claim)?.loan.as_ref()
    }

    /// Keeps a loan of a claimed object for as long as the claims of its source to it.
    pub(crate) fn add_loan(&mut self, source: Source, claim: u64, loan: Loan) {
        if let Some(these) = self.claims.get_mut(&source).and_then(|claims| claims.get_mut(&claim)) {
            these.loan = Some(loan);
        }
    }

    /// Releases a claim. One that `source` does not have is none.
    pub(crate) fn release(&mut self, source: Source, claim: u64) {
        let Some(claims) = self.claims.get_mut(&source) else { return };
        let Some(these) = claims.get_mut(&claim) else { return };
        these.count -= 1;
        if these.count == 0 {
            claims.remove(&claim);
        }
        self.unclaim(claim, 1);
    }

    fn unclaim(&mut self, claim: u64, count: u64) {
        let Some(object) = self.objects.get_mut(&claim) else { return };
        object.claims -= count;
        if object.claims == 0 && matches!(object.state, State::Evicted) {
            self.remove(claim);
        }
    }

    /// Releases all claims of `source`.
    pub(crate) fn release_all(&mut self, source: Source) {
        for (claim, Claims { count, loan }) in self.claims.remove(&source).unwrap_or_default() {
            drop(loan);
            self.unclaim(claim, count);
        }
    }

    /// `source` is gone: its claims end, and what it has not finished goes.
    pub(crate) fn source_ended(&mut self, source: Source) {
        self.release_all(source);
        let unfinished = |(number, object): (&u64, &Object)| {
            matches!(object.state, State::Unfinished(by) if by == source).then_some(*number)
        };
        let unfinished: Vec<_> = self.objects.iter().filter_map(unfinished).collect();
        unfinished.into_iter().for_each(|number| self.remove(number));
    }

    /// Evicts an object: it is gone for all who come later. Whether it was there.
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

    /// Whether there is an object, or a reserved number.
    pub(crate) fn exists(&mut self, number: u64, key: Key) -> Result<bool, Refusal> {
        match self.check(number, key) {
            Ok(_) => Ok(true),
            Err(Refusal::Gone) => Ok(false),
            Err(refusal) => Err(refusal),
        }
    }

    /// Evicts, by number.
    pub(crate) fn end(&mut self, number: u64) {
        let Some(object) = self.objects.get_mut(&number) else { return };
        let (contents, lease, word) = (object.contents.take(), object.lease.take(), object.word);
        if let Some(lease) = lease {
            self.leases.remove(&(lease, number));
        }
        if object.claims == 0 {
            self.remove(number);
        } else {
            object.state = State::Evicted;
        }
        if let Some(word) = word {
            self.wake(word, EVICTED);
        }
        if let Some(contents) = contents {
            self.end(contents);
        }
    }

    /// Forgets an object, whose memory is free now.
    fn remove(&mut self, number: u64) {
        let Some(object) = self.objects.remove(&number) else { return };
        if let Some(block) = object.block {
            self.memory.give_back(block);
        }
        if let Some(word) = object.word {
            self.wake(word, EVICTED);
            self.memory.give_back(word);
        }
        if let (State::Spilled(place), Some(spill)) = (object.state, &mut self.spill) {
            spill.forget(place);
        }
    }

    /// Evicts the object after `time`; never of itself if that is zero.
    pub(crate) fn lease(&mut self, number: u64, key: Key, time: Duration) -> Result<(), Refusal> {
        self.check(number, key)?;
        // A time beyond the range of the clock never comes.
        let until = Instant::now().checked_add(time).filter(|_| !time.is_zero());
        let Some(object) = self.objects.get_mut(&number) else { return Err(Refusal::Gone) };
        if let Some(before) = std::mem::replace(&mut object.lease, until) {
            self.leases.remove(&(before, number));
        }
        if let Some(until) = until {
            self.leases.insert((until, number));
        }
        Ok(())
    }

    fn end_leases(&mut self) {
        if self.leases.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some((until, number)) = self.leases.first().copied()
            && until <= now
        {
            self.leases.pop_first();
            if let Some(object) = self.objects.get_mut(&number) {
                object.lease = None;
            }
            self.end(number);
        }
    }

    /// Changes the count of references by `difference`; the object is evicted when it comes to 0.
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

    /// The name of the type of an object, and its length.
    pub(crate) fn describe(&self, number: u64) -> Option<(Arc<str>, u64)> {
        let object = self.objects.get(&number)?;
        Some((Arc::clone(&object.type_name), object.len))
    }

    /// Lists at most `most` objects, those of the latest use first.
    pub(crate) fn list(&mut self, most: usize) -> ObjectListing {
        self.end_leases();
        let mut all: Vec<_> = self.objects.iter().collect();
        all.sort_by_key(|(number, object)| std::cmp::Reverse((object.last_use, **number)));
        let now = Instant::now();
        let shown = all.iter().take(most).map(|(number, object)| StoredObject {
            number: **number,
            len: object.len,
            type_name: object.type_name.to_string(),
            claims: object.claims,
            references: object.references.unwrap_or(0),
            lease_ns: object.lease.map(|until| {
                u64::try_from(until.saturating_duration_since(now).as_nanos()).unwrap_or(u64::MAX)
            }),
            state: match object.state {
                State::Reserved => ObjectState::Reserved,
                State::Unfinished(_) => ObjectState::Unfinished,
                State::Present => ObjectState::Present,
                State::Spilled(_) => ObjectState::Spilled,
                State::Evicted => ObjectState::Evicted,
            },
        });
        ObjectListing {
            objects: shown.collect(),
            left_out: all.len().saturating_sub(most) as u64,
            used: self.memory.used(),
            capacity: self.memory.capacity(),
        }
    }
}
