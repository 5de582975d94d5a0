//! A peer's region, reached through UCX.

use std::env;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};

use farjump_core::transport::{Cause, REGION_UNIT};
use farjump_ucx_sys::{
    UCP_OP_ATTR_FLAG_NO_IMM_CMPL, UCS_OK, UCS_PTR_IS_PTR, Ucx, ucp_ep_h, ucp_request_param_t, ucp_rkey_h,
    ucs_status_ptr_t,
};

use super::query::{self, How};
use crate::fork::{Inherited, Listed};
use crate::ucx::address::PutAddress;
use crate::ucx::lanes::Lanes;
use crate::ucx::locality::Locality;
use crate::ucx::mappings::{self, CurrentMappings};
use crate::ucx::words;
use crate::ucx::worker::Worker;

/// Number of zeroes behind a key. UCX reads keys without knowing their length, and so finds zeroes instead of arbitrary
/// data.
pub(super) const BEHIND_KEY: usize = 256;
/// Limit of attempts to map a region at an unused address.
const TRIES: u32 = 10;

/// Held while a region is mapped and checked: the regions of two peers, mapped in turn, would take each other's addresses.
static REACHING: Mutex<()> = Mutex::new(());

/// A peer's region that this process may write, through a worker that outlives this.
pub(super) struct Peer {
    ucx: &'static Ucx,
    pub(super) endpoint: ucp_ep_h,
    pub(super) key: ucp_rkey_h,
    /// Start of the region, at the peer.
    pub(super) address: u64,
    pub(super) len: usize,
    /// Its start in this process's memory, if it is mapped.
    pub(super) mapped: Option<NonNull<u8>>,
    pub(super) barriers: u16,
    /// The reason why it may not be mapped, as text.
    pub(super) apart: String,
    /// The mapping, for forked children.
    listed: Option<Listed>,
}

/// A peer, and UCX's pointer to its region, if UCX maps it.
type Unpacked = (Peer, Option<NonNull<u8>>);

/// Data of the put that shows whether UCX puts natively.
static ZEROS: [u64; 1] = [0];

impl Peer {
    /// Reaches the region that `peer_address` describes, through `worker`. Does not wait.
    pub(super) fn reach(worker: &Worker, peer_address: &PutAddress) -> Result<Peer, Cause> {
        let ucx = worker.ucx;
        let set = env::var("UCX_TLS").ok();
        let why = || Locality::own().apart(&peer_address.place, set.as_deref());
        let end = worker.connect(&peer_address.worker, || {
            format!(
                "UCX has no way to write the peer's memory: {}. Over TCP it would emulate writes in software, which is slower \
                 than messages and lets each process write anywhere in the other: use transport tcp, or load an RDMA \
                 device on both sides",
                why()
            )
        })?;
        // From here on `Peer` or the worker closes it. `PutAddress::check` has checked that the length fits.
        let key_bytes = [&peer_address.key[..], &[0; BEHIND_KEY]].concat();
        let unpacked = || Peer::unpacked(ucx, end, peer_address, &key_bytes, &why);
        let mappings = CurrentMappings::open();
        let mut tries = 1;
        loop {
            // The lock protects no data that a panic could leave inconsistent.
            let alone = REACHING.lock().unwrap_or_else(PoisonError::into_inner);
            let found = Peer::found(&mappings, &unpacked)?;
            drop(alone);
            match found {
                Some((peer, Some(start))) => return peer.mapped_at(start),
                Some((peer, None)) => return peer.unmapped_as(why()),
                None if tries < TRIES => tries += 1,
                None => {
                    return Err(Cause::Address(format!(
                        "its {} bytes at {:#x} do not lie in the memory that its key is for",
                        peer_address.len, peer_address.address
                    )));
                }
            }
        }
    }

    /// Makes the peer, and finds where its region is mapped. `None` if the peer lies, or another thread has used the same
    /// addresses meanwhile.
    ///
    /// UCX's pointer is the sum of values from the system and from the peer, so it may point anywhere. The memory there
    /// must come and go with the key, twice. Memory that another thread maps between two looks comes once, and stays.
    fn found(
        mappings: &CurrentMappings,
        unpacked: &dyn Fn() -> Result<Unpacked, Cause>,
    ) -> Result<Option<Unpacked>, Cause> {
        let (mut peer, start) = unpacked()?;
        let Some(at) = start else { return Ok(Some((peer, None))) };
        let Some(range) = peer.range(at) else { return Ok(None) };
        for _ in 0..2 {
            drop(peer);
            if !mappings.are_none_in(&range)? {
                return Ok(None);
            }
            let again;
            (peer, again) = unpacked()?;
            if again != start || !mappings.are_one_segment_in(&range)? {
                return Ok(None);
            }
        }
        Ok(Some((peer, start)))
    }

    /// Records that the region is mapped at `start`, where a check has found it.
    fn mapped_at(mut self, start: NonNull<u8>) -> Result<Peer, Cause> {
        // SAFETY: the check found the range mapped and shared, and it stays so as long as the key.
        unsafe { mappings::populate(start, self.len) }?;
        self.mapped = Some(start);
        let from = start.as_ptr().expose_provenance();
        self.listed = Some(Listed::new(Inherited::Written { start: from, len: self.len }));
        Ok(self)
    }

    /// Records that puts write the region; `apart` is the reason why it may not be mapped.
    fn unmapped_as(mut self, apart: String) -> Result<Peer, Cause> {
        self.apart = apart;
        self.hear_of_emulation()?;
        Ok(self)
    }

