//! The memory of a store: what its objects take in its region, and what it keeps of them on the heap.

use farjump::objects::{Objects, RequestState, SourceMemory};
use farjump_fixtures::allocation::{Counting, live};
use farjump_handles::{Service, Store};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CAPACITY: u64 = 4 << 20;
const SOURCE: u64 = 1;

/// A store, with the numbers that the test knows.
struct Bench {
    service: Service,
    /// Bytes on the heap when it was empty.
    before: i64,
    /// Bytes of the objects in the region, in whole lines.
    region: u64,
}

impl Bench {
    fn new(spill: Option<&std::path::Path>) -> (Store, Bench) {
        let mut options = Store::options().capacity(CAPACITY);
        if let Some(folder) = spill {
            options = options.spill(folder, 64 * CAPACITY);
        }
        let before = live();
        let store = options.build().unwrap();
        let mut service = store.service();
        service.source_began(SOURCE, None, SourceMemory::default());
        (store, Bench { service, before, region: 0 })
    }

    fn exchange(&mut self, request: &[u8], reply: &mut Vec<u8>) {
        loop {
            reply.clear();
            match self.service.request(SOURCE, request.into(), reply, 1000).unwrap() {
                RequestState::Done => return,
                // Lets the thread of the file run.
                RequestState::Continue | RequestState::Wait => std::thread::yield_now(),
            }
        }
    }

    /// Bytes of region and heap together. `known` are those of the test itself.
    fn held(&self, known: usize) -> u64 {
        self.region + (live() - self.before - known as i64) as u64
    }
}

const fn lines(len: usize) -> u64 {
    (if len == 0 { 1 } else { len as u64 }).next_multiple_of(64)
}

/// Puts objects until the store is full, evicts some of them, and repeats this; also with claims and leases on all.
fn fill_and_free(bench: &mut Bench, len: usize, name: usize, most: usize, is_used: bool) -> u64 {
    let mut put = vec![1];
    put.extend([0; 24]);
    put.push(name as u8);
    put.extend(vec![b't'; name]);
    put.extend(vec![b'c'; len]);
    let (mut reply, mut request) = (Vec::with_capacity(1000), Vec::with_capacity(1000));
    let mut made: Vec<[u8; 24]> = Vec::with_capacity(most);
    let mut highest = 0;
    for round in 0..3 {
        loop {
            bench.exchange(&put, &mut reply);
            if reply[0] != 0 {
                break;
            }
            bench.region += lines(len);
            let named: [u8; 24] = reply[1..25].try_into().unwrap();
            made.push(named);
            if is_used {
                // Claim it, without releases; and lease it for an hour.
                request.clear();
                request.extend([5, 0, 0]);
                request.extend(named);
                bench.exchange(&request, &mut reply);
                request.clear();
                request.push(11);
                request.extend(named);
                request.extend(3_600_000_u64.to_le_bytes());
                bench.exchange(&request, &mut reply);
            }
        }
        assert!(!made.is_empty() && made.len() < most, "{} objects", made.len());
        let known = [put.capacity(), 2000, most * 24].iter().sum();
        highest = highest.max(bench.held(known));
        // Parts of one and two objects are free among the others.
        let mut number = 0;
        made.retain(|named| {
            number += 1;
            let keeps = [0, 2].contains(&(number % 5)) && round != 2;
            if !keeps {
                if is_used {
                    request.clear();
                    request.extend([6, 1, 0]);
                    request.extend(&named[..8]);
                    bench.exchange(&request, &mut reply);
                }
                request.clear();
                request.push(8);
                request.extend(named);
                bench.exchange(&request, &mut reply);
                assert_eq!(reply, [0, 1]);
                bench.region -= lines(len);
            }
            keeps
        });
        highest = highest.max(bench.held(known));
    }
    while bench.service.continue_work() {}
    highest
}

/// The most that a store may take of memory.
const MOST: u64 = CAPACITY + CAPACITY / 4 + (1 << 20);

#[test]
fn region_and_heap_fit_the_capacity_for_all_object_lengths() {
    for is_used in [false, true] {
        for (len, name) in
            [(0, 0), (1, 0), (1, 255), (64, 20), (65, 255), (700, 0), (5000, 255), (300_000, 9)]
        {
            let (store, mut bench) = Bench::new(None);
            let highest = fill_and_free(&mut bench, len, name, 40_000, is_used);
            assert!(highest <= MOST, "{len} bytes, name of {name}: {highest} bytes of at most {MOST}");
            let listed = store.list(0);
            assert_eq!((listed.used, listed.left_out), (0, 0), "{len} bytes, name of {name}");
            // The test used more than half of the capacity.
            assert!(highest > CAPACITY / 2, "{len} bytes, name of {name}: {highest}");
        }
    }
}

/// Objects of different lengths, one after another: the bytes that one kind leaves on the heap do not add to those of
/// the next kind.
#[test]
fn heap_bytes_left_by_small_objects_count_against_later_large_ones() {
    let (_store, mut bench) = Bench::new(None);
    for (len, name) in [(1, 255), (300_000, 0), (1, 0), (5000, 0), (70_000, 255)] {
        let highest = fill_and_free(&mut bench, len, name, 40_000, false);
        assert!(highest <= MOST, "{len} bytes, name of {name}: {highest} bytes of at most {MOST}");
    }
}

/// Objects in the file keep their records in memory.
#[test]
fn a_store_with_a_file_takes_no_more_memory_than_one_without() {
    let folder = farjump_fixtures::folder();
    let (store, mut bench) = Bench::new(Some(folder.path()));
    let mut put = vec![1];
    put.extend([0; 25]);
    put.extend([b'c'; 700]);
    let mut reply = Vec::with_capacity(1000);
    let mut made = 0;
    loop {
        bench.exchange(&put, &mut reply);
        if reply[0] != 0 {
            break;
        }
        made += 1;
    }
    // The region is full at most.
    let heap = bench.held(put.capacity() + 1000);
    let resident = CAPACITY.min(made * lines(700));
    assert!(made * 700 > CAPACITY, "{made} objects, of which most are in the file");
    let in_memory = store.list(usize::MAX).objects;
    let in_memory = in_memory.iter().filter(|object| object.state == farjump::objects::ObjectState::Present);
    let region = in_memory.count() as u64 * lines(700);
    assert!(region <= resident && heap + region <= MOST, "{made} objects: heap {heap}, region {region}");
}
