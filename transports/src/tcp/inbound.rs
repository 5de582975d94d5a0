//! Receiving: records are decrypted in place, and become messages.

use std::collections::VecDeque;
use std::ptr::NonNull;

use farjump_core::frame::{FrameError, LINE};
use farjump_core::transport::{Cause, Message};

use super::buffers::{self, Buffer, FRONT, RECEIVE};
use super::credit::Windows;
use super::head::{BODY, HEAD, Head, TAG, padded};
use super::keys::Keys;
use super::long_frame::{Long, broken, credit, tampered};
use super::socket::{Got, Socket};

/// Offset in a buffer at which receiving begins, so that the first message lies on a line.
const START: usize = FRONT - HEAD;
/// Longest record in bytes.
const RECORD: usize = HEAD + BODY + TAG;
/// Most receive calls in one poll. They bound the time for a peer that sends bytes without end, but no whole message.
const TURNS: usize = 4;

/// The receiver of a link's records.
// A poll uses all of it.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Inbound {
    keys: Option<Box<Keys>>,
    /// The oldest message: usually the only one.
    first: Option<Ready>,
    /// The receive buffer. Its bytes `at..end` are unparsed records.
    last: Option<Shared>,
    /// A message of several records that has begun.
    long: Option<Box<Long>>,
    at: usize,
    end: usize,
    /// Offset in that buffer at which the next message's record would begin without records of credit between
    /// messages. No message lies behind it.
    after: usize,
    max_frame: u32,
    /// True if the socket was empty at the last receive: then no message has arrived unseen.
    drained: bool,
    /// The messages behind the oldest one, oldest first.
    behind: VecDeque<Ready>,
    /// Full buffers with messages that are not released, oldest first.
    older: VecDeque<Shared>,
    /// The reason why nothing more arrives, behind the ready messages.
    ended: Option<Box<Cause>>,
}

/// A message.
#[derive(Debug)]
struct Ready {
    start: NonNull<u8>,
    len: u32,
    /// Its own buffer; `None` if it is in the oldest shared one.
    own: Option<Buffer>,
}

// SAFETY: the pointer is into a buffer of the same value, which moves with it.
unsafe impl Send for Inbound {}

#[derive(Debug)]
struct Shared {
    buffer: Buffer,
    /// Messages in it that are not released.
    held: usize,
}

/// The result of parsing the received bytes.
#[derive(PartialEq, Eq)]
enum Looked {
    /// A message became ready.
    Message,
    /// More bytes must arrive first.
    Short,
}

impl Inbound {
    pub(super) fn new(keys: Option<Keys>, max_frame: u32) -> Inbound {
        Inbound {
            keys: keys.map(Box::new),
            first: None,
            last: None,
            long: None,
            at: START,
            end: START,
            after: START,
            max_frame,
            drained: true,
            behind: VecDeque::new(),
            older: VecDeque::new(),
            ended: None,
        }
    }

    /// The oldest message that is ready.
    #[inline]
    pub(super) fn front(&self) -> Option<Message> {
        self.first.as_ref().map(|ready| Message::new(ready.start, ready.len as usize))
    }

    /// The reason why nothing more arrives, behind the ready messages.
    pub(super) fn ended(&self) -> Option<&Cause> {
        self.ended.as_deref()
    }

    /// Returns whether no message has arrived; the socket becomes readable at the next one.
    pub(super) fn is_empty(&self) -> bool {
        self.drained && self.first.is_none()
    }

    /// Receives until a message is ready. `false` if nothing has arrived, or [`TURNS`] calls brought no
    /// message.
    ///
    /// # Errors
    /// Nothing more arrives: the same error at each call.
    #[inline]
    pub(super) fn next(&mut self, socket: &Socket, windows: &mut Windows) -> Result<bool, Box<Cause>> {
        if let Some(cause) = &self.ended {
            return Err(cause.clone());
        }
        let found = self.look_further(socket, windows);
        if let Err(cause) = &found {
            self.ended = Some(cause.clone());
        }
        found
    }

