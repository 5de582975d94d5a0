//! Simulated wire: the mover of bytes between two test endpoints in one process. Bytes arrive as late, as
//! torn and as far out of order as its user chooses.
//!
//! Nothing moves by itself: [`Wire::deliver`] lets one piece of a put arrive, and calls a function of the caller's
//! for each choice. The fakes choose by a seed, tests of channels by their own plan.

mod shared_block;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use shared_block::SharedBlock;

/// The places at which the bytes of one put may be torn, and the order in which its pieces arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tear {
    /// Only at [`Put::cuts`]; in ascending order.
    InTurn,
    /// Only at [`Put::cuts`]; in any order.
    Shuffled,
    /// Between these multiples of bytes, counted from the start of the put; in ascending order.
    Ascending(usize),
    /// Between any two bytes, in any order.
    Anyhow,
}

/// A write into the peer's memory.
#[derive(Clone, Copy)]
pub struct Put<'a> {
    /// Offset in the peer's memory.
    pub at: usize,
    /// The bytes.
    pub bytes: &'a [u8],
    /// Number of the frame, for [`Changed`].
    pub frame: u64,
    /// True if the bytes must stay unchanged in their place until they have arrived.
    pub lent: bool,
    /// Whether its arrival is counted.
    pub completion: bool,
    /// The places at which it may be torn.
    pub tear: Tear,
    /// Offsets in `bytes` at which it is cut from the start: ascending, without 0 and the length.
    pub cuts: &'a [usize],
}

/// A lent put whose bytes changed while it was on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Changed {
    /// Offset of the put in the peer's memory.
    pub at: usize,
    /// Number of the frame.
    pub frame: u64,
}

/// A put on its way.
struct PendingPut {
    at: usize,
    bytes: Vec<u8>,
    frame: u64,
    /// Address of the sender's bytes, if they are lent.
    lent: Option<u64>,
    tear: Tear,
    /// Parts that have not arrived; none is empty.
    left: Vec<Range<usize>>,
    /// The number of its completion, if it has one.
    completion: Option<u64>,
}

enum Entry {
    Put(PendingPut),
    Fence,
}

/// One endpoint's puts that the peer does not see yet.
pub struct Wire {
    to: Arc<SharedBlock>,
    in_turn: bool,
    entries: VecDeque<Entry>,
    capacity: usize,
    /// For each put with a completion that does not count yet, oldest first: whether it has arrived.
    arrived: VecDeque<bool>,
    /// Number of completions that were counted.
    counted: u64,
    completions: Arc<AtomicU64>,
    on_changed: Box<dyn Fn(Changed) + Send>,
    /// This process's memory, as a device sees it.
    memory: File,
}

impl Wire {
    /// Makes a wire to `to` for any number of puts on their way. It counts completions in `completions`, and reports
    /// changed bytes to `on_changed`.
    ///
    /// # Errors
    /// When this process's memory cannot be opened (`/proc/self/mem`).
    pub fn new(
        to: Arc<SharedBlock>,
        completions: Arc<AtomicU64>,
        on_changed: impl Fn(Changed) + Send + 'static,
    ) -> io::Result<Wire> {
        Ok(Wire {
            to,
            in_turn: false,
            entries: VecDeque::new(),
            capacity: usize::MAX,
            arrived: VecDeque::new(),
            counted: 0,
            completions,
            on_changed: Box::new(on_changed),
            memory: File::open("/proc/self/mem")?,
        })
    }

    /// Lets no put overtake an earlier one.
    #[must_use]
    pub fn in_turn(mut self) -> Wire {
        self.in_turn = true;
        self
    }

    /// Sets the number of puts on their way before the next is refused.
    pub fn set_capacity(&mut self, puts: usize) {
        self.capacity = puts;
    }

