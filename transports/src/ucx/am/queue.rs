//! The queue of an inbox: received frames in the order of their numbers, and space for short ones.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::ptr::NonNull;

use farjump_core::frame::{DELIVERED_HEADER_LEN, LINE};

use super::credit::MAX_FRAMES;
use super::message::SHORT;

/// Number of spaces for short frames, more than UCX delivers in a few calls. UCX needs the messages of short frames
/// back at once.
const SPACES: usize = 64;
/// Bytes from one space to the next. A frame's header lies in front of a line and the rest, up to 76 bytes, from there.
const STRIDE: usize = 2 * LINE;
const _: () = assert!(SHORT <= STRIDE);

/// The memory of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(super) enum Kind {
    /// None: the frame has not arrived, but a later one has.
    Missing,
    /// A space of the queue.
    Short,
    /// Memory of UCX, to be returned to it.
    Lent,
    /// As [`Kind::Lent`], with the header in a line in front of the frame.
    Fronted,
    /// A buffer of the inbox.
    Copied,
    /// As [`Kind::Copied`], but UCX fetches the frame into it from the peer's memory.
    Fetched,
}

/// A frame in the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) start: NonNull<u8>,
    /// Length in bytes.
    pub(super) len: u32,
    pub(super) kind: Kind,
}

impl Slot {
    const MISSING: Slot = Slot { start: NonNull::dangling(), len: 0, kind: Kind::Missing };

    /// The header of a [`Kind::Short`] frame.
    #[inline(always)]
    pub(super) fn header(&self) -> NonNull<u8> {
        // SAFETY: such a frame has the header in front.
        unsafe { self.start.sub(DELIVERED_HEADER_LEN) }
    }

    /// Start of the message of a [`Kind::Fronted`] frame, with its header.
    #[inline(always)]
    pub(super) fn message(&self) -> NonNull<u8> {
        // SAFETY: such a frame has a line in front.
        unsafe { self.start.sub(LINE) }
    }
}

/// Frames from the next one on. An empty queue begins anew with its first slot and space, so one that is
/// emptied each time uses the same few lines of memory.
pub(super) struct Queue {
    /// Slot of the next frame.
    head: Cell<usize>,
    /// Number of frames that have arrived, and of those missing before them.
    len: Cell<usize>,
    slots: Box<[Cell<Slot>; MAX_FRAMES]>,
    /// A line and `SPACES` times `STRIDE` bytes, for the frames of the first slots.
    spaces: NonNull<u8>,
}

impl Queue {
    pub(super) fn new() -> Queue {
        let layout = Queue::layout();
        // SAFETY: the layout is not of size zero.
        let spaces = NonNull::new(unsafe { alloc_zeroed(layout) });
        Queue {
            head: Cell::new(0),
            len: Cell::new(0),
            slots: Box::new([const { Cell::new(Slot::MISSING) }; MAX_FRAMES]),
            spaces: spaces.unwrap_or_else(|| handle_alloc_error(layout)),
        }
    }

    const fn layout() -> Layout {
        match Layout::from_size_align(SPACES * STRIDE + LINE, LINE) {
            Ok(layout) => layout,
            Err(_) => panic!("the length is a constant"),
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len.get()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len.get() == 0
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.len.get() >= MAX_FRAMES
    }

    /// The next frame; a missing one if the queue is empty.
    #[inline]
    pub(super) fn front(&self) -> Slot {
        self.at(0).get()
    }

    /// The slot of the frame `ahead` places behind the next one.
    #[inline]
    fn at(&self, ahead: usize) -> &Cell<Slot> {
        &self.slots[self.head.get().wrapping_add(ahead) % MAX_FRAMES]
    }

    /// Returns whether the frame `ahead` places behind the next one has arrived.
    pub(super) fn has(&self, ahead: usize) -> bool {
        ahead < self.len.get() && self.at(ahead).get().kind != Kind::Missing
    }

    /// Space for a frame of up to [`SHORT`] bytes that is pushed next, if there is any. It starts on a line, and has a
    /// header's bytes in front. It belongs to the frame until the frame is popped.
    #[inline]
    pub(super) fn space(&self) -> Option<NonNull<u8>> {
        let index = self.head.get() + self.len.get();
        // SAFETY: the space with this number is within the allocation.
        (index < SPACES).then(|| unsafe { self.spaces.add(index * STRIDE + LINE) })
    }

    /// Adds a frame behind the others, of which there are fewer than [`MAX_FRAMES`].
    #[inline]
    pub(super) fn push(&self, slot: Slot) {
        self.at(self.len.get()).set(slot);
        self.len.set(self.len.get() + 1);
    }

    /// Adds the frame `ahead` places behind the next one, fewer than [`MAX_FRAMES`].
    pub(super) fn put(&self, ahead: usize, slot: Slot) {
        self.at(ahead).set(slot);
        self.len.set(self.len.get().max(ahead + 1));
    }

    /// Removes the next frame of a queue that is not empty.
    #[inline]
    pub(super) fn pop(&self) -> Slot {
        let slot = self.at(0).replace(Slot::MISSING);
        let len = self.len.get().saturating_sub(1);
        self.len.set(len);
        self.head.set(if len == 0 { 0 } else { (self.head.get() + 1) % MAX_FRAMES });
        slot
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout by `new`.
        unsafe { dealloc(self.spaces.as_ptr(), Queue::layout()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(len: u32) -> Slot {
        Slot { start: NonNull::dangling(), len, kind: Kind::Copied }
    }

    #[test]
    fn frames_leave_the_queue_in_number_order_whatever_their_arrival_order() {
        let queue = Queue::new();
        for round in 0..3000 {
            queue.put(2, slot(3));
            assert_eq!((queue.front().kind, queue.len()), (Kind::Missing, 3));
            assert_eq!([0, 1, 2, 3].map(|ahead| queue.has(ahead)), [false, false, true, false]);
            queue.put(0, slot(1));
            queue.put(1, slot(2));
            queue.push(slot(4));
            let popped = [1, 2, 3].map(|_| queue.pop().len);
            assert_eq!(popped, [1, 2, 3], "{round}");
            if round % 7 == 0 {
                assert_eq!(queue.pop().len, 4);
                continue;
            }
            // The rest stays, and the queue wraps around.
            assert_eq!((queue.front().len, queue.len()), (4, 1));
            queue.pop();
            queue.push(slot(5));
            queue.push(slot(6));
            assert_eq!([queue.pop().len, queue.pop().len], [5, 6]);
        }
        (0..MAX_FRAMES as u32).for_each(|len| queue.push(slot(len)));
        assert!(queue.is_full());
        queue.pop();
        queue.push(slot(MAX_FRAMES as u32));
        (1..=MAX_FRAMES as u32).for_each(|len| assert_eq!(queue.pop().len, len));
        assert!(queue.is_empty());
    }

    #[test]
    fn queued_frames_have_distinct_spaces_and_an_emptied_queue_starts_over() {
        let queue = Queue::new();
        let mut spaces = Vec::new();
        while let Some(space) = queue.space() {
            assert!(space.addr().get().is_multiple_of(LINE));
            spaces.push(space.addr().get());
            queue.push(slot(1));
        }
        assert_eq!(spaces.len(), SPACES);
        assert!(spaces.windows(2).all(|two| two[1] - two[0] == STRIDE));
        queue.pop();
        assert!(queue.space().is_none(), "the spaces behind the others are still theirs");
        (1..SPACES).for_each(|_| _ = queue.pop());
        assert_eq!(queue.space().unwrap().addr().get(), spaces[0]);
    }
}
