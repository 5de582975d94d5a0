//! Two endpoints in one process, honest and dishonest.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::{ptr, slice, thread};

use farjump_core::transport::{Address, Endpoint};
use farjump_ucx_sys::{
    UCP_MEM_MAP_PARAM_FIELD_ADDRESS, UCP_MEM_MAP_PARAM_FIELD_LENGTH, UCS_OK, ucp_mem_map_params_t,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::param::page_size;

use super::*;
use crate::ucx::address::{EndpointAddress, PutAddress};
use crate::ucx::context::Context;

/// Length of a region, in bytes.
fn len() -> usize {
    4 * page_size()
}

/// An open endpoint. If UCX cannot map memory, prints a note and returns `None`.
fn open() -> Option<Box<UnconnectedPut>> {
    match probe::write_methods() {
        Ok(write_methods) if write_methods.map => {
            Some(Box::new(UnconnectedPut::open(&OpenRequest::new(len(), page_size())).unwrap()))
        }
        Ok(_) => {
            println!("skipped: UCX maps no memory here");
            None
        }
        Err(why) => {
            println!("skipped: {why}");
            None
        }
    }
}

type Halves = (Box<dyn LocalMemory>, Box<dyn RemoteMemory>);

fn join(own: Box<UnconnectedPut>, peer: Address) -> Halves {
    match own.connect(peer, 1000).unwrap() {
        Endpoint::OneSided { local, remote } => (local, remote),
        Endpoint::TwoSided(_) => panic!("ucx-put is one-sided"),
    }
}

fn pair() -> Option<(Halves, Halves)> {
    let (left, right) = (open()?, open()?);
    let (to_left, to_right) =
        (left.address().try_to_owned().unwrap(), right.address().try_to_owned().unwrap());
    Some((join(left, to_right), join(right, to_left)))
}

fn bytes(local: &dyn LocalMemory) -> Vec<u8> {
    // SAFETY: the local memory has `len` bytes, and nothing writes them now.
    unsafe { slice::from_raw_parts(local.base().as_ptr(), local.len()) }.to_vec()
}

fn readable(descriptor: BorrowedFd<'_>) -> bool {
    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
    poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&second)).unwrap() == 1
}

#[test]
fn mapped_stores_puts_and_words_land_in_the_peers_memory() {
    let Some(((_, mut remote), (local, _keep))) = pair() else { return };
    assert!(bytes(&*local).iter().all(|byte| *byte == 0), "it is not zero to begin with");
    let mapped = remote.mapped().expect("two ends of one process map each other");
    let body: Vec<u8> = (0..=255).cycle().take(5000).collect();
    // SAFETY: the region is longer.
    unsafe { mapped.write_bytes(7, 64) };
    remote.put(page_size(), &body, 1).unwrap();
    remote.fence().unwrap();
    remote.put_word(len() - 8, 0x0123_4567_89ab_cdef, 1).unwrap();
    for _ in 0..1000 {
        remote.progress().unwrap();
    }
    let there = bytes(&*local);
    assert_eq!(there[..64], [7; 64]);
    assert_eq!(there[page_size()..page_size() + body.len()], body);
    assert_eq!(there[len() - 8..], 0x0123_4567_89ab_cdef_u64.to_le_bytes());
    assert_eq!(there[len() - 16..len() - 8], [0; 8]);
}

#[test]
fn many_puts_in_a_row_all_land_and_words_keep_their_values() {
    let Some(((_, mut remote), (local, _keep))) = pair() else { return };
    let slots = len() / 8;
    for round in 0..10_usize {
        for slot in 0..slots {
            let word = (round * slots + slot) as u64;
            while let Err(error) = remote.put_word(slot * 8, word, 0) {
                assert!(error.is_full(), "{error}");
                remote.progress().unwrap();
            }
        }
        remote.fence().unwrap();
    }
    for _ in 0..1000 {
        remote.progress().unwrap();
    }
    let there = bytes(&*local);
    for (slot, word) in there.chunks_exact(8).enumerate() {
        assert_eq!(u64::from_le_bytes(word.try_into().unwrap()), (9 * slots + slot) as u64);
    }
}

