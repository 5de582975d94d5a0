//! A full store: the images that it drops, keeps and refuses.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::code::{image, static_counter, text};
use farjump_core::image::{CodeId, ImageParts};
use farjump_loader::{Arena, Capacity, LinkedImage, Need, Refused, Resolver, Store, code_id};
use proptest::prelude::*;

/// A different image for each number: `ret`, and the number behind it.
fn numbered(number: u16) -> Vec<u8> {
    let [low, high] = number.to_le_bytes();
    image(&[0xc3, low, high])
}

fn bounded(bytes: usize, images: usize) -> Store {
    Store::bounded(Arena::new(64 * 1024).unwrap(), Capacity { bytes, images })
}

fn insert(store: &mut Store, image: &[u8]) -> Result<Arc<LinkedImage>, Refused> {
    store.insert(image, code_id(image), "code", &Resolver::default())
}

/// Inserts an image, dropping the least recently used ones as needed. The image counts as used at `now`.
fn insert_for(store: &mut Store, image: &[u8], now: u64) -> Result<CodeId, Refused> {
    store.make_space(&Need::of(image).unwrap(), |_| {});
    let linked = insert(store, image)?;
    linked.usage().touch(now);
    Ok(linked.id())
}

#[test]
fn the_least_recently_used_goes_first() {
    let mut store = bounded(usize::MAX, 3);
    let ids: Vec<_> =
        (0..3).map(|n| insert_for(&mut store, &numbered(n), u64::from(n) + 1).unwrap()).collect();
    store.get(&ids[0]).unwrap().usage().touch(4);
    insert_for(&mut store, &numbered(3), 5).unwrap();
    assert!(store.get(&ids[1]).is_none());
    assert!(store.get(&ids[0]).is_some() && store.get(&ids[2]).is_some());
    assert_eq!((store.len(), store.evictions()), (3, 1));
}

#[test]
fn the_eviction_order_survives_many_insertions_and_drops() {
    const IMAGES: u16 = 300;
    let mut store = bounded(usize::MAX, usize::from(IMAGES));
    for number in 0..IMAGES {
        let image = numbered(number);
        insert(&mut store, &image).unwrap().usage().touch(u64::from(number) + 1);
        if number % 3 == 0 {
            assert!(store.drop_code(&code_id(&image)));
            // The use is later than all others.
            insert(&mut store, &image).unwrap().usage().touch(u64::from(IMAGES + number));
        }
    }
    let expected = (0..IMAGES).filter(|number| number % 3 != 0).chain((0..IMAGES).step_by(3));
    for (gone, oldest) in expected.take(250).enumerate() {
        assert!(store.get(&code_id(&numbered(oldest))).is_some(), "{oldest}");
        insert_for(&mut store, &numbered(1000 + gone as u16), 10_000 + gone as u64).unwrap();
        assert!(store.get(&code_id(&numbered(oldest))).is_none(), "{oldest}");
    }
    assert_eq!(store.evictions(), 250);
}

#[test]
fn code_in_use_is_kept_and_the_next_image_is_dropped() {
    let mut store = bounded(usize::MAX, 2);
    let held = insert(&mut store, &numbered(0)).unwrap();
    insert_for(&mut store, &numbered(1), 9).unwrap();
    insert_for(&mut store, &numbered(2), 10).unwrap();
    assert!(store.get(&held.id()).is_some(), "it is older and held");
    assert!(store.get(&code_id(&numbered(1))).is_none());
    let also = Arc::clone(store.get(&code_id(&numbered(2))).unwrap());
    let error = insert_for(&mut store, &numbered(3), 11).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the target refused `code`: its store is full, with 2 images of 70 bytes; have it drop code, or give it a \
         larger one (TargetBuilder::store_bytes)"
    );
    drop(also);
    insert_for(&mut store, &numbered(3), 11).unwrap();
}

#[test]
fn make_space_requests_the_release_of_only_the_code_it_drops() {
    let mut store = bounded(usize::MAX, 2);
    let mut holders = HashMap::new();
    for number in 0..4 {
        let image = numbered(number);
        store.make_space(&Need::of(&image).unwrap(), |linked| drop(holders.remove(&linked.id())));
        let linked = insert(&mut store, &image).unwrap();
        linked.usage().touch(u64::from(number) + 1);
        holders.insert(linked.id(), linked);
    }
    let mut left: Vec<_> = holders.into_keys().collect();
    let mut expected = vec![code_id(&numbered(2)), code_id(&numbered(3))];
    left.sort();
    expected.sort();
    assert_eq!(left, expected);
}

