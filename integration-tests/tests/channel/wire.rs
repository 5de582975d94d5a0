//! Simulated wire: the memory of two simulated peers, and the mover of bytes between them. Bytes arrive as
//! late, as torn and as far out of order as the arrival rule allows, under the test's control.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::VecDeque;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use farjump_core::transport::{
    ArrivalRules, BorrowedFd, Cause, LocalMemory, Operation, RemoteMemory, TransportError,
};

/// A region: pages of zeroes, written only through raw pointers.
pub(crate) struct Pages {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: an address range that this value owns. All endpoints of a test run on one thread.
unsafe impl Send for Pages {}
// SAFETY: an address range that this value owns. All endpoints of a test run on one thread.
unsafe impl Sync for Pages {}

impl Pages {
    pub(crate) fn new(len: usize) -> Arc<Pages> {
        let layout = Layout::from_size_align(len, 4096).unwrap();
        // SAFETY: the layout is not empty.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) });
        Arc::new(Pages { base: base.unwrap_or_else(|| handle_alloc_error(layout)), len })
    }

    pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.len, "a put past the end of the region");
        // SAFETY: in range; one thread, and no reference to these bytes is alive.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.as_ptr().add(at), bytes.len()) };
    }

    pub(crate) fn read(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at + len <= self.len);
        let mut bytes = vec![0; len];
        // SAFETY: in range; one thread, and no reference to these bytes is alive.
        unsafe { std::ptr::copy_nonoverlapping(self.base.as_ptr().add(at), bytes.as_mut_ptr(), len) };
        bytes
    }

    pub(crate) fn write_word(&self, at: usize, word: u64) {
        self.write(at, &word.to_le_bytes());
    }

    pub(crate) fn read_word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.read(at, 8).try_into().unwrap())
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.base.as_ptr(), Layout::from_size_align_unchecked(self.len, 4096)) };
    }
}

/// The ways in which one write may be torn, and the order in which its pieces arrive.
#[derive(Clone, Copy)]
enum Tear {
    /// Whole.
    Never,
    /// Between these multiples of bytes, arriving in ascending order.
    Ascending(usize),
    /// Between any two bytes, arriving in any order.
    Anyhow,
}

/// A write under way.
struct Flight {
    at: usize,
    bytes: Vec<u8>,
    /// Core's bytes, which it must not change while they are under way. Not under `CHECKED`: there a frame
    /// can read whole, and credit return, before its last write has arrived.
    source: Option<NonNull<u8>>,
    tear: Tear,
    left: Vec<Range<usize>>,
    /// The number of its completion, if it has one.
    completion: Option<usize>,
}

enum Entry {
    Flight(Flight),
    Fence,
}

/// One peer's puts that the other does not see yet.
pub(crate) struct Wire {
    to: Arc<Pages>,
    rule: ArrivalRules,
    line_whole: bool,
    entries: VecDeque<Entry>,
    /// Writes taken before the next is refused as `Full`.
    pub(crate) capacity: usize,
    /// Writes with completion, in the order of their calls: whether all their bytes have arrived.
    landed: Vec<bool>,
    completions: Arc<AtomicU64>,
}

// SAFETY: `source` pointers are read only while the channel that owns the bytes is alive, on the test's
// thread.
unsafe impl Send for Wire {}

impl Wire {
    fn tear(&self) -> Tear {
        match self.rule {
            ArrivalRules::IN_ORDER if self.line_whole => Tear::Ascending(64),
            ArrivalRules::IN_ORDER => Tear::Ascending(1),
            _ => Tear::Anyhow,
        }
    }

    fn take(
        &mut self,
        at: usize,
        bytes: &[u8],
        tear: Tear,
        lent: bool,
        completion: bool,
    ) -> Result<(), TransportError> {
        let writes = self.entries.iter().filter(|entry| matches!(entry, Entry::Flight(_))).count();
        if writes >= self.capacity {
            return Err(TransportError::new("wire", Operation::Put, Cause::Full));
        }
        let completion = completion.then(|| {
            self.landed.push(false);
            self.landed.len() - 1
        });
        self.entries.push_back(Entry::Flight(Flight {
            at,
            bytes: bytes.to_vec(),
            source: (lent && self.rule != ArrivalRules::CHECKED).then(|| NonNull::from(bytes).cast()),
            tear,
            left: std::iter::once(0..bytes.len()).collect(),
            completion,
        }));
        Ok(())
    }

    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        !self.entries.iter().any(|entry| matches!(entry, Entry::Flight(_)))
    }

    /// Lets one piece arrive. `choose(n)` picks among `n` choices, from the oldest (0) to the newest: first
    /// the write, then the piece, then its length.
    pub(crate) fn deliver(&mut self, choose: &mut impl FnMut(usize) -> usize) -> bool {
        while matches!(self.entries.front(), Some(Entry::Fence)) {
            self.entries.pop_front();
        }
        let open =
            self.entries.iter().position(|entry| matches!(entry, Entry::Fence)).unwrap_or(self.entries.len());
        if open == 0 {
            return false;
        }
        let index = choose(open);
        let Entry::Flight(flight) = &mut self.entries[index] else { unreachable!("fences were excluded") };
        if let Some(source) = flight.source {
            // SAFETY: the channel that put these bytes is alive and lends them until the peer has returned
            // credit.
            let now = unsafe { std::slice::from_raw_parts(source.as_ptr(), flight.bytes.len()) };
            assert_eq!(now, flight.bytes, "core changed bytes that were under way");
        }
        let piece = match flight.tear {
            Tear::Never => flight.left.remove(0),
            Tear::Ascending(unit) => {
                let rest = flight.left.remove(0);
                let units = rest.len().div_ceil(unit);
                let end = (rest.start + (choose(units) + 1) * unit).min(rest.end);
                if end < rest.end {
                    flight.left.push(end..rest.end);
                }
                rest.start..end
            }
            Tear::Anyhow => {
                let piece = choose(flight.left.len());
                let rest = flight.left.swap_remove(piece);
                let (from, to) = (choose(rest.len()), choose(rest.len()));
                let (from, to) = (rest.start + from.min(to), rest.start + from.max(to) + 1);
                flight
                    .left
                    .extend([rest.start..from, to..rest.end].into_iter().filter(|part| !part.is_empty()));
                from..to
            }
        };
        self.to.write(flight.at + piece.start, &flight.bytes[piece]);
        if flight.left.is_empty() {
            let completion = flight.completion;
            self.entries.remove(index);
            if let Some(number) = completion {
                self.landed[number] = true;
                let count = self.landed.iter().take_while(|landed| **landed).count();
                self.completions.store(count as u64, Ordering::Relaxed);
            }
        }
        true
    }

    /// Lets everything arrive, oldest first.
    pub(crate) fn deliver_all(&mut self) {
        while self.deliver(&mut |ways| ways - 1) {}
    }
}