    fn look_further(&mut self, socket: &Socket, windows: &mut Windows) -> Result<bool, Box<Cause>> {
        for _ in 0..TURNS {
            if (self.at != self.end || self.long.is_some()) && self.look(windows)? == Looked::Message {
                return Ok(true);
            }
            match self.receive(socket, windows)? {
                Got::Bytes(_) => self.drained = false,
                Got::Nothing => {
                    self.drained = true;
                    if self.first.is_none() {
                        windows.recv_credit.starve();
                    }
                    self.trim();
                    return Ok(false);
                }
                Got::End => return Err(self.cut_short().into()),
            }
        }
        Ok(self.look(windows)? == Looked::Message)
    }

    /// Releases the oldest message. Returns its length.
    #[inline]
    pub(super) fn release(&mut self) -> Option<u32> {
        let Ready { len, own, .. } = self.first.take()?;
        if !self.behind.is_empty() {
            self.first = self.behind.pop_front();
        }
        match own {
            Some(buffer) => buffers::give(buffer),
            None if !self.older.is_empty() => self.release_older(),
            None => {
                if let Some(last) = &mut self.last {
                    last.held -= 1;
                    self.trim();
                }
            }
        }
        Some(len)
    }

    /// Records the release of a message in the oldest buffer.
    #[cold]
    fn release_older(&mut self) {
        if let Some(oldest) = self.older.front_mut() {
            oldest.held -= 1;
            if oldest.held == 0 {
                self.older.pop_front().into_iter().for_each(|shared| buffers::give(shared.buffer));
            }
        }
    }

    /// Returns the last buffer if it is empty.
    #[inline]
    fn trim(&mut self) {
        if self.at == self.end
            && let Some(last) = self.last.take_if(|last| last.held == 0)
        {
            buffers::give(last.buffer);
        }
    }

    /// The meaning of the stream's end at this point.
    #[cold]
    fn cut_short(&self) -> Cause {
        let (found, due) = match &self.long {
            Some(long) => (long.done + long.filled, long.len),
            None => (self.end - self.at, 0),
        };
        match (found, due) {
            (0, 0) => Cause::PeerGone,
            (found, 0) => Cause::Unreachable(format!("its stream ended {found} bytes into a record")),
            (found, due) => {
                Cause::Unreachable(format!("its stream ended {found} bytes into a message of {due}"))
            }
        }
    }

    /// The received bytes that are not parsed.
    fn unread(&mut self, len: usize) -> Option<&mut [u8]> {
        let at = self.at;
        if self.end - at < len {
            return None;
        }
        self.last.as_mut().map(|last| last.buffer.part(at, len))
    }

    /// Parses the received bytes until a message is ready.
    #[inline]
    fn look(&mut self, windows: &mut Windows) -> Result<Looked, Box<Cause>> {
        if self.long.is_some() {
            return self.look_into_long(windows);
        }
        let tag = if self.keys.is_some() { TAG } else { 0 };
        loop {
            if self.end - self.at < HEAD {
                return Ok(Looked::Short);
            }
            let Some(raw) = self.unread(HEAD).and_then(|raw| raw.first_chunk().copied()) else {
                return Ok(Looked::Short);
            };
            let head = Head::read(&raw, 0, 0).map_err(broken)?;
            if head.message != 0 {
                self.admit(&head, windows)?;
            }
            if head.message > u32::from(head.body) {
                return self.begin_long(head, raw, windows);
            }
            let len = match head.body {
                0 => 0,
                body => padded(body.into()),
            };
            let body = self.at + HEAD;
            if self.end - body < len + tag {
                return Ok(Looked::Short);
            }
            let Some(shared) = &mut self.last else { return Ok(Looked::Short) };
            // Moves the body onto the line at or before which it would begin if only messages had arrived. So a peer
            // that sends credit in between does not make this endpoint keep a buffer for each of its messages. The
            // overwritten bytes are heads, tags and credit, not held messages.
            let to = self.after + HEAD;
            let line = to - to % LINE;
            match &mut self.keys {
                Some(keys) => {
                    let Some(tag) = shared.buffer.part(body + len, TAG).first_chunk().copied() else {
                        return Ok(Looked::Short);
                    };
                    let opened =
                        keys.open(&raw, tag, shared.buffer.part(line, body - line + len), body - line);
                    opened.map_err(|_| tampered())?;
                }
                None if line != body && len != 0 => {
                    shared.buffer.part(line, body - line + len).copy_within(body - line.., 0);
                }
                None => {}
            }
            credit(&head, windows)?;
            self.at = body + len + tag;
            if len == 0 {
                continue;
            }
            self.after = to + len + tag;
            windows.recv_credit.receive(head.message);
            shared.held += 1;
            let ready = Ready { start: shared.buffer.at(line), len: head.message, own: None };
            self.push(ready);
            return Ok(Looked::Message);
        }
    }

