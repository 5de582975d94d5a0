//! Memory into which reads of a peer's memory go, kept for the next read: fresh pages cost many times a copy.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farjump_core::transport::ReadBytes;

/// Longest memory that is kept, in bytes.
const LONGEST: usize = 64 << 20;

/// Memory of a backend.
///
/// # Safety
/// [`ReadMemory::start`] is valid for reads of [`ReadMemory::len`] bytes until the value is dropped, from any thread.
pub(crate) unsafe trait ReadMemory: Send + 'static {
    /// Its first byte.
    fn start(&self) -> NonNull<u8>;

    /// Its length in bytes.
    fn len(&self) -> usize;
}

/// The memory of an ended read, for the next.
pub(crate) struct SpareMemory<M>(Arc<Mutex<Option<M>>>);

impl<M> Default for SpareMemory<M> {
    fn default() -> Self {
        SpareMemory(Arc::default())
    }
}

impl<M: ReadMemory> SpareMemory<M> {
    /// Takes the kept memory, if there is any and it has `len` bytes.
    pub(crate) fn take(&self, len: usize) -> Option<M> {
        locked(&self.0).take().filter(|memory| memory.len() >= len)
    }

    /// Lends the first `len` bytes of memory whose read is done. Dropping them returns the memory here.
    ///
    /// # Safety
    /// Nothing writes these bytes from now on, and `len` is at most the length of the memory.
    pub(crate) unsafe fn lend(&self, memory: M, len: usize) -> ReadBytes {
        ReadBytes::new(Bytes { memory: Some(memory), len, spare: Arc::clone(&self.0) })
    }
}

fn locked<M>(spare: &Mutex<Option<M>>) -> MutexGuard<'_, Option<M>> {
    // A panic leaves nothing inconsistent: the value is moved in or out.
    spare.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes that were read.
struct Bytes<M: ReadMemory> {
    /// `Some` until this value is dropped.
    memory: Option<M>,
    len: usize,
    spare: Arc<Mutex<Option<M>>>,
}

// SAFETY: nothing writes the memory from now on (`SpareMemory::lend`); all sharers only read it, through a pointer that
// is valid from any thread (`ReadMemory`).
unsafe impl<M: ReadMemory> Sync for Bytes<M> {}

impl<M: ReadMemory> AsRef<[u8]> for Bytes<M> {
    fn as_ref(&self) -> &[u8] {
        let Some(memory) = &self.memory else { return &[] };
        // SAFETY: the memory is the value's own (`ReadMemory`) and has `len` bytes, which nothing writes
        // (`SpareMemory::lend`).
        unsafe { std::slice::from_raw_parts(memory.start().as_ptr(), self.len) }
    }
}

impl<M: ReadMemory> Drop for Bytes<M> {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take().filter(|memory| memory.len() <= LONGEST) else { return };
        let mut spare = locked(&self.spare);
        if spare.as_ref().is_none_or(|other| other.len() < memory.len()) {
            *spare = Some(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Heap(Box<[u8]>);

    // SAFETY: a box of bytes, which does not move while it is owned.
    unsafe impl ReadMemory for Heap {
        fn start(&self) -> NonNull<u8> {
            NonNull::from(&*self.0).cast()
        }

        fn len(&self) -> usize {
            self.0.len()
        }
    }

    fn heap(len: usize, byte: u8) -> Heap {
        Heap(vec![byte; len].into())
    }

    #[test]
    fn dropped_bytes_return_their_memory_and_only_the_longest_is_kept() {
        let spare = SpareMemory::default();
        assert!(spare.take(1).is_none());
        // SAFETY: each memory belongs to this test.
        let [short, long] =
            [(100, 7), (200, 8)].map(|(len, byte)| unsafe { spare.lend(heap(len, byte), 10) });
        assert!(*short == [7; 10] && *long == [8; 10]);
        assert!(spare.take(1).is_none(), "they are in use");
        drop(long);
        drop(short);
        let kept = spare.take(150).unwrap();
        assert_eq!(kept.len(), 200);
        // SAFETY: as above.
        drop(unsafe { spare.lend(kept, 200) });
        assert!(spare.take(201).is_none(), "too short for the next");
        assert!(spare.take(1).is_none(), "and not kept for it");
    }
}