#[test]
fn a_sleeper_is_woken_by_a_ring_and_sleeps_again() {
    let Some(((_, mut remote), (mut local, _keep))) = pair() else { return };
    let descriptor = local.descriptor().unwrap().try_clone_to_owned().unwrap();
    for _ in 0..5 {
        // UCX also wakes while it sets up the path (observed with 1.20.1).
        let quiet = (0..20).any(|_| {
            assert!(local.before_sleep().unwrap(), "it cannot promise to be woken");
            let quiet = !readable(descriptor.as_fd());
            if !quiet {
                local.after_sleep().unwrap();
            }
            quiet
        });
        assert!(quiet, "somebody rings again and again");
        remote.wake_peer().unwrap();
        assert!(readable(descriptor.as_fd()), "nobody rang");
        local.after_sleep().unwrap();
    }
    // Unreceived doorbells are no error, and at most one is kept.
    for _ in 0..10_000 {
        remote.wake_peer().unwrap();
    }
    local.after_sleep().unwrap();
}

#[test]
fn a_mapped_peer_allows_all_arrival_rules_and_is_mapped_once() {
    let (Some(mut left), Some(right)) = (open(), open()) else { return };
    let peer = right.address().try_to_owned().unwrap();
    assert_eq!(left.arrival_with(&peer.bytes).unwrap(), ArrivalRules::all());
    let start = left.reached.as_ref().unwrap().1.mapped;
    let (_, remote) = join(left, peer);
    assert_eq!(remote.mapped(), start);
}

/// Returns the cause for rejecting an address that a peer made by changing its own.
fn rejection(lie: impl FnOnce(&UnconnectedPut, &mut PutAddress)) -> Option<Cause> {
    let (left, right) = (open()?, open()?);
    let version = right.worker.ucx.version();
    let mut peer_address = PutAddress::from_bytes(&right.address, version).unwrap();
    lie(&left, &mut peer_address);
    let bytes = peer_address.to_bytes(version).unwrap();
    let error = left
        .connect(Address { bytes, descriptors: Vec::new(), stream: None }, 1000)
        .expect_err("it was taken");
    Some(error.cause().clone())
}

/// Returns whether this process detects the changed address.
fn is_found_out(lie: impl FnOnce(&UnconnectedPut, &mut PutAddress)) -> bool {
    match rejection(lie) {
        None => true,
        Some(Cause::Address(what)) => what.contains("do not lie") || what.contains("no memory"),
        Some(other) => panic!("{other}"),
    }
}

#[test]
fn a_false_region_is_refused_even_if_it_names_own_memory() {
    // The stated start is a page too high, so the last page is behind UCX's mapping.
    assert!(is_found_out(|_, peer_address| peer_address.address += page_size() as u64));
    assert!(is_found_out(|_, peer_address| peer_address.address -= page_size() as u64));
    assert!(is_found_out(|_, peer_address| peer_address.address += 8));
    assert!(is_found_out(|_, peer_address| peer_address.len += 1 << 30));
    // The address of this process's region, as a peer that guesses addresses would state it.
    assert!(is_found_out(|left, peer_address| peer_address.address = left.region.base().addr().get() as u64));
    assert!(is_found_out(|_, peer_address| peer_address.address = page_size() as u64));
}

/// Without the second look of `Peer::found`, one of seven such lies was believed.
#[test]
fn a_false_region_is_refused_while_another_thread_maps_memory() {
    let map = || {
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the system chooses an unused address.
        unsafe { mmap_anonymous(ptr::null_mut(), len(), rights, flags) }.unwrap()
    };
    thread::scope(|scope| {
        let liar = scope.spawn(|| {
            for round in 0..240 {
                let distance = [-3, -2, -1, 1, 2, 3][round % 6] * len() as i64;
                assert!(is_found_out(|_, peer_address| {
                    peer_address.address = peer_address.address.wrapping_add_signed(distance);
                }));
            }
        });
        let mut newest: VecDeque<_> = (0..30).map(|_| map()).collect();
        while !liar.is_finished() {
            newest.push_back(map());
            // SAFETY: mapped above, with this length; nothing uses it.
            unsafe { munmap(newest.pop_front().unwrap(), len()) }.unwrap();
        }
    });
}