/// A peer's view of the other's doorbell.
#[derive(Default)]
pub(crate) struct Bell {
    pub(crate) rings: AtomicU64,
    /// Called between saying "asleep" and the poll for a frame.
    pub(crate) before_sleep: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    pub(crate) cannot_promise: AtomicBool,
}

pub(crate) struct Remote {
    pub(crate) wire: Arc<Mutex<Wire>>,
    pub(crate) pages: Arc<Pages>,
    pub(crate) is_mapped: bool,
    pub(crate) bell: Arc<Bell>,
}

impl Remote {
    fn wire(&self) -> MutexGuard<'_, Wire> {
        self.wire.lock().unwrap()
    }
}

// SAFETY: the pages live as long as the value, are aligned to 4096 and `len` bytes long.
unsafe impl RemoteMemory for Remote {
    fn len(&self) -> usize {
        self.pages.len
    }

    fn mapped(&self) -> Option<NonNull<u8>> {
        self.is_mapped.then_some(self.pages.base)
    }

    fn put(&mut self, offset: usize, bytes: &[u8], _: u64) -> Result<(), TransportError> {
        let mut wire = self.wire();
        let tear = wire.tear();
        wire.take(offset, bytes, tear, true, false)
    }

    fn put_word(&mut self, offset: usize, word: u64, _: u64) -> Result<(), TransportError> {
        assert!(offset.is_multiple_of(8));
        self.wire().take(offset, &word.to_le_bytes(), Tear::Never, false, false)
    }

    fn fence(&mut self) -> Result<(), TransportError> {
        self.wire().entries.push_back(Entry::Fence);
        Ok(())
    }

    fn put_with_completion(&mut self, offset: usize, bytes: &[u8], _: u64) -> Result<(), TransportError> {
        self.wire().take(offset, bytes, Tear::Anyhow, true, true)
    }

    fn ring(&mut self) -> Result<(), TransportError> {
        self.bell.rings.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

pub(crate) struct Local {
    pub(crate) pages: Arc<Pages>,
    pub(crate) completions: Arc<AtomicU64>,
    pub(crate) bell: Arc<Bell>,
}

// SAFETY: the pages live as long as the value, are aligned to 4096, `len` bytes long and zero at first.
unsafe impl LocalMemory for Local {
    fn base(&self) -> NonNull<u8> {
        self.pages.base
    }

    fn len(&self) -> usize {
        self.pages.len
    }

    fn completions(&mut self) -> Result<u64, TransportError> {
        Ok(self.completions.load(Ordering::Relaxed))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: standard error is open as long as the process.
        Some(unsafe { BorrowedFd::borrow_raw(2) })
    }

    fn before_sleep(&mut self) -> Result<bool, TransportError> {
        self.bell.rings.store(0, Ordering::Relaxed);
        if let Some(meanwhile) = self.bell.before_sleep.lock().unwrap().take() {
            meanwhile();
        }
        Ok(!self.bell.cannot_promise.load(Ordering::Relaxed))
    }

    fn after_sleep(&mut self) -> Result<(), TransportError> {
        self.bell.rings.store(0, Ordering::Relaxed);
        Ok(())
    }
}

/// Makes a wire under `rule` to `to`.
pub(crate) fn wire(
    to: &Arc<Pages>,
    rule: ArrivalRules,
    line_whole: bool,
) -> (Arc<Mutex<Wire>>, Arc<AtomicU64>) {
    let completions = Arc::new(AtomicU64::new(0));
    let wire = Wire {
        to: to.clone(),
        rule,
        line_whole,
        entries: VecDeque::new(),
        capacity: usize::MAX,
        landed: Vec::new(),
        completions: completions.clone(),
    };
    (Arc::new(Mutex::new(wire)), completions)
}
