//! The cost of requests and of the ends of sources: visits in one turn, and memory.

use std::time::Duration;

use farjump::objects::{FIRST_PAGE, ObjectState};

use super::*;
use crate::clock::stepping;
use crate::owner::store::{Store, StoreOptions};
use crate::owner::turn::MOST_VISITS;

/// The source that requests much, and an honest one.
const FLOOD: u64 = 1;
const HONEST: u64 = 2;
/// More objects than any turn visits.
const MANY: usize = 3000;

mod file;
mod stall;

struct Bench {
    store: Store,
    service: Service,
}

/// Number and key of an object, as they are in replies and requests.
type Named = [u8; 24];

impl Bench {
    fn new(options: StoreOptions, memory: SourceMemory) -> Bench {
        let store = options.build().unwrap();
        let mut service = store.service();
        service.source_began(FLOOD, None, memory);
        service.source_began(HONEST, None, SourceMemory::default());
        store.0.table().turn.take_most();
        Bench { store, service }
    }

    fn of(capacity: u64) -> Bench {
        Bench::new(Store::options().capacity(capacity), SourceMemory::default())
    }

    /// Makes a request once. Returns `Err` if it is to be made again.
    fn try_once(&mut self, source: u64, request: &[u8]) -> Result<Vec<u8>, RequestState> {
        let mut reply = Vec::new();
        let answered = self.service.request(source, request.into(), &mut reply, 1 << 20).unwrap();
        self.check_visits();
        if answered == RequestState::Done { Ok(reply) } else { Err(answered) }
    }

    fn once(&mut self, source: u64, request: &[u8]) -> Option<Vec<u8>> {
        self.try_once(source, request).ok()
    }

    fn check_visits(&self) {
        let most = self.store.0.table().turn.take_most();
        assert!(most <= MOST_VISITS, "{most} visits in one turn");
    }

    /// Makes a request until it is done. Returns the reply's status and the rest of the reply.
    fn exchange(&mut self, source: u64, request: &Writer) -> (u8, Vec<u8>) {
        let reply = loop {
            if let Some(reply) = self.once(source, &request.0) {
                break reply;
            }
            // Lets the thread of the file run.
            std::thread::yield_now();
        };
        (reply[0], reply[1..].to_vec())
    }

    fn put(&mut self, source: u64, type_name: &str) -> Result<Named, u8> {
        let mut request = Writer::request(Op::Put);
        request.u64(0).bytes(&[0; 16]).text(type_name).bytes(b"s");
        match self.exchange(source, &request) {
            (0, reply) => Ok(reply.try_into().unwrap()),
            (status, _) => Err(status),
        }
    }

    /// Puts objects until the store takes no more. Returns them, and the last status.
    fn fill(&mut self, source: u64, type_name: &str) -> (Vec<Named>, u8) {
        let mut made = Vec::new();
        loop {
            match self.put(source, type_name) {
                Ok(named) => made.push(named),
                Err(status) => return (made, status),
            }
        }
    }

    fn about(&mut self, source: u64, op: Op, named: &Named) -> u8 {
        let mut request = Writer::request(op);
        request.bytes(named);
        self.exchange(source, &request).0
    }

    fn claim(&mut self, source: u64, named: &Named) -> u8 {
        let mut request = Writer::request(Op::Claim);
        request.u16(0).bytes(named);
        self.exchange(source, &request).0
    }

    /// Runs turns until nothing is left. Returns the number of turns.
    fn continue_work(&mut self) -> usize {
        let mut turns = 1;
        while self.service.continue_work() {
            turns += 1;
            self.check_visits();
        }
        self.check_visits();
        turns
    }

    fn used(&self) -> u64 {
        let used = self.store.list(0).used;
        self.check_visits();
        used
    }
}

fn allocate(len: u64, type_name: &str) -> Writer {
    let mut request = Writer::request(Op::Allocate);
    request.u64(len).text(type_name);
    request
}

#[test]
fn other_sources_are_served_while_a_request_spills_thousands_of_objects() {
    let folder = farjump_fixtures::folder();
    let options = Store::options().capacity(4 << 20).spill(folder.path(), 32 << 20);
    let mut bench = Bench::new(options, SourceMemory::default());
    let honest = bench.put(HONEST, "honest").unwrap();
    let objects: Vec<_> = (0..MANY).map(|_| bench.put(FLOOD, "").unwrap()).collect();
    // Each object that goes to the file leaves its record here, and makes space of 64 bytes.
    let request = allocate((4 << 20) - bench.used() + MANY as u64 / 2 * 64, "");
    let mut turns = 0;
    let reply = loop {
        turns += 1;
        if let Some(reply) = bench.once(FLOOD, &request.0) {
            break reply;
        }
        assert_eq!(bench.about(HONEST, Op::Exists, &honest), Status::Done as u8, "in between");
    };
    assert_eq!(reply[0], Status::Done as u8);
    assert!(turns > 10, "{turns}");
    let spilled = bench.store.list(MANY).objects;
    let spilled = spilled.iter().filter(|object| object.state == ObjectState::Spilled).count();
    assert!((MANY / 2..MANY).contains(&spilled), "{spilled}");
    assert_eq!(bench.claim(FLOOD, &objects[0]), Status::Done as u8, "it comes back");
}

