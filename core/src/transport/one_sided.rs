//! One-sided endpoints: regions that the peer writes.

use alloc::boxed::Box;
use core::ptr::NonNull;

#[cfg(doc)]
use super::{ArrivalRules, Capabilities, REGION_UNIT};
use super::{BorrowedFd, Cause, Lender, Operation, PathInfo, Reads, TransportError};

/// The peer's region, as seen by the process that writes it.
///
/// # Safety
/// Core keeps the pointer that [`RemoteMemory::mapped`] returns, and writes through it. Until the value is
/// dropped, an implementation guarantees that this pointer is valid for reads and writes of
/// [`RemoteMemory::len`] bytes and aligned to [`REGION_UNIT`]. It points to memory that other processes may
/// write but that does not vanish (a mapped file must be sealed against shrinking). [`RemoteMemory::staging`]
/// returns memory as its documentation states.
pub unsafe trait RemoteMemory: Send {
    /// Length of the peer's region in bytes.
    fn len(&self) -> usize;

    /// Returns whether the region has no bytes; never true of a connected one.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Address of the region in this process, if it is mapped. Then core writes it with plain stores under
    /// [`ArrivalRules::STORES`], and uses only [`RemoteMemory::wake_peer`] and
    /// [`RemoteMemory::store_load_ordered`] of this trait. Under the other rules core does not request the
    /// mapping, and puts carry the bytes.
    fn mapped(&self) -> Option<NonNull<u8>> {
        None
    }

    /// Starts moving `bytes` to `offset` in the peer's region. The put may take effect at any time up to the
    /// completion of a later [`RemoteMemory::fence`], and in any order with other puts, even to the same
    /// bytes.
    ///
    /// Zero bytes are allowed and do nothing. `offset + bytes.len()` is at most [`RemoteMemory::len`]. Core
    /// checks this before the call, and a backend checks it again, because a put past the end corrupts a
    /// process (UCX over shared memory: the sender). `frame` is the position of the frame that the bytes
    /// belong to, for later errors.
    ///
    /// `bytes` stay unchanged until the peer has returned credit for them or this value is dropped, so they
    /// need not be copied. Bytes whose credit the peer has not returned when this value is dropped may never
    /// arrive.
    ///
    /// # Errors
    /// [`Cause::Full`] when the backend's queue is full and [`RemoteMemory::progress`] must be called first:
    /// nothing was written, and core calls again. Any other error is final for the link: core may make the same
    /// call once more, and it or [`RemoteMemory::progress`] fails again.
    fn put(&mut self, offset: usize, bytes: &[u8], frame: u64) -> Result<(), TransportError>;

    /// Writes one aligned word in one piece. Used for signals and credit. Otherwise like
    /// [`RemoteMemory::put`]; `word` is copied.
    ///
    /// # Errors
    /// Those of [`RemoteMemory::put`], and one for an `offset` that is no multiple of 8.
    fn put_word(&mut self, offset: usize, word: u64, frame: u64) -> Result<(), TransportError>;

    /// Orders every earlier put before every later one in the peer's memory. Does not wait.
    ///
    /// # Errors
    /// Final for the link.
    fn fence(&mut self) -> Result<(), TransportError>;

    /// Moves `bytes` like [`RemoteMemory::put`], and adds one to the peer's [`LocalMemory::completions`] once
    /// all of them are visible there. The completions follow the order of the calls: a count of `n` proves
    /// the first `n` of them. Only called under [`ArrivalRules::WRITE_IMM`].
    ///
    /// # Errors
    /// Those of [`RemoteMemory::put`]; [`Cause::Unsupported`] in a backend that does not list the rule.
    fn put_with_completion(&mut self, offset: usize, bytes: &[u8], frame: u64) -> Result<(), TransportError> {
        let _ = (offset, bytes, frame);
        Err(TransportError::new("this transport", Operation::Put, Cause::Unsupported("write with immediate")))
    }

    /// Lets the backend make progress: completions, retransmissions. Never waits. Called often while anything
    /// is outstanding.
    ///
    /// # Errors
    /// Failures of earlier puts, with the position of the frame.
    fn progress(&mut self) -> Result<(), TransportError> {
        Ok(())
    }

    /// Wakes the peer's receiver if it sleeps on [`LocalMemory::descriptor`]. Called after a frame only if
    /// the peer said that it sleeps, and once for each sleep. A wake-up does not overtake the puts before it,
    /// unless the peer's [`LocalMemory::before_sleep`] returns `false`. Otherwise a sleeper that discards a
    /// wake-up whose frame has not arrived would sleep through that frame. Does nothing without a wake
    /// source.
    ///
    /// # Errors
    /// Final for the link.
    fn wake_peer(&mut self) -> Result<(), TransportError> {
        Ok(())
    }

