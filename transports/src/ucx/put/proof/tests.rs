//! Two endpoints in one process, each on its own thread, over transports that UCX has everywhere. UCX writes memory
//! that it allocated natively over shared memory. It emulates writes to heap memory, and over TCP.

use std::thread;

use farjump_core::transport::REGION_UNIT;
use farjump_ucx_sys::{
    UCP_FEATURE_AM, UCP_FEATURE_RMA, UCP_FEATURE_WAKEUP, UCP_MEM_MAP_PARAM_FIELD_ADDRESS,
    UCP_MEM_MAP_PARAM_FIELD_LENGTH, Ucx, ucp_mem_map_params_t,
};

use super::*;
use crate::ucx::address::PutAddress;
use crate::ucx::context::Context;
use crate::ucx::locality::Locality;
use crate::ucx::put::region::Region;

/// Length of a region, longer than the longest put with a query.
const LEN: usize = 2 * LONGEST;

/// Allocation of an endpoint's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Memory {
    Ucxs,
    Heap,
}

/// An open endpoint and its memory.
struct Opened {
    // The worker is dropped before the data of its callbacks, and before the memory.
    worker: Worker,
    post: Post,
    address: PutAddress,
    start: NonNull<u8>,
    _region: Option<Region>,
}

// SAFETY: all of it belongs only to this value.
unsafe impl Send for Opened {}

/// Returns a context with these transports, kept as long as the process; without them, prints a note and returns
/// `None`.
fn context(transports: &str) -> Option<&'static Context> {
    let features = UCP_FEATURE_RMA | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    let mut settings = vec![(c"TLS", transports)];
    if transports == "tcp" {
        settings.push((c"NET_DEVICES", "lo"));
    }
    match Context::make(features, &settings, true) {
        Ok(context) => Some(Box::leak(Box::new(context))),
        Err(why) => {
            println!("skipped: {why}");
            None
        }
    }
}

fn opened(context: &'static Context, memory: Memory) -> Opened {
    let post = Post::new();
    let worker = Worker::create(context).unwrap();
    // SAFETY: the worker is dropped first, in here and in `Opened`.
    unsafe { post.listen(&worker) }.unwrap();
    let (start, key, region) = match memory {
        Memory::Ucxs => {
            let region = Region::create(context, LEN).unwrap();
            (region.base(), region.key().unwrap(), Some(region))
        }
        Memory::Heap => {
            let pages = Box::leak(vec![[0_u64; REGION_UNIT / 8]; LEN / REGION_UNIT].into_boxed_slice());
            let start = NonNull::from(&mut pages[0]).cast::<u8>();
            (start, key_to(context, start), None)
        }
    };
    let address = PutAddress {
        address: start.addr().get() as u64,
        len: LEN as u64,
        barriers: 0,
        key,
        place: Locality::own(),
        worker: worker.address().unwrap(),
    };
    Opened { worker, post, address, start, _region: region }
}

/// Returns UCX's key to memory that it did not allocate.
fn key_to(context: &Context, start: NonNull<u8>) -> Vec<u8> {
    // SAFETY: zero is valid for all fields, numbers and pointers; UCX reads those that the mask names.
    let mut params: ucp_mem_map_params_t = unsafe { MaybeUninit::zeroed().assume_init() };
    params.field_mask = u64::from(UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH);
    params.address = start.as_ptr().cast();
    params.length = LEN;
    let ucx = context.ucx;
    let (mut handle, mut packed, mut len) = (ptr::null_mut(), ptr::null_mut(), 0);
    // SAFETY: the memory lives as long as the process, and all results go to locals.
    unsafe {
        assert_eq!(ucx.ucp_mem_map(context.handle, &params, &mut handle), UCS_OK);
        assert_eq!(ucx.ucp_rkey_pack(context.handle, handle, &mut packed, &mut len), UCS_OK);
        let key = std::slice::from_raw_parts(packed.cast::<u8>(), len).to_vec();
        ucx.ucp_rkey_buffer_release(packed);
        key
    }
}

/// Proves the puts of `opened`, and returns the result. Closes the UCX endpoint once both processes have a result.
fn prove(
    mut opened: Opened,
    theirs: &PutAddress,
    is_first: bool,
    queries: bool,
    both: &std::sync::Barrier,
) -> Result<(), Unproven> {
    let peer = Peer::unmapped(&opened.worker, theirs).map_err(Unproven::Failed);
    both.wait();
    let outcome = peer.and_then(|peer| {
        // SAFETY: this is the region's first word, which otherwise only UCX writes.
        let own = unsafe { AtomicU64::from_ptr(opened.start.cast().as_ptr()) };
        let until = Instant::now() + Duration::from_secs(2);
        let mut proof = Proof {
            worker: &opened.worker,
            peer: &peer,
            post: &mut opened.post,
            own,
            is_first,
            queries,
            shows: true,
            until,
            idle: Cell::new(0),
        };
        let outcome = proof.run();
        // SAFETY: the UCX endpoint is connected, and not used again.
        unsafe { opened.worker.close(peer.endpoint) };
        outcome
    });
    both.wait();
    if outcome.is_ok() {
        // SAFETY: the region has `LEN` bytes, which UCX does not write from here on.
        let bytes = unsafe { std::slice::from_raw_parts(opened.start.as_ptr(), LEN) };
        assert!(bytes.iter().all(|byte| *byte == 0), "something of the proof is left");
    }
    outcome
}

