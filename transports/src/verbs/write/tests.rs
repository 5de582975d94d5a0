//! Tests between two endpoints of one port: of the machine's device, or of a fake one if there is none.

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use crate::verbs::device::address::Offer;
use crate::verbs::fake::Fake;
use crate::verbs::until;

struct ConnectedEndpoint {
    local: Box<dyn LocalMemory>,
    remote: Box<dyn RemoteMemory>,
}

/// Two endpoints that write into each other's regions of `len` bytes.
fn pair(len: usize) -> [ConnectedEndpoint; 2] {
    let mut write = device();
    let [mut one, other] = [(); 2].map(|()| write.open(&OpenRequest::new(len, 4096)).unwrap());
    assert!(!one.arrival_with(&other.address().bytes).unwrap().is_empty());
    assert_eq!(one.address().bytes, one.address().bytes);
    let addresses = [one.address().try_to_owned().unwrap(), other.address().try_to_owned().unwrap()];
    let [of_one, of_other] = addresses;
    [one.connect(of_other, 1000).unwrap(), other.connect(of_one, 1000).unwrap()].map(|end| match end {
        Endpoint::OneSided { local, remote } => ConnectedEndpoint { local, remote },
        Endpoint::TwoSided(_) => panic!("it is one-sided"),
    })
}

/// The machine's device, or a fake one.
fn device() -> Write {
    if Write::usable().is_err() {
        Fake::for_this_thread();
    }
    Write::new()
}

/// Bytes that differ at any two offsets.
fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).flat_map(|number| number.wrapping_mul(0x9e37_79b9).to_le_bytes()).take(len).collect()
}

fn bytes(end: &ConnectedEndpoint, offset: usize, len: usize) -> Vec<u8> {
    assert!(offset + len <= end.local.len());
    // SAFETY: inside the region. If the device still writes to it, the caller reads it again.
    unsafe { std::slice::from_raw_parts(end.local.base().as_ptr().add(offset), len) }.to_vec()
}

fn word(end: &ConnectedEndpoint, offset: usize) -> u64 {
    // SAFETY: inside the region, and aligned.
    let at = unsafe { std::sync::atomic::AtomicU64::from_ptr(end.local.base().as_ptr().add(offset).cast()) };
    at.load(std::sync::atomic::Ordering::Acquire)
}

/// Calls `attempt`, which may find the queue full, until it succeeds.
fn through(
    end: &mut ConnectedEndpoint,
    mut attempt: impl FnMut(&mut dyn RemoteMemory) -> Result<(), TransportError>,
) {
    until("space", || match attempt(&mut *end.remote) {
        Ok(()) => true,
        Err(error) if error.is_full() => {
            end.remote.progress().unwrap();
            false
        }
        Err(error) => panic!("{error}"),
    });
}

#[test]
fn a_put_of_any_length_arrives_before_the_word_behind_it() {
    const LEN: usize = 32 << 20;
    let [mut one, other] = pair(LEN);
    let staging = one.remote.staging(LEN / 2).unwrap().unwrap();
    let mut number = 0;
    for len in [1, 7, 8, 63, 64, 200, 505, 512, 513, 4096, 70_001, 9 << 20] {
        let content = pattern(len);
        // SAFETY: nothing else uses the staging memory, and it is long enough.
        let staged = unsafe {
            staging.as_ptr().copy_from_nonoverlapping(content.as_ptr(), len);
            std::slice::from_raw_parts(staging.as_ptr(), len)
        };
        for from in [&content[..], staged] {
            for at in [4096 + 8, 4096 + 64] {
                number += 1;
                through(&mut one, |remote| remote.put(at, from, number));
                one.remote.fence().unwrap();
                through(&mut one, |remote| remote.put_word(4096, number, number));
                until("the word", || word(&other, 4096) == number.to_le());
                assert!(bytes(&other, at, len) == content, "{len} bytes at {at}");
                // Kept until the word behind it has arrived.
                let zeros = vec![0; len];
                through(&mut one, |remote| remote.put(at, &zeros, number));
                through(&mut one, |remote| remote.put_word(4096, 0, number));
                until("zeros", || word(&other, 4096) == 0);
                assert!(bytes(&other, at, len) == zeros, "{len} zeros at {at}");
            }
        }
    }
}

#[test]
fn a_send_queue_is_never_overrun_and_every_word_arrives_in_turn() {
    let [mut one, other] = pair(8192);
    let mut last = 0;
    for number in 1..=5000_u64 {
        through(&mut one, |remote| remote.put_word(4096, number, number));
        let seen = u64::from_le(word(&other, 4096));
        assert!((last..=number).contains(&seen), "{seen} after {last}");
        last = seen;
    }
    until("the last word", || u64::from_le(word(&other, 4096)) == 5000);
}

#[test]
fn a_put_without_a_word_behind_it_goes_when_the_backend_works() {
    let [mut one, other] = pair(8192);
    one.remote.put(4096 + 8, &[7; 16], 1).unwrap();
    until("the put", || {
        one.remote.progress().unwrap();
        bytes(&other, 4096 + 8, 16) == [7; 16]
    });
}

