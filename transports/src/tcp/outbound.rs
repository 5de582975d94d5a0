//! Sending: turns messages into records, and keeps the bytes that the socket does not take.

use std::cmp;
use std::io::IoSlice;
use std::ops::Range;

use farjump_core::transport::Cause;

use super::buffers::{self, Buffer, FRONT};
use super::credit::RecvCredit;
use super::head::{BODY, HEAD, Head, TAG, padded};
use super::keys::Keys;
use super::socket::Socket;
use farjump_os::Owner;

/// Records of a long message that are encrypted and passed to the system together: 512 KiB.
const BATCH: usize = 32;
/// Length of the bytes between two bodies: a tag, and the next head.
const SLOT: usize = TAG + HEAD;

/// The sender of a link's records.
// A poll uses only the first fields.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Outbound {
    /// Bytes that the socket has not taken yet, which precede all others.
    waiting: Option<Waiting>,
    /// The reason why this link cannot send.
    broken: Option<Box<Cause>>,
    keys: Option<Box<Keys>>,
    /// The process that made the link.
    owner: Owner,
}

#[derive(Debug)]
enum Waiting {
    /// Bytes of a buffer: one record.
    Record {
        buffer: Buffer,
        from: usize,
        to: usize,
    },
    /// A record that only returns credit.
    Note {
        bytes: [u8; HEAD + TAG],
        from: u8,
        to: u8,
    },
    Long(Box<Long>),
}

impl Outbound {
    pub(super) fn new(keys: Option<Keys>) -> Outbound {
        Outbound { waiting: None, broken: None, keys: keys.map(Box::new), owner: Owner::this() }
    }

    pub(super) fn keys(&self) -> Option<&Keys> {
        self.keys.as_deref()
    }

    /// Returns whether bytes wait for the socket.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// The reason why this link cannot send.
    #[inline]
    pub(super) fn broken(&self) -> Option<&Cause> {
        self.broken.as_deref()
    }

    /// Stops sending, with the reason `cause` unless there is an earlier one.
    #[cold]
    pub(super) fn end(&mut self, cause: &Cause) {
        self.broken.get_or_insert_with(|| Box::new(cause.clone()));
    }

    /// Returns whether this is a forked child's copy of its parent's link, which has used the keys.
    #[inline]
    pub(super) fn is_copy(&self) -> bool {
        !self.owner.is_this()
    }

    /// Sets another number of records for a key.
    #[cfg(test)]
    pub(super) fn set_records(&mut self, records: u64) {
        self.keys.iter_mut().for_each(|keys| keys.set_records(records));
    }

    /// Sends the first `len` bytes of a buffer's space as one message. Nothing must be waiting.
    #[inline]
    pub(super) fn message(
        &mut self,
        socket: &Socket,
        mut buffer: Buffer,
        len: usize,
        credit: &mut RecvCredit,
    ) -> Result<(), Box<Cause>> {
        if self.broken.is_some() {
            buffers::give(buffer);
            return Ok(());
        }
        if len > BODY {
            self.waiting = Some(Waiting::Long(Box::new(Long::new(buffer, len, 0))));
            return self.flush(socket, credit).map(|_| ());
        }
        let head = head(len, 0, credit).to_bytes();
        let body = padded(len);
        let mut end = FRONT + body;
        buffer.part(FRONT - HEAD, HEAD).copy_from_slice(&head);
        buffer.part(FRONT + len, body - len).fill(0);
        if let Some(keys) = &mut self.keys {
            let tag = seal(keys, &head, buffer.part(FRONT, body))?;
            buffer.part(end, TAG).copy_from_slice(&tag);
            end += TAG;
        }
        let from = FRONT - HEAD;
        match socket.send(buffer.part(from, end - from)) {
            Ok(sent) if sent == end - from => buffers::give(buffer),
            Ok(sent) => self.waiting = Some(Waiting::Record { buffer, from: from + sent, to: end }),
            Err(cause) => self.broken = Some(cause),
        }
        Ok(())
    }

    /// Sends the first `len` bytes of a buffer's space, those at its start replaced by `beside`, as one
    /// message. Copies the bytes of `beside` that the socket does not take now. Nothing must be waiting.
    pub(super) fn message_beside(
        &mut self,
        socket: &Socket,
        mut buffer: Buffer,
        len: usize,
        beside: &[u8],
        credit: &mut RecvCredit,
    ) -> Result<(), Box<Cause>> {
        if len <= BODY {
            buffer.part(FRONT, beside.len()).copy_from_slice(beside);
            return self.message(socket, buffer, len, credit);
        }
        if self.broken.is_some() {
            buffers::give(buffer);
            return Ok(());
        }
        let mut long = Long::new(buffer, len, beside.len());
        match long.send(socket, self.keys.as_deref_mut(), beside, credit)? {
            Ok(true) => buffers::give(long.buffer),
            Ok(false) => {
                long.fetch(long.begun, len, beside);
                self.waiting = Some(Waiting::Long(Box::new(long)));
            }
            Err(cause) => self.broken = Some(cause),
        }
        Ok(())
    }

