//! A target whose store waits for its file: other sources are served, and the target may sleep.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farjump::build::{Options, build};
use farjump::{Key, Library, Link, Mode, Pending, Target};
use tempfile::TempDir;

use super::*;
use crate::spill::FileThread;

const CAPACITY: u64 = 4 << 20;
/// More than half of the store.
const LARGE: usize = 2_500_000;

/// A target that the test polls.
struct Owner {
    store: Store,
    thread: Arc<FileThread>,
    target: Target<'static>,
    key: Option<Key>,
    _folder: TempDir,
}

impl Owner {
    fn new(transport: &str) -> Owner {
        let folder = farjump_fixtures::folder();
        let (address, key) = match transport {
            "tcp" => ("tcp:127.0.0.1:0".to_owned(), Some(Key::from_bytes([7; Key::LEN]))),
            _ => (format!("unix:{}", folder.path().join("owner.sock").display()), None),
        };
        let options = Store::options().capacity(CAPACITY).spill(folder.path(), 4 * CAPACITY);
        let store = options.build().unwrap();
        let mut builder = Target::listen(&address).objects(store.service());
        if let Some(key) = &key {
            builder = builder.key(key.clone());
        }
        let thread = Arc::clone(store.0.file().unwrap());
        Owner { store, thread, target: builder.build().unwrap(), key, _folder: folder }
    }

    fn link(&mut self) -> Link {
        let (address, key) = (self.target.address(), self.key.clone());
        let link = std::thread::scope(|scope| {
            let connects = scope.spawn(|| {
                let mut builder = Link::builder(&address);
                if let Some(key) = key {
                    builder = builder.key(key);
                }
                builder.connect().unwrap()
            });
            while !connects.is_finished() {
                self.target.poll().unwrap();
                std::thread::yield_now();
            }
            connects.join().unwrap()
        });
        link.set_mode(Mode::Local);
        link
    }

    fn reply(&mut self, pending: &mut Pending<'_>) -> Vec<u8> {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(reply) = pending.poll().unwrap() {
                return reply.to_vec();
            }
            assert!(Instant::now() < end, "no reply");
            self.target.poll().unwrap();
        }
    }

    /// Polls until so many jobs wait for the thread.
    fn poll_until_waiting(&mut self, jobs: usize) {
        let end = Instant::now() + Duration::from_secs(60);
        while self.thread.waiting() != jobs {
            self.target.poll().unwrap();
            assert!(Instant::now() < end, "{} jobs", self.thread.waiting());
        }
    }

    /// Whether the target may sleep, once it has looked around.
    fn sleeps(&mut self) -> bool {
        (0..1000).any(|_| {
            self.target.poll().unwrap();
            let armed = self.target.arm().unwrap();
            self.target.disarm();
            armed.is_some()
        })
    }
}

fn about(op: Op, handle: &Handle) -> Vec<u8> {
    let mut request = Writer::request(op);
    if op == Op::Claim {
        request.u16(0);
    }
    request.u64(handle.number).bytes(&handle.key.0);
    request.0
}

/// The file held up all sources for as long as it was read or written.
#[test]
fn sources_are_served_while_another_waits_for_the_file_whose_requests_keep_their_order() {
    let library = Library::by_name(farjump::objects::NAME).unwrap();
    for transport in ["shm", "tcp"] {
        let mut owner = Owner::new(transport);
        let (small, first) = (owner.store.put(b"small").unwrap(), owner.store.put(&[1; LARGE]).unwrap());
        // It stays in memory.
        let _view = owner.store.get(&small).unwrap();
        let (flood, honest) = (owner.link(), owner.link());
        let mut warm = honest.inject(&library, &about(Op::Exists, &small)).unwrap();
        assert_eq!(owner.reply(&mut warm), [0, 1]);
        let before = owner.target.stats().frames;
        owner.thread.let_pass(Some(0));

        // It goes to the file for another one; then it comes back, for which that one goes.
        let mut frames = 0;
        for (request, jobs) in [(allocate(LARGE as u64, "").0, 1), (about(Op::Claim, &first), 2)] {
            let mut waits = flood.inject(&library, &request).unwrap();
            let mut behind = flood.inject(&library, &about(Op::Exists, &small)).unwrap();
            for _ in 0..jobs {
                owner.poll_until_waiting(1);
                for _ in 0..20 {
                    let mut asked = honest.inject(&library, &about(Op::Exists, &small)).unwrap();
                    assert_eq!(owner.reply(&mut asked), [0, 1]);
                }
                frames += 20;
                assert!(waits.poll().unwrap().is_none() && behind.poll().unwrap().is_none());
                assert_eq!(owner.thread.waiting(), 1, "the job is added once");
                assert!(transport != "shm" || owner.sleeps(), "it looks for the file again and again");
                let ended = owner.thread.ended();
                owner.thread.let_pass(Some(1));
                owner.thread.wait_for_news(ended);
                // The bell has rung before.
                assert!(owner.target.wait(Duration::from_secs(60)).unwrap(), "the target is woken");
            }
            let reply = owner.reply(&mut waits);
            assert_eq!(reply[0], Status::Done as u8);
            assert_eq!(owner.reply(&mut behind), [0, 1], "the next one of the same source comes after it");
            frames += 2;
            assert_eq!(owner.target.stats().frames - before, frames, "each request counts once");
            if jobs == 1 {
                let number = &reply[1..9];
                let mut commit = Writer::request(Op::Commit);
                commit.bytes(number).u64(0).bytes(&[0; 16]);
                let mut committed = flood.inject(&library, &commit.0).unwrap();
                assert_eq!(owner.reply(&mut committed), [0]);
                frames += 1;
            }
        }
        owner.thread.let_pass(None);
    }
}

