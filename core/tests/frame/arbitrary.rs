//! No bytes make the check panic, and the parts of an accepted frame lie inside it.

use std::ops::Range;

use farjump_core::frame::{
    CODE_HEADER_LEN, Flags, FrameView, HEADER_LEN, Header, Kind, LINE, Parts, Plan, TRAILER_LEN,
};
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::{KINDS, bytes, code, plan};

/// The byte ranges of a frame's parts, in order.
fn ranges(header: &Header, parts: &Parts) -> Vec<Range<u64>> {
    let mut ranges = vec![];
    match parts.code {
        None => ranges.push(0..HEADER_LEN as u64),
        Some(code) => {
            ranges.push(0..CODE_HEADER_LEN as u64 + u64::from(code.name_len));
            if code.image_len != 0 {
                let start = u64::from(code.image_offset);
                ranges.push(start..start + u64::from(code.image_len));
            }
        }
    }
    let payload = u64::from(parts.payload);
    ranges.push(payload..payload + u64::from(header.payload_len));
    let len = u64::from(header.frame_len);
    let end = if header.flags.contains(Flags::TRAILER) { len - TRAILER_LEN as u64 } else { len };
    ranges.push(end..len);
    ranges
}

/// Small numbers, numbers near the edges that matter, and any.
fn length() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => (0_u32..200).prop_map(|lines| lines * 64),
        4 => 0_u32..600,
        1 => select(vec![0, 1, 24, 40, 63, 64, 65, u32::MAX, u32::MAX - 63, 1 << 31, (1 << 31) - 64]),
        1 => any::<u32>(),
    ]
}

prop_compose! {
    fn header()(
        frame_len in length(), payload_len in length(), kind in select(KINDS.to_vec()),
        flags in prop_oneof![8 => select(vec![0x03_u8, 0x06, 0x16, 0x23, 0x26, 0x0c]), 1 => 0_u8..0x40],
        index: u16, token: u32,
    ) -> Header {
        Header { frame_len, payload_len, kind, flags: Flags::from_bits(flags).unwrap(), index, token }
    }
}

prop_compose! {
    fn code_words()(
        image_offset in length(), image_len in length(), id: [u64; 2], epoch: u64,
        payload in length(), name_len in prop_oneof![8 => 0_u16..300, 1 => any::<u16>()],
        reserved in prop_oneof![15 => Just(0_u16), 1 => any::<u16>()],
    ) -> [u64; 5] {
        [
            u64::from(image_offset) | u64::from(image_len) << 32,
            id[0],
            id[1],
            epoch,
            u64::from(payload) | u64::from(name_len) << 32 | u64::from(reserved) << 48,
        ]
    }
}