#[test]
fn a_request_for_more_than_can_be_freed_is_refused() {
    let folder = farjump_fixtures::folder();
    let options = Store::options().capacity(1 << 20).spill(folder.path(), 32 << 20);
    let mut bench = Bench::new(options, SourceMemory::default());
    let held = bench.put(HONEST, "honest").unwrap();
    assert_eq!(bench.claim(HONEST, &held), Status::Done as u8);
    let (_, status) = bench.fill(FLOOD, &"t".repeat(255));
    assert_eq!(status, Status::Full as u8, "records stay in memory");
    assert_eq!(bench.exchange(FLOOD, &allocate(1 << 19, "")).0, Status::Full as u8);
    assert_eq!(bench.exchange(FLOOD, &allocate(u64::MAX, "")).0, Status::Full as u8);
}

/// Otherwise the free parts of a flood of small objects could stop the owner for a second and more in each request.
#[test]
fn a_refused_request_visits_a_bounded_number_of_free_parts() {
    let mut bench = Bench::of(4 << 20);
    let (made, status) = bench.fill(FLOOD, &"t".repeat(255));
    assert_eq!(status, Status::Full as u8);
    let given_up = made.iter().enumerate().filter(|(number, _)| [1, 3, 4].contains(&(number % 5)));
    for (_, named) in given_up {
        assert_eq!(bench.about(FLOOD, Op::Evict, named), Status::Done as u8);
    }
    for _ in 0..64 {
        bench.exchange(FLOOD, &allocate(1 << 22, &"t".repeat(255)));
    }
}

#[test]
fn leases_ending_together_expire_at_once_and_free_over_turns() {
    let mut bench = Bench::of(8 << 20);
    let objects: Vec<_> = (0..MANY).map(|_| bench.put(FLOOD, "").unwrap()).collect();
    let full = bench.used();
    for named in &objects {
        let mut request = Writer::request(Op::Lease);
        request.bytes(named).u64(1000);
        assert_eq!(bench.exchange(FLOOD, &request).0, Status::Done as u8);
    }
    stepping::step_by(Duration::from_secs(10));
    // The object whose turn is last is gone like the others.
    assert_eq!(bench.claim(HONEST, objects.last().unwrap()), Status::Gone as u8);
    assert!(bench.used() > full / 2, "most of them are not freed yet");
    bench.continue_work();
    assert_eq!(bench.store.list(0).used, 0);
}

#[test]
fn a_source_that_ends_gives_all_back_in_several_turns() {
    let mut bench = Bench::of(8 << 20);
    let kept: Vec<_> = (0..MANY).map(|_| bench.put(HONEST, "").unwrap()).collect();
    let before = bench.used();
    for named in &kept {
        assert_eq!(bench.claim(FLOOD, named), Status::Done as u8);
    }
    for named in &kept[..MANY / 2] {
        assert_eq!(bench.about(HONEST, Op::Evict, named), Status::Done as u8);
    }
    for _ in 0..MANY {
        assert_eq!(bench.exchange(FLOOD, &allocate(100, "")).0, Status::Done as u8);
    }
    bench.service.source_ended(FLOOD, None);
    bench.check_visits();
    assert!(bench.used() > before, "the rest goes on later");
    // The store serves other sources in between.
    assert_eq!(bench.about(HONEST, Op::Exists, &kept[MANY - 1]), Status::Done as u8);
    assert!(bench.continue_work() > 100);
    let left = bench.store.list(usize::MAX);
    assert_eq!(left.objects.len(), MANY / 2);
    assert!(left.objects.iter().all(|object| object.claims == 0 && object.state == ObjectState::Present));
    assert_eq!(left.used, before / MANY as u64 * (MANY as u64 / 2));
}

#[test]
fn a_request_releases_a_few_claims_and_no_more() {
    let mut bench = Bench::of(1 << 20);
    let named: Vec<_> = (0..MAX_CLAIMS as u64 + 1).map(|_| bench.put(HONEST, "").unwrap()).collect();
    for one in &named {
        assert_eq!(bench.claim(FLOOD, one), Status::Done as u8);
        assert_eq!(bench.about(HONEST, Op::Evict, one), Status::Done as u8);
    }
    let mut release = |count: usize| {
        let mut request = Writer::request(Op::Release);
        request.u16(count as u16);
        named.iter().take(count).for_each(|named| _ = request.bytes(&named[..8]));
        let answered = bench.service.request(FLOOD, request.0[..].into(), &mut Vec::new(), 100);
        bench.check_visits();
        answered
    };
    assert!(release(MAX_CLAIMS + 1).unwrap_err().contains("malformed"));
    assert_eq!(release(MAX_CLAIMS), Ok(RequestState::Done));
    bench.continue_work();
    assert_eq!(bench.store.list(99).objects.len(), 1);
}