    /// Adds a message behind the others.
    #[inline]
    fn push(&mut self, ready: Ready) {
        match self.first {
            None => self.first = Some(ready),
            Some(_) => self.behind.push_back(ready),
        }
    }

    /// Checks that a message may begin, before any of it is received.
    fn admit(&self, head: &Head, windows: &Windows) -> Result<(), Box<Cause>> {
        if head.message > self.max_frame {
            let limit = self.max_frame as usize;
            return Err(Box::new(Cause::Protocol(FrameError::TooLong { len: head.message, limit })));
        }
        match windows.recv_credit.takes(head.message) {
            true => Ok(()),
            false => Err(Box::new(Cause::System(format!(
                "the peer broke the protocol: it sent a message of {} bytes beyond the window of this process",
                head.message
            )))),
        }
    }

    /// Begins a message of several records. If records are encrypted, decrypts the first one before: takes no memory
    /// for a length that an attacker on the network may have written.
    #[cold]
    fn begin_long(
        &mut self,
        head: Head,
        raw: [u8; HEAD],
        windows: &mut Windows,
    ) -> Result<Looked, Box<Cause>> {
        let body = self.at + HEAD;
        let opened = match &mut self.keys {
            None => None,
            Some(keys) => {
                let Some(shared) = self.last.as_mut().filter(|_| self.end - body >= BODY + TAG) else {
                    return Ok(Looked::Short);
                };
                let Some(tag) = shared.buffer.part(body + BODY, TAG).first_chunk().copied() else {
                    return Ok(Looked::Short);
                };
                let bytes = shared.buffer.part(body, BODY);
                keys.open(&raw, tag, bytes, 0).map_err(|_| tampered())?;
                Some(bytes)
            }
        };
        let len = head.message as usize;
        let mut long = Long::new(buffers::take(len)?, len, raw);
        windows.recv_credit.receive(head.message);
        self.at = body;
        if let Some(bytes) = opened {
            long.begin_opened(bytes);
            self.at += BODY + TAG;
        }
        self.long = Some(Box::new(long));
        self.look_into_long(windows)
    }

    /// Moves received bytes into the long message that has begun.
    fn look_into_long(&mut self, windows: &mut Windows) -> Result<Looked, Box<Cause>> {
        let Some(long) = &mut self.long else { return Ok(Looked::Short) };
        if self.at != self.end
            && let Some(shared) = &mut self.last
        {
            let bytes = shared.buffer.part(self.at, self.end - self.at);
            self.at += long.feed(bytes, self.keys.as_deref_mut(), windows)?;
        }
        if long.done < long.len {
            self.trim();
            return Ok(Looked::Short);
        }
        if let Some(Long { buffer, len, .. }) = self.long.take().map(|long| *long) {
            // `admit` checked the length against the maximum of a frame.
            self.push(Ready { start: buffer.at(FRONT), len: len as u32, own: Some(buffer) });
        }
        Ok(Looked::Message)
    }