    /// Returns credit in a separate record, which states whether this endpoint `waits` for credit. `false` if other
    /// bytes wait.
    pub(super) fn note(
        &mut self,
        socket: &Socket,
        waits: bool,
        credit: &mut RecvCredit,
    ) -> Result<bool, Box<Cause>> {
        if !self.flush(socket, credit)? {
            return Ok(false);
        }
        if self.broken.is_some() {
            return Ok(true);
        }
        let head = Head { waits, ..head(0, 0, credit) }.to_bytes();
        let mut bytes = [0; HEAD + TAG];
        bytes[..HEAD].copy_from_slice(&head);
        let mut to = HEAD;
        if let Some(keys) = &mut self.keys {
            bytes[HEAD..].copy_from_slice(&seal(keys, &head, &mut [])?);
            to += TAG;
        }
        self.waiting = Some(Waiting::Note { bytes, from: 0, to: to as u8 });
        self.flush(socket, credit)?;
        Ok(true)
    }

    /// Sends the waiting bytes, as far as the socket takes them. Returns whether none are left.
    ///
    /// # Errors
    /// A record cannot be encrypted. A socket that takes no more bytes is no error here, because bytes that the peer
    /// sent before can still be received.
    pub(super) fn flush(&mut self, socket: &Socket, credit: &mut RecvCredit) -> Result<bool, Box<Cause>> {
        let sent = match &mut self.waiting {
            None => return Ok(true),
            Some(Waiting::Record { buffer, from, to }) => {
                socket.send(buffer.part(*from, *to - *from)).map(|sent| {
                    *from += sent;
                    from == to
                })
            }
            Some(Waiting::Note { bytes, from, to }) => {
                socket.send(&bytes[usize::from(*from)..usize::from(*to)]).map(|sent| {
                    // The record has 32 bytes.
                    *from += sent as u8;
                    from == to
                })
            }
            Some(Waiting::Long(long)) => long.send(socket, self.keys.as_deref_mut(), &[], credit)?,
        };
        match sent {
            Ok(false) => return Ok(false),
            Ok(true) => {}
            Err(cause) => self.broken = Some(cause),
        }
        match self.waiting.take() {
            Some(Waiting::Record { buffer, .. }) => buffers::give(buffer),
            Some(Waiting::Long(long)) => buffers::give(long.buffer),
            Some(Waiting::Note { .. }) | None => {}
        }
        Ok(true)
    }
}

/// The head of the record with the bytes from `done` on of a message of `len`, and the present credit.
fn head(len: usize, done: usize, credit: &mut RecvCredit) -> Head {
    let body = cmp::min(len - done, BODY);
    let (consumed, window) = credit.return_credit();
    // No message is longer than 2^31 bytes, and no body longer than `BODY`.
    Head {
        message: len as u32,
        body: body as u16,
        last: len != 0 && done + body == len,
        waits: false,
        consumed,
        window,
    }
}

#[inline]
fn seal(keys: &mut Keys, head: &[u8; HEAD], body: &mut [u8]) -> Result<[u8; TAG], Box<Cause>> {
    keys.seal(head, body).map_err(|_| Box::new(Cause::System("a record could not be sealed".to_owned())))
}

/// An outgoing message of several records. Records are encrypted in place just before they are written. Heads and tags
/// are behind the space, in a slot before each record and one behind the last. Each slot has the tag of the record
/// before it and the head of the record behind it.
#[derive(Debug)]
struct Long {
    buffer: Buffer,
    len: usize,
    /// The batch being written: its first byte in the message, and the one behind its last.
    begun: usize,
    ended: usize,
    /// Bytes of the batch that were written, heads and tags included.
    written: usize,
    /// Bytes of the message that are still needed and not in the buffer: the sender of the message has them.
    elsewhere: Range<usize>,
}

impl Long {
    /// Makes a message of `len` bytes, which are in `buffer` but for the first `elsewhere`.
    fn new(buffer: Buffer, len: usize, elsewhere: usize) -> Long {
        Long { buffer, len, begun: 0, ended: 0, written: 0, elsewhere: 0..elsewhere }
    }

