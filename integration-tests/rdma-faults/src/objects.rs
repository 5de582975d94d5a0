//! Objects that the device reads out of their owner's memory: a reader that is interrupted, an owner that is killed.

use std::ptr::NonNull;
use std::thread;
use std::time::Duration;

use farjump::Target;
use farjump_core::transport::Endpoint;
use farjump_fixtures::helper_process::say_value;
use farjump_handles::{Access, Client, Error, Handle, Patience, Store};
use tempfile::TempDir;

use crate::endpoints::open;
use crate::helper::start;
use crate::machine::Machine;
use crate::source::FOREVER;
use crate::{Done, Skip};

/// Length of an object in bytes. Soft-RoCE takes about a second for it.
const LONG: usize = 8 << 20;
/// Reads that a device may repeat. Soft-RoCE in an emulated machine takes a third of a second for one.
const ROUNDS: u32 = 30;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 4093) as u8).collect()
}

fn connect(backend: &str, address: &str) -> Client {
    // Otherwise memory of this machine would be mapped.
    Client::builder(address).transport(backend).mapped(false).timeout(FOREVER).connect().unwrap()
}

fn address_in(folder: &TempDir) -> String {
    format!("unix:{}", folder.path().join("owner.sock").display())
}

/// A device that repeats reads because their bytes are late. A repeated read must not reach a loan that has ended,
/// because then the owner's device shuts the queue pair.
pub(crate) fn repeated(backend: &str) -> Done {
    let machine = Machine::breakable()?;
    let (before, mut rounds) = (machine.repeated(), 0);
    while rounds < ROUNDS {
        let [one, other] = [open(backend), open(backend)];
        let [of_one, of_other] =
            [one.address().try_to_owned().unwrap(), other.address().try_to_owned().unwrap()];
        let [mut owner, mut reader] =
            [(one, of_other), (other, of_one)].map(|(end, peer)| end.connect(peer, 10_000).unwrap());
        // A link also ends if a read needs more repetitions than the options allow.
        while rounds < ROUNDS && read_once(&mut owner, &mut reader) {
            rounds += 1;
        }
        rounds += 1;
    }
    if machine.repeated() == before {
        return Err(Skip("the device repeated no read".to_owned()));
    }
    Ok(())
}

/// Lends bytes for as long as they are read. Returns `false` if the reader has repeated a request too often.
///
/// # Panics
/// If the owner's endpoint has failed by then: an earlier loan caused that.
fn read_once(owner: &mut Endpoint, reader: &mut Endpoint) -> bool {
    let lender = match owner {
        Endpoint::OneSided { local, .. } => local.lender(),
        Endpoint::TwoSided(messages) => messages.lender(),
    };
    let reads = match reader {
        Endpoint::OneSided { remote, .. } => remote.reads(),
        Endpoint::TwoSided(messages) => messages.reads(),
    };
    let (mut lender, reads, bytes) = (lender.unwrap(), reads.unwrap(), pattern(1 << 20));
    // SAFETY: the loan is dropped before the bytes.
    let loan = unsafe { lender.lend(NonNull::from(&bytes[..]).cast(), bytes.len()) }.unwrap();
    reads.start(loan.key(), bytes.len()).unwrap();
    let got = loop {
        match reads.poll() {
            Ok(Some(got)) => break got,
            Ok(None) => thread::yield_now(),
            Err(error) => {
                let is_whole = match owner {
                    Endpoint::OneSided { local, .. } => local.before_sleep(),
                    Endpoint::TwoSided(messages) => messages.arm(),
                };
                is_whole.unwrap_or_else(|owner| panic!("{error}; the owner's end: {owner}"));
                return false;
            }
        }
    };
    drop(loan);
    assert!(*got == bytes[..], "other bytes came");
    true
}

/// A reader that is interrupted while the device reads. The object stays claimed until the device has finished with
/// it, and the next read gets another one.
pub(crate) fn given_up(backend: &str) -> Done {
    let (folder, store) = (tempfile::tempdir().unwrap(), Store::new().unwrap());
    let target = Target::listen(&address_in(&folder)).transport(backend).objects(store.service());
    let _target = target.build().unwrap().spawn().unwrap();
    let (long, next) = (store.put(&pattern(LONG)).unwrap(), store.put(&pattern(1 << 20)).unwrap());
    let client = connect(backend, &address_in(&folder));
    let mut checks = 0;
    let mut goes_on = || {
        checks += 1;
        checks < 10
    };
    match client.get_with(&long, &mut Patience::of(FOREVER).checked_by(&mut goes_on)) {
        Err(Error::Interrupted) => {}
        Ok(view) => {
            assert_eq!(view.access(), Access::Read);
            return Err(Skip("the device reads too quickly to be interrupted".to_owned()));
        }
        Err(error) => panic!("{error}"),
    }
    let claims = || store.list(10).objects.iter().map(|object| object.claims).sum::<u64>();
    assert_eq!(claims(), 1, "the device still reads it");
    assert!(store.evict(&long).unwrap());
    let view = client.get(&next).unwrap();
    assert_eq!((view.access(), view.len()), (Access::Read, 1 << 20));
    assert!(*view == pattern(1 << 20), "other bytes came");
    // The releases travel with the next request.
    client.exists(&next).unwrap();
    assert_eq!((claims(), store.list(10).objects.len()), (0, 1));
    Ok(())
}

/// Plays an owner that prints the handle of a long object.
pub(crate) fn play(backend: &str, address: &str) {
    let store = Store::new().unwrap();
    let target = Target::listen(address).transport(backend).objects(store.service());
    let _target = target.build().unwrap().spawn().unwrap();
    let handle = store.put(&pattern(LONG)).unwrap();
    say_value(&handle.to_bytes());
    std::io::stdin().lines().for_each(drop);
}

/// An owner that is killed while the device reads: the reader gets an error, and a new owner serves it.
pub(crate) fn owner_killed(backend: &str) -> Done {
    let folder = tempfile::tempdir().unwrap();
    let address = address_in(&folder);
    let owner = || {
        let process = start(&["owner", backend, &address]);
        let handle = Handle::from_bytes(&process.hear_value::<Vec<u8>>()).unwrap();
        (process, handle)
    };
    let (mut process, handle) = owner();
    let client = connect(backend, &address);
    let got = thread::scope(|scope| {
        let reader = scope.spawn(|| client.get(&handle));
        // As a rule the owner has replied to the claim by then. If not, the request fails in place of the read.
        thread::sleep(Duration::from_millis(150));
        process.kill();
        reader.join().unwrap()
    });
    match got {
        Err(error @ Error::Link(_)) => println!("    {error}"),
        Ok(view) => {
            assert!(*view == pattern(LONG), "other bytes came");
            println!("    the device was done before");
        }
        Err(error) => panic!("{error}"),
    }
    assert!(client.get(&handle).is_err(), "the link has ended");
    drop(client);
    let (_process, handle) = owner();
    let view = connect(backend, &address).get(&handle).unwrap();
    assert!(*view == pattern(LONG), "other bytes came");
    Ok(())
}
