//! The body for a store of objects: requests of its sources, and the services of functions that run beside it.
//!
//! Its input: a byte of choices, then steps. A step is an actor (a byte), a length (`u16`), and as many bytes. Keys
//! are random, and so is the store's epoch: [`KEY`], [`HANDLE_KEY`] and [`EPOCH`] stand for them.

use std::collections::HashMap;

use farjump::objects::{Lent, ObjectState, Objects, Request, RequestState, SourceMemory};
use farjump_fixtures::allocation::most_at_once;
use farjump_handles::{Error, Service, Store};

use crate::assert_words;

/// Stands for the key of the object whose number is in the 8 bytes before.
pub(crate) const KEY: [u8; 16] = [0xee; 16];
/// Stands in an encoded handle for the key of its object.
pub(crate) const HANDLE_KEY: [u8; 16] = [0xed; 16];
/// Stands for the epoch of the store.
pub(crate) const EPOCH: [u8; 8] = [0xec; 8];
/// Sources; the actors with these numbers send requests.
pub(crate) const SOURCES: u8 = 4;
/// The actors of a running function: it resolves a handle, makes an object, returns, and panics.
pub(crate) const RESOLVES: u8 = 4;
pub(crate) const CREATES: u8 = 5;
pub(crate) const RETURNS: u8 = 6;
pub(crate) const PANICS: u8 = 7;
/// The actor by which a source ends: the source with the number in the first byte.
pub(crate) const ENDS: u8 = 8;
const ACTORS: u8 = 9;

/// The store's memory, in bytes.
const CAPACITY: u64 = 256 << 10;
/// Longest reply, in bytes.
const LIMIT: usize = 64 << 10;
/// Most bytes held at once for a request: a reply that grows by doubling, and the entries of the tables.
const MOST_MEMORY: usize = 512 << 10;
/// Most steps of an input.
const MOST_STEPS: usize = 256;
/// Contents of an object of which no source has a handle.
const WITNESS: &[u8] = b"no source has the handle of this object";

/// Keys and epoch that the sources have received.
struct Learnt {
    /// Keys by the numbers of their objects.
    keys: HashMap<u64, [u8; 16]>,
    epoch: [u8; 8],
}

impl Learnt {
    /// Replaces the placeholders in the input with the keys and the epoch.
    fn fill_in(&self, bytes: &mut [u8]) {
        for at in 0..bytes.len() {
            if bytes[at..].starts_with(&EPOCH) {
                bytes[at..at + 8].copy_from_slice(&self.epoch);
            }
            // The number is directly before the key; in a handle it is before the length.
            for (key, before) in [(KEY, 8), (HANDLE_KEY, 16)] {
                if bytes[at..].starts_with(&key) && at >= before {
                    let mut number = [0; 8];
                    number.copy_from_slice(&bytes[at - before..at - before + 8]);
                    if let Some(known) = self.keys.get(&u64::from_le_bytes(number)) {
                        bytes[at..at + 16].copy_from_slice(known);
                    }
                }
            }
        }
    }

    /// Records the key of an object that a request has made.
    fn learn(&mut self, op: Option<&u8>, reply: &[u8]) {
        const MAKING: [u8; 3] = [1, 2, 10];
        if op.is_some_and(|op| MAKING.contains(op)) && reply.len() >= 25 && reply[0] == 0 {
            let (mut number, mut key) = ([0; 8], [0; 16]);
            number.copy_from_slice(&reply[1..9]);
            key.copy_from_slice(&reply[9..25]);
            self.keys.insert(u64::from_le_bytes(number), key);
        }
    }
}

/// Makes a store serve requests and functions. Its limits hold, an object is safe from sources without its handle,
/// and sources that end leave no claim.
pub fn objects(data: &[u8]) {
    run(data);
}