/// It ran again and again while the file was written, and could come to the end of its repeats.
#[test]
fn a_function_that_gets_no_object_yet_runs_again_when_the_file_was_written_and_not_before() {
    let mut owner = Owner::new("shm");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ifuncs/made.c");
    let output = owner._folder.path().join("libmade.so");
    build(&Options { inputs: vec![source], output: output.clone(), ..Options::default() }).unwrap();
    let made = Library::open(output).unwrap();
    let first = owner.store.put(&[1; LARGE]).unwrap();
    let link = owner.link();
    link.set_mode(Mode::Cached);
    owner.thread.let_pass(Some(0));
    let mut call = link.inject(&made, &LARGE.to_le_bytes()).unwrap();
    owner.poll_until_waiting(1);
    let calls = owner.target.stats().calls;
    assert!(owner.sleeps(), "it runs again and again");
    assert!(call.poll().unwrap().is_none());
    assert_eq!(owner.target.stats().calls, calls);
    let ended = owner.thread.ended();
    owner.thread.let_pass(None);
    owner.thread.wait_for_news(ended);
    assert!(owner.target.wait(Duration::from_secs(60)).unwrap(), "the target is woken");
    let handle = Handle::from_bytes(&owner.reply(&mut call)).unwrap();
    drop(call);
    assert_eq!(owner.target.stats().calls, calls + 1);
    assert!(owner.store.get(&handle).unwrap().iter().all(|byte| *byte == 7));
    assert!(owner.store.get(&first).unwrap().iter().all(|byte| *byte == 1));

    // One that waits and whose source goes away is dropped.
    owner.thread.let_pass(Some(0));
    let call = link.inject(&made, &LARGE.to_le_bytes()).unwrap();
    owner.poll_until_waiting(1);
    drop(call);
    drop(link);
    owner.thread.let_pass(None);
    let end = Instant::now() + Duration::from_secs(60);
    while owner.target.sources() != 0 {
        owner.target.poll().unwrap();
        assert!(Instant::now() < end, "the source stays");
    }
    assert_eq!(owner.store.list(9).objects.len(), 2);
}

#[test]
fn the_wait_of_a_source_that_goes_away_is_given_up() {
    let library = Library::by_name(farjump::objects::NAME).unwrap();
    let mut owner = Owner::new("shm");
    owner.store.put(&[1; LARGE]).unwrap();
    let (flood, honest) = (owner.link(), owner.link());
    owner.thread.let_pass(Some(0));
    let waits = flood.inject(&library, &allocate(LARGE as u64, "").0).unwrap();
    owner.poll_until_waiting(1);
    drop(waits);
    drop(flood);
    let end = Instant::now() + Duration::from_secs(60);
    while owner.target.sources() != 1 {
        owner.target.poll().unwrap();
        assert!(Instant::now() < end, "the source stays");
    }
    owner.thread.let_pass(None);
    let second = owner.store.put(&[2; LARGE]).unwrap();
    let mut asked = honest.inject(&library, &about(Op::Exists, &second)).unwrap();
    assert_eq!(owner.reply(&mut asked), [0, 1]);
    assert!(owner.store.list(9).objects.iter().all(|object| object.state != ObjectState::Unfinished));
}
