//! Looking into a slot, and running its frame.
//!
//! Every word of a header is read once, and the value read is checked and used. A frame is taken before its
//! function is called: the slot holds a receipt by then, so the function may have the next frame sent there.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use farjump_core::shared::copy_out;
use farjump_loader::CodeHasher;
use farjump_ucx_sys::{
    UCS_ERR_CANCELED, UCS_ERR_INVALID_ADDR, UCS_ERR_INVALID_PARAM, UCS_ERR_NO_ELEM, UCS_ERR_NO_MESSAGE,
    UCS_ERR_TIMED_OUT, UCS_OK, ucs_status_t,
};

use super::frame::{self, BadHead, CHECK, HEAD, Head, Part, SLOT_ALIGN_LOG2};
use super::registry::{self, Function};
use super::{Offer, Refused};

/// Time limit of a frame's end after its beginning.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time without polls after which the target stops waiting for a slot's frame.
const ABANDONED_AFTER: Duration = Duration::from_secs(60);
/// Most bytes of a checked frame that one poll hashes. A frame up to this long is taken by the poll that
/// finds it whole.
const AT_ONCE: usize = 64 << 10;
/// Bytes that a poll saves up for the next hash when it finds a frame not whole.
const SAVED: usize = 4 << 10;
/// Bytes of a frame that are copied before they are hashed.
const PIECE: usize = 4 << 10;

/// Runs the frame at the start of a slot, if a whole one is there; [`UCS_ERR_NO_MESSAGE`] otherwise. Never
/// waits. Code that comes may call the functions of `offer`.
///
/// # Errors
/// [`UCS_ERR_INVALID_PARAM`] for an invalid slot. For a frame, which is then discarded: [`UCS_ERR_CANCELED`]
/// if it is longer than the slot, contradicts itself, is not what it claims to be, cannot be registered here,
/// or panicked; [`UCS_ERR_NO_ELEM`] if its code is missing; [`UCS_ERR_INVALID_ADDR`] if its function wants
/// the payload elsewhere; [`UCS_ERR_TIMED_OUT`] if its end did not come.
///
/// # Safety
/// `slot` must be null, or valid for reads and writes of `space` bytes during the call, and `target_args` as
/// for [`Function::call`]. No other thread may poll it meanwhile.
#[inline(always)]
pub(super) unsafe fn poll(
    slot: *mut c_void,
    space: usize,
    target_args: *mut c_void,
    offer: Offer,
) -> Result<ucs_status_t, Refused> {
    let start = slot.cast::<u8>();
    if start.is_null() || space < HEAD || start.addr() & ((1 << SLOT_ALIGN_LOG2) - 1) != 0 {
        return Err(no_slot(start, space));
    }
    // SAFETY: there is space for a header, and both processes access these words by atomic operations alone.
    let [first, lengths, third] = unsafe { &*start.cast::<[AtomicU64; 3]>() };
    let address = start.addr() as u64;
    // Pairs with the release store of `send`.
    let (found, signal) = (first.load(Ordering::Acquire), frame::signal(address).to_le());
    if found != signal && found != !signal {
        return Ok(UCS_ERR_NO_MESSAGE);
    }
    let words = [lengths, third].map(|word| u64::from_le(word.load(Ordering::Relaxed)));
    let slot = Slot { start, address, first };
    if found != signal {
        // SAFETY: this function's caller guarantees the slot.
        return unsafe { slot.run_checked(words, space, target_args, offer) };
    }
    let head = match Head::checked(words, space, 0) {
        Ok(head) => head,
        Err(bad) => return Err(slot.bad(bad, space)),
    };
    if head.part.is_some() {
        // SAFETY: the head was checked against the slot; this function's caller guarantees the rest.
        return unsafe { slot.run_bringing(&head, target_args, offer) };
    }
    match registry::find(head.key) {
        // SAFETY: the head was checked against the slot; this function's caller guarantees the rest.
        Some(function) => unsafe { slot.run(&head, function, target_args) },
        None => Err(slot.missing()),
    }
}

