//! One test for each way in which bytes are no frame, at the edges.

use farjump_core::frame::{Flags, FrameError, FrameView, Header, Kind, LINE, Plan};

use super::{NO_LIMIT, bytes, code, no_code, plan, put_word};

/// A call of one line, aligned to 8, whose fields `change` may spoil.
fn call(change: impl FnOnce(&mut Header)) -> Result<(), FrameError> {
    let flags = Flags::from_bits(3).unwrap();
    let mut header = Header { frame_len: 64, payload_len: 40, kind: Kind::Call, flags, index: 0, token: 0 };
    change(&mut header);
    header.check(0, 4096, 1024, no_code).map(|_| ())
}

/// A frame of kind `kind` with a name of four bytes, an image of 100 if the kind has one, and a payload of
/// 200. `change` may spoil its words at 24.
fn with_code(kind: Kind, change: impl FnOnce(&mut [u64; 5])) -> Result<(), FrameError> {
    let image = [1; 100];
    let image = if kind.carries_image() { &image[..] } else { &[] };
    let plan = Plan { code: Some(code(image, "name")), ..plan(kind) };
    let (mut frame, layout) = bytes(&plan, 0, 200);
    let mut words = plan.code_part(&layout).unwrap().to_words(layout.payload as u32);
    change(&mut words);
    for (index, word) in words.into_iter().enumerate() {
        put_word(&mut frame, 24 + index * 8, word);
    }
    FrameView::new_checked(&frame, 0, NO_LIMIT).map(|_| ())
}

fn low(word: &mut u64, value: u32) {
    *word = *word & !0xffff_ffff | u64::from(value);
}

fn high(word: &mut u64, value: u32) {
    *word = *word & 0xffff_ffff | u64::from(value) << 32;
}

#[test]
fn fewer_bytes_than_a_line_or_than_the_frame_says_are_truncated() {
    let (frame, _) = bytes(&plan(Kind::Call), 0, 100);
    for found in 0..LINE {
        let error = FrameView::new_checked(&frame[..found], 0, NO_LIMIT).unwrap_err();
        assert_eq!(error, FrameError::Truncated { needed: LINE, found });
    }
    for found in LINE..frame.len() {
        let error = FrameView::new_checked(&frame[..found], 0, NO_LIMIT).unwrap_err();
        assert_eq!(error, FrameError::Truncated { needed: frame.len(), found });
    }
}

#[test]
fn bytes_behind_the_frame_are_overlong() {
    let (mut frame, _) = bytes(&plan(Kind::Call), 0, 100);
    let len = frame.len();
    for found in len + 1..len + 130 {
        frame.resize(found, 0);
        let error = FrameView::new_checked(&frame, 0, NO_LIMIT).unwrap_err();
        assert_eq!(error, FrameError::Overlong { frame: len, found });
    }
}

#[test]
fn lengths_of_zero_and_between_lines_are_refused() {
    for len in
        (0..=u32::from(u16::MAX)).chain([u32::MAX, u32::MAX - 62]).filter(|len| *len == 0 || len % 64 != 0)
    {
        assert_eq!(call(|header| header.frame_len = len), Err(FrameError::Length { len, least: 64 }));
    }
    let mut frame = bytes(&plan(Kind::Call), 0, 0).0;
    put_word(&mut frame, 8, 0);
    assert_eq!(
        FrameView::new_checked(&frame, 0, NO_LIMIT).unwrap_err(),
        FrameError::Length { len: 0, least: 64 }
    );
}

#[test]
fn frames_past_the_end_of_the_mailbox_are_refused() {
    for len in [4096 + 64, 8192, 1 << 31, u32::MAX - 63] {
        assert_eq!(call(|header| header.frame_len = len), Err(FrameError::PastEnd { len, left: 4096 }));
    }
}

#[test]
fn only_frames_over_the_receivers_limit_are_refused() {
    assert_eq!(call(|header| header.frame_len = 1024), Ok(()));
    let len = 1024 + 64;
    assert_eq!(call(|header| header.frame_len = len), Err(FrameError::TooLong { len, limit: 1024 }));
}

#[test]
fn a_skip_takes_exactly_the_rest_and_has_no_payload() {
    let skip = |len: u32, payload_len| {
        call(|header| *header = Header { kind: Kind::Skip, frame_len: len, payload_len, ..*header })
    };
    assert_eq!(skip(4096, 0), Ok(()), "the limit is for frames that are taken");
    for len in [64, 4032] {
        assert_eq!(skip(len, 0), Err(FrameError::Length { len, least: 4096 }));
    }
    assert_eq!(skip(4160, 0), Err(FrameError::PastEnd { len: 4160, left: 4096 }));
    for len in [1, u32::MAX] {
        assert_eq!(skip(4096, len), Err(FrameError::Payload { offset: 24, len, frame: 4096 }));
    }
}

#[test]
fn unknown_kinds_are_refused() {
    for kind in (0..=u8::MAX).filter(|kind| !(1..=11).contains(kind)) {
        let mut frame = bytes(&plan(Kind::Call), 0, 0).0;
        frame[16] = kind;
        assert_eq!(FrameView::new_checked(&frame, 0, NO_LIMIT).unwrap_err(), FrameError::Kind(kind));
    }
}

