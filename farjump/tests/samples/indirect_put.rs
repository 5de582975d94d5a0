//! `indirect_put`, against a model of the store.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_int;
use std::ops::Range;

use farjump::Target;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::support::{Pair, Place, library, to_words};

/// Contents of unwritten memory.
const NOTHING: u8 = 0xaa;

/// A target's store: a table of keys, and the memory that it divides up.
struct Store {
    slots: HashMap<u64, Range<usize>>,
    bytes: Vec<u8>,
}

/// `struct store_slot` of `indirect_put.c`.
#[repr(C)]
struct Slot {
    bytes: *mut u8,
    space: u64,
    offset: u64,
}

extern "C" fn store_slot(store: *mut Store, key: u64, slot: *mut Slot) -> c_int {
    // SAFETY: indirect_put passes its target_args on, which is the store that `pair` gives, and a slot of its own;
    // nothing else uses them while the target is polled.
    let (store, slot) = unsafe { (&mut *store, &mut *slot) };
    let Some(range) = store.slots.get(&key) else { return -1 };
    let bytes = &mut store.bytes[range.clone()];
    *slot = Slot { bytes: bytes.as_mut_ptr(), space: bytes.len() as u64, offset: range.start as u64 };
    0
}

impl Store {
    /// Slots of all sizes, one behind the other, in another order than the keys', with a byte between them.
    fn new() -> Store {
        let mut store = Store { slots: HashMap::new(), bytes: vec![NOTHING] };
        for place in 0..20_u64 {
            let key = place.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let (start, space) = (store.bytes.len(), (place * place) as usize);
            store.slots.insert(key, start..start + space);
            store.bytes.resize(start + space + 1, NOTHING);
        }
        store
    }

    fn keys(&self) -> Vec<u64> {
        let mut keys: Vec<_> = self.slots.keys().copied().collect();
        keys.sort_unstable();
        keys
    }
}

fn pair<'a>(place: &Place, store: &'a mut Store) -> Pair<'a> {
    let target = place.target().args(store).export("store_slot", store_slot as extern "C" fn(_, _, _) -> _);
    Pair::of(target, place.link())
}

fn store<'a>(target: &'a mut Target<'_>) -> &'a mut Store {
    target.args_mut().unwrap()
}

fn payload(key: u64, bytes: &[u8]) -> Vec<u8> {
    [&key.to_ne_bytes(), bytes].concat()
}

#[test]
fn bytes_lie_where_the_table_says_and_nowhere_else() {
    let place = Place::new();
    let mut owned = Store::new();
    let keys = owned.keys();
    let pair = RefCell::new(pair(&place, &mut owned));
    let library = library("indirect_put");
    let puts = (any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>());
    let same = |puts: Vec<(prop::sample::Index, prop::sample::Index, u8)>| {
        let mut pair = pair.borrow_mut();
        *store(&mut pair.target) = Store::new();
        let slots = store(&mut pair.target).slots.clone();
        let mut expected = HashMap::new();
        for (key, len, first) in puts {
            let key = *key.get(&keys);
            let len = len.index(slots[&key].len() + 1);
            let bytes: Vec<u8> = (0..len).map(|i| first.wrapping_add(i as u8)).collect();
            let reply = pair.call(&library, &payload(key, &bytes)).unwrap();
            prop_assert_eq!(to_words(&reply), [slots[&key].start as u64, len as u64]);
            let contents = expected.entry(key).or_insert_with(|| vec![NOTHING; slots[&key].len()]);
            contents[..len].copy_from_slice(&bytes);
        }
        let mut memory = vec![NOTHING; store(&mut pair.target).bytes.len()];
        for (key, contents) in expected {
            memory[slots[&key].clone()].copy_from_slice(&contents);
        }
        prop_assert_eq!(&store(&mut pair.target).bytes, &memory);
        Ok(())
    };
    let puts = proptest::collection::vec(puts, 0..60);
    TestRunner::new(ProptestConfig::with_cases(100)).run(&puts, same).unwrap();
}

#[test]
fn an_impossible_put_is_reported_and_changes_nothing() {
    let place = Place::new();
    let mut owned = Store::new();
    let untouched = owned.bytes.clone();
    let (key, space) =
        owned.slots.iter().map(|(key, range)| (*key, range.len())).max_by_key(|slot| slot.1).unwrap();
    let mut pair = pair(&place, &mut owned);
    let library = library("indirect_put");
    for (payload, expected) in [
        (payload(1, b"bytes"), "the target has no such key"),
        (payload(key, &vec![1; space + 1]), "there are more bytes than fit the key's memory"),
        (vec![1; 7], "the payload has no key: it is shorter than 8 bytes"),
        (vec![], "the payload has no key: it is shorter than 8 bytes"),
    ] {
        let error = pair.call(&library, &payload).unwrap_err().to_string();
        assert_eq!(error, format!("`indirect_put` panicked at the target: {expected}"));
    }
    assert_eq!(store(&mut pair.target).bytes, untouched);
    let reply = pair.call(&library, &payload(key, &vec![1; space])).unwrap();
    assert_eq!(to_words(&reply)[1], space as u64);
}

#[test]
fn a_target_without_the_table_refuses_the_code_by_export_name() {
    let (_place, mut pair) = Pair::start();
    let error = pair.call(&library("indirect_put"), &payload(1, b"bytes")).unwrap_err().to_string();
    assert!(error.contains("it exports no `store_slot`"), "{error}");
}