#[test]
fn a_claim_that_is_made_again_releases_once() {
    let folder = farjump_fixtures::folder();
    let options = Store::options().capacity(2 << 20).spill(folder.path(), 32 << 20);
    let mut bench = Bench::new(options, SourceMemory::default());
    let large = bench.store.put(&vec![7; 1 << 20]).unwrap();
    let mut named = [0; 24];
    named[..8].copy_from_slice(&large.number.to_le_bytes());
    named[8..].copy_from_slice(&large.key.0);
    // The object goes to the file, and comes back for hundreds of others.
    let other = bench.put(HONEST, "").unwrap();
    while bench.store.list(MANY * 9).objects.last().unwrap().state != ObjectState::Spilled {
        for _ in 0..50 {
            bench.put(FLOOD, "").unwrap();
        }
    }
    for _ in 0..250 {
        bench.put(FLOOD, "").unwrap();
    }
    for _ in 0..2 {
        assert_eq!(bench.claim(HONEST, &other), Status::Done as u8);
    }
    let mut request = Writer::request(Op::Claim);
    request.u16(1).bytes(&other[..8]).bytes(&named);
    let mut times = 0;
    let reply = loop {
        match bench.once(HONEST, &request.0) {
            Some(reply) => break reply,
            None => times += 1,
        }
    };
    assert_eq!(reply[0], Status::Done as u8);
    assert!(times > 0, "it was answered at once: {:?}", bench.store.list(0));
    let listed = bench.store.list(MANY * 9).objects;
    let claims = |number: u64| listed.iter().find(|object| object.number == number).unwrap().claims;
    assert_eq!(claims(u64::from_le_bytes(std::array::from_fn(|at| other[at]))), 1);
    assert_eq!(claims(large.number), 1);
}

#[test]
fn objects_are_listed_in_pages_those_of_the_latest_use_first() {
    let mut bench = Bench::of(8 << 20);
    let objects: Vec<_> = (0..MANY).map(|_| bench.put(FLOOD, "").unwrap()).collect();
    assert_eq!(bench.claim(FLOOD, &objects[5]), Status::Done as u8);
    let (mut numbers, mut from, mut pages) = (Vec::new(), FIRST_PAGE, 0);
    loop {
        let page = bench.service.list(from, MANY);
        bench.check_visits();
        pages += 1;
        assert_eq!(page.listing.left_out as usize + page.listing.objects.len(), MANY);
        numbers.extend(page.listing.objects.iter().map(|object| object.number));
        match page.next {
            Some(next) => from = next,
            None => break,
        }
    }
    assert!(pages >= MANY / MOST_VISITS as usize, "{pages}");
    let mut expected: Vec<_> = (1..=MANY as u64).filter(|number| *number != 6).rev().collect();
    expected.insert(0, 6);
    assert_eq!(numbers, expected);
    let few = bench.store.list(10);
    assert_eq!((few.objects.len(), few.left_out as usize), (10, MANY - 10));
    assert!(few.objects.iter().map(|object| object.number).eq(expected[..10].iter().copied()));
}

#[test]
fn records_names_and_claims_count_for_the_source_that_made_them() {
    let memory = SourceMemory::of(100_000);
    let mut bench = Bench::new(Store::options().capacity(8 << 20), memory.clone());
    let (made, status) = bench.fill(FLOOD, &"t".repeat(255));
    assert_eq!(status, Status::SourceFull as u8);
    assert!((100..300).contains(&made.len()), "{}", made.len());
    let others = bench.put(HONEST, "").unwrap();
    assert_eq!(bench.exchange(FLOOD, &allocate(1, "")).0, Status::SourceFull as u8);
    // Memory that the source releases is free for it again.
    for named in &made[..2] {
        assert_eq!(bench.about(HONEST, Op::Evict, named), Status::Done as u8);
    }
    assert_eq!(bench.claim(FLOOD, &others), Status::Done as u8);
    bench.put(FLOOD, &"t".repeat(200)).unwrap();
    let mut claimed = 0;
    while bench.claim(FLOOD, &made[2 + claimed]) == Status::Done as u8 {
        claimed += 1;
    }
    assert!((1..20).contains(&claimed), "{claimed}");
    // Its objects stay when it ends, but its claims do not.
    bench.service.source_ended(FLOOD, None);
    bench.continue_work();
    assert!(bench.store.list(999).objects.iter().all(|object| object.claims == 0));
    assert_eq!(bench.store.list(999).objects.len(), made.len());
    for named in made.iter().skip(2) {
        assert_eq!(bench.about(HONEST, Op::Evict, named), Status::Done as u8);
    }
    assert!(memory.try_take(0));
}

#[test]
fn a_full_store_can_be_read() {
    let mut bench = Bench::of(1 << 20);
    let (made, status) = bench.fill(FLOOD, "");
    assert_eq!(status, Status::Full as u8);
    for named in &made[..1000] {
        assert_eq!(bench.claim(HONEST, named), Status::Done as u8);
    }
    let most = made.iter().position(|named| bench.claim(FLOOD, named) != Status::Done as u8);
    assert!(most.is_some_and(|most| most < made.len()), "claims are bounded, too: {most:?}");
}