/// Returns the operations of requests, and the first byte of each one's reply.
fn run(data: &[u8]) -> Vec<(u8, u8)> {
    let mut answered = Vec::new();
    let [choices, steps @ ..] = data else { return answered };
    let mut options = Store::options().capacity(CAPACITY);
    let spills = choices & 1 != 0;
    if spills {
        options = options.spill(std::env::temp_dir(), CAPACITY);
    }
    let store = options.build().expect("memory for a store");
    let mut service = store.service();
    service.listening("unix:@farjump-fuzz-objects");
    let witness = store.put(WITNESS).expect("memory for one object");
    let mut learnt = Learnt { keys: HashMap::new(), epoch: witness.epoch().to_le_bytes() };
    for source in 0..u64::from(SOURCES) {
        service.source_began(source, None, SourceMemory::default());
    }
    for (actor, bytes) in read(steps).take(MOST_STEPS) {
        let mut bytes = bytes.to_vec();
        learnt.fill_in(&mut bytes);
        let (made, memory) = most_at_once(|| step(&mut service, actor, &bytes));
        assert!(memory <= MOST_MEMORY, "a step took {memory} bytes");
        learnt.learn(bytes.first(), &made);
        answered.extend(bytes.first().copied().zip(made.first().copied()));
        let used = store.list(0).used;
        // Claims may take a little more than the capacity, so that a full store can be read.
        assert!(used <= CAPACITY + CAPACITY / 16 + (64 << 10), "{used} bytes are used");
    }
    service.call_ended(false, &mut Vec::new());
    (0..u64::from(SOURCES)).for_each(|source| service.source_ended(source, None));
    // An evicted object is freed when the thread of the file has finished with it.
    let left = loop {
        while service.continue_work() {}
        let left = store.list(usize::MAX);
        if left.objects.iter().all(|object| object.state != ObjectState::Evicted) {
            break left;
        }
        std::thread::yield_now();
    };
    assert_eq!(left.left_out, 0);
    for object in &left.objects {
        assert_eq!(object.claims, 0, "object {} is claimed by no one that is there", object.number);
        assert!(!matches!(object.state, ObjectState::Unfinished | ObjectState::Evicted), "{object:?}");
    }
    match store.get(&witness) {
        Ok(view) => assert!(*view == *WITNESS, "an object was changed without its handle"),
        // The object lies in the file, and there is no memory for it.
        Err(error) => {
            assert_words(&error);
            assert!(spills && matches!(error, Error::Full { .. }), "{error}");
        }
    }
    answered
}

/// Reads the steps of an input; the last one has as many bytes as are left.
pub(crate) fn read(mut steps: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let [actor, low, high, rest @ ..] = steps else { return None };
        let len = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (bytes, behind) = rest.split_at(len);
        steps = behind;
        Some((*actor, bytes))
    })
}

/// Takes one step. Returns the reply of a request.
fn step(service: &mut Service, actor: u8, bytes: &[u8]) -> Vec<u8> {
    let mut reply = Vec::new();
    match actor % ACTORS {
        RESOLVES => {
            if let Ok(Lent { data, len }) = service.resolve(Request::from(bytes)) {
                assert!(len as u64 <= CAPACITY);
                // SAFETY: `Objects::resolve` lends `len` bytes until the call ends, and nothing writes them.
                let object = unsafe { std::slice::from_raw_parts(data.as_ptr(), len) };
                std::hint::black_box(object.iter().fold(0_u8, |sum, byte| sum ^ byte));
            }
        }
        CREATES => {
            let len = bytes.iter().fold(0_usize, |len, byte| (len << 8) | usize::from(*byte));
            if let Ok(Lent { data, len }) = service.create(len) {
                assert!(len as u64 <= CAPACITY);
                // SAFETY: `Objects::create` lends `len` bytes until the call ends, to write them.
                unsafe { data.as_ptr().write_bytes(7, len) };
            }
        }
        RETURNS => service.call_ended(true, &mut reply),
        PANICS => service.call_ended(false, &mut reply),
        ENDS => {
            let source = u64::from(bytes.first().map_or(0, |source| source % SOURCES));
            service.source_ended(source, None);
            // Finishes the source's end, as the next source has the same number.
            while service.continue_work() {}
            service.source_began(source, None, SourceMemory::default());
        }
        source => {
            loop {
                match service.request(source.into(), Request::from(bytes), &mut reply, LIMIT) {
                    Ok(RequestState::Done) => break,
                    Ok(_) => {
                        reply.clear();
                        // Lets the thread of the file run.
                        std::thread::yield_now();
                    }
                    Err(words) => {
                        assert!(!words.is_empty() && !words.chars().any(char::is_control), "{words:?}");
                        reply.clear();
                        break;
                    }
                }
            }
            assert!(reply.len() <= LIMIT, "a reply of {} bytes", reply.len());
            return reply;
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::store_seeds;

    /// Checks that the store does each operation and finishes it. Otherwise mutations of the seeds would reach
    /// little.
    #[test]
    fn the_seeds_have_each_operation_done_and_waited_for() {
        const DONE: u8 = 0;
        const WAIT: u8 = 64;
        let answered: BTreeSet<_> =
            store_seeds::objects().into_iter().flat_map(|(_, input)| run(&input)).collect();
        for op in (0..=13).chain(64..=71) {
            assert!(answered.contains(&(op, DONE)), "operation {op} is never done: {answered:?}");
        }
        for (op, status) in [(5, 3), (68, WAIT), (65, WAIT)] {
            assert!(answered.contains(&(op, status)), "operation {op} never waits: {answered:?}");
        }
    }
}
