//! Memory that a process lends by a registration for reading, and that its peer reads through their queue pairs.
//!
//! Each loan has its own registration, so that the peer reaches these bytes and no others, and none after its end. The
//! loan's key is the memory's address, length and remote key, 20 bytes. The reader posts one read at a time, of a few
//! megabytes, so frames behind it wait only for that.
//!
//! A device that has waited too long for the bytes requests them again. Such a request may still be under way when the
//! bytes have arrived. If it reaches a registration that has ended, the owner's device shuts the queue pair. So a read
//! ends with an empty write, posted once all bytes have arrived. Requests of one queue pair arrive in order, so none is
//! under way when that write is acknowledged.

use std::ptr::NonNull;
use std::sync::Arc;

use farjump_core::transport::{Cause, Lender, Loan, Operation, ReadBytes, TransportError};

use super::memory::{Memory, Registration, Use};
use super::queue::Queue;
use crate::read_memory::{ReadMemory, SpareMemory};
use crate::region_len;
use crate::verbs::device::domain::Domain;

/// Most bytes of one read.
const PART: usize = 4 << 20;
/// Bytes of a key.
const KEY: usize = 20;

/// Lends memory by registering it with the device.
pub(super) struct DeviceLender {
    domain: Arc<Domain>,
    name: &'static str,
}

impl DeviceLender {
    /// Makes the lender of an endpoint of the transport with this name.
    pub(super) fn boxed(domain: &Arc<Domain>, name: &'static str) -> Box<dyn Lender> {
        Box::new(DeviceLender { domain: Arc::clone(domain), name })
    }
}

impl Lender for DeviceLender {
    unsafe fn lend(&mut self, start: NonNull<u8>, len: usize) -> Result<Loan, TransportError> {
        // SAFETY: the caller keeps the bytes mapped until the loan is dropped (`Lender::lend`). The device only reads
        // them.
        let registration = unsafe { Registration::of(&self.domain, start.as_ptr(), len, Use::ReadByPeer) };
        let registration =
            registration.map_err(|cause| TransportError::new(self.name, Operation::Lend, cause))?;
        let lent =
            Lent { address: start.addr().get() as u64, len: len as u64, key: registration.remote_key() };
        Ok(Loan::new(lent.to_bytes().to_vec(), Box::new(registration)))
    }
}

/// Memory that a peer lends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Lent {
    address: u64,
    len: u64,
    key: u32,
}

impl Lent {
    fn to_bytes(self) -> [u8; KEY] {
        let mut bytes = [0; KEY];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.len.to_le_bytes());
        bytes[16..].copy_from_slice(&self.key.to_le_bytes());
        bytes
    }

    /// Decodes a peer's key to memory of `len` bytes or more.
    fn from_bytes(bytes: &[u8], len: usize) -> Result<Lent, Cause> {
        let wrong = |what: String| Cause::Address(format!("the key of its memory {what}"));
        let bytes: &[u8; KEY] =
            bytes.try_into().map_err(|_| wrong(format!("has {} bytes, not {KEY}", bytes.len())))?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let lent = Lent {
            address: word(0),
            len: word(8),
            key: u32::from_le_bytes(std::array::from_fn(|byte| bytes[16 + byte])),
        };
        if lent.len < len as u64 || lent.address.checked_add(lent.len).is_none() {
            return Err(wrong(format!("is for {} bytes at {:#x}, not {len}", lent.len, lent.address)));
        }
        Ok(lent)
    }
}

// SAFETY: the value owns its pages, which any thread may read.
unsafe impl ReadMemory for Memory {
    fn start(&self) -> NonNull<u8> {
        self.start()
    }

    fn len(&self) -> usize {
        self.len()
    }
}

/// The reads through one queue pair. Dropped after the queue pair, because the device may write into the memory until
/// then.
#[derive(Default)]
pub(super) struct QueueReads {
    in_flight: Option<Read>,
    spare: SpareMemory<Memory>,
}