fn assert_sound(header: &Header, parts: &Parts, base: usize) {
    let ranges = ranges(header, parts);
    for pair in ranges.windows(2) {
        assert!(pair[0].end <= pair[1].start, "{ranges:?} overlap or are out of order: {header:?} {parts:?}");
    }
    assert!((base as u64 + u64::from(parts.payload)).is_multiple_of(1 << header.align_log2()));
    assert!((3..=12).contains(&header.align_log2()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn parts_that_pass_the_check_are_inside_apart_and_aligned(
        header in header(), code in code_words(), line in 0_usize..64, left in length(), limit in length(),
    ) {
        let (base, left, limit) = (line * LINE, left as usize, limit as usize);
        let mut asked = false;
        let result = header.check(base, left, limit, || { asked = true; code });
        prop_assert!(!asked || header.kind.names_code());
        let Ok(parts) = result else { return Ok(()) };
        prop_assert!(header.frame_len as usize <= left);
        if header.kind == Kind::Skip {
            prop_assert_eq!((header.frame_len as usize, header.payload_len), (left, 0));
        } else {
            prop_assert!(header.frame_len as usize <= limit);
            prop_assert_eq!(parts.code.is_some(), header.kind.names_code());
            assert_sound(&header, &parts, base);
        }
    }

    #[test]
    fn no_bytes_make_a_view_panic(mut frame in prop::collection::vec(any::<u8>(), 0..1_024), kind in 0_u8..11) {
        // Purely random bytes would seldom pass the checks of kind and length.
        let len = frame.len() as u32;
        for (at, byte) in len.to_le_bytes().into_iter().chain([0; 4]).chain([kind, 6]).enumerate() {
            if let Some(place) = frame.get_mut(8 + at) {
                *place = byte;
            }
        }
        if let Ok(view) = FrameView::new_checked(&frame, 0, usize::MAX) {
            let _ = (view.payload(), view.image(), view.name(), view.signal());
        }
    }

    #[test]
    fn a_frame_with_bytes_changed_is_refused_or_still_sound(
        kind in select(KINDS.to_vec()),
        image_len in 1_usize..300,
        name_len in 0_usize..80,
        payload_len in 0_usize..300,
        line in 0_usize..64,
        changes in prop::collection::vec((any::<Index>(), any::<u8>()), 1..4),
        in_header: bool,
    ) {
        let (image, name, base) = (vec![0x33; image_len], "n".repeat(name_len), line * LINE);
        let image = if kind.carries_image() { &image[..] } else { &[] };
        let plan = Plan { code: kind.names_code().then(|| code(image, &name)), ..plan(kind) };
        let (mut frame, _) = bytes(&plan, base, payload_len);
        let within = if in_header { 64 } else { frame.len() };
        for (at, byte) in changes {
            let at = at.index(within);
            frame[at] = byte;
        }
        let Ok(view) = FrameView::new_checked(&frame, base, usize::MAX) else { return Ok(()) };
        let (header, parts) = (view.header(), view.parts());
        prop_assert_eq!(header.frame_len as usize, frame.len());
        let payload = view.payload();
        prop_assert_eq!(payload.as_ptr().addr() - frame.as_ptr().addr(), parts.payload as usize);
        if header.kind != Kind::Skip {
            assert_sound(&header, &parts, base);
        }
        prop_assert_eq!(view.name().is_some(), header.kind.names_code());
        prop_assert_eq!(view.image().is_some(), header.kind.carries_image());
    }

    #[test]
    fn every_part_of_a_written_frame_reads_back_unchanged(
        kind in select(vec![Kind::Call, Kind::CallCode, Kind::CallId, Kind::CallLocal, Kind::CallInPlace, Kind::Reply, Kind::Flush, Kind::Large, Kind::CallBatch, Kind::Bind]),
        image in prop::collection::vec(any::<u8>(), 1..300),
        name in "[a-z]{0,255}",
        payload_len in 0_usize..5_000,
        align_log2 in select(vec![0_u8, 3, 4, 5, 6, 7, 10, 12]),
        line in 0_usize..64,
    ) {
        let carried = if kind.carries_image() { &image[..] } else { &[] };
        let plan = Plan { align_log2, code: kind.names_code().then(|| code(carried, &name)), ..plan(kind) };
        let (frame, _) = bytes(&plan, line * LINE, payload_len);
        let view = FrameView::new_checked(&frame, line * LINE, frame.len()).unwrap();
        prop_assert_eq!(view.signal(), 7);
        prop_assert_eq!(view.header().kind, kind);
        prop_assert_eq!((view.header().index, view.header().token), (3, 5));
        prop_assert!(view.header().flags.contains(Flags::WANTS_REPLY));
        let expected: Vec<u8> = (0..payload_len).map(|index| index as u8).collect();
        prop_assert_eq!(view.payload(), &expected[..]);
        prop_assert_eq!(view.name(), kind.names_code().then_some(name.as_bytes()));
        prop_assert_eq!(view.image(), (kind.carries_image()).then_some(&image[..]));
        if let Some(part) = view.parts().code {
            prop_assert_eq!((part.id.0, part.epoch), ([9; 16], 11));
        }
    }
}
