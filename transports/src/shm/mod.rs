//! `shm`: memory shared between two processes of one machine.
//!
//! Each process makes its own region in a memfd and sends it over the control connection, together with a
//! socket that wakes it. Frames are plain stores, the signal last with release. There are no system calls
//! while both processes are awake.
//!
//! An endpoint address is 16 bytes, little-endian: version (`u16`, 2), flags (`u16`: bit 0, barriers of other
//! processes reach this one; bit 1, it calls one before it sleeps), zero (`u32`), length of the region
//! (`u64`). Two descriptors travel with it: the region's memfd and the socket that wakes this process.

mod doorbell;
mod region;

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use farjump_core::frame::MAX_FRAME;
use farjump_core::mailbox::CONTROL_LEN;
use farjump_core::shared::copy_in;
use farjump_core::transport::{
    Address, ArrivalRules, Capabilities, Cause, Endpoint, InboxKind, LocalAddress, LocalMemory, OpenRequest,
    Operation, REGION_UNIT, RemoteMemory, Transport, TransportError, UnconnectedEndpoint,
};
use farjump_os::Owner;
use farjump_os::deferred_close::DeferredFd;

use doorbell::{Button, Doorbell};
use region::{Pages, Region};

use crate::executable_alias::ExecutableAlias;
use crate::fork;
use crate::membarrier::{self, Barriers};

/// The backend's name.
pub const NAME: &str = "shm";
/// Longest region, in bytes: a control page, and a ring of the longest frame that the format can express.
pub const MAX_REGION: usize = CONTROL_LEN + MAX_FRAME;

const ADDRESS_VERSION: u16 = 2;
const ADDRESS_LEN: usize = 16;

/// The backend. It has no state: all state is in its endpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shm;

impl Shm {
    /// Makes a backend.
    pub const fn new() -> Shm {
        Shm
    }

    /// The backend's capabilities on this machine.
    ///
    /// # Errors
    /// A sentence with the reason why it does not work, and a remedy.
    pub fn usable() -> Result<Capabilities, String> {
        Region::create(REGION_UNIT, REGION_UNIT, Pages::Ordinary).map(|_| Shm.capabilities()).map_err(
            |cause| {
                format!(
                    "{cause}: it needs Linux 3.17 or later and a sandbox that allows memfd_create and mmap"
                )
            },
        )
    }
}

impl Transport for Shm {
    fn name(&self) -> &str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        let arrival = ArrivalRules::STORES | ArrivalRules::FENCED | ArrivalRules::CHECKED;
        // Half of the longest ring: a frame of half a ring always fits, whatever precedes it.
        let mut capabilities = Capabilities::new(InboxKind::OneSided, arrival, MAX_FRAME / 2);
        capabilities.line_whole = true;
        capabilities.in_place = true;
        capabilities.descriptors = true;
        capabilities
    }

    fn open(&mut self, request: &OpenRequest) -> Result<Box<dyn UnconnectedEndpoint>, TransportError> {
        let failed = |cause| error(Operation::Open, cause);
        let max_frame = self.capabilities().max_frame;
        if request.max_frame > max_frame {
            return Err(failed(Cause::TooLarge { len: request.max_frame, max: max_frame }));
        }
        let whole = request.is_second || request.at_once >= request.region_len;
        let pages = if whole { Pages::Huge } else { Pages::Ordinary };
        Ok(Box::new(UnconnectedShm {
            region: Region::create(request.region_len, request.at_once, pages).map_err(failed)?,
            pages,
            doorbell: Doorbell::create().map_err(failed)?,
            barriers: Barriers::of_this_process(),
        }))
    }
}

/// An unconnected endpoint.
struct UnconnectedShm {
    region: Region,
    pages: Pages,
    doorbell: Doorbell,
    barriers: Barriers,
}

impl UnconnectedEndpoint for UnconnectedShm {
    fn address(&self) -> LocalAddress<'_> {
        let mut bytes = [0; ADDRESS_LEN];
        bytes[..2].copy_from_slice(&ADDRESS_VERSION.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.barriers.bits().to_le_bytes());
        bytes[8..].copy_from_slice(&(self.region.len() as u64).to_le_bytes());
        let descriptors = [self.region.memfd(), self.doorbell.button()];
        LocalAddress { bytes: bytes.to_vec(), descriptors: descriptors.to_vec() }
    }

    fn connect(self: Box<Self>, peer: Address, _deadline_ms: u32) -> Result<Endpoint, TransportError> {
        // Deferred from here on, also after errors: closing a peer's descriptor may be slow, and nothing
        // should wait for it.
        let descriptors: Vec<DeferredFd> = peer.descriptors.into_iter().map(DeferredFd::from).collect();
        let failed = |cause| error(Operation::Connect, cause);
        let (len, theirs) = read_address(&peer.bytes).map_err(failed)?;
        let count = descriptors.len();
        let [memfd, button] = <[DeferredFd; 2]>::try_from(descriptors).map_err(|_| {
            failed(Cause::Address(format!(
                "{count} descriptors came with it and it has 2; it must come over a Unix socket"
            )))
        })?;
        let region = Region::of_peer(memfd, len, self.pages).map_err(failed)?;
        let bell = Button::of_peer(button).map_err(failed)?;
        let ours = self.barriers;
        Ok(Endpoint::OneSided {
            local: Box::new(ShmLocal {
                alias: None,
                region: self.region,
                doorbell: self.doorbell,
                // The peer decides by the same two flags whether to omit its fence.
                peer_has_no_fence: membarrier::spares_fence(theirs, ours),
            }),
            remote: Box::new(ShmRemote {
                region,
                bell,
                no_fence: membarrier::spares_fence(ours, theirs),
                owner: Owner::this(),
            }),
        })
    }
}