/// A read under way.
struct Read {
    memory: Memory,
    lent: Lent,
    len: usize,
    /// Number of bytes that have arrived.
    done: usize,
    /// The posted request, and its length in bytes.
    posted: Option<(u64, usize)>,
    /// The empty write behind the last part.
    last: Option<u64>,
}

impl QueueReads {
    /// Starts to read `len` bytes of the memory that the peer lent by `key`.
    pub(super) fn start(&mut self, queue: &mut Queue, key: &[u8], len: usize) -> Result<(), Cause> {
        let lent = Lent::from_bytes(key, len)?;
        if self.in_flight.is_some() && self.poll(queue)?.is_none() {
            return Err(Cause::Full);
        }
        let memory = match self.spare.take(len) {
            Some(memory) => memory,
            None => Memory::create(&queue.domain, region_len::for_read(len)?, Use::Received)?,
        };
        self.in_flight = Some(Read { memory, lent, len, done: 0, posted: None, last: None });
        self.post_next_part(queue)
    }

    /// The bytes of the read under way, if all have arrived. Posts the next part once one has arrived.
    pub(super) fn poll(&mut self, queue: &mut Queue) -> Result<Option<ReadBytes>, Cause> {
        queue.work().map_err(|(cause, _)| cause)?;
        let Some(read) = &mut self.in_flight else { return Ok(None) };
        if let Some((request, len)) = read.posted
            && queue.done() > request
        {
            (read.done, read.posted) = (read.done + len, None);
        }
        if read.done < read.len {
            self.post_next_part(queue)?;
            return Ok(None);
        }
        match read.last {
            None if queue.free_slots() > 0 => {
                read.last = Some(queue.next());
                // SAFETY: the request has no bytes.
                unsafe { queue.post(&[queue.nothing()]) }?;
                return Ok(None);
            }
            Some(last) if queue.done() > last => {}
            _ => return Ok(None),
        }
        let read = self.in_flight.take();
        // SAFETY: the device is done with the memory, which has at least `len` bytes.
        Ok(read.map(|Read { memory, len, .. }| unsafe { self.spare.lend(memory, len) }))
    }

    /// Posts the next part, unless one is posted or there is no slot.
    fn post_next_part(&mut self, queue: &mut Queue) -> Result<(), Cause> {
        let Some(read) = &mut self.in_flight else { return Ok(()) };
        if read.posted.is_some() || read.done == read.len || queue.free_slots() == 0 {
            return Ok(());
        }
        let len = (read.len - read.done).min(PART).min(queue.device.max_message());
        let at = read.done as u64;
        // SAFETY: `done + len` is at most the length of the memory. `in_flight` keeps the memory until the request is
        // done, or until after the queue pair is gone, and nothing else uses it.
        let request = unsafe {
            let into = read.memory.start().add(read.done);
            queue.post_read(
                (into, read.memory.local_key()),
                len as u32,
                (read.lent.address + at, read.lent.key),
            )?
        };
        read.posted = Some((request, len));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_checked_against_what_is_to_be_read() {
        let lent = Lent { address: 0x7000_0000_1000, len: 4096, key: 0x1234_5678 };
        let bytes = lent.to_bytes();
        assert_eq!(Lent::from_bytes(&bytes, 4096), Ok(lent));
        let wrong = |bytes: &[u8], len: usize| match Lent::from_bytes(bytes, len) {
            Err(Cause::Address(what)) => what,
            other => panic!("{other:?}"),
        };
        assert!(wrong(&bytes, 4097).contains("4096 bytes at 0x700000001000, not 4097"));
        assert!(wrong(&bytes[1..], 1).contains("has 19 bytes, not 20"));
        let behind = Lent { address: u64::MAX - 100, ..lent };
        assert!(wrong(&behind.to_bytes(), 1).contains("4096 bytes"));
    }
}
