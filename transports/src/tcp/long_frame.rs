//! Messages of several records, received into the memory from which the function reads them.

use std::cmp;
use std::io::IoSliceMut;

use farjump_core::transport::Cause;

use super::buffers::{Buffer, FRONT};
use super::credit::Windows;
use super::head::{BODY, HEAD, Head, Lie, TAG};
use super::keys::Keys;
use super::socket::{Got, Socket};

/// Records received by one call.
const BATCH: usize = 32;

/// An incoming message of several records.
#[derive(Debug)]
pub(super) struct Long {
    pub(super) buffer: Buffer,
    pub(super) len: usize,
    /// Bytes of records that arrived whole and were decrypted.
    pub(super) done: usize,
    /// Bytes of the arriving record, behind its head: its body, its tag, the next head.
    pub(super) filled: usize,
    /// True if that record was decrypted before the message had a buffer.
    opened: bool,
    /// The head of that record.
    head: [u8; HEAD],
    /// The arrived part of its tag and the next head.
    slot: [u8; TAG + HEAD],
}

impl Long {
    /// Makes a message of `len` bytes, whose first head has arrived.
    pub(super) fn new(buffer: Buffer, len: usize, head: [u8; HEAD]) -> Long {
        Long { buffer, len, done: 0, filled: 0, opened: false, head, slot: [0; TAG + HEAD] }
    }

    /// Takes the body of the first record, which is decrypted, with its tag checked.
    pub(super) fn begin_opened(&mut self, body: &[u8]) {
        self.buffer.part(FRONT, body.len()).copy_from_slice(body);
        self.filled = body.len() + TAG;
        self.opened = true;
    }

    /// Length of the body of the record that begins at byte `done` of the message, and length of the bytes
    /// between it and the next body.
    fn lengths(&self, done: usize, sealed: bool) -> (usize, usize) {
        let body = cmp::min(self.len - done, BODY);
        let tag = if sealed { TAG } else { 0 };
        (body, if done + body == self.len { tag } else { tag + HEAD })
    }

    /// Takes the part of `bytes` that belongs to the message. Returns its length.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        mut keys: Option<&mut Keys>,
        windows: &mut Windows,
    ) -> Result<usize, Box<Cause>> {
        let mut rest = bytes;
        while !rest.is_empty() && self.done < self.len {
            let (body, slot) = self.lengths(self.done, keys.is_some());
            let (to, from) = match self.filled < body {
                true => {
                    let take = cmp::min(body - self.filled, rest.len());
                    (self.buffer.part(FRONT + self.done + self.filled, take), take)
                }
                false => {
                    let at = self.filled - body;
                    let take = cmp::min(slot - at, rest.len());
                    (&mut self.slot[at..at + take], take)
                }
            };
            to.copy_from_slice(&rest[..from]);
            rest = &rest[from..];
            self.filled += from;
            if self.filled == body + slot {
                self.finish(body, keys.as_deref_mut(), windows)?;
            }
        }
        Ok(bytes.len() - rest.len())
    }

    /// Finishes a record that is whole, and whose next head has arrived.
    fn finish(
        &mut self,
        body: usize,
        keys: Option<&mut Keys>,
        windows: &mut Windows,
    ) -> Result<(), Box<Cause>> {
        let mut next = 0;
        // Neither is longer than 2^31 bytes.
        let (len, done) = (self.len as u32, self.done as u32);
        if let Some(keys) = keys {
            let Some(tag) = self.slot.first_chunk().copied() else { return Err(tampered().into()) };
            if !std::mem::take(&mut self.opened) {
                keys.open(&self.head, tag, self.buffer.part(FRONT + self.done, body), 0)
                    .map_err(|_| tampered())?;
            }
            next = TAG;
        }
        credit(&Head::read(&self.head, len, done).map_err(broken)?, windows)?;
        self.done += body;
        self.filled = 0;
        if self.done < self.len {
            self.head.copy_from_slice(&self.slot[next..next + HEAD]);
            Head::read(&self.head, len, self.done as u32).map_err(broken)?;
        }
        Ok(())
    }

    /// Receives into the message itself, and the head behind it into `next`. Returns the result, and the
    /// number of bytes in `next`.
    pub(super) fn receive(
        &mut self,
        socket: &Socket,
        mut keys: Option<&mut Keys>,
        windows: &mut Windows,
        next: &mut [u8; HEAD],
    ) -> Result<(Got, usize), Box<Cause>> {
        let sealed = keys.is_some();
        let mut slots = [[0; TAG + HEAD]; BATCH];
        slots[0] = self.slot;
        let mut pieces: [_; 2 * BATCH + 1] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
        let (mut used, mut done, mut filled) = (0, self.done, self.filled);
        let lengths: [_; BATCH] = std::array::from_fn(|_| {
            let lengths = self.lengths(done, sealed);
            done += lengths.0;
            lengths
        });
        let mut rest = self.buffer.part(FRONT + self.done, self.len - self.done);
        for ((body, slot), bytes) in lengths.iter().zip(&mut slots) {
            let (this, others) = rest.split_at_mut(*body);
            rest = others;
            if filled < *body {
                pieces[used] = IoSliceMut::new(&mut this[filled..]);
                used += 1;
            }
            let from = filled.saturating_sub(*body);
            if from < *slot {
                pieces[used] = IoSliceMut::new(&mut bytes[from..*slot]);
                used += 1;
            }
            filled = 0;
            if rest.is_empty() {
                break;
            }
        }
        if rest.is_empty() {
            pieces[used] = IoSliceMut::new(next);
            used += 1;
        }
        let got = socket.receive_pieces(&mut pieces[..used])?;
        let Got::Bytes(mut bytes) = got else { return Ok((got, 0)) };
        for ((body, slot), came) in lengths.iter().zip(&slots) {
            if bytes == 0 || self.done == self.len {
                break;
            }
            let take = cmp::min(bytes, body + slot - self.filled);
            bytes -= take;
            self.filled += take;
            self.slot = *came;
            if self.filled == body + slot {
                self.finish(*body, keys.as_deref_mut(), windows)?;
            }
        }
        Ok((got, bytes))
    }
}

/// Takes the credit of a decrypted record.
#[inline]
pub(super) fn credit(head: &Head, windows: &mut Windows) -> Result<(), Box<Cause>> {
    if head.waits {
        windows.recv_credit.peer_waits();
    }
    match windows.send_credit.take(head.consumed, head.window) {
        true => Ok(()),
        false => Err(Box::new(Cause::System(
            "the peer broke the protocol: it consumed bytes that were not sent, or takes more than 2 GiB"
                .to_owned(),
        ))),
    }
}

#[cold]
pub(super) fn broken(lie: Lie) -> Cause {
    Cause::System(format!("the peer broke the protocol: in the head of a record, {lie}"))
}

#[cold]
pub(super) fn tampered() -> Cause {
    Cause::System("a record does not open: it was changed on the way, lost, or sent once more".to_owned())
}