    /// Receives the bytes that have arrived.
    #[inline]
    fn receive(&mut self, socket: &Socket, windows: &mut Windows) -> Result<Got, Box<Cause>> {
        if let Some(long) = &mut self.long {
            let mut next = [0; HEAD];
            let (got, more) = long.receive(socket, self.keys.as_deref_mut(), windows, &mut next)?;
            if more != 0 {
                self.make_space()?;
                if let Some(last) = &mut self.last {
                    last.buffer.part(self.end, more).copy_from_slice(&next[..more]);
                    self.end += more;
                }
            }
            return Ok(got);
        }
        self.make_space()?;
        let Some(last) = &mut self.last else { return Ok(Got::Nothing) };
        let got = socket.receive(last.buffer.part(self.end, FRONT + RECEIVE - self.end))?;
        if let Got::Bytes(bytes) = got {
            self.end += bytes;
        }
        Ok(got)
    }

    /// Makes sure that the last buffer has space for the record that begins at `at`.
    #[inline]
    fn make_space(&mut self) -> Result<(), Box<Cause>> {
        match &mut self.last {
            Some(last) if last.held == 0 && self.at == self.end => {
                (self.at, self.end, self.after) = (START, START, START);
            }
            Some(_) if self.at + RECORD <= FRONT + RECEIVE => {}
            Some(_) => return self.move_on(),
            None => {
                self.last = Some(Shared { buffer: buffers::take(RECEIVE)?, held: 0 });
                (self.at, self.end, self.after) = (START, START, START);
            }
        }
        Ok(())
    }

    /// Moves the record that has begun to the front: behind the messages in its buffer, or without space there into
    /// another buffer.
    #[cold]
    fn move_on(&mut self) -> Result<(), Box<Cause>> {
        let kept = self.end - self.at;
        match &mut self.last {
            Some(last) if last.held == 0 => {
                last.buffer.part(0, self.end).copy_within(self.at.., START);
                self.after = START;
            }
            // The bytes before it were credit.
            Some(last) if self.after + RECORD <= FRONT + RECEIVE => {
                last.buffer.part(0, self.end).copy_within(self.at.., self.after);
            }
            Some(last) => {
                let mut buffer = buffers::take(RECEIVE)?;
                buffer.part(START, kept).copy_from_slice(last.buffer.part(self.at, kept));
                let full = std::mem::replace(last, Shared { buffer, held: 0 });
                self.older.push_back(full);
                self.after = START;
            }
            None => self.after = START,
        }
        (self.at, self.end) = (self.after, self.after + kept);
        Ok(())
    }

    /// Frees large memory if no message is ready: the link may not need so much for a long time.
    pub(super) fn rest(&mut self) {
        if self.behind.is_empty() && self.behind.capacity() > 64 {
            self.behind = VecDeque::new();
        }
    }

    /// Drops received bytes that are not ready, and returns all buffers.
    pub(super) fn clear(&mut self) {
        let ready = self.first.take().into_iter().chain(self.behind.drain(..));
        ready.filter_map(|ready| ready.own).for_each(buffers::give);
        self.older.drain(..).chain(self.last.take()).for_each(|shared| buffers::give(shared.buffer));
        (self.at, self.end, self.after, self.long) = (START, START, START, None);
    }

    /// Sets another number of records for a key.
    #[cfg(test)]
    pub(super) fn set_records(&mut self, records: u64) {
        self.keys.iter_mut().for_each(|keys| keys.set_records(records));
    }

    /// Bytes of the buffers in use.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        let own = self.first.iter().chain(&self.behind).filter_map(|ready| ready.own.as_ref());
        let long = self.long.iter().map(|long| &long.buffer);
        own.chain(long)
            .chain(self.older.iter().chain(&self.last).map(|shared| &shared.buffer))
            .map(Buffer::len)
            .sum()
    }
}
