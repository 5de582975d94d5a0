//! `shm`: memory shared between two processes of one machine.
//!
//! Each side makes its own region in a memfd and hands it over the control connection together with a socket that wakes
//! it. Frames are plain stores, the signal last with release; nothing of the system is called while both sides are awake.
//!
//! An address is 16 bytes, little-endian: version (`u16`, 2), flags (`u16`: bit 0, barriers that others call reach this
//! process; bit 1, it calls one before it sleeps), zero (`u32`), length of the region (`u64`). Beside it go two
//! descriptors: the region's memfd and the socket by which the doorbell is rung.

mod doorbell;
mod region;

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use farjump_core::frame::{LINE, MAX_FRAME};
use farjump_core::shared::copy_in;
use farjump_core::transport::{
    Address, ArrivalRules, Capabilities, Cause, Endpoint, FaultsNoticed, InboxKind, LocalAddress,
    LocalMemory, OpenRequest, Opening, Operation, RemoteMemory, Threading, Transport, TransportError,
    WakeSource,
};
use farjump_os::deferred_close::DeferredFd;

use doorbell::{Button, Doorbell};
use region::Region;

use crate::barrier::{self, Barriers};
use crate::twin::Twin;

/// The backend's name.
pub const NAME: &str = "shm";
/// Alignment of a region and what its length is a multiple of, in bytes.
pub const PAGE: usize = 4096;
/// Longest region, in bytes: a control page, and a ring of the longest frame that the format can express.
pub const MAX_REGION: usize = PAGE + MAX_FRAME;

const ADDRESS_VERSION: u16 = 2;
const ADDRESS_LEN: usize = 16;

/// The backend. It holds nothing: all state is in the ends it makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shm;

impl Shm {
    /// A backend.
    pub const fn new() -> Shm {
        Shm
    }

    /// Whether it works on this machine: what it can do, or why it cannot and the mend.
    ///
    /// # Errors
    /// A sentence for people.
    pub fn usable() -> Result<Capabilities, String> {
        Region::create(PAGE, PAGE).map(|_| Shm.capabilities()).map_err(|cause| {
            format!("{cause}: it needs Linux 3.17 or later and a sandbox that allows memfd_create and mmap")
        })
    }
}

impl Transport for Shm {
    fn name(&self) -> &str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        let arrival = ArrivalRules::STORES | ArrivalRules::FENCED | ArrivalRules::CHECKED;
        // Half of the longest ring: a frame of half a ring always finds room in it, whatever lies before.
        let mut capabilities = Capabilities::new(InboxKind::OneSided, arrival, MAX_FRAME / 2);
        capabilities.max_inline = LINE;
        capabilities.alignment = PAGE;
        capabilities.line_whole = true;
        capabilities.faults = FaultsNoticed::empty();
        capabilities.wake = WakeSource::Descriptor;
        capabilities.threading = Threading::PerEndpoint;
        capabilities.in_place = true;
        capabilities.descriptors = true;
        capabilities
    }

    fn open(&mut self, request: &OpenRequest) -> Result<Box<dyn Opening>, TransportError> {
        let failed = |cause| error(Operation::Open, cause);
        let max_frame = self.capabilities().max_frame;
        if request.max_frame > max_frame {
            return Err(failed(Cause::TooLarge { len: request.max_frame, max: max_frame }));
        }
        Ok(Box::new(ShmOpening {
            region: Region::create(request.region_len, request.at_once).map_err(failed)?,
            doorbell: Doorbell::create().map_err(failed)?,
            barriers: Barriers::of_this_process(),
        }))
    }
}

/// One end before the peer's address is known.
struct ShmOpening {
    region: Region,
    doorbell: Doorbell,
    barriers: Barriers,
}

impl Opening for ShmOpening {
    fn address(&self) -> LocalAddress<'_> {
        let mut bytes = [0; ADDRESS_LEN];
        bytes[..2].copy_from_slice(&ADDRESS_VERSION.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.barriers.bits().to_le_bytes());
        bytes[8..].copy_from_slice(&(self.region.len() as u64).to_le_bytes());
        let descriptors = [self.region.memfd(), self.doorbell.button()];
        LocalAddress { bytes: bytes.to_vec(), descriptors: descriptors.to_vec() }
    }

    fn connect(self: Box<Self>, peer: Address, _deadline_ms: u32) -> Result<Endpoint, TransportError> {
        // From here on, whatever fails: to close what a peer sent may take its time, and nobody waits for it.
        let descriptors: Vec<DeferredFd> = peer.descriptors.into_iter().map(DeferredFd::from).collect();
        let failed = |cause| error(Operation::Connect, cause);
        let (len, theirs) = read_address(&peer.bytes).map_err(failed)?;
        let count = descriptors.len();
        let [memfd, button] = <[DeferredFd; 2]>::try_from(descriptors).map_err(|_| {
            failed(Cause::Address(format!(
                "{count} descriptors came with it and it has 2; it must come over a Unix socket"
            )))
        })?;
        let region = Region::of_peer(memfd, len).map_err(failed)?;
        let bell = Button::of_peer(button).map_err(failed)?;
        let ours = self.barriers;
        Ok(Endpoint::OneSided {
            local: Box::new(ShmLocal {
                twin: None,
                region: self.region,
                doorbell: self.doorbell,
                // The peer decides by the same two flags whether it leaves its fence out.
                peer_has_no_fence: barrier::spares_fence(theirs, ours),
            }),
            remote: Box::new(ShmRemote { region, bell, no_fence: barrier::spares_fence(ours, theirs) }),
        })
    }
}

