//! The thread of a store's file: the requests that wait for it, those that do not, and the end of each wait.

use std::sync::{Arc, Weak};

use rustix::io::Errno;
use tempfile::TempDir;

use super::*;
use crate::error::{Error, GoneWhy};
use crate::owner::spill::{Direction, FileThread};

const CAPACITY: u64 = 1 << 20;
/// More than half of the store.
const LARGE: usize = 600_000;

/// A store whose file has space for two large objects, and its thread.
struct FileBench {
    sources: Bench,
    thread: Arc<FileThread>,
    _folder: TempDir,
}

fn named(handle: &Handle) -> Named {
    let mut named = [0; 24];
    named[..8].copy_from_slice(&handle.number.to_le_bytes());
    named[8..].copy_from_slice(&handle.key.0);
    named
}

fn claim(named: &Named) -> Vec<u8> {
    let mut request = Writer::request(Op::Claim);
    request.u16(0).bytes(named);
    request.0
}

fn hold(handle: &Handle) -> Writer {
    let mut request = Writer::request(Op::Hold);
    request.bytes(&named(handle));
    request
}

impl FileBench {
    fn new() -> FileBench {
        let folder = farjump_fixtures::folder();
        let options = Store::options().capacity(CAPACITY).spill(folder.path(), 1 << 21);
        let sources = Bench::new(options, SourceMemory::default());
        let thread = Arc::clone(sources.store.0.file().unwrap());
        FileBench { sources, thread, _folder: folder }
    }

    /// A bench whose first large object, of ones, is in the file, and the second in memory.
    fn spilled() -> (FileBench, Handle, Handle) {
        let bench = FileBench::new();
        let first = bench.put(1);
        let second = bench.put(2);
        assert_eq!((bench.state(&first), bench.state(&second)), (ObjectState::Spilled, ObjectState::Present));
        (bench, first, second)
    }

    fn put(&self, byte: u8) -> Handle {
        self.sources.store.put(&vec![byte; LARGE]).unwrap()
    }

    fn holds(&self, handle: &Handle, byte: u8) -> bool {
        self.sources.store.get(handle).unwrap().iter().all(|other| *other == byte)
    }

    fn listed(&self, handle: &Handle) -> Option<(ObjectState, u64)> {
        let objects = self.sources.store.list(99).objects;
        let found = objects.into_iter().find(|object| object.number == handle.number)?;
        Some((found.state, found.claims))
    }

    fn state(&self, handle: &Handle) -> ObjectState {
        self.listed(handle).unwrap().0
    }

    /// Lets the thread do `jobs` jobs, and waits for them.
    fn let_pass(&self, jobs: u64) {
        for _ in 0..jobs {
            let ended = self.thread.ended();
            self.thread.let_pass(Some(1));
            self.thread.wait_for_news(ended);
        }
    }

