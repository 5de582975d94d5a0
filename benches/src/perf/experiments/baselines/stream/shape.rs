//! The layout of a message on the wire.

/// Bytes before a record's body.
pub(crate) const HEAD: usize = 16;
/// Bytes behind it, where it is encrypted.
pub(crate) const TAG: usize = 16;
/// Bytes of a full record.
pub(crate) const BODY: usize = 16 << 10;
/// Bytes of a frame's header, and of a line. A payload that fits the rest of the header's line shares it.
const HEADER: usize = 24;
const LINE: usize = 64;

/// The length of a message's frame, and the bytes around its records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    /// Bytes of the frame.
    pub(crate) frame: usize,
    sealed: bool,
}

impl Shape {
    /// Returns the shape of a call with `payload` bytes, or of a reply with as many.
    pub(crate) fn of(payload: usize, sealed: bool) -> Shape {
        let frame = if HEADER + payload <= LINE { LINE } else { (LINE + payload).next_multiple_of(LINE) };
        Shape { frame, sealed }
    }

    pub(crate) fn records(self) -> usize {
        self.frame.div_ceil(BODY)
    }

    /// Returns the bytes around each record's body.
    pub(crate) fn gap(self) -> usize {
        if self.sealed { HEAD + TAG } else { HEAD }
    }

    /// Returns the bytes of the whole message.
    pub(crate) fn wire(self) -> usize {
        self.frame + self.records() * self.gap()
    }

    /// Returns the end of a record, from the start of the message.
    pub(crate) fn end(self, record: usize) -> usize {
        self.wire().min((record + 1) * (BODY + self.gap()))
    }

    /// Splits the first `at` bytes of the message: the bytes of bodies, and the bytes around them.
    pub(crate) fn split(self, at: usize) -> (usize, usize) {
        let (record, within) = (at / (BODY + self.gap()), at % (BODY + self.gap()));
        let of_body = within.saturating_sub(HEAD).min(BODY).min(self.frame - record * BODY);
        (record * BODY + of_body, record * self.gap() + within - of_body)
    }

    /// Returns the length of the message's piece at `at`, and whether it belongs to a body. A tag and the
    /// next record's head are one piece.
    pub(crate) fn piece(self, at: usize) -> (usize, bool) {
        let record = at / (BODY + self.gap());
        let within = at % (BODY + self.gap());
        let body = BODY.min(self.frame - record * BODY);
        if within < HEAD {
            return (HEAD - within, false);
        }
        if within < HEAD + body {
            return (HEAD + body - within, true);
        }
        let next_head = if record + 1 < self.records() { HEAD } else { 0 };
        (self.gap() + body - within + next_head, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_as_long_as_farjumps() {
        for (payload, frame) in
            [(0, 64), (40, 64), (41, 128), (64, 128), (65, 192), (1 << 20, (1 << 20) + 64)]
        {
            assert_eq!(Shape::of(payload, false).frame, frame, "{payload}");
        }
    }

    #[test]
    fn pieces_from_any_offset_cover_the_rest_of_a_message() {
        for (payload, sealed) in [(8, true), (16_320, false), (16_321, true), (50_000, false), (50_000, true)]
        {
            let shape = Shape::of(payload, sealed);
            for start in 0..shape.wire() {
                let (mut at, (mut bodies, mut ends)) = (start, shape.split(start));
                while at != shape.wire() {
                    assert_eq!(shape.split(at), (bodies, ends), "{payload} at {at}");
                    let (len, is_body) = shape.piece(at);
                    assert_ne!(len, 0);
                    at += len;
                    *if is_body { &mut bodies } else { &mut ends } += len;
                }
                assert_eq!((bodies, ends), (shape.frame, shape.records() * shape.gap()));
            }
        }
    }
}
