//! Memory that a process lends by a key of UCX, and that its peer gets: only if devices carry all lanes between them.
//!
//! A key is the memory's address and length, 8 bytes each, and UCX's key behind them. Each loan has its own
//! registration, so its key gives access to these bytes and no others.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use farjump_core::transport::{Cause, Lender, Loan, MAX_LOAN_KEY, Operation, ReadBytes, TransportError};
use farjump_ucx_sys::{
    UCP_OP_ATTR_FLAG_NO_IMM_CMPL, UCS_INPROGRESS, UCS_OK, UCS_PTR_IS_PTR, Ucx, ucp_ep_h, ucp_request_param_t,
    ucp_rkey_h, ucs_status_ptr_t,
};

use super::error;
use super::query::{self, How};
use super::region::{LentMemory, Region};
use super::remote_region::BEHIND_KEY;
use crate::read_memory::{ReadMemory, SpareMemory};
use crate::region_len;
use crate::ucx::context::Context;
use crate::ucx::lanes::Lanes;
use crate::ucx::worker::{Worker, status_of};
use crate::ucx::{moving, words};

/// Most bytes of one get.
const PART: usize = 4 << 20;
/// Bytes before UCX's key.
const HEAD: usize = 16;

/// Lends memory by registering it with UCX.
pub(super) struct PutLender {
    pub(super) context: &'static Context,
}

impl Lender for PutLender {
    unsafe fn lend(&mut self, start: NonNull<u8>, len: usize) -> Result<Loan, TransportError> {
        let failed = |cause| error(Operation::Lend, cause);
        // SAFETY: the caller keeps the bytes mapped until the loan is dropped (`Lender::lend`).
        let memory = unsafe { LentMemory::register(self.context, start, len) }.map_err(failed)?;
        let mut key = Vec::new();
        key.extend((start.addr().get() as u64).to_le_bytes());
        key.extend((len as u64).to_le_bytes());
        key.extend(memory.key().map_err(failed)?);
        if key.len() > MAX_LOAN_KEY {
            return Err(failed(Cause::Unsupported("so long a key of UCX")));
        }
        Ok(Loan::new(key, Box::new(memory)))
    }
}

// SAFETY: the value owns its memory, which any thread may read.
unsafe impl ReadMemory for Region {
    fn start(&self) -> NonNull<u8> {
        self.base()
    }

    fn len(&self) -> usize {
        self.len()
    }
}

/// The reads of one UCX endpoint. They end when the endpoint is closed ([`Gets::end`]). Dropped after the worker,
/// because UCX may write the memory until then.
#[derive(Default)]
pub(super) struct Gets {
    in_flight: Option<Get>,
    spare: SpareMemory<Region>,
}

/// A read under way.
struct Get {
    ucx: &'static Ucx,
    memory: Region,
    key: ucp_rkey_h,
    /// Start of the memory, at the peer.
    address: u64,
    len: usize,
    /// Number of bytes that have arrived.
    done: usize,
    /// UCX's request for the next bytes, and their number.
    request: Option<(ucs_status_ptr_t, usize)>,
    /// UCX's description, if the read is not native.
    emulated: Option<String>,
}

impl Gets {
    /// Starts to read `len` bytes of the memory that the peer at `end` lent by `key`.
    pub(super) fn start(
        &mut self,
        worker: &Worker,
        endpoint: ucp_ep_h,
        key: &[u8],
        len: usize,
    ) -> Result<(), Cause> {
        let (address, key) = decode(key, len)?;
        if self.in_flight.is_some() && self.poll(worker, endpoint)?.is_none() {
            return Err(Cause::Full);
        }
        let ucx = worker.ucx;
        // With a key whose memory UCX would reach by shared memory, UCX could read memory of this process instead.
        let lanes = Lanes::of(ucx, endpoint);
        if !lanes.are_devices() {
            return Err(Cause::Unsupported("a native get over lanes that are not all of a device"));
        }
        let memory = match self.spare.take(len) {
            Some(memory) => memory,
            None => {
                let context = Context::for_memory().map_err(Cause::System)?;
                Region::create(context, region_len::for_read(len)?)?
            }
        };
        let key_bytes = [key, &[0; BEHIND_KEY]].concat();
        let mut key = ptr::null_mut();
        // SAFETY: the UCX endpoint is connected, the key was made by UCX of this version (`address.rs`) or is a lie,
        // has zeroes behind it, and `key` is a local for the result.
        match unsafe { ucx.ucp_ep_rkey_unpack(endpoint, key_bytes.as_ptr().cast(), &mut key) } {
            UCS_OK => {}
            status => {
                let what = format!("UCX cannot use its key ({})", words(ucx, status));
                return Err(Cause::Address(what));
            }
        }
        let get = Get { ucx, memory, key, address, len, done: 0, request: None, emulated: None };
        self.in_flight.insert(get).get_next_part(endpoint)
    }