    /// Lets the thread do all jobs from now on, and waits until none is under way.
    fn settle(&mut self) {
        self.thread.let_pass(None);
        loop {
            self.sources.continue_work();
            if self.sources.store.0.table().jobs() == 0 {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Makes requests as an honest source, and gets each reply at once.
    fn check_others(&mut self, handle: &Handle) {
        let (before, waiting) = (self.thread.ended(), self.thread.waiting());
        for _ in 0..50 {
            let mut exists = Writer::request(Op::Exists);
            exists.bytes(&named(handle));
            assert_eq!(self.sources.once(HONEST, &exists.0), Some(vec![0, 1]));
            let mut put = Writer::request(Op::Put);
            put.u64(0).bytes(&[0; 16]).text("").bytes(b"small");
            let put = self.sources.once(HONEST, &put.0).expect("there is memory for it");
            let small: Named = put[1..].try_into().unwrap();
            assert!(self.sources.once(HONEST, &claim(&small)).is_some_and(|reply| reply[0] == 0));
            let mut release = Writer::request(Op::Release);
            release.u16(1).bytes(&small[..8]);
            assert!(self.sources.once(HONEST, &release.0).is_some());
            assert_eq!(self.sources.about(HONEST, Op::Evict, &small), Status::Done as u8);
        }
        assert_eq!(
            (self.thread.ended(), self.thread.waiting()),
            (before, waiting),
            "no job was done or added"
        );
    }
}

#[test]
fn an_object_moving_to_or_from_the_file_delays_no_others() {
    let mut bench = FileBench::new();
    let first = bench.put(1);
    bench.thread.let_pass(Some(0));
    let request = allocate(LARGE as u64, "").0;
    for _ in 0..3 {
        assert_eq!(bench.sources.try_once(FLOOD, &request), Err(RequestState::Wait));
        assert_eq!(bench.thread.waiting(), 1);
        bench.check_others(&first);
    }
    bench.let_pass(1);
    let reply = bench.sources.once(FLOOD, &request).expect("there is memory now");
    let second: Named = reply[1..25].try_into().unwrap();
    let mut commit = Writer::request(Op::Commit);
    commit.bytes(&second[..8]).u64(0).bytes(&[0; 16]);
    assert_eq!(bench.sources.exchange(FLOOD, &commit).0, Status::Done as u8);

    // The second object goes to the file, then the first comes back.
    let request = claim(&named(&first));
    for _ in 0..2 {
        for _ in 0..3 {
            assert_eq!(bench.sources.try_once(FLOOD, &request), Err(RequestState::Wait));
            assert_eq!(bench.thread.waiting(), 1);
            bench.check_others(&first);
        }
        bench.let_pass(1);
    }
    assert_eq!(bench.sources.once(FLOOD, &request).unwrap()[0], Status::Done as u8);
    assert_eq!(bench.listed(&first), Some((ObjectState::Present, 1)));
    bench.thread.let_pass(None);
    assert!(bench.holds(&first, 1));
}

#[test]
fn an_object_claimed_during_its_move_to_the_file_stays_in_memory() {
    let mut bench = FileBench::new();
    let first = bench.put(1);
    bench.thread.let_pass(Some(0));
    let request = allocate(LARGE as u64, "").0;
    assert_eq!(bench.sources.try_once(FLOOD, &request), Err(RequestState::Wait));
    assert!(bench.sources.once(HONEST, &claim(&named(&first))).is_some_and(|reply| reply[0] == 0));
    bench.let_pass(1);
    assert_eq!(bench.sources.once(FLOOD, &request).unwrap()[0], Status::Full as u8);
    assert_eq!(bench.listed(&first), Some((ObjectState::Present, 1)));
    assert!(bench.holds(&first, 1));
}

/// Otherwise the object's place in the file would be lost, or given back twice: the file has space for two.
#[test]
fn an_object_ending_during_its_move_frees_all_space_once() {
    for round in 0..6 {
        let (mut bench, first, second) = FileBench::spilled();
        bench.thread.let_pass(Some(0));
        let request = claim(&named(&first));
        assert_eq!(bench.sources.try_once(FLOOD, &request), Err(RequestState::Wait));
        // In the first half of the rounds the second object goes out, and in the other half the first one comes.
        bench.let_pass(u64::from(round >= 3));
        if round >= 3 {
            assert_eq!(bench.sources.try_once(FLOOD, &request), Err(RequestState::Wait));
        }
        let ends = if round >= 3 { &first } else { &second };
        match round % 3 {
            0 => assert_eq!(bench.sources.about(HONEST, Op::Evict, &named(ends)), Status::Done as u8),
            1 => {
                stepping::step_by(Duration::from_secs(1));
                bench.sources.store.lease(ends, Some(Duration::from_millis(1))).unwrap();
                assert_eq!(bench.sources.about(HONEST, Op::Exists, &named(ends)), Status::Done as u8);
            }
            _ => {
                bench.sources.service.source_ended(FLOOD, None);
                bench.sources.continue_work();
                bench.sources.service.source_began(FLOOD, None, SourceMemory::default());
            }
        }
        bench.settle();
        assert_eq!(bench.listed(ends).is_none(), round % 3 != 2);
        for handle in [&first, &second] {
            let _ = bench.sources.store.evict(handle);
        }
        bench.settle();
        let (used, objects) = (bench.sources.used(), bench.sources.store.list(99).objects.len());
        assert_eq!((used, objects, bench.sources.store.0.table().file_used()), (0, 0, 0));
    }
}

#[test]
fn a_recalled_object_stays_in_memory_while_its_source_waits() {
    let (mut bench, first, _) = FileBench::spilled();
    bench.thread.let_pass(Some(0));
    let request = claim(&named(&first));
    for _ in 0..2 {
        assert_eq!(bench.sources.try_once(FLOOD, &request), Err(RequestState::Wait));
        bench.let_pass(1);
    }
    // The object has come, and no other takes its memory.
    let other = allocate(LARGE as u64, "").0;
    assert_eq!(bench.sources.once(HONEST, &other).unwrap()[0], Status::Full as u8);
    assert_eq!(bench.listed(&first), Some((ObjectState::Present, 0)));
    bench.sources.service.source_ended(FLOOD, None);
    bench.thread.let_pass(None);
    assert_eq!(bench.sources.exchange(HONEST, &Writer(other)).0, Status::Done as u8);
    assert_eq!(bench.state(&first), ObjectState::Spilled);
}

#[test]
fn a_full_disk_refuses_waiting_requests_and_later_ones_retry() {
    let bench = FileBench::new();
    let first = bench.put(1);
    bench.thread.fail(Direction::Out, Errno::NOSPC);
    let full = bench.sources.store.put(&[2; LARGE]).unwrap_err();
    assert!(matches!(full, Error::Full { file_failed: true, .. }), "{full}");
    assert!(full.to_string().contains("make space on its disk"), "{full}");
    assert_eq!(bench.state(&first), ObjectState::Present);
    let mut bench = bench;
    bench.thread.fail(Direction::Out, Errno::NOSPC);
    let (status, reply) = bench.sources.exchange(FLOOD, &allocate(LARGE as u64, ""));
    assert_eq!((status, reply.last()), (Status::Full as u8, Some(&1)));
    // There is space again.
    let second = bench.put(2);
    assert_eq!(bench.state(&first), ObjectState::Spilled);
    assert!(bench.holds(&first, 1) && bench.holds(&second, 2));
}

#[test]
fn an_unreadable_object_is_lost_to_all_readers_and_evictable() {
    let (mut bench, first, _) = FileBench::spilled();
    bench.thread.fail(Direction::In, Errno::IO);
    for _ in 0..2 {
        assert_eq!(bench.sources.claim(FLOOD, &named(&first)), Status::Lost as u8);
        let lost = bench.sources.store.get(&first).unwrap_err();
        assert!(matches!(lost, Error::Gone { why: GoneWhy::Lost, .. }), "{lost}");
        assert!(matches!(bench.resolve(&first), Err(ObjectError::Gone)));
    }
    assert_eq!(bench.listed(&first), Some((ObjectState::Spilled, 0)));
    assert!(bench.sources.store.evict(&first).unwrap());
    assert!(bench.listed(&first).is_none());
    bench.put(3);
}

impl FileBench {
    fn resolve(&mut self, handle: &Handle) -> Result<u8, ObjectError> {
        let lent = self.sources.service.resolve(handle.to_bytes()[..].into())?;
        assert_eq!(lent.len, LARGE);
        // SAFETY: the object is lent until the call ends.
        Ok(unsafe { lent.data.read() })
    }

    fn end_call(&mut self) {
        self.sources.service.call_ended(true, &mut Vec::new());
    }
}

#[test]
fn a_function_gets_a_spilled_error_and_later_the_object() {
    let (mut bench, first, second) = FileBench::spilled();
    bench.thread.let_pass(Some(0));
    assert_eq!(bench.resolve(&first), Err(ObjectError::Spilled));
    assert_eq!(bench.resolve(&second), Ok(2), "it is in memory still");
    bench.end_call();
    bench.let_pass(1);
    assert_eq!(bench.resolve(&first), Err(ObjectError::Spilled));
    bench.end_call();
    bench.let_pass(1);
    assert_eq!(bench.resolve(&first), Ok(1));
    // A new object would need the memory of the first, which is in use.
    assert_eq!(bench.sources.service.create(LARGE).map(drop), Err(ObjectError::Full));
    bench.end_call();
    assert_eq!(bench.sources.service.create(LARGE).map(drop), Err(ObjectError::Spilled));
    bench.end_call();
    bench.let_pass(1);
    assert_eq!(bench.sources.service.create(LARGE).map(|lent| lent.len), Ok(LARGE));
    bench.end_call();
}

#[test]
fn a_hold_waits_for_its_object_and_ends_with_its_call() {
    let (mut bench, first, _) = FileBench::spilled();
    bench.thread.let_pass(Some(0));
    for _ in 0..2 {
        assert_eq!(bench.sources.try_once(FLOOD, &hold(&first).0), Err(RequestState::Wait));
        bench.let_pass(1);
    }
    assert!(bench.sources.once(FLOOD, &hold(&first).0).is_some());
    assert_eq!(bench.listed(&first), Some((ObjectState::Present, 1)));
    assert_eq!(bench.resolve(&first), Ok(1));
    bench.end_call();
    assert_eq!(bench.listed(&first), Some((ObjectState::Present, 0)));
    // A hold whose call does not come ends with its source, even if that still has the memory mapped.
    let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let peer = LingeringPeer::from_stream(ours).unwrap();
    bench.sources.exchange(FLOOD, &hold(&first));
    bench.sources.service.source_ended(FLOOD, Some(peer));
    bench.sources.continue_work();
    assert_eq!(bench.listed(&first), Some((ObjectState::Present, 0)));
}

/// The call was refused, or does not open its object: the store does not see it.
#[test]
fn a_hold_prevents_neither_spilling_nor_evicting_its_object() {
    let (mut bench, first, second) = FileBench::spilled();
    for source in [FLOOD, HONEST, FLOOD] {
        bench.sources.exchange(source, &hold(&first));
    }
    assert_eq!(bench.listed(&first), Some((ObjectState::Present, 3)));
    assert!(bench.holds(&second, 2), "there is memory for it");
    assert_eq!(bench.listed(&first), Some((ObjectState::Spilled, 0)));
    // The object stays for sources that have more than a hold.
    bench.sources.exchange(FLOOD, &hold(&first));
    assert_eq!(bench.sources.claim(HONEST, &named(&first)), Status::Done as u8);
    assert_eq!(bench.sources.exchange(FLOOD, &allocate(LARGE as u64, "")).0, Status::Full as u8);
    assert_eq!(bench.listed(&first), Some((ObjectState::Present, 1)));
    bench.sources.exchange(FLOOD, &hold(&first));
    assert!(bench.sources.store.evict(&first).unwrap());
    bench.sources.continue_work();
    assert_eq!(bench.listed(&first), Some((ObjectState::Evicted, 1)));
    bench.sources.service.source_ended(HONEST, None);
    bench.sources.continue_work();
    assert_eq!(bench.listed(&first), None);
}

#[test]
fn a_source_has_at_most_16_holds_and_many_end_gradually() {
    let mut bench = FileBench::new();
    let first = bench.sources.store.put(&[1]).unwrap();
    for _ in 0..40 {
        bench.sources.exchange(FLOOD, &hold(&first));
    }
    assert_eq!(bench.listed(&first), Some((ObjectState::Present, 16)));
    let second = bench.sources.store.put(&[2]).unwrap();
    bench.sources.exchange(FLOOD, &hold(&second));
    assert_eq!((bench.listed(&first).unwrap().1, bench.listed(&second).unwrap().1), (15, 1));
    for source in 10..40 {
        bench.sources.service.source_began(source, None, SourceMemory::default());
        for _ in 0..16 {
            bench.sources.exchange(source, &hold(&first));
        }
    }
    assert!(bench.sources.store.evict(&first).unwrap());
    bench.sources.check_visits();
    assert!(bench.sources.continue_work() > 10);
    assert_eq!((bench.listed(&first), bench.listed(&second).unwrap().1), (None, 1));
    bench.sources.service.source_ended(FLOOD, None);
    bench.sources.check_visits();
    assert_eq!(bench.listed(&second).unwrap().1, 0);
}

#[test]
fn the_file_thread_ends_with_its_store_and_needs_a_file() {
    assert!(Store::options().capacity(CAPACITY).build().unwrap().0.file().is_none());
    for is_held in [false, true] {
        let (mut bench, first, _) = FileBench::spilled();
        if is_held {
            bench.thread.let_pass(Some(0));
            assert_eq!(bench.sources.try_once(FLOOD, &claim(&named(&first))), Err(RequestState::Wait));
        }
        let thread: Weak<FileThread> = Arc::downgrade(&bench.thread);
        drop(bench);
        // The last reference is the thread's.
        let end = std::time::Instant::now() + Duration::from_secs(60);
        while thread.strong_count() != 0 {
            assert!(std::time::Instant::now() < end, "the thread does not end");
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_forked_child_waits_for_no_thread() {
    let (mut bench, first, second) = FileBench::spilled();
    bench.thread.let_pass(Some(0));
    assert_eq!(bench.sources.try_once(FLOOD, &claim(&named(&first))), Err(RequestState::Wait));
    // SAFETY: the child uses state that belongs to this thread alone, and memory, whose lock the system's library keeps
    // usable.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: the call takes a number. It ends a child that waits too long.
        unsafe { libc::alarm(20) };
        let lost = matches!(bench.sources.store.get(&first), Err(Error::Gone { why: GoneWhy::Lost, .. }));
        let full = matches!(bench.sources.store.put(&[3; LARGE]), Err(Error::Full { .. }));
        let is_here = bench.holds(&second, 2);
        drop(bench);
        // SAFETY: the call takes a number, and ends the child without its parent's cleanup.
        unsafe { libc::_exit(if lost && full && is_here { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: the call gets a number to write.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    bench.thread.let_pass(None);
    assert!(bench.holds(&first, 1) && bench.holds(&second, 2), "the parent goes on");
}