#[test]
fn reserved_flags_impossible_alignments_and_trailers_in_messages_are_refused() {
    for flags in 0..=u8::MAX {
        let mut frame = bytes(&plan(Kind::Call), 0, 0).0;
        frame[17] = flags;
        let expected = match (flags >> 4, flags & 15) {
            (0 | 1 | 4 | 5, 3..=6) => None,
            // Valid, but a frame of one line cannot have this alignment.
            (0 | 1 | 4 | 5, log2 @ 7..=12) => {
                Some(FrameError::Payload { offset: 1 << log2, len: 0, frame: 64 })
            }
            // A call that has travelled, without space for its passage.
            (8 | 9 | 12 | 13, log2 @ 3..=12) => Some(FrameError::Payload {
                offset: u64::max(24, 1 << log2).next_multiple_of(1 << log2),
                len: 0,
                frame: 64,
            }),
            _ => Some(FrameError::Flags(flags)),
        };
        assert_eq!(FrameView::new_checked(&frame, 0, NO_LIMIT).err(), expected, "{flags:#x}");
    }
}

#[test]
fn only_calls_long_enough_for_a_passage_may_have_travelled() {
    for kind in super::KINDS {
        for len in [7, 8] {
            let code = kind.names_code().then(|| code(if kind.carries_image() { &[1, 2] } else { &[] }, "f"));
            let (mut frame, _) = bytes(&Plan { code, ..plan(kind) }, 0, len);
            frame[17] |= 0x80;
            let found = FrameView::new_checked(&frame, 0, NO_LIMIT).map(|view| view.header().argument_len());
            match (kind, len) {
                (Kind::Call | Kind::CallCode | Kind::CallId, 8) => assert_eq!(found, Ok(0), "{kind:?}"),
                (Kind::Call | Kind::CallCode | Kind::CallId, _) => {
                    assert!(matches!(found, Err(FrameError::Payload { len: 7, .. })), "{kind:?}: {found:?}");
                }
                _ => assert_eq!(found, Err(FrameError::Flags(frame[17])), "{kind:?}"),
            }
        }
    }
}

#[test]
fn a_payload_ends_before_the_trailer_and_the_end() {
    let refused = |len| Err(FrameError::Payload { offset: 24, len, frame: 64 });
    for len in [41, 64, u32::MAX] {
        assert_eq!(call(|header| header.payload_len = len), refused(len));
    }
    let trailer = |len| {
        call(|header| {
            header.flags |= Flags::TRAILER;
            header.payload_len = len;
        })
    };
    assert_eq!(trailer(32), Ok(()));
    assert_eq!(trailer(33), refused(33));
}

#[test]
fn a_payload_behind_code_overlaps_nothing_and_is_aligned() {
    for (kind, at, end) in [(Kind::CallCode, 192, 448), (Kind::CallId, 128, 384)] {
        assert_eq!(with_code(kind, |words| low(&mut words[4], at)), Ok(()));
        // In the header, in the name or image, between lines, past the end, far past it.
        for offset in [0, 64, at - 64, at + 8, end, end - 128, u32::MAX - 63, u32::MAX] {
            let expected = FrameError::Payload { offset: u64::from(offset), len: 200, frame: end };
            assert_eq!(
                with_code(kind, |words| low(&mut words[4], offset)),
                Err(expected),
                "{kind:?} {offset}"
            );
        }
    }
}

#[test]
fn an_image_overlaps_neither_header_nor_name_and_ends_in_the_frame() {
    let image = |offset, len| {
        with_code(Kind::CallCode, |words| {
            low(&mut words[0], offset);
            high(&mut words[0], len);
        })
    };
    let refused = |offset, len| Err(FrameError::Image { offset, len, frame: 448 });
    assert_eq!(image(72, 100), Ok(()));
    assert_eq!(image(68, 124), Ok(()), "from the end of the name to the payload");
    for (offset, len) in
        [(0, 100), (63, 100), (67, 100), (128, 0), (128, 321), (448, 1), (u32::MAX, u32::MAX)]
    {
        assert_eq!(image(offset, len), refused(offset, len));
    }
    assert_eq!(image(68, 125), Err(FrameError::Payload { offset: 192, len: 200, frame: 448 }));
}

#[test]
fn a_frame_that_only_names_code_has_no_image() {
    for (offset, len) in [(128, 0), (0, 1), (128, 100)] {
        let result = with_code(Kind::CallId, |words| {
            low(&mut words[0], offset);
            high(&mut words[0], len);
        });
        assert_eq!(result, Err(FrameError::Image { offset, len, frame: 384 }));
    }
}

#[test]
fn names_over_255_bytes_or_past_the_end_are_refused() {
    for (len, payload) in [(256, 0), (u16::MAX, 0), (255, 0)] {
        let result = with_code(Kind::CallId, |words| words[4] = payload | u64::from(len) << 32);
        if len == 255 {
            assert!(matches!(result, Err(FrameError::Payload { .. })), "it overlaps the payload: {result:?}");
        } else {
            assert_eq!(result, Err(FrameError::Name(len)));
        }
    }
    let (mut frame, _) = bytes(&Plan { code: Some(code(&[], "")), ..plan(Kind::CallId) }, 0, 0);
    assert_eq!(frame.len(), LINE);
    assert!(FrameView::new_checked(&frame, 0, NO_LIMIT).is_ok());
    put_word(&mut frame, 56, 64 | 1 << 32);
    assert_eq!(FrameView::new_checked(&frame, 0, NO_LIMIT).unwrap_err(), FrameError::Name(1));
}

#[test]
fn a_family_id_has_16_bytes_inside_the_frame_or_none() {
    for len in (0..=64).chain([0xff, 0x100, 0x1000, 0xffff]) {
        let result = with_code(Kind::CallId, |words| words[4] |= len << 48);
        match len {
            0 => assert!(result.is_ok()),
            16 => assert!(result.is_ok(), "the payload leaves space for it"),
            _ => assert_eq!(result, Err(FrameError::Family(len as u16))),
        }
    }
}