#[cold]
fn no_slot(start: *mut u8, space: usize) -> Refused {
    let text = format!(
        "a buffer of {space} bytes at {start:p} is unusable: it must have {HEAD} bytes at least, at a multiple of 8"
    );
    Refused::new(UCS_ERR_INVALID_PARAM, text)
}

/// A slot in which there is a signal.
struct Slot<'a> {
    start: *mut u8,
    address: u64,
    first: &'a AtomicU64,
}

impl Slot<'_> {
    /// Takes the frame and calls its function.
    ///
    /// # Errors
    /// As [`poll`].
    ///
    /// # Safety
    /// `head` was checked against this slot, which is as [`poll`] requires.
    #[inline(always)]
    unsafe fn run(
        &self,
        head: &Head,
        function: &Function,
        target_args: *mut c_void,
    ) -> Result<ucs_status_t, Refused> {
        // SAFETY: the checked head says that the payload lies in the slot.
        let payload = unsafe { self.start.add(head.payload) };
        if payload.addr() & (function.align() - 1) != 0 {
            return Err(self.misaligned(function));
        }
        // The function stays for good, so the sender may leave the code out from now on. Pairs with the
        // acquire load of `send`.
        self.first.store(frame::receipt(self.address).to_le(), Ordering::Release);
        // SAFETY: the payload lies in the slot and is aligned; this function's caller guarantees the rest.
        unsafe { function.call(payload.cast(), head.payload_len, target_args) }?;
        Ok(UCS_OK)
    }

    /// Does the same for a frame with a check, if all of the frame has come. Even its header may be incomplete.
    ///
    /// # Errors
    /// As [`poll`].
    ///
    /// # Safety
    /// The slot has `space` bytes, and is as [`poll`] requires.
    #[inline(never)]
    unsafe fn run_checked(
        &self,
        words: [u64; 2],
        space: usize,
        target_args: *mut c_void,
        offer: Offer,
    ) -> Result<ucs_status_t, Refused> {
        let head = match Head::checked(words, space, CHECK) {
            // SAFETY: the head was checked against the slot.
            Ok(head) if unsafe { self.is_whole(&head, words) } => head,
            Ok(_) => return self.wait_for_end(words, None, space),
            Err(bad) => return self.wait_for_end(words, Some(bad), space),
        };
        self.stop_waiting();
        // SAFETY: the head was checked against the slot; this function's caller guarantees the rest.
        unsafe { self.run_bringing(&head, target_args, offer) }
    }

    /// Does the same for a frame that may have a code part.
    ///
    /// # Errors
    /// As [`poll`].
    ///
    /// # Safety
    /// As for [`Slot::run`].
    #[inline(never)]
    unsafe fn run_bringing(
        &self,
        head: &Head,
        target_args: *mut c_void,
        offer: Offer,
    ) -> Result<ucs_status_t, Refused> {
        let known = registry::find(head.key);
        let function = match (known, head.part) {
            (Some(function), None) => function,
            (None, None) => return Err(self.missing()),
            (known, Some(start)) => {
                // SAFETY: the part lies in the slot.
                let bytes = unsafe { self.copy(start, head.end) };
                let Some(part) = Part::read(&bytes, head.key) else {
                    return Err(self.bad(BadHead::Malformed, 0));
                };
                match known {
                    Some(function) if function.codes().is_none_or(|codes| codes.id() == part.id()) => {
                        function
                    }
                    Some(function) => return Err(self.alike(&part, function)),
                    None => registry::bring(head.key, &part, offer).inspect_err(|_| self.discard())?,
                }
            }
        };
        // SAFETY: this function's caller gives the same guarantees.
        unsafe { self.run(head, function, target_args) }
    }

    /// Returns whether all bytes of a checked frame have come. If so, clears its last word, so that it does not count
    /// as the end of the next frame. For a long frame a later poll may find this.
    ///
    /// # Safety
    /// As for [`Slot::run`].
    unsafe fn is_whole(&self, head: &Head, words: [u64; 2]) -> bool {
        // SAFETY: a checked frame's last two words lie in the slot, whose start and whose frame's length are
        // multiples of 8.
        let [check, trailer] = unsafe { &*self.start.add(head.end).cast::<[AtomicU64; CHECK / 8]>() };
        if trailer.load(Ordering::Acquire) != frame::trailer(self.address).to_le() {
            return false;
        }
        // SAFETY: this function's caller gives the same guarantees.
        let Some(hash) = (unsafe { self.hash(head.end, words) }) else { return false };
        let is_whole = hash == u64::from_le(check.load(Ordering::Acquire));
        // Later reads of the frame return nothing older than the hashed words.
        fence(Ordering::Acquire);
        if is_whole {
            trailer.store(frame::NOTHING, Ordering::Relaxed);
        }
        is_whole
    }

    /// Returns the hash of the frame up to `end`. Returns `None` if the hash is not finished, or if it is too early for
    /// another one. No poll hashes more than [`AT_ONCE`] bytes. A frame that stays torn costs no more than two hashes,
    /// and from then on [`SAVED`] bytes a poll.
    ///
    /// # Safety
    /// `end` must lie in the slot.
    unsafe fn hash(&self, end: usize, words: [u64; 2]) -> Option<u64> {
        let len = end - 8;
        if len <= AT_ONCE && STALLED.load(Ordering::Relaxed) == 0 {
            let mut hasher = CodeHasher::new();
            // SAFETY: this function's caller guarantees that `end` lies in the slot.
            unsafe { self.feed(&mut hasher, 8, end) };
            return Some(frame::check_word(hasher.finish()));
        }
        let mut stalls = STALLS.lock().unwrap_or_else(PoisonError::into_inner);
        let stall = Stall::of(&mut stalls, self.address, words, Instant::now());
        stall.saved = stall.saved.saturating_add(SAVED);
        let (mut hasher, done) = match stall.hash.take() {
            Some(begun) => begun,
            None if !stall.is_new && stall.saved < len => return None,
            None => {
                (stall.is_new, stall.saved) = (false, 0);
                (Box::default(), 0)
            }
        };
        let to = len.min(done + AT_ONCE);
        // SAFETY: this function's caller guarantees that `end` lies in the slot.
        unsafe { self.feed(&mut hasher, 8 + done, 8 + to) };
        if to < len {
            stall.hash = Some((hasher, to));
            return None;
        }
        Some(frame::check_word(hasher.finish()))
    }

    /// Adds bytes of the slot to a hash. Copies them first, because the peer may write them meanwhile.
    ///
    /// # Safety
    /// The range must lie in the slot.
    unsafe fn feed(&self, hasher: &mut CodeHasher, from: usize, to: usize) {
        #[cfg(test)]
        HASHED.with(|hashed| hashed.set(hashed.get() + to - from));
        let mut piece = [0; PIECE];
        for start in (from..to).step_by(PIECE) {
            let len = PIECE.min(to - start);
            // SAFETY: this function's caller guarantees the range, and the piece is as long.
            unsafe { copy_out(self.start.add(start), piece.as_mut_ptr(), len) };
            hasher.update(&piece[..len]);
        }
    }

    /// Returns a copy of the slot's bytes. They may change meanwhile: the copy counts.
    ///
    /// # Safety
    /// The range must lie in the slot.
    unsafe fn copy(&self, from: usize, to: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(to - from);
        // SAFETY: this function's caller guarantees the range, and there is space for it.
        unsafe {
            copy_out(self.start.add(from), bytes.as_mut_ptr(), to - from);
            bytes.set_len(to - from);
        }
        bytes
    }

    /// Empties the slot without a receipt: the next frame brings its code.
    fn discard(&self) {
        self.first.store(frame::NOTHING, Ordering::Release);
    }

    #[cold]
    fn refuse(&self, status: ucs_status_t, text: String) -> Refused {
        self.discard();
        Refused::new(status, text)
    }

    #[cold]
    fn bad(&self, bad: BadHead, space: usize) -> Refused {
        let text = match bad {
            BadHead::PastSlot(len) => {
                format!(
                    "a frame of {len} bytes lies in a buffer of {space}: poll a longer buffer, or send less"
                )
            }
            BadHead::Malformed => {
                "the bytes in the buffer have a frame's signal, but are no frame".to_owned()
            }
        };
        self.refuse(UCS_ERR_CANCELED, text)
    }

    #[cold]
    fn missing(&self) -> Refused {
        let text = "the frame carries no code, and this process no longer has its function: send it again";
        self.refuse(UCS_ERR_NO_ELEM, text.to_owned())
    }

    #[cold]
    fn misaligned(&self, function: &Function) -> Refused {
        let text = format!("`{}` wants its payload at a multiple of {}", function.name(), function.align());
        self.refuse(UCS_ERR_INVALID_ADDR, text)
    }

    #[cold]
    fn alike(&self, part: &Part<'_>, function: &Function) -> Refused {
        let text =
            format!("the identities of `{}` and `{}` begin alike: change one", part.name, function.name());
        self.refuse(UCS_ERR_CANCELED, text)
    }

    /// Handles a frame whose end or header has not come. Later polls wait for it, up to a limit.
    #[cold]
    fn wait_for_end(
        &self,
        words: [u64; 2],
        bad: Option<BadHead>,
        space: usize,
    ) -> Result<ucs_status_t, Refused> {
        let now = Instant::now();
        let mut stalls = STALLS.lock().unwrap_or_else(PoisonError::into_inner);
        let stall = Stall::of(&mut stalls, self.address, words, now);
        // A hash under way is this process's own work, and does not count as the sender's time.
        if now - stall.since < PATIENCE || stall.hash.is_some() {
            return Ok(UCS_ERR_NO_MESSAGE);
        }
        stalls.retain(|stall| stall.address != self.address);
        STALLED.store(stalls.len(), Ordering::Relaxed);
        if let Some(bad @ BadHead::PastSlot(_)) = bad {
            return Err(self.bad(bad, space));
        }
        let text =
            format!("the end of a frame did not come in {PATIENCE:?}: its sender died or broke the protocol");
        Err(self.refuse(UCS_ERR_TIMED_OUT, text))
    }

    fn stop_waiting(&self) {
        if STALLED.load(Ordering::Relaxed) != 0 {
            let mut stalls = STALLS.lock().unwrap_or_else(PoisonError::into_inner);
            stalls.retain(|stall| stall.address != self.address);
            STALLED.store(stalls.len(), Ordering::Relaxed);
        }
    }
}