#[test]
fn memory_that_ucx_writes_by_emulation_is_refused_with_the_consequences() {
    let heap = vec![0_u64; len()];
    let cause = rejection(|left, peer_address| {
        // SAFETY: zero is valid for all fields, numbers and pointers; UCX reads those that the mask names.
        let mut params: ucp_mem_map_params_t = unsafe { MaybeUninit::zeroed().assume_init() };
        params.field_mask = u64::from(UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH);
        params.address = heap.as_ptr().cast_mut().cast();
        params.length = len();
        let (ucx, context) = (left.worker.ucx, Context::for_memory().unwrap());
        let (mut handle, mut packed, mut len) = (ptr::null_mut(), ptr::null_mut(), 0);
        // SAFETY: the memory lives here, and all results go to locals; nothing is used after it was freed.
        unsafe {
            assert_eq!(ucx.ucp_mem_map(context.handle, &params, &mut handle), UCS_OK);
            assert_eq!(ucx.ucp_rkey_pack(context.handle, handle, &mut packed, &mut len), UCS_OK);
            peer_address.key = slice::from_raw_parts(packed.cast::<u8>(), len).to_vec();
            ucx.ucp_rkey_buffer_release(packed);
            assert_eq!(ucx.ucp_mem_unmap(context.handle, handle), UCS_OK);
        }
        peer_address.address = heap.as_ptr().addr() as u64;
    });
    match cause {
        None => {}
        Some(Cause::System(what)) => {
            for part in ["emulate writes", "slower than messages", "write anywhere", "transport tcp"] {
                assert!(what.contains(part), "{what}");
            }
        }
        Some(other) => panic!("{other}"),
    }
    assert!(heap.iter().all(|word| *word == 0));
}

#[test]
fn code_stored_by_the_peer_runs_in_the_executable_alias() {
    let Some(((_, remote), (mut local, _keep))) = pair() else { return };
    let alias = local.executable().unwrap();
    assert_eq!(local.executable().unwrap(), alias, "it is another one each time");
    let mapped = remote.mapped().unwrap();
    // `ret`
    #[cfg(target_arch = "x86_64")]
    const CODE: [u8; 1] = [0xc3];
    #[cfg(target_arch = "aarch64")]
    const CODE: [u8; 4] = 0xd65f_03c0_u32.to_le_bytes();
    #[cfg(target_arch = "riscv64")]
    const CODE: [u8; 4] = 0x0000_8067_u32.to_le_bytes();
    // SAFETY: both are as long as the region, which is the same memory.
    let same = unsafe {
        mapped.add(page_size()).cast().write(CODE);
        alias.add(page_size()).cast::<[u8; CODE.len()]>().read_volatile()
    };
    assert_eq!(same, CODE);
    let [written, address] = [mapped, alias].map(|start| (start.addr().get() + page_size()) as u64);
    farjump_core::icache::sync_foreign(written, address, CODE.len());
    // SAFETY: the code there is `ret`.
    let run: extern "C" fn() = unsafe { std::mem::transmute(alias.add(page_size()).as_ptr()) };
    run();
}

#[test]
fn either_half_may_be_dropped_first_and_the_writer_keeps_the_mapping() {
    let Some(((local, remote), (theirs, writer))) = pair() else { return };
    drop(local);
    drop(theirs);
    let mapped = remote.mapped().unwrap();
    // SAFETY: the region is longer, and mapped as long as `remote`.
    unsafe { mapped.write_bytes(1, len()) };
    drop(remote);
    drop(writer);
}