/// The peer's region, mapped here.
struct ShmRemote {
    region: Region,
    bell: Button,
    no_fence: bool,
}

impl ShmRemote {
    /// Where `len` bytes at `offset` lie, if they are all inside.
    fn at(&self, offset: usize, len: usize, frame: u64) -> Result<NonNull<u8>, TransportError> {
        let region = self.region.len();
        match offset.checked_add(len) {
            // SAFETY: `offset` is at most the length of the mapping, which `self.region` holds.
            Some(end) if end <= region => Ok(unsafe { self.region.base().add(offset) }),
            _ => Err(error(Operation::Put, Cause::OutOfRegion { offset, len, region }).with_frame(frame)),
        }
    }
}

// SAFETY: `Region` keeps its mapping until it is dropped, page-aligned, readable and writable over its whole length, and has
// checked that the memfd behind it cannot shrink.
unsafe impl RemoteMemory for ShmRemote {
    fn len(&self) -> usize {
        self.region.len()
    }

    fn mapped(&self) -> Option<NonNull<u8>> {
        Some(self.region.base())
    }

    // Core uses the mapping and calls none of the next three. They serve middleware that hides the mapping to see what
    // passes.

    fn put(&mut self, offset: usize, bytes: &[u8], frame: u64) -> Result<(), TransportError> {
        let to = self.at(offset, bytes.len(), frame)?;
        // SAFETY: `at` has checked that all of it lies in the mapping, and a mapping of another process's region does not
        // overlap memory that a slice of this one borrows. The peer may read or write the same bytes at any time; it
        // looks at them only behind a signal that `put_word` stores later with release.
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
        // SAFETY: eight bytes of the mapping, aligned because base and offset are; both processes access the words that
        // core puts this way by atomics only.
        let to = unsafe { AtomicU64::from_ptr(to.as_ptr().cast()) };
        // Pairs with the acquire load by which the peer's core looks for a signal or a credit.
        to.store(word.to_le(), Ordering::Release);
        Ok(())
    }

    fn fence(&mut self) -> Result<(), TransportError> {
        // Pairs with the peer's acquire load of what is put after it.
        fence(Ordering::Release);
        Ok(())
    }

    fn ring(&mut self) -> Result<(), TransportError> {
        self.bell.ring().map_err(|cause| error(Operation::Wake, cause))
    }

    fn store_load_ordered(&self) -> bool {
        self.no_fence
    }
}

/// The region of this side.
struct ShmLocal {
    /// The same memory, executable, once that was asked for.
    twin: Option<Twin>,
    region: Region,
    doorbell: Doorbell,
    /// The peer has no fence between storing a frame and looking whether this side sleeps.
    peer_has_no_fence: bool,
}

// SAFETY: as above; a new memfd is zero, and nobody but the peer gets its descriptor.
unsafe impl LocalMemory for ShmLocal {
    fn base(&self) -> NonNull<u8> {
        self.region.base()
    }

    fn len(&self) -> usize {
        self.region.len()
    }

    fn executable(&mut self) -> Result<NonNull<u8>, TransportError> {
        // SAFETY: a region is whole pages of shared memory, mapped as long as this value.
        unsafe { Twin::kept(&mut self.twin, self.region.base(), self.region.len()) }
            .map_err(|cause| error(Operation::Open, cause))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.doorbell.descriptor())
    }

    fn before_sleep(&mut self) -> Result<bool, TransportError> {
        // Rings of frames that have been seen go first. One that is taken away here belongs to a frame stored before it,
        // so core's look for a frame, which follows, finds that frame.
        self.after_sleep()?;
        Ok(barrier::between_sleeping_and_looking(self.peer_has_no_fence))
    }

    fn after_sleep(&mut self) -> Result<(), TransportError> {
        self.doorbell.silence().map_err(|cause| error(Operation::Wake, cause))
    }
}

/// The region's length and the peer's barriers, from an address that anybody may have written.
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
