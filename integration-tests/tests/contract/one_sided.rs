//! The guarantees of `FakeOneSided` under each rule, their limits, and the misuse that it detects.

use farjump_core::transport::{Address, Cause, Transport};
use farjump_integration_tests::fakes::{FakeOneSided, Rule, Violation};

use super::{Direction, REGION, direction, patiently, pattern, put, request};

const SEEDS: u64 = 60;
/// A signal that is not zero, like all bytes of a pattern.
const SIGNAL: u64 = 0x1122_3344_5566_7788;

fn fake(rule: Rule, seed: u64) -> (FakeOneSided, Direction) {
    let mut sender = FakeOneSided::new(rule, seed);
    let link = direction(&mut sender, &mut FakeOneSided::new(rule, seed));
    (sender, link)
}

/// Returns for each byte from 0 on whether it has arrived. The bytes are not zero.
fn arrived(link: &Direction, len: usize) -> Vec<bool> {
    link.see(0, len).into_iter().map(|byte| byte != 0).collect()
}

#[test]
fn put_pieces_arrive_in_any_order_but_never_across_a_fence() {
    let (mut disorder, mut split) = (0, 0);
    for seed in 0..SEEDS {
        let (sender, mut link) = fake(Rule::Fenced, seed);
        let (body, behind) = (pattern(248, seed), pattern(64, seed));
        link.remote.put(8, &body, 0).unwrap();
        link.remote.fence().unwrap();
        link.remote.put_word(0, SIGNAL, 0).unwrap();
        link.remote.put(512, &behind, 0).unwrap();
        loop {
            let here = arrived(&link, 256);
            let whole = link.see(8, 248) == body;
            split += usize::from(here[8..].contains(&true) && !whole);
            disorder += usize::from(here[8..].windows(2).any(|pair| pair == [false, true]));
            assert!(whole || link.word(0) == 0, "seed {seed}: the signal came before the body");
            assert!(whole || link.see(512, 64) == [0; 64], "seed {seed}: a put crossed the fence");
            assert!([0, SIGNAL].contains(&link.word(0)), "seed {seed}: the word came in pieces");
            if sender.handle().pump(1) == 0 {
                break;
            }
        }
        assert_eq!((link.see(8, 248), link.word(0), link.see(512, 64)), (body, SIGNAL, behind));
        sender.handle().assert_clean();
    }
    assert!(disorder > 0 && split > 0, "nothing was reordered or split: {disorder} {split}");
}

#[test]
fn in_order_bytes_ascend_and_puts_follow_each_other() {
    let mut partial = 0;
    for seed in 0..SEEDS {
        let (sender, mut link) = fake(Rule::InOrder, seed);
        let bytes = pattern(768, seed);
        for (index, part) in bytes.chunks(256).enumerate() {
            link.remote.put(index * 256, part, index as u64).unwrap();
        }
        loop {
            let here = arrived(&link, 768);
            let until = here.iter().take_while(|arrived| **arrived).count();
            assert!(!here[until..].contains(&true), "seed {seed}: a byte overtook another");
            partial += usize::from(until % 256 != 0);
            if sender.handle().pump(1) == 0 {
                break;
            }
        }
        assert_eq!(link.see(0, 768), bytes);
        sender.handle().assert_clean();
    }
    assert!(partial > 0, "no put was ever seen half");
}

#[test]
fn write_imm_counts_a_put_once_all_up_to_it_are_whole() {
    let mut later_first = 0;
    for seed in 0..SEEDS {
        let (sender, mut link) = fake(Rule::WriteImm, seed);
        let puts: Vec<Vec<u8>> = (0..6).map(|frame| pattern(128, frame + seed)).collect();
        for (index, bytes) in puts.iter().enumerate() {
            link.remote.put_with_completion(index * 128, bytes, index as u64).unwrap();
        }
        for _ in 0..10_000 {
            let count = link.local.completions().unwrap() as usize;
            let whole: Vec<bool> =
                puts.iter().enumerate().map(|(index, bytes)| link.see(index * 128, 128) == *bytes).collect();
            assert!(!whole[..count].contains(&false), "seed {seed}: {count} counted of {whole:?}");
            later_first += usize::from(whole.windows(2).any(|pair| pair == [false, true]));
            if count == puts.len() {
                break;
            }
        }
        assert_eq!(link.local.completions().unwrap(), 6, "seed {seed}");
        sender.handle().assert_clean();
    }
    assert!(later_first > 0, "no put was ever whole before an earlier one");
}