/// Returns the results of both endpoints.
fn proven(transports: &str, memory: Memory, queries: bool) -> Option<[Result<(), Unproven>; 2]> {
    let context = context(transports)?;
    let (one, other) = (opened(context, memory), opened(context, memory));
    let (to_one, to_other) = (one.address.clone(), other.address.clone());
    let both = std::sync::Barrier::new(2);
    Some(thread::scope(|scope| {
        let other = scope.spawn(|| prove(other, &to_one, false, queries, &both));
        [prove(one, &to_other, true, queries, &both), other.join().unwrap()]
    }))
}

fn has_new_protocols() -> bool {
    Ucx::open().is_ok_and(|ucx| (ucx.version().major, ucx.version().minor) >= (1, 16))
}

#[test]
fn puts_over_shared_memory_into_ucx_memory_land_without_peer_progress() {
    let Some(found) = proven("posix,sysv,self", Memory::Ucxs, false) else { return };
    assert_eq!(found, [Ok(()), Ok(())]);
}

#[test]
fn newer_ucx_reports_shared_memory_puts_as_native_at_each_length() {
    if !has_new_protocols() {
        return println!("skipped: this UCX says nothing of puts");
    }
    let Some(found) = proven("posix,sysv,self", Memory::Ucxs, true) else { return };
    assert_eq!(found, [Ok(()), Ok(())]);
}

#[test]
fn puts_into_the_heap_do_not_land_while_the_peer_stands_still() {
    let Some(found) = proven("posix,sysv,self", Memory::Heap, false) else { return };
    assert_eq!(found, [Err(Unproven::Missed), Err(Unproven::PeerRefuses)]);
}

#[test]
fn puts_into_the_heap_are_recognized_as_emulated_before_any_is_shown() {
    let Some(found) = proven("posix,sysv,self", Memory::Heap, true) else { return };
    for found in found {
        assert!(matches!(found, Err(Unproven::Emulated(_) | Unproven::PeerRefuses)), "{found:?}");
    }
}

#[test]
fn puts_over_tcp_need_peer_progress_and_are_recognized_as_emulated() {
    for queries in [false, true] {
        let Some(found) = proven("tcp", Memory::Ucxs, queries) else { return };
        if matches!(&found[0], Err(Unproven::Failed(why)) if why.to_string().contains("nreachable")) {
            return println!("skipped: this UCX cannot use lo");
        }
        match queries {
            false => assert_eq!(found, [Err(Unproven::Missed), Err(Unproven::PeerRefuses)]),
            true => {
                for found in found {
                    assert!(matches!(found, Err(Unproven::Emulated(_) | Unproven::PeerRefuses)), "{found:?}");
                }
            }
        }
    }
}

/// Longer than a successful test takes.
const LONG: Duration = Duration::from_secs(20);

/// Returns the result of this endpoint with a peer that follows `script` and has `within` for it. The script runs once
/// both processes have sent `HELLO`, drives the peer's proof, and ends when that fails.
fn against(
    is_first: bool,
    within: Duration,
    script: impl FnOnce(&mut Proof<'_>) -> Result<(), Unproven> + Send,
) -> Option<Unproven> {
    let context = context("posix,sysv,self")?;
    let (one, other) = (opened(context, Memory::Ucxs), opened(context, Memory::Ucxs));
    let (to_one, to_other) = (one.address.clone(), other.address.clone());
    let (ended, has_ended) = std::sync::mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            with_proof(other, &to_one, !is_first, LONG, |proof| {
                proof.send(HELLO, 0).unwrap();
                assert_eq!(proof.next("a hello"), Ok((HELLO, 0)));
                // The script ends when this endpoint sends a rejection, or with its own last step.
                let _ = script(proof);
                let _ = proof.send_all();
                // Until the other end of the channel is dropped.
                has_ended.recv().unwrap_err();
                proof.post.free_requests(proof.worker);
            });
        });
        let found = with_proof(one, &to_other, is_first, within, |proof| proof.run().unwrap_err());
        drop(ended);
        Some(found)
    })
}

