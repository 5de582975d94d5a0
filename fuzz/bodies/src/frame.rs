//! The body for frames.
//!
//! Its input: the line of the page at which the frame starts (a byte, modulo 64), the largest accepted frame
//! (a byte, in lines; 255: any), then the frame.

use std::ops::Range;

use farjump_core::frame::{
    CODE_HEADER_LEN, DELIVERED_HEADER_LEN, Flags, FrameView, HEADER_LEN, Header, Kind, LINE, MAX_NAME,
    MESSAGES_HEAD_LEN, Messages, Parts, Plan, PlanCode, TRAILER_LEN, Trailer,
};

use crate::assert_words;

/// The names and contents of a frame, without their locations.
#[derive(PartialEq, Eq, Debug)]
struct Contents<'a> {
    kind: Kind,
    wants_reply: bool,
    alone: bool,
    index: u16,
    token: u32,
    align_log2: u8,
    code: Option<([u8; 16], u64)>,
    payload: &'a [u8],
    image: Option<&'a [u8]>,
    name: Option<&'a [u8]>,
}

impl<'a> Contents<'a> {
    fn of(view: &FrameView<'a>) -> Contents<'a> {
        let header = view.header();
        Contents {
            kind: header.kind,
            wants_reply: header.flags.contains(Flags::WANTS_REPLY),
            alone: header.flags.contains(Flags::ALONE),
            index: header.index,
            token: header.token,
            align_log2: header.align_log2(),
            code: view.parts().code.map(|code| (code.id.0, code.epoch)),
            payload: view.payload(),
            image: view.image(),
            name: view.name(),
        }
    }

    /// A sender's plan of a frame with these contents, which are those of `view`. `None` if the name is not text, as
    /// a sender's always is.
    fn plan(&self, view: &FrameView<'a>) -> Option<Plan<'a>> {
        let name = std::str::from_utf8(self.name.unwrap_or_default()).ok()?;
        let image = self.image.unwrap_or_default();
        Some(Plan {
            kind: self.kind,
            wants_reply: self.wants_reply,
            alone: self.alone,
            travelled: false,
            index: self.index,
            token: self.token,
            align_log2: self.align_log2,
            code: view.parts().code.map(|code| PlanCode {
                image,
                id: code.id,
                epoch: code.epoch,
                name,
                family: None,
            }),
        })
    }
}

/// Reads a frame in three ways: as a delivered message, as a whole in memory, and field by field like a
/// mailbox, trailers included.
pub fn frame(data: &[u8]) {
    let [line, lines, frame @ ..] = data else { return };
    let base = usize::from(line % 64) * LINE;
    let limit = if *lines == u8::MAX { usize::MAX } else { usize::from(*lines) * LINE };
    check_delivered(frame, limit);
    check_header(frame, base, limit);
    let view = match FrameView::new_checked(frame, base, limit) {
        Ok(view) => view,
        Err(error) => return assert_words(&error),
    };
    let (header, parts) = (view.header(), view.parts());
    assert_eq!(header.frame_len as usize, frame.len());
    assert_eq!(view.signal(), word(frame, 0));
    assert_eq!(view.name().is_some(), header.kind.names_code());
    assert_eq!(view.image().is_some(), header.kind.carries_image());
    if header.kind == Kind::Skip {
        return assert!(view.payload().is_empty());
    }
    assert!(frame.len() <= limit, "{header:?} is over the limit {limit}");
    assert_eq!(address(view.payload()), address(frame) + parts.payload as usize);
    if header.kind == Kind::CallBatch {
        check_messages(&header, view.payload());
    }

    // The same parts at the same offsets, and other bytes between them.
    let mut again = vec![0x5a; frame.len()];
    put(&mut again, 0, &frame[..8]);
    put_words(&mut again, 8, &header.to_words());
    if let Some(code) = parts.code {
        put_words(&mut again, HEADER_LEN, &code.to_words(parts.payload));
        put(&mut again, CODE_HEADER_LEN, view.name().unwrap_or_default());
        put(&mut again, code.image_offset as usize, view.image().unwrap_or_default());
    }
    put(&mut again, parts.payload as usize, view.payload());
    let read = FrameView::new_checked(&again, base, limit).expect("a frame put together again is one");
    assert_eq!((read.header(), read.parts()), (header, parts));
    assert_eq!(Contents::of(&read), Contents::of(&view));
    lay_out_again(&view, base);
}

/// Checks that accepted messages lie in the payload, one behind the other.
fn check_messages(header: &Header, payload: &[u8]) {
    match Messages::of(header, || word(payload, 0)) {
        Ok(Messages { len, count }) => {
            let len = len as usize;
            let last = MESSAGES_HEAD_LEN + (count as usize - 1) * Messages::stride(len);
            assert!(
                payload.get(last..).is_some_and(|rest| rest.len() >= len) && Messages::stride(len) >= len
            );
        }
        Err(error) => assert_words(&error),
    }
}

/// Reads a message. It has to be one frame, whose payload reaches to the header at its end.
fn check_delivered(message: &[u8], limit: usize) {
    let view = match FrameView::of_delivered(message, limit) {
        Ok(view) => view,
        Err(error) => return assert_words(&error),
    };
    let (header, parts) = (view.header(), view.parts());
    assert!(message.len() <= limit && header.frame_len as usize == message.len(), "{header:?}");
    assert_eq!(address(view.payload()), address(message) + parts.payload as usize);
    assert_eq!((parts.payload + header.payload_len) as usize + DELIVERED_HEADER_LEN, message.len());
    assert_eq!(view.name().is_some(), header.kind.names_code());
    assert_eq!(view.image().is_some(), header.kind.carries_image());
    if let Some(code) = parts.code {
        assert_apart(
            &Header { frame_len: header.frame_len - DELIVERED_HEADER_LEN as u32, ..header },
            &parts,
            0,
        );
        assert!(usize::from(code.name_len) <= MAX_NAME);
    }
    if header.kind == Kind::CallBatch {
        check_messages(&header, view.payload());
    }
    let contents = Contents::of(&view);
    let Some(plan) = contents.plan(&view) else { return };
    let len = contents.payload.len();
    let layout = plan.layout_delivered(len);
    let mut made = vec![0; layout.frame_len];
    let stamp = view.signal() as u32;
    assert_eq!(
        plan.write_delivered(&layout, stamp, len, &mut made).map(|made| made.payload_len),
        Some(len as u32)
    );
    put(&mut made, layout.payload, contents.payload);
    let read = FrameView::of_delivered(&made, usize::MAX).expect("what is laid out passes the check");
    assert_eq!((Contents::of(&read), read.signal()), (contents, view.signal()));
}

/// Checks that a frame laid out by a sender with the read contents reads the same.
fn lay_out_again(view: &FrameView<'_>, base: usize) {
    let contents = Contents::of(view);
    let Some(plan) = contents.plan(view) else { return };
    let (image, name) = (contents.image.unwrap_or_default(), contents.name.unwrap_or_default());
    let len = contents.payload.len();
    let layout = plan.layout(base, len, Trailer::Never);
    let mut made = vec![0xa5; layout.frame_len];
    put_words(&mut made, 8, &plan.header(&layout, len).to_words());
    if let Some(part) = plan.code_part(&layout) {
        put_words(&mut made, HEADER_LEN, &part.to_words(layout.payload as u32));
        put(&mut made, CODE_HEADER_LEN, name);
        put(&mut made, part.image_offset as usize, image);
    }
    put(&mut made, layout.payload, contents.payload);
    let read = FrameView::new_checked(&made, base, usize::MAX).expect("what is laid out passes the check");
    assert_eq!(Contents::of(&read), contents);
}

/// Reads like a mailbox: the words of the header, in a ring as long as the input.
fn check_header(frame: &[u8], base: usize, limit: usize) {
    if frame.len() < LINE {
        return;
    }
    let words = [word(frame, 8), word(frame, 16)];
    let header = match Header::from_words(words) {
        Ok(header) => header,
        Err(error) => return assert_words(&error),
    };
    assert_eq!(header.to_words(), words);
    let mut asked = false;
    let checked = header.check(base, frame.len(), limit, || {
        asked = true;
        [24, 32, 40, 48, 56].map(|at| word(frame, at))
    });
    assert!(!asked || header.kind.names_code(), "{header:?} was asked for code");
    match checked {
        Ok(parts) if header.kind != Kind::Skip => assert_apart(&header, &parts, base),
        Ok(parts) => assert_eq!((header.frame_len as usize, parts.code), (frame.len(), None)),
        Err(error) => assert_words(&error),
    }
}

/// Checks that header, name, image, payload and trailer follow each other and end where the frame ends.
fn assert_apart(header: &Header, parts: &Parts, base: usize) {
    let (payload, len) = (u64::from(parts.payload), u64::from(header.frame_len));
    let mut ranges: Vec<Range<u64>> = Vec::new();
    match parts.code {
        None => ranges.push(0..HEADER_LEN as u64),
        Some(code) => {
            let image = u64::from(code.image_offset);
            ranges.push(0..CODE_HEADER_LEN as u64 + u64::from(code.name_len));
            ranges.extend((code.image_len != 0).then(|| image..image + u64::from(code.image_len)));
        }
    }
    ranges.push(payload..payload + u64::from(header.payload_len));
    let trailer = if header.flags.contains(Flags::TRAILER) { TRAILER_LEN as u64 } else { 0 };
    ranges.push(len - trailer..len);
    let apart = ranges.windows(2).all(|pair| pair[0].end <= pair[1].start);
    assert!(apart, "{ranges:?} are not apart: {header:?} {parts:?}");
    let aligned = (base as u64 + payload).is_multiple_of(1 << header.align_log2());
    assert!(aligned && (3..=12).contains(&header.align_log2()), "{header:?} {parts:?} at {base}");
}

fn address(bytes: &[u8]) -> usize {
    bytes.as_ptr().addr()
}

fn word(frame: &[u8], at: usize) -> u64 {
    frame[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn put(frame: &mut [u8], at: usize, part: &[u8]) {
    frame[at..at + part.len()].copy_from_slice(part);
}

fn put_words(frame: &mut [u8], at: usize, words: &[u64]) {
    for (index, word) in words.iter().enumerate() {
        put(frame, at + index * 8, &word.to_le_bytes());
    }
}