    fn puts(&self) -> impl Iterator<Item = &PendingPut> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Put(put) => Some(put),
            Entry::Fence => None,
        })
    }

    /// Returns whether nothing is on its way.
    pub fn is_idle(&self) -> bool {
        self.puts().next().is_none()
    }

    /// Number of pieces on their way, as far as they are cut.
    pub fn pieces(&self) -> usize {
        self.puts().map(|put| put.left.len()).sum()
    }

    /// Returns whether the next put is refused.
    pub fn is_full(&self) -> bool {
        self.puts().count() >= self.capacity
    }

    /// Takes a put, which lies inside the peer's memory. Returns whether there was space for it.
    pub fn put(&mut self, put: Put<'_>) -> bool {
        if self.is_full() {
            return false;
        }
        let completion = put.completion.then(|| {
            self.arrived.push_back(false);
            self.counted + self.arrived.len() as u64 - 1
        });
        let starts = std::iter::once(0).chain(put.cuts.iter().copied());
        let ends = put.cuts.iter().copied().chain([put.bytes.len()]);
        let left: Vec<_> =
            starts.zip(ends).map(|(start, end)| start..end).filter(|part| !part.is_empty()).collect();
        if left.is_empty() {
            self.complete(completion);
            return true;
        }
        self.entries.push_back(Entry::Put(PendingPut {
            at: put.at,
            bytes: put.bytes.to_vec(),
            frame: put.frame,
            lent: put.lent.then(|| put.bytes.as_ptr().addr() as u64),
            tear: put.tear,
            left,
            completion,
        }));
        true
    }

    /// Orders earlier puts before later ones.
    pub fn fence(&mut self) {
        if matches!(self.entries.back(), Some(Entry::Put(_))) {
            self.entries.push_back(Entry::Fence);
        }
    }

    /// Lets one piece arrive, if one is on its way, and returns whether one was. `choose(n)` picks among `n` choices,
    /// from the oldest (0) to the newest: first the put, then the piece, then its length.
    pub fn deliver(&mut self, choose: &mut impl FnMut(usize) -> usize) -> bool {
        while matches!(self.entries.front(), Some(Entry::Fence)) {
            self.entries.pop_front();
        }
        let unfenced = self.entries.iter().take_while(|entry| matches!(entry, Entry::Put(_))).count();
        let index = match unfenced {
            0 => return false,
            _ if self.in_turn => 0,
            _ => choose(unfenced),
        };
        let Entry::Put(put) = &mut self.entries[index] else { unreachable!("fences were excluded") };
        let piece = put.tear_off(choose);
        if !put.is_unchanged(&self.memory) {
            (self.on_changed)(Changed { at: put.at, frame: put.frame });
        }
        self.to.write(put.at + piece.start, &put.bytes[piece]);
        if put.left.is_empty() {
            let completion = put.completion;
            self.entries.remove(index);
            self.complete(completion);
        }
        true
    }

    /// Lets everything arrive, oldest first.
    pub fn deliver_all(&mut self) {
        while self.deliver(&mut |ways| ways - 1) {}
    }

    /// Records the arrival of a put with this completion, and counts the completions of the oldest puts that have
    /// arrived.
    fn complete(&mut self, completion: Option<u64>) {
        let Some(number) = completion else { return };
        self.arrived[(number - self.counted) as usize] = true;
        while self.arrived.front() == Some(&true) {
            self.arrived.pop_front();
            self.counted += 1;
        }
        // Pairs with the receiver's acquire load: a reader of the count sees the bytes.
        self.completions.store(self.counted, Ordering::Release);
    }
}

impl PendingPut {
    /// Takes the next piece to arrive off the put.
    fn tear_off(&mut self, choose: &mut impl FnMut(usize) -> usize) -> Range<usize> {
        let index = match self.tear {
            Tear::InTurn | Tear::Ascending(_) => 0,
            Tear::Shuffled | Tear::Anyhow => choose(self.left.len()),
        };
        let part = self.left.remove(index);
        let piece = match self.tear {
            Tear::InTurn | Tear::Shuffled => part.clone(),
            Tear::Ascending(unit) => {
                let units = part.len().div_ceil(unit);
                part.start..(part.start + (choose(units) + 1) * unit).min(part.end)
            }
            Tear::Anyhow => {
                let (one, other) = (choose(part.len()), choose(part.len()));
                part.start + one.min(other)..part.start + one.max(other) + 1
            }
        };
        let rest = [part.start..piece.start, piece.end..part.end].into_iter().filter(|rest| !rest.is_empty());
        self.left.splice(index..index, rest);
        piece
    }

    /// Returns whether lent bytes are as they were put. Reads them through the kernel, to detect freed memory without
    /// touching it.
    fn is_unchanged(&self, memory: &File) -> bool {
        let Some(lent) = self.lent else { return true };
        let mut now = vec![0; self.bytes.len()];
        memory.read_exact_at(&mut now, lent).is_ok() && now == self.bytes
    }
}