    /// Returns whether the peer's sleeper orders this endpoint's earlier stores before its later loads by its
    /// own means (`membarrier`). This endpoint then needs no fence between "store a frame" and "is the peer
    /// asleep?".
    fn store_load_ordered(&self) -> bool {
        false
    }

    /// The path of the writes. For people; may take long.
    fn path_info(&self) -> PathInfo {
        PathInfo::default()
    }

    /// Staging of `len` bytes, a multiple of [`REGION_UNIT`], for a backend that wants frames in memory of
    /// its own, such as memory registered with a device. Core lays out frames there and puts them from there.
    /// Aligned to that unit, zero, valid for core's reads and writes until this value is dropped. Core
    /// requests it once, when it makes a link over which it does not write the peer's memory by plain stores.
    /// The backend must carry out puts from other memory too. If the result is `None`, core uses ordinary
    /// memory.
    ///
    /// # Errors
    /// When the backend wants staging and there is not enough memory. Final for the link.
    fn staging(&mut self, len: usize) -> Result<Option<NonNull<u8>>, TransportError> {
        let _ = len;
        Ok(None)
    }

    /// Returns the reader of memory that the peer lent by [`LocalMemory::lender`]; `None` if this backend
    /// reads none, or none of this peer.
    fn reads(&mut self) -> Option<&mut dyn Reads> {
        None
    }
}

/// This endpoint's region, which the peer writes into.
///
/// # Safety
/// Core and the injected function keep the pointer that [`LocalMemory::base`] returns: core reads and the
/// function writes through it. An implementation guarantees that the pointer is valid for reads and writes of
/// [`LocalMemory::len`] bytes and aligned to [`REGION_UNIT`] until the value is dropped. The bytes were zero
/// when the endpoint was opened, and only the peer writes to them besides core. [`LocalMemory::executable`]
/// maps the same bytes, with the same length and alignment, until the value is dropped.
pub unsafe trait LocalMemory: Send {
    /// Start of the region.
    fn base(&self) -> NonNull<u8>;

    /// Length in bytes, a multiple of [`REGION_UNIT`], at least the requested one.
    fn len(&self) -> usize;

    /// Returns whether the region has no bytes; never true of an opened one.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Start of the executable alias: a second mapping of the same bytes that can be executed and not
    /// written. Made at the first call, the same from then on, with the length and alignment of the first
    /// mapping. Only called by a target that allows code to run in place.
    ///
    /// # Errors
    /// [`Cause::Unsupported`] without [`Capabilities::in_place`]. The system's error if it forbids the
    /// mapping. The link stays usable in both cases.
    fn executable(&mut self) -> Result<NonNull<u8>, TransportError> {
        Err(TransportError::new(
            "this transport",
            Operation::Open,
            Cause::Unsupported("an executable mailbox"),
        ))
    }

    /// Number of writes with completion that have arrived since the link was made. Only called under
    /// [`ArrivalRules::WRITE_IMM`].
    ///
    /// # Errors
    /// Final for the link.
    fn completions(&mut self) -> Result<u64, TransportError> {
        Ok(0)
    }

    /// The descriptor that becomes readable when the peer sends a wake-up; `None` if nothing can
    /// wake a sleeper, which then naps. The same for the life of the value.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Returns whether each wake-up makes the descriptor readable while this endpoint says that it sleeps,
    /// without another call of this value and whatever its process does meanwhile. If so, an idle endpoint
    /// may stay asleep while its process works.
    fn stays_armed(&self) -> bool {
        false
    }

    /// Called on the way to sleep, after core stored "asleep" in the peer's region and before it polls once
    /// more. Makes the two appear in that order to the peer (by a full fence, or by `membarrier` if the peer
    /// relies on [`RemoteMemory::store_load_ordered`]), and discards wake-ups that were not read. Returns
    /// `false` if it cannot guarantee the order: core then naps.
    ///
    /// # Errors
    /// Final for the link.
    fn before_sleep(&mut self) -> Result<bool, TransportError> {
        Ok(false)
    }

    /// Called after waking: empties the descriptor.
    ///
    /// # Errors
    /// Final for the link.
    fn after_sleep(&mut self) -> Result<(), TransportError> {
        Ok(())
    }

    /// Returns the lender of other memory to the peer; `None` if this backend lends none, or none to this
    /// peer.
    fn lender(&self) -> Option<Box<dyn Lender>> {
        None
    }
}
