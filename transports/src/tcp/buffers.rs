//! Memory for records, shared by all links of a thread: an idle link has none.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;

use farjump_core::frame::LINE;
use farjump_core::transport::Cause;

/// Bytes before the space of a buffer, the last of them for a head.
pub(super) const FRONT: usize = LINE;
/// Bytes behind the space of a buffer, for heads and tags.
pub(super) const BACK: usize = 17 * LINE;
/// Space of the shortest buffers, in bytes: most messages are shorter.
const SMALL: usize = 4 << 10;
/// Space of receive buffers, in bytes: for a longest record, and the bytes before it.
pub(super) const RECEIVE: usize = 32 << 10;
/// Number of buffers of each kind that a thread keeps.
const KEPT: usize = 8;
/// Bytes of longer buffers that a thread keeps, besides one longer buffer until the thread sleeps.
const SPARE: usize = 8 << 20;

/// Memory that starts on a line: [`FRONT`], space for a message, [`BACK`].
#[derive(Debug)]
pub(super) struct Buffer {
    start: NonNull<u8>,
    capacity: usize,
}

// SAFETY: the value owns its memory.
unsafe impl Send for Buffer {}

impl Buffer {
    fn new(len: usize) -> Result<Buffer, Cause> {
        let lacking = || Cause::System(format!("there is no memory for a message of {len} bytes"));
        let capacity = match len {
            len if len <= SMALL => SMALL,
            len if len <= RECEIVE => RECEIVE,
            len if len <= SPARE => len.next_power_of_two(),
            len => len.checked_next_multiple_of(LINE).ok_or_else(lacking)?,
        };
        let layout = Buffer::layout(capacity).ok_or_else(lacking)?;
        // SAFETY: the layout's size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(lacking)?;
        Ok(Buffer { start, capacity })
    }

    fn layout(capacity: usize) -> Option<Layout> {
        Layout::from_size_align(capacity.checked_add(FRONT + BACK)?, LINE).ok()
    }

    /// Bytes of the space.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// All bytes.
    pub(super) fn len(&self) -> usize {
        FRONT + self.capacity + BACK
    }

    /// Address of the byte at `at`, which is in the buffer.
    pub(super) fn at(&self, at: usize) -> NonNull<u8> {
        assert!(at < self.len());
        // SAFETY: inside the allocation.
        unsafe { self.start.add(at) }
    }

    /// `len` bytes from `at` on.
    #[inline]
    pub(super) fn part(&mut self, at: usize, len: usize) -> &mut [u8] {
        assert!(at <= self.len() && len <= self.len() - at);
        // SAFETY: inside the allocation, which was zeroed. The value is borrowed exclusively. A message lent by its
        // pointer (`at`) overlaps no part requested during the loan: `Inbound` keeps them apart.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(at), len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(layout) = Buffer::layout(self.capacity) {
            // SAFETY: allocated with this layout by `new`.
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
    }
}

/// Unused buffers of one thread.
#[derive(Default)]
struct Spares {
    /// The last returned buffer of each length: most messages need no other buffer.
    small: Cell<Option<Buffer>>,
    receive: Cell<Option<Buffer>>,
    others: RefCell<Others>,
}

/// The other unused buffers.
#[derive(Default)]
struct Others {
    small: Vec<Buffer>,
    receive: Vec<Buffer>,
    /// Oldest first.
    long: Vec<Buffer>,
    /// Bytes of the long ones.
    bytes: usize,
}

thread_local! {
    static SPARES: Spares = Spares::default();
}

/// A buffer with space for `len` bytes, of arbitrary contents.
///
/// # Errors
/// There is no memory.
#[inline]
pub(super) fn take(len: usize) -> Result<Buffer, Cause> {
    // An ending thread may have dropped its spare buffers.
    match SPARES.try_with(|spares| spares.take(len)) {
        Ok(Some(spare)) => Ok(spare),
        _ => Buffer::new(len),
    }
}

/// Keeps a buffer for later.
#[inline]
pub(super) fn give(buffer: Buffer) {
    let _ = SPARES.try_with(move |spares| spares.give(buffer));
}

/// Frees spare buffers that cost much: a long buffer may not be needed for a long time.
pub(super) fn rest() {
    let _ = SPARES.try_with(|spares| {
        let mut others = spares.others.borrow_mut();
        if others.bytes > SPARE {
            others.long.clear();
            others.bytes = 0;
        }
    });
}

impl Spares {
    #[inline]
    fn take(&self, len: usize) -> Option<Buffer> {
        let last = match len {
            len if len <= SMALL => self.small.take(),
            len if len <= RECEIVE => self.receive.take(),
            _ => None,
        };
        last.or_else(|| self.others.borrow_mut().take(len))
    }

    #[inline]
    fn give(&self, buffer: Buffer) {
        let before = match buffer.capacity {
            SMALL => self.small.replace(Some(buffer)),
            RECEIVE => self.receive.replace(Some(buffer)),
            _ => Some(buffer),
        };
        if let Some(before) = before {
            self.others.borrow_mut().give(before);
        }
    }
}

impl Others {
    #[cold]
    fn take(&mut self, len: usize) -> Option<Buffer> {
        match len {
            len if len <= SMALL => self.small.pop(),
            len if len <= RECEIVE => self.receive.pop(),
            len => {
                let fits = |buffer: &Buffer| buffer.capacity >= len && buffer.capacity / 4 < len;
                let index = self.long.iter().rposition(fits)?;
                let buffer = self.long.remove(index);
                self.bytes -= buffer.capacity;
                Some(buffer)
            }
        }
    }

    #[cold]
    fn give(&mut self, buffer: Buffer) {
        let kept = match buffer.capacity {
            SMALL => &mut self.small,
            RECEIVE => &mut self.receive,
            capacity => {
                self.bytes += capacity;
                self.long.push(buffer);
                while self.bytes > SPARE && self.long.len() > 1 {
                    self.bytes -= self.long.remove(0).capacity;
                }
                return;
            }
        };
        if kept.len() < KEPT {
            kept.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_has_a_line_aligned_body_with_margins_for_records() {
        for len in [0, 1, 4096, 4097, 32_768, 70_000, SPARE + 1] {
            let mut buffer = Buffer::new(len).unwrap();
            assert!(buffer.at(FRONT).addr().get().is_multiple_of(LINE) && buffer.capacity() >= len);
            assert_eq!(buffer.part(0, buffer.len()).len(), FRONT + buffer.capacity() + BACK);
        }
        assert!(matches!(Buffer::new(usize::MAX), Err(Cause::System(_))));
    }

    #[test]
    fn spare_buffers_of_a_thread_are_bounded_and_reused() {
        let spares = Spares::default();
        for len in [64, RECEIVE, 1 << 20, SPARE] {
            for buffer in (0..20).map(|_| Buffer::new(len).unwrap()).collect::<Vec<_>>() {
                let at = buffer.at(0);
                spares.give(buffer);
                let again = spares.take(len);
                assert!(again.is_none_or(|again| again.at(0) == at || again.capacity() >= len));
                spares.give(Buffer::new(len).unwrap());
            }
        }
        let kept = |others: &Others| (others.small.len(), others.receive.len(), others.bytes);
        let (small, receive, bytes) = kept(&spares.others.borrow());
        assert!(small <= KEPT && receive <= KEPT && bytes <= SPARE);
        spares.give(Buffer::new(4 * SPARE).unwrap());
        {
            let others = spares.others.borrow();
            assert_eq!((others.long.len(), others.bytes), (1, 4 * SPARE));
        }
        assert!(spares.take(64 << 10).is_none(), "one far too long is not used up for a short message");
    }
}