    /// Copies the bytes of the message from `from` to `to` that are not in the buffer from `beside`.
    fn fetch(&mut self, from: usize, to: usize, beside: &[u8]) {
        let (from, to) = (cmp::max(from, self.elsewhere.start), cmp::min(to, self.elsewhere.end));
        if from < to {
            self.buffer.part(FRONT + from, to - from).copy_from_slice(&beside[from..to]);
            self.elsewhere.start = to;
        }
    }

    /// Sends as much as the socket takes. Returns whether the socket took everything, or the reason why it takes no
    /// more.
    fn send(
        &mut self,
        socket: &Socket,
        mut keys: Option<&mut Keys>,
        beside: &[u8],
        credit: &mut RecvCredit,
    ) -> Result<Result<bool, Box<Cause>>, Box<Cause>> {
        loop {
            if self.begun == self.ended {
                self.seal(keys.as_deref_mut(), beside, credit)?;
            }
            let (sent, left) = match self.write(socket, keys.is_some(), beside) {
                Ok(written) => written,
                Err(cause) => return Ok(Err(cause)),
            };
            self.written += sent;
            if sent < left {
                return Ok(Ok(false));
            }
            (self.begun, self.written) = (self.ended, 0);
            if self.ended == self.len {
                return Ok(Ok(true));
            }
        }
    }

    fn slot(&self, number: usize) -> usize {
        FRONT + self.buffer.capacity() + number * SLOT
    }

    /// Makes the records of the next batch.
    fn seal(
        &mut self,
        mut keys: Option<&mut Keys>,
        beside: &[u8],
        credit: &mut RecvCredit,
    ) -> Result<(), Box<Cause>> {
        for number in 0..BATCH {
            let done = self.ended;
            let head = head(self.len, done, credit);
            let (body, last, head) = (usize::from(head.body), head.last, head.to_bytes());
            let slot = self.slot(number);
            self.buffer.part(slot + TAG, HEAD).copy_from_slice(&head);
            if let Some(keys) = keys.as_deref_mut() {
                // Encrypted at once, while it is in the nearest cache.
                self.fetch(done, done + body, beside);
                let tag = seal(keys, &head, self.buffer.part(FRONT + done, body))?;
                self.buffer.part(slot + SLOT, TAG).copy_from_slice(&tag);
            }
            self.ended += body;
            if last {
                break;
            }
        }
        Ok(())
    }

    /// Writes the unwritten part of the batch. Returns the bytes written, and the bytes to write.
    fn write(&mut self, socket: &Socket, sealed: bool, beside: &[u8]) -> Result<(usize, usize), Box<Cause>> {
        let slots = self.slot(0);
        let records = (self.ended - self.begun).div_ceil(BODY);
        let (elsewhere, end) = (self.elsewhere.clone(), self.ended);
        let bytes = &*self.buffer.part(0, self.buffer.len());
        let mut pieces =
            Pieces { list: [IoSlice::new(&[]); MOST_PIECES], used: 0, skip: self.written, left: 0 };
        for number in 0..=records {
            let (tag, head) = (sealed && number != 0, number != records);
            let from = slots + number * SLOT + if tag { 0 } else { TAG };
            let to = slots + number * SLOT + if head { SLOT } else { TAG };
            pieces.push(&bytes[from..to]);
            if head {
                let at = self.begun + number * BODY;
                let behind = cmp::min(at + BODY, end);
                let (from, to) = (elsewhere.start.clamp(at, behind), elsewhere.end.clamp(at, behind));
                match from < to {
                    true => {
                        pieces.push(&bytes[FRONT + at..FRONT + from]);
                        pieces.push(&beside[from..to]);
                        pieces.push(&bytes[FRONT + to..FRONT + behind]);
                    }
                    false => pieces.push(&bytes[FRONT + at..FRONT + behind]),
                }
            }
        }
        Ok((socket.send_pieces(&pieces.list[..pieces.used])?, pieces.left))
    }
}

/// Most pieces of a batch: a slot and a body for each record, the last slot, and two more at the start and the end of
/// bytes that lie elsewhere.
const MOST_PIECES: usize = 2 * BATCH + 3;

/// The pieces passed to the system together.
struct Pieces<'b> {
    list: [IoSlice<'b>; MOST_PIECES],
    used: usize,
    /// Bytes that were written before.
    skip: usize,
    /// Bytes in the list.
    left: usize,
}

impl<'b> Pieces<'b> {
    fn push(&mut self, bytes: &'b [u8]) {
        let skipped = cmp::min(self.skip, bytes.len());
        self.skip -= skipped;
        if bytes.len() > skipped {
            self.list[self.used] = IoSlice::new(&bytes[skipped..]);
            self.used += 1;
            self.left += bytes.len() - skipped;
        }
    }
}