#[test]
fn writes_with_completion_are_counted_and_stop_when_credit_is_spent() {
    let [mut one, mut other] = pair(1 << 20);
    assert_eq!(other.local.completions().unwrap(), 0);
    let mut sent = 0_u64;
    for _ in 0..3 {
        let content = pattern(64);
        let before = sent;
        loop {
            let at = 4096 + 64 * (sent as usize % 4096);
            match one.remote.put_with_completion(at, &content, sent) {
                Ok(()) => sent += 1,
                Err(error) if error.is_full() && sent - before >= u64::from(RECEIVES / 2) => break,
                Err(error) if error.is_full() => one.remote.progress().unwrap(),
                Err(error) => panic!("{error}"),
            }
            assert!(sent - before <= u64::from(RECEIVES) * 2, "more than the peer has receives");
        }
        until("completions", || other.local.completions().unwrap() == sent);
        assert_eq!(bytes(&other, 4096, 64), content);
        // The peer reports the number of receives posted again.
        until("space", || match one.remote.put_with_completion(4096, &content, sent) {
            Ok(()) => true,
            Err(error) => {
                assert!(error.is_full(), "{error}");
                other.local.completions().unwrap();
                one.remote.progress().unwrap();
                false
            }
        });
        sent += 1;
        until("the last", || other.local.completions().unwrap() == sent);
    }
}

#[test]
fn a_sleeper_counting_completions_is_woken_by_completion_or_doorbell() {
    let [mut one, mut other] = pair(8192);
    assert!(!other.local.before_sleep().unwrap(), "before it counts, nothing wakes it");
    assert_eq!(other.local.completions().unwrap(), 0);
    let Some(channel) = other.local.descriptor() else { panic!("there is a channel") };
    let channel = channel.try_clone_to_owned().unwrap();
    let wakes = |seconds| {
        let mut polled = [PollFd::new(&channel, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec { tv_sec: seconds, tv_nsec: 0 })).unwrap() == 1
    };
    for round in 1..4 {
        assert!(other.local.before_sleep().unwrap() && !wakes(0), "round {round}");
        one.remote.put_with_completion(4096, &[1; 64], round).unwrap();
        assert!(wakes(60), "round {round}");
        other.local.after_sleep().unwrap();
        assert_eq!(other.local.completions().unwrap(), round);
        assert!(other.local.before_sleep().unwrap() && !wakes(0), "round {round}");
        one.remote.wake_peer().unwrap();
        assert!(wakes(60), "round {round}");
        other.local.after_sleep().unwrap();
        assert_eq!(other.local.completions().unwrap(), round, "a ring is no frame");
    }
}

#[test]
fn more_rings_than_the_peer_has_receives_harm_nothing() {
    let [mut one, other] = pair(8192);
    for _ in 0..RECEIVES * 3 {
        one.remote.wake_peer().unwrap();
        one.remote.progress().unwrap();
    }
    through(&mut one, |remote| remote.put_word(4096, 9, 9));
    until("the word", || word(&other, 4096) == 9_u64.to_le());
}

#[test]
fn a_gone_peer_and_a_wrong_key_give_errors_with_causes() {
    let [mut one, other] = pair(8192);
    drop(other);
    let failed = fails(&mut one);
    assert!(failed.to_string().contains("status 1") && failed.frame() == Some(77), "{failed}");

    let mut write = device();
    let [here, there] = [(); 2].map(|()| write.open(&OpenRequest::new(8192, 4096)).unwrap());
    let mut offer = Offer::from_bytes(&there.address().bytes, Backend::Write).unwrap();
    offer.endpoints[0].region.key ^= 0x5a00;
    let lie = Address { bytes: offer.to_bytes(Backend::Write), descriptors: Vec::new(), stream: None };
    let address = here.address().try_to_owned().unwrap();
    let Ok(Endpoint::OneSided { local, remote }) = here.connect(lie, 1000) else { panic!("it connects") };
    let _there = there.connect(address, 1000).unwrap();
    let failed = fails(&mut ConnectedEndpoint { local, remote });
    assert!(failed.to_string().contains("remote access error"), "{failed}");
}

/// Puts until that fails.
fn fails(end: &mut ConnectedEndpoint) -> TransportError {
    let mut failed = None;
    until("an error", || {
        let result = end.remote.put_word(4096, 1, 77).and_then(|()| end.remote.progress());
        failed = result.err().filter(|error| !error.is_full());
        failed.is_some()
    });
    failed.unwrap()
}

#[test]
fn a_route_shows_device_port_and_gid() {
    let [one, _other] = pair(8192);
    let route = one.remote.path_info();
    assert!(route.over.contains(':') && route.notes[1].contains("GID "), "{route:?}");
}

#[test]
fn a_hundred_ends_come_and_go() {
    for _ in 0..100 {
        pair(8192);
    }
}
