//! Reusable message buffers: aligned to a line or a page, with a line in front of them and a private one behind.

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;

use farjump_core::frame::LINE;
use farjump_core::transport::{Cause, REGION_UNIT};

/// Length of the shortest buffer, in bytes: most sources only send small frames.
const LEAST: usize = 256;
/// Number of buffers of that length to keep while their owner sleeps.
const RESTING: usize = 16;
/// Bytes kept for later messages, besides one longer buffer until its owner sleeps.
const SPARE: usize = 8 << 20;

/// Memory for one message. It stays at its address while it moves between owners.
pub(super) struct Buffer {
    start: NonNull<u8>,
    /// Space for the message: a power of two up to `SPARE`, whole pages beyond.
    len: usize,
}

// SAFETY: the memory belongs only to this value: `new` allocates it, and `Buffer` is not `Clone`.
unsafe impl Send for Buffer {}

impl Buffer {
    fn new(len: usize) -> Result<Buffer, Cause> {
        let lacking = || Cause::System(format!("there is no memory for a message of {len} bytes"));
        let len = match len {
            0..=SPARE => len.max(LEAST).next_power_of_two(),
            _ => len.checked_next_multiple_of(REGION_UNIT).ok_or_else(lacking)?,
        };
        let layout = Buffer::layout(len).ok_or_else(lacking)?;
        // SAFETY: `layout` is not of size zero.
        let front = NonNull::new(unsafe { alloc(layout) }).ok_or_else(lacking)?;
        // SAFETY: `layout` has as many bytes in front.
        let buffer = Buffer { start: unsafe { front.add(Buffer::align(len)) }, len };
        // SAFETY: `note` is in the line behind the message, which `layout` includes.
        unsafe { buffer.note().write(0) };
        Ok(buffer)
    }

    /// The alignment of a buffer for `len` bytes, and the number of bytes in front of it.
    fn align(len: usize) -> usize {
        if len < REGION_UNIT { LINE } else { REGION_UNIT }
    }

    fn layout(len: usize) -> Option<Layout> {
        let align = Buffer::align(len);
        Layout::from_size_align(len.checked_add(align + LINE)?, align).ok()
    }

    /// Returns the start of the message: on a line, or on a page if it is as long as one. The line in front of it
    /// may be written.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the length of the longest message, in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns a word behind the message for additional data, valid as long as the buffer.
    pub(super) fn note(&self) -> NonNull<u64> {
        // SAFETY: the allocation has a line behind these `len` bytes; both are multiples of 64.
        unsafe { self.start.add(self.len) }.cast()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(layout) = Buffer::layout(self.len) {
            // SAFETY: allocated by `new` with this layout, which has as many bytes in front of the start.
            unsafe { dealloc(self.start.sub(Buffer::align(self.len)).as_ptr(), layout) };
        }
    }
}

/// Unused buffers.
#[derive(Default)]
pub(super) struct Spares {
    /// Buffers of the least length. The last one used is nearest in cache, and the first to be reused.
    least: Vec<Buffer>,
    /// Longer buffers, oldest first.
    buffers: Vec<Buffer>,
    /// Sum of their lengths.
    bytes: usize,
}

impl Spares {
    /// Returns a buffer for a message of `len` bytes: a kept one if it is long enough and not far too long.
    #[inline]
    pub(super) fn take(&mut self, len: usize) -> Result<Buffer, Cause> {
        match self.least.pop() {
            Some(buffer) if len <= LEAST => Ok(buffer),
            other => {
                self.least.extend(other);
                self.take_long(len)
            }
        }
    }

    #[inline(never)]
    fn take_long(&mut self, len: usize) -> Result<Buffer, Cause> {
        let fits = |buffer: &Buffer| buffer.len() >= len && buffer.len() / 4 < len;
        match self.buffers.iter().rposition(fits) {
            Some(index) => {
                let buffer = self.buffers.remove(index);
                self.bytes -= buffer.len();
                Ok(buffer)
            }
            None => {
                if len > SPARE {
                    self.rest();
                }
                Buffer::new(len)
            }
        }
    }

    /// Keeps a buffer for later, instead of the oldest if that would be too much.
    #[inline]
    pub(super) fn give(&mut self, buffer: Buffer) {
        match buffer.len() {
            LEAST => self.least.push(buffer),
            _ => self.give_long(buffer),
        }
    }

    #[inline(never)]
    fn give_long(&mut self, buffer: Buffer) {
        self.bytes += buffer.len();
        self.buffers.push(buffer);
        while self.bytes > SPARE && self.buffers.len() > 1 {
            self.bytes -= self.buffers.remove(0).len();
        }
    }

    /// Drops buffers until the rest costs little.
    pub(super) fn rest(&mut self) {
        self.least.truncate(RESTING);
        if self.bytes > SPARE {
            self.buffers.clear();
            self.bytes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_starts_on_a_line_or_page_and_its_note_follows() {
        for len in [0, 1, 4096, 4097, 70_000] {
            let buffer = Buffer::new(len).unwrap();
            let align = if len < REGION_UNIT { LINE } else { REGION_UNIT };
            assert!(buffer.start().addr().get().is_multiple_of(align));
            assert!(buffer.len() >= len);
            assert_eq!(buffer.note().addr().get(), buffer.start().addr().get() + buffer.len());
        }
        assert!(matches!(Buffer::new(usize::MAX), Err(Cause::System(_))));
    }

    #[test]
    fn similar_lengths_share_a_spare_buffer_and_long_buffers_are_soon_freed() {
        let mut spares = Spares::default();
        let large = spares.take(1 << 20).unwrap();
        let at = large.start();
        spares.give(large);
        assert_ne!(spares.take(100).unwrap().start(), at);
        let again = spares.take(900_000).unwrap();
        assert_eq!(again.start(), at);
        spares.give(again);
        let two = [spares.take(2 * SPARE).unwrap(), spares.take(2 * SPARE).unwrap()];
        two.into_iter().for_each(|buffer| spares.give(buffer));
        assert_eq!((spares.buffers.len(), spares.bytes), (1, 2 * SPARE), "the oldest goes");
        let longer = spares.take(9 * SPARE).unwrap();
        assert_eq!(spares.bytes, 0, "one that does not do is no more kept beside one that does");
        assert_eq!(longer.len(), 9 * SPARE, "a long one has no more than is asked for");
        spares.give(longer);
        spares.rest();
        assert_eq!((spares.buffers.len(), spares.bytes), (0, 0));
        for _ in 0..2 * SPARE / REGION_UNIT {
            spares.give(Buffer::new(REGION_UNIT).unwrap());
        }
        assert_eq!((spares.buffers.len(), spares.bytes), (SPARE / REGION_UNIT, SPARE));
        spares.rest();
        assert_eq!(spares.bytes, SPARE);
    }
}
