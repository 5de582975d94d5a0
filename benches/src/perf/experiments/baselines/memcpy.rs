//! Copying into memory of the mailbox's kind and length, within one process.

use std::fs::File;
use std::hint::black_box;

use memmap2::MmapMut;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::perf::experiments::role::Source;
use crate::perf::process::liveness::Watch;
use crate::perf::process::shared_memory::Memory;
use crate::program::failure::Failure;

/// Bytes of a message around its payload.
const AROUND: usize = 64;

/// The memory, and the payload.
pub(crate) struct Copy {
    payload: Vec<u8>,
    memory: MmapMut,
    size: usize,
    at: usize,
}

impl Copy {
    /// Allocates `len` bytes, for payloads of up to `longest`, which is less.
    pub(crate) fn new(len: usize, longest: usize) -> Result<Copy, Failure> {
        let failed = |error: std::io::Error| Failure::new(format!("no memory to copy into: {error}"));
        let file =
            memfd_create("farjump-perf-copy", MemfdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        let file = File::from(file);
        file.set_len(len as u64).map_err(failed)?;
        // SAFETY: `file` is private to this value and keeps its length.
        let mut memory = unsafe { MmapMut::map_mut(&file) }.map_err(failed)?;
        memory.fill(1);
        Ok(Copy { payload: vec![7; longest], memory, size: 0, at: 0 })
    }
}

impl Source for Copy {
    fn prepare(&mut self, size: usize, _streams: bool) -> Result<(), Failure> {
        (self.size, self.at) = (size, 0);
        Ok(())
    }

    #[inline]
    fn call(&mut self, watch: &Watch) -> Result<(), Failure> {
        self.send(watch)
    }

    #[inline]
    fn send(&mut self, _watch: &Watch) -> Result<(), Failure> {
        // Used as a mailbox is: one message after the other as long as they fit, then from the start.
        if self.at + self.size + AROUND > self.memory.len() {
            self.at = 0;
        }
        self.memory[self.at..self.at + self.size].copy_from_slice(black_box(&self.payload[..self.size]));
        black_box(&mut self.memory);
        self.at += (self.size + AROUND).next_multiple_of(64);
        Ok(())
    }

    fn settle(&mut self, _watch: &Watch) -> Result<(), Failure> {
        Ok(())
    }

    fn finish(&mut self, _memory: &Memory, _watch: &Watch) -> Result<(), Failure> {
        Ok(())
    }
}
