//! Objects that end at the wrong moment.

use farjump::objects::RequestState;

use super::*;
use crate::clock::stepping;

const LARGE: u64 = 1 << 16;
const SECOND: Duration = Duration::from_secs(1);

struct Bench {
    table: Table,
    _folder: tempfile::TempDir,
}

impl Bench {
    /// A table with memory for four large objects, and a file for more.
    fn new() -> Bench {
        let folder = farjump_fixtures::folder();
        let region = Arc::new(OwnRegion::create(4 * LARGE).unwrap());
        let spill = Spill::create(folder.path(), 1 << 20, Arc::clone(&region)).unwrap();
        Bench { table: Table::new(region, Some(spill), 1, [7; 32]), _folder: folder }
    }

    /// Runs `act`, which may wait for the thread of the file, in turns of its own.
    fn in_turns<T>(
        &mut self,
        mut act: impl FnMut(&mut Table) -> Result<T, ClaimFailed>,
    ) -> Result<T, ClaimFailed> {
        let thread = Arc::clone(self.table.file_thread().unwrap());
        loop {
            let ended = thread.ended();
            self.table.turn.begin(thread.failures());
            match act(&mut self.table) {
                Err(ClaimFailed::NoMemory(none)) if none.retry() == Some(RequestState::Wait) => {
                    thread.wait_for_news(ended);
                }
                Err(ClaimFailed::NoMemory(none)) if none.retry().is_some() => {}
                done => return done,
            }
        }
    }

    /// Puts a large object of this byte.
    fn put(&mut self, byte: u8) -> u64 {
        let (number, offset) = self.in_turns(|table| Ok(table.allocate(Source::Owner, LARGE, "")?)).unwrap();
        let into = self.table.region.region.at(offset, LARGE).unwrap();
        // SAFETY: the block was just allocated.
        unsafe { into.write_bytes(byte, LARGE as usize) };
        self.table.commit(Source::Owner, number).unwrap();
        number
    }

    fn claim(&mut self, number: u64) -> Result<Claimed, ClaimFailed> {
        let key = self.table.key(number);
        self.in_turns(|table| table.claim(Source::Owner, number, key))
    }

    /// The bytes of an object, each once.
    fn bytes(&mut self, number: u64) -> Vec<u8> {
        let claimed = self.claim(number).unwrap();
        let start = self.table.region.region.at(claimed.offset, claimed.len).unwrap();
        // SAFETY: the object is claimed.
        let mut bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), claimed.len as usize) }.to_vec();
        self.table.release(Source::Owner, claimed.claim);
        bytes.sort_unstable();
        bytes.dedup();
        bytes
    }

    fn is_spilled(&self, number: u64) -> bool {
        self.table.objects[&number].place.is_some()
    }

    /// Returns an object that is in the file, and fills the memory with others.
    fn spilled(&mut self) -> u64 {
        let first = self.put(1);
        while !self.is_spilled(first) {
            self.put(2);
        }
        first
    }

    /// Puts two objects that go to the file, and checks that each is read back as it was put.
    fn check_file(&mut self) {
        let (one, other) = (self.put(b'a'), self.put(b'b'));
        while !(self.is_spilled(one) && self.is_spilled(other)) {
            self.put(b'f');
        }
        assert_eq!((self.bytes(one), self.bytes(other)), (vec![b'a'], vec![b'b']));
    }
}

#[test]
fn a_request_reads_the_clock_once_so_leases_outlast_it() {
    let mut bench = Bench::new();
    let first = bench.spilled();
    stepping::step_by(SECOND);
    let key = bench.table.key(first);
    bench.table.turn.begin(0);
    // The lease would end between the first reading of the clock and the second.
    bench.table.lease(first, key, SECOND + SECOND / 2).unwrap();
    let before = stepping::readings();
    bench.table.turn.begin(0);
    let claimed = bench.table.claim(Source::Owner, first, key);
    // The thread of the file may have done a part by then.
    assert!(matches!(claimed, Err(ClaimFailed::NoMemory(none)) if none.retry().is_some()));
    assert_eq!(stepping::readings() - before, 1);
    assert_eq!(bench.claim(first), Err(Refusal::Gone.into()), "that is the next request");
    bench.check_file();
}

#[test]
fn an_object_that_ends_while_recalled_frees_its_file_space_once() {
    let mut bench = Bench::new();
    let first = bench.spilled();
    stepping::step_by(SECOND);
    let key = bench.table.key(first);
    bench.table.turn.begin(0);
    bench.table.lease(first, key, SECOND / 2).unwrap();
    // Taking memory for the object ends its lease.
    let _ = bench.in_turns(|table| table.recall(Source::Owner, first));
    assert!(!bench.table.has(first));
    bench.check_file();
}

#[test]
fn an_object_for_which_there_is_no_memory_stays_in_the_file() {
    let mut bench = Bench::new();
    let first = bench.spilled();
    let held: Vec<_> = (first + 1..=bench.table.last).map(|number| bench.claim(number).unwrap()).collect();
    assert!(matches!(bench.claim(first), Err(ClaimFailed::NoMemory(_))));
    assert!(bench.is_spilled(first));
    held.iter().for_each(|claimed| bench.table.release(Source::Owner, claimed.claim));
    assert_eq!(bench.bytes(first), [1]);
    bench.check_file();
}
