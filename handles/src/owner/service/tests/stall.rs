//! A target whose store waits for its file: the target serves other sources, and may sleep.

#[path = "../../../../tests/support/polled.rs"]
mod polled;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use farjump::build::{Options, build};
use farjump::{Library, Mode};

use super::*;
use crate::owner::spill::FileThread;
use polled::PolledOwner;

const CAPACITY: u64 = 4 << 20;
/// More than half of the store.
const LARGE: usize = 2_500_000;

/// An owner, and the thread of its file.
fn own(transport: &str) -> (PolledOwner, Arc<FileThread>) {
    let owner = PolledOwner::new(transport, CAPACITY, 4 * CAPACITY);
    let thread = Arc::clone(owner.store.0.file().unwrap());
    (owner, thread)
}

/// Returns whether the target may sleep, after some polls.
fn sleeps(owner: &mut PolledOwner) -> bool {
    (0..1000).any(|_| {
        owner.target.poll().unwrap();
        let armed = owner.target.arm().unwrap();
        owner.target.disarm();
        armed.is_some()
    })
}

fn about(op: Op, handle: &Handle) -> Vec<u8> {
    let mut request = Writer::request(op);
    if op == Op::Claim {
        request.u16(0);
    }
    request.u64(handle.number).bytes(&handle.key.0);
    request.0
}

/// Otherwise a read or write of the file would stop all sources.
#[test]
fn a_source_waiting_for_the_file_delays_only_its_own_requests() {
    let library = Library::by_name(farjump::objects::NAME).unwrap();
    for transport in ["shm", "tcp"] {
        let (mut owner, thread) = own(transport);
        let (small, first) = (owner.store.put(b"small").unwrap(), owner.store.put(&[1; LARGE]).unwrap());
        // This view keeps the small object in memory.
        let _view = owner.store.get(&small).unwrap();
        let (flood, honest) = (owner.link(), owner.link());
        let mut warm = honest.inject(&library, &about(Op::Exists, &small)).unwrap();
        assert_eq!(owner.reply(&mut warm).0, [0, 1]);
        let before = owner.target.stats().frames;
        thread.let_pass(Some(0));

        // The first object goes to the file for another one. Then it comes back, and the other one goes.
        let mut frames = 0;
        for (request, jobs) in [(allocate(LARGE as u64, "").0, 1), (about(Op::Claim, &first), 2)] {
            let mut waits = flood.inject(&library, &request).unwrap();
            let mut behind = flood.inject(&library, &about(Op::Exists, &small)).unwrap();
            for _ in 0..jobs {
                owner.poll_until("a job", |_| thread.waiting() == 1);
                for _ in 0..20 {
                    let mut asked = honest.inject(&library, &about(Op::Exists, &small)).unwrap();
                    assert_eq!(owner.reply(&mut asked).0, [0, 1]);
                }
                frames += 20;
                assert!(waits.poll().unwrap().is_none() && behind.poll().unwrap().is_none());
                assert_eq!(thread.waiting(), 1, "the job is added once");
                assert!(transport != "shm" || sleeps(&mut owner), "it looks for the file again and again");
                let ended = thread.ended();
                thread.let_pass(Some(1));
                thread.wait_for_news(ended);
                // The bell rang before.
                assert!(owner.target.wait(Duration::from_secs(60)).unwrap(), "the target is woken");
            }
            let reply = owner.reply(&mut waits).0;
            assert_eq!(reply[0], Status::Done as u8);
            assert_eq!(owner.reply(&mut behind).0, [0, 1], "the next one of the same source comes after it");
            frames += 2;
            assert_eq!(owner.target.stats().frames - before, frames, "each request counts once");
            if jobs == 1 {
                let number = &reply[1..9];
                let mut commit = Writer::request(Op::Commit);
                commit.bytes(number).u64(0).bytes(&[0; 16]);
                let mut committed = flood.inject(&library, &commit.0).unwrap();
                assert_eq!(owner.reply(&mut committed).0, [0]);
                frames += 1;
            }
        }
        thread.let_pass(None);
    }
}

/// Otherwise the function would run again and again while the file is written, and could exceed its number of repeats.
#[test]
fn a_function_without_its_object_reruns_only_after_the_file_write() {
    let (mut owner, thread) = own("shm");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ifuncs/made.c");
    let folder = farjump_fixtures::folder();
    let output = folder.path().join("libmade.so");
    build(&Options { inputs: vec![source], output: output.clone(), ..Options::default() }).unwrap();
    let made = Library::open(output).unwrap();
    let first = owner.store.put(&[1; LARGE]).unwrap();
    let link = owner.link();
    link.set_mode(Mode::Cached);
    thread.let_pass(Some(0));
    let mut call = link.inject(&made, &LARGE.to_le_bytes()).unwrap();
    owner.poll_until("a job", |_| thread.waiting() == 1);
    let calls = owner.target.stats().calls;
    assert!(sleeps(&mut owner), "it runs again and again");
    assert!(call.poll().unwrap().is_none());
    assert_eq!(owner.target.stats().calls, calls);
    let ended = thread.ended();
    thread.let_pass(None);
    thread.wait_for_news(ended);
    assert!(owner.target.wait(Duration::from_secs(60)).unwrap(), "the target is woken");
    let handle = Handle::from_bytes(&owner.reply(&mut call).0).unwrap();
    drop(call);
    assert_eq!(owner.target.stats().calls, calls + 1);
    assert!(owner.store.get(&handle).unwrap().iter().all(|byte| *byte == 7));
    assert!(owner.store.get(&first).unwrap().iter().all(|byte| *byte == 1));

    // A waiting function whose source goes away is dropped.
    thread.let_pass(Some(0));
    let call = link.inject(&made, &LARGE.to_le_bytes()).unwrap();
    owner.poll_until("a job", |_| thread.waiting() == 1);
    drop(call);
    drop(link);
    thread.let_pass(None);
    owner.poll_until("the end of a source", |target| target.sources() == 0);
    assert_eq!(owner.store.list(9).objects.len(), 2);
}

#[test]
fn the_wait_of_a_source_that_goes_away_is_given_up() {
    let library = Library::by_name(farjump::objects::NAME).unwrap();
    let (mut owner, thread) = own("shm");
    owner.store.put(&[1; LARGE]).unwrap();
    let (flood, honest) = (owner.link(), owner.link());
    thread.let_pass(Some(0));
    let waits = flood.inject(&library, &allocate(LARGE as u64, "").0).unwrap();
    owner.poll_until("a job", |_| thread.waiting() == 1);
    drop(waits);
    drop(flood);
    owner.poll_until("the end of a source", |target| target.sources() == 1);
    thread.let_pass(None);
    let second = owner.store.put(&[2; LARGE]).unwrap();
    let mut asked = honest.inject(&library, &about(Op::Exists, &second)).unwrap();
    assert_eq!(owner.reply(&mut asked).0, [0, 1]);
    assert!(owner.store.list(9).objects.iter().all(|object| object.state != ObjectState::Unfinished));
}
