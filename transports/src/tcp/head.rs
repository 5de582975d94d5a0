//! The head of a record: its contents, and the credit that travels with it.

use farjump_core::frame::LINE;

/// Length of a head in bytes.
pub(super) const HEAD: usize = 16;
/// Most bytes of a message in one record. All records of a message but the last have this many.
pub(super) const BODY: usize = 16 << 10;
/// Length in bytes of the authentication tag behind the body of an encrypted record.
pub(super) const TAG: usize = 16;

/// Length in bytes of the body of a message of `len` bytes in its record. The sender pads it with zeroes until the next
/// record ends on or behind the line at which the following message may begin. So a receiver of several messages moves
/// each by less than a head to put it on a line. The sender does not pad a message of several records.
#[inline]
pub(super) const fn padded(len: usize) -> usize {
    let least = len.next_multiple_of(LINE) - HEAD;
    if len > BODY || len > least { len } else { least }
}

/// The record is the last of its message.
const LAST: u16 = 1 << 0;
/// The sender has something to send and no credit for it.
const WAITS: u16 = 1 << 1;

/// The parts of a head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    /// Length of the message that the record belongs to, without padding; 0 in a record that only returns
    /// credit.
    pub(super) message: u32,
    /// Bytes of the message in this record.
    pub(super) body: u16,
    pub(super) last: bool,
    pub(super) waits: bool,
    /// Bytes of messages that the record's sender has consumed, modulo 2^32.
    pub(super) consumed: u32,
    /// Bytes beyond `consumed` that it accepts.
    pub(super) window: u32,
}

/// A head that no honest peer sends here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Lie {
    #[error("its flags are {0:#06x}")]
    Flags(u16),
    #[error("it is a part of a message of {found} bytes, and one of {due} bytes has begun")]
    Other { found: u32, due: u32 },
    #[error("it has {found} bytes, not {due}")]
    Body { found: u16, due: u16 },
    #[error("whether it is the last of its message does not go with its length")]
    Last,
}

impl Head {
    #[inline]
    pub(super) fn to_bytes(self) -> [u8; HEAD] {
        let flags = if self.last { LAST } else { 0 } | if self.waits { WAITS } else { 0 };
        let bits = u128::from(self.message)
            | u128::from(self.body) << 32
            | u128::from(flags) << 48
            | u128::from(self.consumed) << 64
            | u128::from(self.window) << 96;
        bits.to_le_bytes()
    }

    /// Parses the head in these bytes. `done` bytes of a message of `len` had arrived before it; both are 0
    /// between messages.
    ///
    /// # Errors
    /// The head cannot follow them.
    #[inline]
    pub(super) fn read(bytes: &[u8; HEAD], len: u32, done: u32) -> Result<Head, Lie> {
        let bits = u128::from_le_bytes(*bytes);
        let flags = (bits >> 48) as u16;
        if flags & !(LAST | WAITS) != 0 {
            return Err(Lie::Flags(flags));
        }
        let head = Head {
            message: bits as u32,
            body: (bits >> 32) as u16,
            last: flags & LAST != 0,
            waits: flags & WAITS != 0,
            consumed: (bits >> 64) as u32,
            window: (bits >> 96) as u32,
        };
        if len != 0 && head.message != len {
            return Err(Lie::Other { found: head.message, due: len });
        }
        let left = head.message - done;
        let due = left.min(BODY as u32) as u16;
        if head.body != due {
            return Err(Lie::Body { found: head.body, due });
        }
        if head.last != (left != 0 && left == u32::from(due)) {
            return Err(Lie::Last);
        }
        Ok(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(message: u32, body: u16, last: bool) -> Head {
        Head { message, body, last, waits: false, consumed: 7, window: 9 }
    }

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let full = BODY as u16;
        for (head, len, done) in [
            (head(0, 0, false), 0, 0),
            (Head { waits: true, ..head(64, 64, true) }, 0, 0),
            (head(17, 17, true), 0, 0),
            (head(BODY as u32, full, true), 0, 0),
            (head(1 << 31, full, false), 0, 0),
            (head(1 << 20, full, false), 1 << 20, full.into()),
            (head(3 * BODY as u32, full, true), 3 * BODY as u32, 2 * BODY as u32),
        ] {
            assert_eq!(Head::read(&head.to_bytes(), len, done), Ok(head));
        }
    }

    #[test]
    fn padding_keeps_the_line_of_the_next_message_behind_the_present_one() {
        for len in 1..=BODY {
            let body = padded(len);
            assert!(body >= len && body <= BODY && body < len + LINE - HEAD);
            // The next body begins behind one more head.
            assert!((body + HEAD) / LINE * LINE >= len, "{len}");
        }
        assert_eq!([24, 48, 49, 64, 65, BODY, BODY + 1].map(padded), [48, 48, 49, 64, 112, BODY, BODY + 1]);
    }

    #[test]
    fn each_field_that_lies_is_found() {
        let long = 2 * BODY as u32;
        for (lie, len, done) in [
            (head(65, 64, true), 0, 0),
            (head(65, 112, true), 0, 0),
            (head(64, 0, true), 0, 0),
            (head(64, 128, true), 0, 0),
            (head(64, 64, false), 0, 0),
            (head(0, 64, true), 0, 0),
            (head(0, 0, true), 0, 0),
            (head(long, BODY as u16, true), 0, 0),
            (head(long, 64, false), 0, 0),
            (head(long, BODY as u16, false), long, BODY as u32),
            (head(64, 64, true), long, BODY as u32),
            (head(0, 0, false), long, BODY as u32),
            (head(long + 64, BODY as u16, false), long, BODY as u32),
        ] {
            Head::read(&lie.to_bytes(), len, done).expect_err(&format!("{lie:?} was taken"));
        }
        for bit in 2..16 {
            let mut bytes = head(64, 64, true).to_bytes();
            bytes[6 + bit / 8] |= 1 << (bit % 8);
            assert!(matches!(Head::read(&bytes, 0, 0), Err(Lie::Flags(_))));
        }
    }
}