#[test]
fn checked_puts_come_in_any_order_even_last_word_first() {
    let (mut last_first, mut later_put_first) = (0, 0);
    for seed in 0..SEEDS {
        let (sender, mut link) = fake(Rule::Checked, seed);
        let bytes = pattern(512, seed);
        link.remote.put(0, &bytes[..256], 0).unwrap();
        link.remote.put(256, &bytes[256..], 256).unwrap();
        loop {
            let here = arrived(&link, 512);
            last_first += usize::from(here[255] && !here[0]);
            later_put_first += usize::from(here[256..].contains(&true) && !here[..256].contains(&true));
            if sender.handle().pump(1) == 0 {
                break;
            }
        }
        assert_eq!(link.see(0, 512), bytes);
    }
    assert!(last_first > 0 && later_put_first > 0, "{last_first} {later_put_first}");
}

#[test]
fn every_rule_keeps_a_fence_between_two_puts_to_one_place() {
    for rule in Rule::ALL {
        for seed in 0..SEEDS {
            let (sender, mut link) = fake(rule, seed);
            for word in 1..=20 {
                patiently(&mut *link.remote, |remote| remote.put_word(64, word, 0));
                link.remote.fence().unwrap();
            }
            while sender.handle().pump(1) > 0 {}
            assert_eq!(link.word(64), 20, "{rule:?}, seed {seed}");
        }
    }
}

#[test]
fn without_a_fence_an_older_word_may_land_last() {
    let stale = (0..SEEDS).filter(|seed| {
        let (sender, mut link) = fake(Rule::Fenced, *seed);
        link.remote.put_word(64, 1, 0).unwrap();
        link.remote.put_word(64, 2, 0).unwrap();
        while sender.handle().pump(1) > 0 {}
        link.word(64) == 1
    });
    assert!(stale.count() > 0);
}

#[test]
fn the_same_seed_moves_the_same_pieces_in_the_same_order() {
    let history = |seed| {
        let (sender, mut link) = fake(Rule::Checked, seed);
        let bytes = pattern(1024, 3);
        let mut steps = Vec::new();
        for index in 0..4 {
            link.remote.put(index * 256, &bytes[index * 256..][..256], 0).unwrap();
            steps.push(link.see(0, 1024));
        }
        while sender.handle().pump(1) > 0 {
            steps.push(link.see(0, 1024));
        }
        steps
    };
    assert_eq!(history(7), history(7));
    assert_ne!(history(7), history(8));
}

#[test]
fn a_full_queue_refuses_puts_until_progress_and_loses_nothing() {
    for rule in Rule::ALL {
        let mut sender = FakeOneSided::new(rule, 5).with_queue(2);
        let mut link = direction(&mut sender, &mut FakeOneSided::new(rule, 6));
        let bytes = pattern(4096, 9);
        let mut refused = 0;
        for (index, part) in bytes.chunks(64).enumerate() {
            while let Err(error) = link.remote.put(index * 64, part, 0) {
                assert!(error.is_full(), "{error}");
                refused += 1;
                link.remote.progress().unwrap();
            }
        }
        assert!(refused > 0, "{rule:?} was never full");
        while sender.handle().pending() > 0 {
            link.remote.progress().unwrap();
        }
        assert_eq!(link.see(0, 4096), bytes, "{rule:?}");
        sender.handle().assert_clean();
    }
}

#[test]
fn puts_at_the_edges_of_the_region() {
    let (sender, mut link) = fake(Rule::Fenced, 1);
    let (all, last) = (pattern(REGION, 1), [1]);
    link.remote.put(0, &all, 0).unwrap();
    link.remote.fence().unwrap();
    link.remote.put(REGION, &[], 0).unwrap();
    link.remote.put(REGION - 1, &last, 0).unwrap();
    sender.handle().assert_clean();
    for (offset, bytes) in [(REGION, &all[..1]), (1, &all[..]), (usize::MAX, &all[..2])] {
        let error = link.remote.put(offset, bytes, 77).unwrap_err();
        assert_eq!(*error.cause(), Cause::OutOfRegion { offset, len: bytes.len(), region: REGION });
        assert_eq!(error.frame(), Some(77));
    }
    sender.handle().pump(1000);
    assert_eq!(link.see(0, REGION - 1), all[..REGION - 1]);
    assert_eq!(link.see(REGION - 1, 1), last);
    assert_eq!(sender.handle().violations().len(), 3);
}

