//! Clear records as in `docs/reference/protocol.md`, written and read independently of the tested code.

use super::MAX_FRAME;

/// Bytes of a clear record's head.
const HEAD: usize = 16;
/// Bytes of a message in a record.
const BODY: usize = 16 << 10;

/// A clear record without a body.
pub(super) fn credit(consumed: u32, odd: u8) -> [u8; HEAD] {
    head(0, 0, u16::from(odd % 2) << 1, if odd.is_multiple_of(16) { consumed } else { 0 })
}

/// A clear message of `len` bytes, usually a right one.
pub(super) fn message(consumed: u32, len: usize, odd: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut done = 0;
    while done < len {
        let body = (len - done).min(BODY);
        let flags = u16::from(done + body == len) | u16::from(odd / 32 % 2) << 1;
        let mut head =
            head(len as u32, body as u16, flags, if odd.is_multiple_of(16) { consumed } else { 0 });
        if odd >= 0xe0 {
            head[usize::from(odd % 8)] ^= 1 << (odd / 8 % 8);
        }
        bytes.extend(head);
        bytes.extend(std::iter::repeat_n(odd, padded(len, body)));
        done += body;
    }
    bytes
}

/// Bytes that credit counts for a message of `len`.
fn lines(len: usize) -> usize {
    len.next_multiple_of(64)
}

/// Bytes of a record's body with its padding: a body of `body` bytes, of a message of `len`.
fn padded(len: usize, body: usize) -> usize {
    if len > BODY || len == 0 { body } else { body.max(lines(len) - HEAD) }
}

fn head(message: u32, body: u16, flags: u16, consumed: u32) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..4].copy_from_slice(&message.to_le_bytes());
    head[4..6].copy_from_slice(&body.to_le_bytes());
    head[6..8].copy_from_slice(&flags.to_le_bytes());
    head[8..12].copy_from_slice(&consumed.to_le_bytes());
    head[12..].copy_from_slice(&(1_u32 << 20).to_le_bytes());
    head
}

/// A reader of clear records.
pub(super) struct Reader {
    window: usize,
    bytes: Vec<u8>,
    /// The message that has begun: its length, and the bytes so far.
    begun: Option<(usize, Vec<u8>)>,
    pub(super) messages: Vec<Vec<u8>>,
    /// Bytes of all messages, including the missing ones of the last.
    total: usize,
    /// The last consumed position that a head named.
    consumed: u32,
    /// Whether a forbidden head came.
    pub(super) lie: bool,
    /// True if something came that ends the link, or may end it at another pace.
    pub(super) may_end: bool,
}

impl Reader {
    pub(super) fn new(window: usize) -> Reader {
        Reader {
            window,
            bytes: Vec::new(),
            begun: None,
            messages: Vec::new(),
            total: 0,
            consumed: 0,
            lie: false,
            may_end: false,
        }
    }

    /// Reads more bytes. The receiver has sent `replied` bytes of messages.
    pub(super) fn read(&mut self, bytes: &[u8], replied: u32) {
        self.bytes.extend(bytes);
        let mut at = 0;
        while let (false, Some(head)) = (self.lie, self.bytes.get(at..at + HEAD)) {
            let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
            let half = |at: usize| usize::from(u16::from_le_bytes([head[at], head[at + 1]]));
            let (len, body, flags) = (word(0) as usize, half(4), half(6));
            let (consumed, window) = (word(8), word(12));
            let (due, done) = self.begun.as_ref().map_or((len, 0), |(due, came)| (*due, came.len()));
            let is_last = len != 0 && len.saturating_sub(done) <= BODY;
            self.lie = flags >= 4
                || len != due
                || body != len.saturating_sub(done).min(BODY)
                || (flags & 1 == 1) != is_last
                || len > MAX_FRAME;
            if self.lie {
                break;
            }
            if done == 0 {
                // Earlier heads decide whether there is credit for it.
                self.may_end |= self.total != 0 && self.total + lines(len) > self.window;
            }
            let padded = padded(len, body);
            let Some(body) = self.bytes.get(at + HEAD..at + HEAD + padded).map(|bytes| &bytes[..body]) else {
                break;
            };
            if done == 0 && len != 0 {
                self.begun = Some((len, Vec::new()));
                self.total += lines(len);
            }
            self.may_end |= consumed < self.consumed || consumed > replied || window > 1 << 31;
            self.consumed = consumed;
            at += HEAD + padded;
            if let Some((_, came)) = &mut self.begun {
                came.extend(body);
                if came.len() == len {
                    self.messages.extend(self.begun.take().map(|(_, came)| came));
                }
            }
        }
        drop(self.bytes.drain(..at));
    }
}