#[test]
fn an_image_larger_than_the_store_is_refused_and_drops_nothing() {
    let (small, large) = (numbered(0), image(&[0xc3; 100]));
    let mut store = bounded(99, 10);
    insert_for(&mut store, &small, 1).unwrap();
    let error = insert_for(&mut store, &large, 2).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the target refused `code`: its image of 132 bytes is larger than the 99 bytes that the target's store holds; \
         give it a larger one (TargetBuilder::store_bytes)"
    );
    assert_eq!((store.len(), store.evictions()), (1, 0));
    let mut store = Store::new(Arena::new(64 * 1024).unwrap());
    insert_for(&mut store, &small, 1).unwrap();
    let error = insert_for(&mut store, &image(&[0xc3; 65_536]), 2).unwrap_err();
    assert!(matches!(error, Refused::ArenaFull { .. }), "{error}");
    assert_eq!((store.len(), store.evictions()), (1, 0), "no space would have been enough");
}

#[test]
fn a_full_arena_drops_code_until_one_gap_is_long_enough() {
    let mut store = Store::new(Arena::new(64 * 1024).unwrap());
    // Each takes 4096 bytes with the line behind it: sixteen fill the arena.
    let block = |number: u8| image(&[&[0xc3, number][..], &[0; 4030]].concat());
    let ids: Vec<_> = (0..16).map(|n| insert_for(&mut store, &block(n), u64::from(n) + 1).unwrap()).collect();
    assert_eq!((store.len(), store.arena().used()), (16, 64 * 1024));
    // The oldest are the first and the third, which are not adjacent; the second follows.
    store.get(&ids[1]).unwrap().usage().touch(20);
    for id in &ids[3..] {
        store.get(id).unwrap().usage().touch(30);
    }
    insert_for(&mut store, &image(&[0xc3; 8000]), 40).unwrap();
    assert_eq!(store.evictions(), 3);
    assert!(
        ids[..3].iter().all(|id| store.get(id).is_none())
            && ids[3..].iter().all(|id| store.get(id).is_some())
    );
}

#[test]
fn reinserted_code_has_fresh_statics_and_its_earlier_calls_still_count() {
    let span1 = static_counter();
    let bytes = ImageParts { bss_len: 8, ..text(&span1) }.encode().unwrap();
    let mut store = bounded(usize::MAX, 1);
    for round in 0..10 {
        let id = insert_for(&mut store, &bytes, 1).unwrap();
        let linked = store.get(&id).unwrap();
        for expected in 1..=3_u64 {
            let mut count = 0_u64;
            assert!(linked.usage().is_due(), "the first calls are timed");
            linked.usage().took(Duration::from_nanos(50));
            linked.usage().count(1);
            // SAFETY: the code writes one word to its arguments.
            unsafe { (linked.main())(std::ptr::null_mut(), 0, (&raw mut count).cast()) };
            assert_eq!(count, expected);
        }
        assert_eq!(store.calls(), 3 * (round + 1));
        insert_for(&mut store, &numbered(round as u16), 2).unwrap();
        assert!(store.get(&id).is_none());
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Use this image; insert it if it is not in the store.
    Use(u16),
    Drop(u16),
}

proptest! {
    #[test]
    fn the_store_holds_what_a_list_in_order_of_use_would_hold(
        images in 1_usize..6,
        bytes in 33_usize..400,
        steps in prop::collection::vec(
            prop_oneof![8 => (0_u16..12).prop_map(Step::Use), 1 => (0_u16..12).prop_map(Step::Drop)],
            1..200,
        ),
    ) {
        // Lengths differ, so one image may replace several.
        let image_of = |number: u16| image(&vec![number as u8; 1 + 9 * usize::from(number)]);
        let mut store = bounded(bytes, images);
        // The number of each stored image, by its last use.
        let mut model: BTreeMap<u64, u16> = BTreeMap::new();
        let mut evictions = 0;
        for (now, step) in (1_u64..).zip(steps) {
            match step {
                Step::Use(number) => {
                    let image = image_of(number);
                    let held = model.iter().find(|(_, held)| **held == number).map(|(last, _)| *last);
                    if let Some(last) = held {
                        model.remove(&last);
                        store.get(&code_id(&image)).unwrap().usage().touch(now);
                        model.insert(now, number);
                    } else if image.len() > bytes {
                        prop_assert!(insert_for(&mut store, &image, now).is_err());
                    } else {
                        let total = |model: &BTreeMap<u64, u16>| -> usize {
                            model.values().map(|held| image_of(*held).len()).sum()
                        };
                        while model.len() == images || total(&model) + image.len() > bytes {
                            model.pop_first();
                            evictions += 1;
                        }
                        insert_for(&mut store, &image, now).unwrap();
                        model.insert(now, number);
                    }
                }
                Step::Drop(number) => {
                    let id = code_id(&image_of(number));
                    let held = model.iter().find(|(_, held)| **held == number).map(|(last, _)| *last);
                    prop_assert_eq!(store.drop_code(&id), held.is_some());
                    held.and_then(|last| model.remove(&last));
                }
            }
            prop_assert_eq!((store.len(), store.evictions()), (model.len(), evictions));
            prop_assert!(model.values().all(|held| store.get(&code_id(&image_of(*held))).is_some()));
            prop_assert_eq!(store.bytes(), store.iter().map(|linked| linked.image().len()).sum::<usize>());
        }
    }
}