#[test]
fn bytes_changed_or_freed_before_they_were_moved_are_noticed() {
    for freed in [false, true] {
        // Finds a seed with which the put leaves something in flight.
        let noticed = (0..SEEDS).any(|seed| {
            let (sender, mut link) = fake(Rule::Fenced, seed);
            // So large that the allocator unmaps it when freed (mallopt(3): never kept from 32 MiB on).
            let mut bytes = vec![0; 40 << 20];
            let part = &mut bytes[..4096];
            part.copy_from_slice(&pattern(4096, 1));
            link.remote.put(0, part, 5).unwrap();
            if sender.handle().pending() == 0 {
                return false;
            }
            if freed {
                drop(bytes);
            } else {
                part.fill(0);
            }
            sender.handle().pump(100);
            let violations = sender.handle().violations();
            assert!(
                matches!(violations[..], [Violation::BytesChanged { frame: 5, .. }, ..]),
                "{violations:?}"
            );
            assert_eq!(link.see(0, 4096), pattern(4096, 1), "what arrives is still what was put");
            true
        });
        assert!(noticed);
    }
}

#[test]
fn other_misuse_is_refused_and_recorded() {
    let mut sender = FakeOneSided::new(Rule::Fenced, 1).with_max_frame(256);
    let handle = sender.handle();
    let mut link = direction(&mut sender, &mut FakeOneSided::new(Rule::Fenced, 2));
    link.remote.put_word(12, 1, 0).unwrap_err();
    link.remote.put_with_completion(64, &[1; 8], 0).unwrap_err();
    link.remote.put(0, &[1; 257], 0).unwrap_err();
    drop(link._senders_local);
    link.remote.put(128, &[], 0).unwrap();
    let expected = [
        Violation::WordUnaligned { offset: 12 },
        Violation::CompletionNotOffered { offset: 64 },
        Violation::PutTooLong { offset: 0, len: 257, max: 256 },
        Violation::PutAfterClose { offset: 128 },
    ];
    assert_eq!(handle.violations(), expected);
}

#[test]
fn addresses_that_lead_nowhere_are_refused() {
    let mut fake = FakeOneSided::new(Rule::Fenced, 1);
    let gone = fake.open(&request()).unwrap().address().try_to_owned().unwrap();
    let taken = fake.open(&request()).unwrap();
    let _peer = fake.open(&request()).unwrap().connect(taken.address().try_to_owned().unwrap(), 100).unwrap();
    let mut longer = taken.address().try_to_owned().unwrap();
    longer.bytes.push(0);
    let cases = [
        (Address::default(), "kind and version"),
        (Address { bytes: vec![0; 1 << 16], descriptors: Vec::new(), stream: None }, "kind and version"),
        (longer, "kind and version"),
        (gone, "no end"),
        (taken.address().try_to_owned().unwrap(), "another end"),
    ];
    for (address, complaint) in cases {
        let error = fake.open(&request()).unwrap().connect(address, 100).unwrap_err().to_string();
        assert!(error.contains(complaint), "{error}");
    }
}

#[test]
fn puts_to_a_dropped_peer_succeed_and_pending_ones_are_lost() {
    let (sender, link) = fake(Rule::Fenced, 3);
    let Direction { mut remote, local, _senders_local, _receivers_remote } = link;
    drop((local, _receivers_remote));
    let (first, second) = (pattern(64, 0), pattern(4096, 0));
    put(&mut *remote, 0, &first, 0);
    while sender.handle().pump(1) > 0 {}
    put(&mut *remote, 0, &second, 0);
    drop(remote);
    assert_eq!(sender.handle().pending(), 0);
    sender.handle().assert_clean();
}

#[test]
fn a_thread_in_the_background_moves_everything() {
    let mut sender = FakeOneSided::new(Rule::Fenced, 11);
    let mut link = direction(&mut sender, &mut FakeOneSided::new(Rule::Fenced, 12));
    let _background = sender.handle().pump_in_background();
    let body = pattern(1024, 1);
    put(&mut *link.remote, 8, &body, 0);
    link.remote.fence().unwrap();
    patiently(&mut *link.remote, |remote| remote.put_word(0, SIGNAL, 0));
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while link.word(0) != SIGNAL {
        assert!(std::time::Instant::now() < deadline, "the signal never came");
        std::thread::yield_now();
    }
    assert_eq!(link.see(8, 1024), body);
}
