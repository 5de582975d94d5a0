//! Tests of the endpoints that `shm` makes, against the contract.

use std::os::fd::AsRawFd;
use std::thread;

use farjump_core::transport::{
    Address, Cause, Endpoint, LocalAddress, LocalMemory, OpenRequest, Operation, RemoteMemory, Transport,
    TransportError, UnconnectedEndpoint,
};
use farjump_transports::shm::{MAX_REGION, Shm};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use farjump_fixtures::doorbells::{Player, ROUNDS};
use farjump_fixtures::watchdog::Watchdog;

const LEN: usize = 4096 + 8192;

fn open(len: usize) -> Box<dyn UnconnectedEndpoint> {
    Shm.open(&OpenRequest::new(len, 4096)).unwrap()
}

/// Returns an address as the control connection would deliver it: with its own descriptors.
fn carried(opening: &dyn UnconnectedEndpoint) -> Address {
    opening.address().try_to_owned().unwrap()
}

type Memories = (Box<dyn LocalMemory>, Box<dyn RemoteMemory>);

fn memories(endpoint: Endpoint) -> Memories {
    match endpoint {
        Endpoint::OneSided { local, remote } => (local, remote),
        Endpoint::TwoSided(_) => panic!("shm is one-sided"),
    }
}

fn connected(one: usize, other: usize) -> (Memories, Memories) {
    let (one, other) = (open(one), open(other));
    let (to_one, to_other) = (carried(one.as_ref()), carried(other.as_ref()));
    (memories(one.connect(to_other, 1).unwrap()), memories(other.connect(to_one, 1).unwrap()))
}

/// Returns the word at `offset` of a region.
fn word(local: &dyn LocalMemory, offset: usize) -> u64 {
    assert!(offset + 8 <= local.len());
    // SAFETY: the assertion puts the word inside the region, which `local` keeps mapped. Only this thread
    // uses it.
    unsafe { local.base().add(offset).cast::<u64>().read_volatile() }
}

fn readable(local: &dyn LocalMemory) -> bool {
    let descriptor = local.descriptor().unwrap();
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&at_once)).unwrap() == 1
}

fn cause<T>(result: Result<T, TransportError>) -> Cause {
    result.err().expect("it was done").cause().clone()
}

#[test]
fn the_address_is_the_same_each_time_and_as_documented() {
    let opening = open(LEN);
    let address = opening.address();
    let again = opening.address();
    assert_eq!(address.bytes, again.bytes);
    let numbers =
        |address: &LocalAddress<'_>| address.descriptors.iter().map(AsRawFd::as_raw_fd).collect::<Vec<_>>();
    assert_eq!(numbers(&address), numbers(&again));
    assert_eq!(address.bytes.len(), 16);
    assert_eq!(address.bytes[..2], [2, 0]);
    assert_eq!(address.bytes[4..8], [0; 4]);
    assert_eq!(address.bytes[8..], (LEN as u64).to_le_bytes());
    assert_eq!(address.descriptors.len(), 2);
}