/// The peer's region, mapped here.
struct ShmRemote {
    region: Region,
    bell: Button,
    no_fence: bool,
    owner: Owner,
}

impl ShmRemote {
    /// Address of `len` bytes at `offset`, if they are all inside.
    fn at(&self, offset: usize, len: usize, frame: u64) -> Result<NonNull<u8>, TransportError> {
        let region = self.region.len();
        match offset.checked_add(len) {
            // SAFETY: `offset` is at most the length of the mapping, which `self.region` holds.
            Some(end) if end <= region => Ok(unsafe { self.region.base().add(offset) }),
            _ => Err(error(Operation::Put, Cause::OutOfRegion { offset, len, region }).with_frame(frame)),
        }
    }
}

// SAFETY: `Region` keeps its mapping until it is dropped, page-aligned and readable and writable over its
// whole length, and has checked that the memfd behind it cannot shrink.
unsafe impl RemoteMemory for ShmRemote {
    fn len(&self) -> usize {
        self.region.len()
    }

    fn mapped(&self) -> Option<NonNull<u8>> {
        Some(self.region.base())
    }

    // Core uses the mapping and calls none of the next three. They exist for middleware that hides the
    // mapping to observe the traffic.

    fn put(&mut self, offset: usize, bytes: &[u8], frame: u64) -> Result<(), TransportError> {
        let to = self.at(offset, bytes.len(), frame)?;
        // SAFETY: `at` has checked that the range lies in the mapping, and a mapping of another process's
        // region does not overlap memory that a slice of this process borrows. The peer may read or write the
        // same bytes at any time; it polls them only behind a signal that `put_word` stores later with
        // release.
        unsafe { copy_in(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
        Ok(())
    }

    fn put_word(&mut self, offset: usize, word: u64, frame: u64) -> Result<(), TransportError> {
        if !offset.is_multiple_of(size_of::<u64>()) {
            return Err(
                error(Operation::Put, Cause::Unsupported("a word that is not aligned")).with_frame(frame)
            );
        }
        let to = self.at(offset, size_of::<u64>(), frame)?;
        // SAFETY: eight bytes of the mapping, aligned because base and offset are. Both processes access the
        // words that core puts this way only by atomics.
        let to = unsafe { AtomicU64::from_ptr(to.as_ptr().cast()) };
        // Pairs with the acquire load by which the peer's core polls a signal or credit.
        to.store(word.to_le(), Ordering::Release);
        Ok(())
    }

    fn fence(&mut self) -> Result<(), TransportError> {
        // Pairs with the peer's acquire load of later puts.
        fence(Ordering::Release);
        Ok(())
    }

    fn wake_peer(&mut self) -> Result<(), TransportError> {
        if !self.owner.is_this() {
            return Err(error(Operation::Wake, fork::refused()));
        }
        self.bell.wake().map_err(|cause| error(Operation::Wake, cause))
    }

    fn store_load_ordered(&self) -> bool {
        self.no_fence
    }
}

/// This process's region.
struct ShmLocal {
    /// The executable alias, once requested.
    alias: Option<ExecutableAlias>,
    region: Region,
    doorbell: Doorbell,
    /// True if the peer has no fence between storing a frame and checking whether this process sleeps.
    peer_has_no_fence: bool,
}

// SAFETY: `Region` keeps its mapping until it is dropped, page-aligned. A new memfd is zero, and only the
// peer gets its descriptor.
unsafe impl LocalMemory for ShmLocal {
    fn base(&self) -> NonNull<u8> {
        self.region.base()
    }

    fn len(&self) -> usize {
        self.region.len()
    }

    fn executable(&mut self) -> Result<NonNull<u8>, TransportError> {
        // SAFETY: a region is whole pages of shared memory, mapped as long as this value.
        unsafe {
            ExecutableAlias::kept(
                &mut self.alias,
                self.region.base(),
                self.region.len(),
                Some(self.region.memfd()),
            )
        }
        .map_err(|cause| error(Operation::Open, cause))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.doorbell.descriptor())
    }

    fn stays_armed(&self) -> bool {
        true
    }

    fn before_sleep(&mut self) -> Result<bool, TransportError> {
        // Wake-ups of earlier frames are discarded first. A discarded wake-up belongs to a frame stored
        // before it, so core's poll, which follows, finds that frame.
        self.after_sleep()?;
        Ok(membarrier::between_sleeping_and_looking(self.peer_has_no_fence))
    }

    fn after_sleep(&mut self) -> Result<(), TransportError> {
        self.doorbell.silence().map_err(|cause| error(Operation::Wake, cause))
    }
}

/// Parses the region's length and the peer's barriers from an untrusted address.
fn read_address(bytes: &[u8]) -> Result<(usize, Barriers), Cause> {
    let bytes: &[u8; ADDRESS_LEN] = bytes
        .try_into()
        .map_err(|_| Cause::Address(format!("it has {} bytes, not {ADDRESS_LEN}", bytes.len())))?;
    let [v, w, f, g, r @ .., a, b, c, d, e, h, i, j] = *bytes;
    let version = u16::from_le_bytes([v, w]);
    if version != ADDRESS_VERSION || r != [0; 4] {
        return Err(Cause::Address(format!("it is of version {version}, not {ADDRESS_VERSION}")));
    }
    let len = u64::from_le_bytes([a, b, c, d, e, h, i, j]);
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    Ok((len, Barriers::from_bits_truncate(u16::from_le_bytes([f, g]))))
}

fn error(operation: Operation, cause: Cause) -> TransportError {
    TransportError::new(NAME, operation, cause)
}