    /// Makes the peer from its key.
    fn unpacked(
        ucx: &'static Ucx,
        endpoint: ucp_ep_h,
        peer_address: &PutAddress,
        key_bytes: &[u8],
        why: &dyn Fn() -> String,
    ) -> Result<Unpacked, Cause> {
        let mut key = ptr::null_mut();
        // SAFETY: the UCX endpoint is connected, the key was made by UCX of this version (`super::address`), with
        // zeroes behind it, and `key` is a local for the result.
        match unsafe { ucx.ucp_ep_rkey_unpack(endpoint, key_bytes.as_ptr().cast(), &mut key) } {
            UCS_OK => {}
            status => {
                return Err(Cause::System(format!(
                    "UCX cannot use the peer's key to its memory ({}): {}",
                    words(ucx, status),
                    why()
                )));
            }
        }
        let (address, len, barriers) =
            (peer_address.address, peer_address.len as usize, peer_address.barriers);
        let apart = String::new();
        let peer = Peer { ucx, endpoint, key, address, len, mapped: None, barriers, apart, listed: None };
        let mut start = ptr::null_mut();
        // SAFETY: the key was unpacked above, and `start` is a local for the pointer.
        let mapped = unsafe { ucx.ucp_rkey_ptr(key, address, &mut start) } == UCS_OK;
        Ok((peer, NonNull::new(start.cast::<u8>()).filter(|_| mapped)))
    }

    /// Returns the addresses of the region from `start` on, if it can lie there.
    fn range(&self, start: NonNull<u8>) -> Option<Range<usize>> {
        let from = start.addr().get();
        let end = from.checked_add(self.len).filter(|_| from.is_multiple_of(REGION_UNIT))?;
        Some(from..end)
    }

    /// Rejects the peer if UCX already reports emulated puts. The absence of a report is no proof (`proof.rs`).
    fn hear_of_emulation(&self) -> Result<(), Cause> {
        let lanes = self.lanes();
        match lanes.write_natively() {
            Some(true) => return Ok(()),
            Some(false) => return Err(self.emulated(None)),
            None => {}
        }
        // SAFETY: the UCX endpoint is connected, a region is at least a page, and the zeroes are static.
        let (request, how) = unsafe { self.put(ZEROS.as_ptr().cast(), size_of_val(&ZEROS)) };
        if UCS_PTR_IS_PTR(request) {
            // SAFETY: the request was not freed before. UCX continues the put as long as it has the endpoint.
            unsafe { self.ucx.ucp_request_free(request) };
        }
        match how {
            How::Emulated(said) => Err(self.emulated(Some(&said))),
            How::Native | How::Unknown => Ok(()),
        }
    }

    /// Puts `len` bytes at `zeros` to the start of the region. Returns UCX's result and description.
    ///
    /// # Safety
    /// The UCX endpoint is connected; the region has `len` bytes, and `zeros` is valid for `len` bytes as long as the
    /// put and the worker exist.
    pub(super) unsafe fn put(&self, zeros: *const c_void, len: usize) -> (ucs_status_ptr_t, How) {
        // SAFETY: zero is valid for all fields, numbers and pointers; UCX reads those that the mask names.
        let mut params: ucp_request_param_t = unsafe { MaybeUninit::zeroed().assume_init() };
        // Makes UCX return a request even for a put that completes at once.
        params.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
        // SAFETY: the caller guarantees endpoint, range and bytes.
        let request =
            unsafe { self.ucx.ucp_put_nbx(self.endpoint, zeros, len, self.address, self.key, &params) };
        // SAFETY: UCX has just returned `request` for a put.
        (request, unsafe { query::said(self.ucx, request) })
    }

    /// Returns the cause for rejecting a peer with emulated writes; `said` is UCX's description.
    pub(super) fn emulated(&self, said: Option<&str>) -> Cause {
        let said = said.map_or_else(String::new, |said| format!(" (UCX reports: {said})"));
        Cause::System(format!(
            "UCX would emulate writes to the peer's memory over {}{said}, which is slower than messages and lets each \
             process write anywhere in the other: {}. Use transport tcp",
            self.lanes().in_words(),
            self.apart
        ))
    }

    /// Returns the lanes of writes.
    pub(super) fn lanes(&self) -> Lanes {
        Lanes::of(self.ucx, self.endpoint)
    }
}

#[cfg(test)]
impl Peer {
    /// Makes a peer whose region only puts write, even if it could be mapped.
    pub(super) fn unmapped(worker: &Worker, peer_address: &PutAddress) -> Result<Peer, Cause> {
        let ucx = worker.ucx;
        let end = worker.connect(&peer_address.worker, || "unreachable".to_owned())?;
        let key_bytes = [&peer_address.key[..], &[0; BEHIND_KEY]].concat();
        let mut key = ptr::null_mut();
        // SAFETY: the UCX endpoint is connected, and the key is of this process's UCX, with zeroes behind it.
        match unsafe { ucx.ucp_ep_rkey_unpack(end, key_bytes.as_ptr().cast(), &mut key) } {
            UCS_OK => {}
            status => return Err(Cause::System(words(ucx, status))),
        }
        let (address, len, barriers) =
            (peer_address.address, peer_address.len as usize, peer_address.barriers);
        Ok(Peer {
            ucx,
            endpoint: end,
            key,
            address,
            len,
            mapped: None,
            barriers,
            apart: String::new(),
            listed: None,
        })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.listed = None;
        // SAFETY: unpacked by `reach`, and not used again.
        unsafe { self.ucx.ucp_rkey_destroy(self.key) };
    }
}