#[test]
fn puts_and_words_land_at_their_offset_up_to_the_last_byte() {
    let ((_, mut remote), (local, _)) = connected(LEN, 2 * LEN);
    assert_eq!(remote.len(), 2 * LEN);
    remote.put(64, &[1, 2, 3, 4, 5, 6, 7, 8], 0).unwrap();
    remote.fence().unwrap();
    remote.put_word(2 * LEN - 8, 0x1122_3344_5566_7788, 0).unwrap();
    remote.put(2 * LEN, &[], 0).unwrap();
    remote.put(72, &[], 0).unwrap();
    assert_eq!(word(local.as_ref(), 64).to_le_bytes(), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(word(local.as_ref(), 2 * LEN - 8), 0x1122_3344_5566_7788);
    assert_eq!((word(local.as_ref(), 56), word(local.as_ref(), 72)), (0, 0));
}

#[test]
fn a_put_past_the_end_is_refused_and_writes_nothing() {
    let ((_, mut remote), (local, _)) = connected(LEN, LEN);
    for (offset, len) in [(LEN, 1), (LEN - 7, 8), (0, LEN + 1), (usize::MAX, 1), (usize::MAX - 3, 8)] {
        let error = remote.put(offset, &vec![0xff; len], 640).unwrap_err();
        assert_eq!(error.cause(), &Cause::OutOfRegion { offset, len, region: LEN });
        assert_eq!((error.operation(), error.frame()), (Operation::Put, Some(640)));
    }
    assert_eq!(cause(remote.put_word(LEN, 1, 0)), Cause::OutOfRegion { offset: LEN, len: 8, region: LEN });
    assert!(matches!(cause(remote.put_word(4, 1, 0)), Cause::Unsupported(_)));
    assert!((0..LEN / 8).all(|at| word(local.as_ref(), at * 8) == 0));
}

#[test]
fn a_ring_makes_the_peers_descriptor_readable_until_it_wakes() {
    let ((mut one, mut to_other), (mut other, mut to_one)) = connected(LEN, LEN);
    assert!(!readable(one.as_ref()) && !readable(other.as_ref()));
    to_other.wake_peer().unwrap();
    to_other.wake_peer().unwrap();
    assert!(!readable(one.as_ref()) && readable(other.as_ref()));
    other.after_sleep().unwrap();
    assert!(!readable(other.as_ref()));
    to_one.wake_peer().unwrap();
    assert!(readable(one.as_ref()));
    assert!(one.before_sleep().unwrap());
    assert!(!readable(one.as_ref()), "a ring from before would end the sleep at once");
}

#[test]
fn both_directions_leave_the_fence_out_where_the_system_has_membarrier() {
    let ((mut one, to_other), (mut other, to_one)) = connected(LEN, LEN);
    let opening = open(LEN);
    let barriers = u16::from_le_bytes([opening.address().bytes[2], opening.address().bytes[3]]);
    assert_eq!(to_other.store_load_ordered(), barriers == 3);
    assert_eq!(to_one.store_load_ordered(), barriers == 3);
    assert!(one.before_sleep().unwrap() && other.before_sleep().unwrap());
}

#[test]
fn a_peer_without_barriers_gets_fences_and_still_may_be_slept_on() {
    for flags in 0..4u8 {
        let (one, other) = (open(LEN), open(LEN));
        let ours = one.address().bytes[2];
        let mut address = carried(other.as_ref());
        address.bytes[2] = flags;
        let (mut local, remote) = memories(one.connect(address, 1).unwrap());
        assert_eq!(remote.store_load_ordered(), ours & 1 != 0 && flags & 2 != 0, "{flags}");
        assert!(local.before_sleep().unwrap());
    }
}

#[test]
fn endpoints_that_sleep_without_barriers_lose_nothing() {
    let _watchdog = Watchdog::new();
    let (one, other) = (open(LEN), open(LEN));
    let (mut to_one, mut to_other) = (carried(one.as_ref()), carried(other.as_ref()));
    (to_one.bytes[2], to_other.bytes[2]) = (0, 0);
    let (one, other) = (one.connect(to_other, 1).unwrap(), other.connect(to_one, 1).unwrap());
    let Endpoint::OneSided { remote, .. } = &one else { panic!("shm is one-sided") };
    assert!(!remote.store_load_ordered());
    let answering = thread::spawn(move || Player::new(other).reply());
    let sleeps = Player::new(one).begin() + answering.join().unwrap();
    assert!(sleeps > ROUNDS / 100, "they slept only {sleeps} times: this shows nothing");
}

#[test]
fn memory_outlives_the_peers_end() {
    let ((_, mut remote), (local, peers_remote)) = connected(LEN, LEN);
    drop((local, peers_remote));
    for offset in (0..LEN).step_by(8) {
        remote.put_word(offset, 1, 0).unwrap();
    }
    remote.wake_peer().unwrap();
}

#[test]
fn invalid_region_and_frame_lengths_are_refused_with_limit_or_length() {
    let open = |len, max_frame| cause(Shm.open(&OpenRequest::new(len, max_frame)));
    assert_eq!(open(MAX_REGION + 4096, 64), Cause::TooLarge { len: MAX_REGION + 4096, max: MAX_REGION });
    let max = Shm.capabilities().max_frame;
    assert_eq!(open(LEN, max + 1), Cause::TooLarge { len: max + 1, max });
    for len in [0, 4095, 4097] {
        let text = open(len, 64).to_string();
        assert!(text.contains(&format!("a region of {len} bytes")), "{text}");
    }
}

#[test]
fn an_address_that_came_without_its_descriptors_says_what_it_needs() {
    let peer = open(LEN);
    let address = Address { bytes: peer.address().bytes, descriptors: Vec::new(), stream: None };
    let text = cause(open(LEN).connect(address, 1)).to_string();
    assert!(text.contains("0 descriptors") && text.contains("Unix socket"), "{text}");
}

#[test]
fn a_large_region_is_there_whole_and_zero() {
    let len = 4096 + (16 << 20);
    let ((_, remote), (local, _)) = connected(LEN, len);
    assert_eq!((remote.len(), local.len()), (len, len));
    assert!((0..len / 8).all(|at| word(local.as_ref(), at * 8) == 0));
}
