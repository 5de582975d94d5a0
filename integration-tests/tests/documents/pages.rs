//! A one-sided backend: memory that both processes map. `docs/guide/writing-a-transport.md` builds it.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use farjump_core::frame::MAX_FRAME;
use farjump_core::transport::{
    Address, ArrivalRules, Capabilities, Cause, Endpoint, InboxKind, LocalAddress, LocalMemory, OpenRequest,
    Operation, RemoteMemory, Transport, TransportError, UnconnectedEndpoint,
};
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};

pub(crate) struct Pages;

impl Transport for Pages {
    fn name(&self) -> &str {
        "pages"
    }

    fn capabilities(&self) -> Capabilities {
        let rules = ArrivalRules::FENCED | ArrivalRules::CHECKED;
        let mut can = Capabilities::new(InboxKind::OneSided, rules, MAX_FRAME / 2);
        can.descriptors = true;
        can
    }

    fn open(&mut self, request: &OpenRequest) -> Result<Box<dyn UnconnectedEndpoint>, TransportError> {
        let region = Region::create(request.region_len).map_err(|cause| failed(Operation::Open, cause))?;
        Ok(Box::new(UnconnectedPages(region)))
    }
}

struct UnconnectedPages(Region);

impl UnconnectedEndpoint for UnconnectedPages {
    fn address(&self) -> LocalAddress<'_> {
        let bytes = (self.0.map.len() as u64).to_le_bytes().to_vec();
        LocalAddress { bytes, descriptors: vec![self.0.memfd.as_fd()] }
    }

    fn connect(self: Box<Self>, peer: Address, _deadline_ms: u32) -> Result<Endpoint, TransportError> {
        let mut descriptors = peer.descriptors;
        let odd = || failed(Operation::Connect, Cause::Address("it is not one of pages".into()));
        let len = peer.bytes.try_into().map(u64::from_le_bytes).map_err(|_| odd())?;
        let memfd = descriptors.pop().filter(|_| descriptors.is_empty()).ok_or_else(odd)?;
        let region = Region::of_peer(memfd, len).map_err(|cause| failed(Operation::Connect, cause))?;
        Ok(Endpoint::OneSided { local: Box::new(PagesLocal(self.0)), remote: Box::new(PagesRemote(region)) })
    }
}

/// A memfd, mapped. It cannot shrink, so no access to it faults.
struct Region {
    map: MmapRaw,
    memfd: OwnedFd,
}

impl Region {
    fn create(len: usize) -> Result<Region, Cause> {
        let system = |error: rustix::io::Errno| Cause::System(error.to_string());
        let memfd = memfd_create("pages", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map_err(system)?;
        ftruncate(&memfd, len as u64).map_err(system)?;
        fcntl_add_seals(&memfd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).map_err(system)?;
        Region::map(memfd, len)
    }

    /// Maps the peer's memory. Trusts nothing that the peer claims: neither that it sent a memfd, nor its
    /// length, nor that the length stays.
    fn of_peer(memfd: OwnedFd, len: u64) -> Result<Region, Cause> {
        let wrong = |what: &str| Cause::Address(format!("its memory {what}"));
        let seals = fcntl_get_seals(&memfd).map_err(|_| wrong("is no memfd"))?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(wrong("could shrink at any time"));
        }
        let found = fstat(&memfd).map_err(|error| Cause::System(error.to_string()))?.st_size;
        let len = usize::try_from(len).ok().filter(|len| *len != 0 && found as u64 == *len as u64);
        Region::map(memfd, len.ok_or_else(|| wrong("is not as long as it says"))?)
    }

    fn map(memfd: OwnedFd, len: usize) -> Result<Region, Cause> {
        let map = MmapOptions::new().len(len).map_raw(&memfd);
        Ok(Region { map: map.map_err(|error| Cause::System(error.to_string()))?, memfd })
    }
}

struct PagesLocal(Region);

// SAFETY: the mapping lasts as long as the value, starts on a page, is readable and writable, and its memfd
// is sealed against shrinking. A new memfd is zero, and only the peer gets it.
unsafe impl LocalMemory for PagesLocal {
    fn base(&self) -> NonNull<u8> {
        NonNull::new(self.0.map.as_mut_ptr()).expect("nothing is mapped at address 0")
    }

    fn len(&self) -> usize {
        self.0.map.len()
    }
}

struct PagesRemote(Region);

impl PagesRemote {
    /// The address of `len` bytes at `offset`, if they are all inside.
    fn at(&self, offset: usize, len: usize, frame: u64) -> Result<*mut u8, TransportError> {
        let region = self.0.map.len();
        if offset.checked_add(len).is_none_or(|end| end > region) {
            let cause = Cause::OutOfRegion { offset, len, region };
            return Err(failed(Operation::Put, cause).with_frame(frame));
        }
        Ok(self.0.map.as_mut_ptr().wrapping_add(offset))
    }
}

// SAFETY: `mapped` is not implemented, so nothing is guaranteed about it.
unsafe impl RemoteMemory for PagesRemote {
    fn len(&self) -> usize {
        self.0.map.len()
    }

    fn put(&mut self, offset: usize, bytes: &[u8], frame: u64) -> Result<(), TransportError> {
        let to = self.at(offset, bytes.len(), frame)?;
        // SAFETY: `at` found all of it inside the mapping, which no slice of this process overlaps. The peer
        // polls these bytes only behind a word that `put_word` stores later.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    fn put_word(&mut self, offset: usize, word: u64, frame: u64) -> Result<(), TransportError> {
        let to = self.at(offset, size_of::<u64>(), frame)?;
        if !offset.is_multiple_of(size_of::<u64>()) {
            let cause = Cause::System(format!("a word at offset {offset}, which is no multiple of 8"));
            return Err(failed(Operation::Put, cause).with_frame(frame));
        }
        // SAFETY: inside the mapping, and aligned, as was just checked. Both peers use atomics for words.
        let to = unsafe { AtomicU64::from_ptr(to.cast()) };
        // Pairs with the acquire load by which the peer's core polls for it.
        to.store(word.to_le(), Ordering::Release);
        Ok(())
    }

    fn fence(&mut self) -> Result<(), TransportError> {
        fence(Ordering::Release);
        Ok(())
    }
}

fn failed(operation: Operation, cause: Cause) -> TransportError {
    TransportError::new("pages", operation, cause)
}