    /// The bytes of the read under way, if all have arrived.
    pub(super) fn poll(&mut self, worker: &Worker, endpoint: ucp_ep_h) -> Result<Option<ReadBytes>, Cause> {
        worker.progress();
        let Some(get) = &mut self.in_flight else { return Ok(None) };
        if !get.look()? {
            return Ok(None);
        }
        if get.emulated.is_none() && get.done < get.len {
            get.get_next_part(endpoint)?;
            return Ok(None);
        }
        let Some(mut get) = self.in_flight.take() else { return Ok(None) };
        if let Some(how) = get.emulated.take() {
            get.close();
            log::debug!("ucx-put: memory of the peer is not read natively, but by {how}");
            return Err(Cause::Unsupported("a native get of that memory"));
        }
        get.close();
        let Get { memory, len, .. } = get;
        // SAFETY: UCX is done with the memory, which has at least `len` bytes.
        Ok(Some(unsafe { self.spare.lend(memory, len) }))
    }

    /// Ends the read under way, whose endpoint is closed. Its memory stays until this value is dropped.
    pub(super) fn end(&mut self) {
        if let Some(get) = &mut self.in_flight {
            get.close();
        }
    }
}

/// Decodes a peer's key to memory of `len` bytes or more: its address, and UCX's key.
fn decode(bytes: &[u8], len: usize) -> Result<(u64, &[u8]), Cause> {
    let wrong = |what: String| Cause::Address(format!("the key of its memory {what}"));
    let Some((head, key)) = bytes.split_first_chunk::<HEAD>().filter(|(_, key)| !key.is_empty()) else {
        return Err(wrong(format!("has {} bytes", bytes.len())));
    };
    if bytes.len() > MAX_LOAN_KEY {
        return Err(wrong(format!("has {} bytes, and at most {MAX_LOAN_KEY} make sense", bytes.len())));
    }
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| head[at + byte]));
    let (address, lent) = (word(0), word(8));
    if lent < len as u64 || address.checked_add(lent).is_none() {
        return Err(wrong(format!("is for {lent} bytes at {address:#x}, not {len}")));
    }
    Ok((address, key))
}

impl Get {
    /// Frees its resources of UCX. It must not be used for reading afterwards.
    fn close(&mut self) {
        if let Some((request, _)) = self.request.take() {
            // SAFETY: the request was not freed before. UCX continues the read as long as it has the endpoint.
            unsafe { self.ucx.ucp_request_free(request) };
        }
        let key = std::mem::replace(&mut self.key, ptr::null_mut());
        if !key.is_null() {
            // SAFETY: unpacked by `Gets::start`, and not used again.
            unsafe { self.ucx.ucp_rkey_destroy(key) };
        }
    }

    /// Gets the next part. No request is under way.
    fn get_next_part(&mut self, endpoint: ucp_ep_h) -> Result<(), Cause> {
        let len = (self.len - self.done).min(PART);
        // SAFETY: zero is valid for all fields, numbers and pointers; UCX reads those that the mask names.
        let mut params: ucp_request_param_t = unsafe { MaybeUninit::zeroed().assume_init() };
        // Makes UCX return a request even for a get that completes at once, to query its description.
        params.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
        // SAFETY: the UCX endpoint is connected, and the key was unpacked for it. `done + len` is at most the length of
        // the memory, which is kept until the request is done, or until after the endpoint is closed.
        let request = unsafe {
            let into = self.memory.base().as_ptr().add(self.done).cast::<c_void>();
            self.ucx.ucp_get_nbx(endpoint, into, len, self.address + self.done as u64, self.key, &params)
        };
        if UCS_PTR_IS_PTR(request) {
            self.request = Some((request, len));
            // SAFETY: UCX has just returned `request` for a get.
            if let How::Emulated(how) = unsafe { query::said(self.ucx, request) } {
                self.emulated = Some(how);
            }
            return Ok(());
        }
        match status_of(self.ucx, request) {
            UCS_OK => {
                self.done += len;
                Ok(())
            }
            status => Err(moving(self.ucx, status)),
        }
    }

    /// Returns whether no request is under way, after handling a finished one.
    fn look(&mut self) -> Result<bool, Cause> {
        let Some((request, len)) = self.request else { return Ok(true) };
        let status = status_of(self.ucx, request);
        if status == UCS_INPROGRESS {
            return Ok(false);
        }
        self.request = None;
        // SAFETY: the request was not freed before, and is dropped here.
        unsafe { self.ucx.ucp_request_free(request) };
        match status {
            UCS_OK => self.done += len,
            status => return Err(moving(self.ucx, status)),
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_checked_against_what_is_to_be_read() {
        let mut bytes = [0x7000_0000_1000_u64.to_le_bytes(), 4096_u64.to_le_bytes()].concat();
        let wrong = |bytes: &[u8], len: usize| match decode(bytes, len) {
            Err(Cause::Address(what)) => what,
            other => panic!("{other:?}"),
        };
        assert!(wrong(&bytes, 1).contains("has 16 bytes"), "UCX's key is missing");
        bytes.push(7);
        assert_eq!(decode(&bytes, 4096), Ok((0x7000_0000_1000, &[7][..])));
        assert!(wrong(&bytes, 4097).contains("4096 bytes at 0x700000001000, not 4097"));
        bytes[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(wrong(&bytes, 1).contains("4096 bytes"));
        bytes.resize(MAX_LOAN_KEY + 1, 0);
        assert!(wrong(&bytes, 1).contains("has 1025 bytes"));
    }
}