/// A frame whose beginning has come.
struct Stall {
    address: u64,
    words: [u64; 2],
    since: Instant,
    /// The frame's hash under way, and the number of bytes hashed.
    hash: Option<(Box<CodeHasher>, usize)>,
    /// True if no hash was begun. The first one has nothing to wait for.
    is_new: bool,
    /// Bytes that may be hashed beyond the hash that is under way.
    saved: usize,
}

impl Stall {
    /// Returns the entry of the frame with these words at `address`. Makes it if there is none.
    fn of(stalls: &mut Vec<Stall>, address: u64, words: [u64; 2], now: Instant) -> &mut Stall {
        let known = stalls.iter().position(|stall| stall.address == address);
        let at = known.unwrap_or_else(|| {
            stalls.retain(|stall| now - stall.since < ABANDONED_AFTER);
            stalls.push(Stall { address, words, since: now, hash: None, is_new: true, saved: 0 });
            STALLED.store(stalls.len(), Ordering::Relaxed);
            stalls.len() - 1
        });
        let stall = &mut stalls[at];
        if stall.words != words {
            // Another header: of another frame, or the rest of this frame's. The saved bytes stay.
            *stall = Stall { words, since: now, hash: None, ..*stall };
        }
        stall
    }
}

static STALLS: Mutex<Vec<Stall>> = Mutex::new(Vec::new());
/// Number of entries, readable without the lock.
static STALLED: AtomicUsize = AtomicUsize::new(0);

#[cfg(test)]
thread_local! {
    /// Bytes of checked frames that this thread has hashed.
    pub(super) static HASHED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
