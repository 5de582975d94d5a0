//! Reuse of regions, tested in one rank: this test program is started again as a job.

use farjump_core::transport::{Address, Endpoint, OpenRequest, Transport, UnconnectedEndpoint};
use farjump_mpi_example::{Pool, Windows};
use mpi::Threading;

use crate::job;

/// Length of the regions, in bytes.
const LEN: usize = 64 << 10;

/// Starts the test of this name in a rank, or, in that, runs `play` with a pool for three regions.
fn in_a_rank(test: &str, play: impl FnOnce(&Pool)) {
    if std::env::var_os(job::RANK).is_none() {
        let program = std::env::current_exe().unwrap();
        if let Some(output) = job::run(&job::MEMORY, 1, program, [test, "--exact", "--nocapture"]) {
            assert!(output.contains("played"), "nothing ran: {output}");
        }
        return;
    }
    let (universe, threading) = mpi::initialize_with_threading(Threading::Multiple).unwrap();
    assert_eq!(threading, Threading::Multiple);
    let pool = Pool::allocate(&universe.world(), 3 * (LEN + 4096)).unwrap();
    play(&pool);
    pool.free().unwrap();
    println!("played");
}

fn open(pool: &Pool) -> Box<dyn UnconnectedEndpoint> {
    Windows::new(pool).open(&OpenRequest::new(LEN, 4096)).unwrap()
}

/// Returns the address, in its form for the peer.
fn address(end: &dyn UnconnectedEndpoint) -> Address {
    end.address().try_to_owned().unwrap()
}

/// Returns two endpoints that reach each other, and the address of the first.
fn endpoints(pool: &Pool) -> (Endpoint, Endpoint, Address) {
    let (left, right) = (open(pool), open(pool));
    let [to_left, to_right] = [&left, &right].map(|end| address(end.as_ref()));
    let again = address(left.as_ref());
    (left.connect(to_right, 1000).unwrap(), right.connect(to_left, 1000).unwrap(), again)
}

/// Returns the start of a region, by its address.
fn start(address: &Address) -> [u8; 8] {
    *address.bytes[8..].first_chunk().unwrap()
}

#[test]
fn a_region_passes_to_another_link_only_after_its_peer_leaves() {
    in_a_rank("regions::a_region_passes_to_another_link_only_after_its_peer_leaves", |pool| {
        let (left, right, to_left) = endpoints(pool);
        drop(left);
        // The right endpoint may still write there.
        let third = open(pool);
        assert_ne!(start(&address(third.as_ref())), start(&to_left));
        let none = Windows::new(pool).open(&OpenRequest::new(LEN, 4096));
        let why = none.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(why.contains("mpi-window: opening an endpoint: no 69632 bytes in a row are free"), "{why}");
        drop(right);
        let (again, other) = (open(pool), open(pool));
        assert!([&again, &other].iter().any(|opening| start(&address(opening.as_ref())) == start(&to_left)));
    });
}

#[test]
fn the_address_of_a_region_that_is_another_links_now_is_refused() {
    in_a_rank("regions::the_address_of_a_region_that_is_another_links_now_is_refused", |pool| {
        let (left, right, to_left) = endpoints(pool);
        drop((left, right));
        let _now = [open(pool), open(pool)];
        let refused = open(pool).connect(to_left, 1000).unwrap_err().to_string();
        assert!(refused.contains("there is no such region, or no more"), "{refused}");
    });
}

#[test]
fn writes_before_an_endpoint_is_dropped_arrive_and_nothing_else_changes() {
    in_a_rank("regions::writes_before_an_endpoint_is_dropped_arrive_and_nothing_else_changes", |pool| {
        let (left, right, _) = endpoints(pool);
        let Endpoint::OneSided { local, .. } = left else { panic!("it is one-sided") };
        let Endpoint::OneSided { mut remote, .. } = right else { panic!("it is one-sided") };
        remote.put(LEN - 100, &[7; 100], 0).unwrap();
        remote.put_word(8, u64::MAX, 0).unwrap();
        drop(remote);
        // SAFETY: the endpoint has this memory as long as it lives, and its peer is gone.
        let seen = unsafe { std::slice::from_raw_parts(local.base().as_ptr(), local.len()) };
        let expected = |at: usize| match at {
            8..16 => 255,
            at if at >= LEN - 100 => 7,
            _ => 0,
        };
        assert!(seen.iter().enumerate().all(|(at, byte)| *byte == expected(at)));
    });
}