/// Calls `run` with a proof, and closes the UCX endpoint afterwards.
fn with_proof<T>(
    mut opened: Opened,
    theirs: &PutAddress,
    is_first: bool,
    within: Duration,
    run: impl FnOnce(&mut Proof<'_>) -> T,
) -> T {
    let peer = Peer::unmapped(&opened.worker, theirs).unwrap();
    // SAFETY: this is the region's first word, which otherwise only UCX writes.
    let own = unsafe { AtomicU64::from_ptr(opened.start.cast().as_ptr()) };
    let result = run(&mut Proof {
        worker: &opened.worker,
        peer: &peer,
        post: &mut opened.post,
        own,
        is_first,
        queries: false,
        shows: true,
        until: Instant::now() + within,
        idle: Cell::new(0),
    });
    // SAFETY: the UCX endpoint is connected, and not used again.
    unsafe { opened.worker.close(peer.endpoint) };
    result
}

/// Waits like a peer that sends nothing, until the other endpoint times out.
fn silent(proof: &mut Proof<'_>) -> Result<(), Unproven> {
    proof.next("a refusal").map(|_| ())
}

#[test]
fn a_proof_with_an_absent_peer_ends_at_its_deadline() {
    let Some(context) = context("posix,sysv,self") else { return };
    let (one, other) = (opened(context, Memory::Ucxs), opened(context, Memory::Ucxs));
    with_proof(one, &other.address, true, Duration::from_millis(20), |proof| {
        let unproven = proof.run().unwrap_err();
        assert_eq!(unproven, Unproven::Late("the peer's first message"));
        let text = unproven.cause(proof.peer, Duration::from_millis(20)).to_string();
        assert!(text.contains("20 ms") && text.contains("the peer's first message"), "{text}");
    });
}

#[test]
fn a_peer_that_falls_silent_is_not_waited_for_beyond_the_time() {
    let within = Duration::from_millis(200);
    // Silent before it stands still, while it does, and when it should prove its own puts.
    let Some(found) = against(true, within, silent) else { return };
    assert_eq!(found, Unproven::Late("the peer's standing still"));
    let found = against(true, within, |peer| {
        assert_eq!(peer.next("a letter"), Ok((STAND, 1)));
        peer.send(STANDING, 1)?;
        silent(peer)
    });
    assert_eq!(found, Some(Unproven::Late("a put")));
    assert_eq!(against(false, within, silent), Some(Unproven::Late("the peer's proof")));
}

#[test]
fn a_peer_that_requests_a_standstill_but_puts_nothing_has_missed() {
    let within = Duration::from_millis(200);
    let found = against(false, within, |peer| {
        peer.send(STAND, 1)?;
        assert_eq!(peer.next("a letter"), Ok((STANDING, 1)));
        assert_eq!(peer.next("a letter"), Ok((MISSED, 1)));
        silent(peer)
    });
    let Some(found) = found else { return };
    assert_eq!(found, Unproven::Late("the peer's proof"));
    // Repeating a request does not extend the peer's time.
    let found = against(false, within, |peer| {
        loop {
            peer.send(STAND, 1)?;
            peer.send_all()?;
            peer.work("a letter")?;
        }
    });
    assert!(matches!(found, Some(Unproven::Late(_))), "{found:?}");
}

#[test]
fn a_peer_that_never_stands_still_gets_a_bounded_number_of_requests() {
    let found = against(true, LONG, |peer| {
        for value in 1..=ROUNDS {
            assert_eq!(peer.next("a letter"), Ok((STAND, value)));
            peer.send(STANDING, value)?;
            peer.send(EARLY, value)?;
        }
        silent(peer)
    });
    let Some(found) = found else { return };
    assert_eq!(found, Unproven::Early);
}

#[test]
fn an_unexpected_message_ends_the_proof_as_disorder() {
    type Script = fn(&mut Proof<'_>) -> Result<(), Unproven>;
    let scripts: [(bool, Script); 6] = [
        (true, |peer| peer.send(DONE, 0)),
        (true, |peer| peer.send(STANDING, 2)),
        (true, |peer| {
            peer.send(STANDING, 1)?;
            peer.send(LANDED, 2)
        }),
        (true, |peer| {
            peer.send(STANDING, 1)?;
            peer.send(u64::MAX, 1)
        }),
        (false, |peer| peer.send(LANDED, 1)),
        (false, |peer| (0..1000).try_for_each(|_| peer.send(HELLO, 0))),
    ];
    for (number, (is_first, script)) in scripts.into_iter().enumerate() {
        let found = against(is_first, LONG, |peer| {
            script(peer)?;
            silent(peer)
        });
        let Some(found) = found else { return };
        assert_eq!(found, Unproven::Disorder, "script {number}");
    }
}

#[test]
fn a_refusal_by_the_peer_ends_the_proof_with_its_cause() {
    for (known, expected) in [(1, Unproven::PeerRefuses), (0, Unproven::PeerFails)] {
        for is_first in [false, true] {
            let found = against(is_first, LONG, |peer| peer.send(REFUSED, known));
            let Some(found) = found else { return };
            assert_eq!(found, expected);
        }
    }
}
