//! Frames: encoded frames read back, laid-out frames pass the check, and invalid bytes do not.
#![cfg(not(loom))]

mod arbitrary;
mod layout;
mod messages;
mod refusals;

use farjump_core::frame::{
    CODE_HEADER_LEN, CodePart, Flags, FrameError, FrameView, HEADER_LEN, Header, Kind, Layout, Plan,
    PlanCode, ReplyStatus, Trailer,
};
use farjump_core::image::{CodeId, FamilyId};
use proptest::prelude::*;

const KINDS: [Kind; 11] = [
    Kind::Skip,
    Kind::Call,
    Kind::CallCode,
    Kind::CallId,
    Kind::Reply,
    Kind::Flush,
    Kind::CallLocal,
    Kind::CallInPlace,
    Kind::Large,
    Kind::CallBatch,
    Kind::Bind,
];
const TRAILERS: [Trailer; 3] = [Trailer::Never, Trailer::LongFrames, Trailer::Always];
const NO_LIMIT: usize = usize::MAX;

fn plan(kind: Kind) -> Plan<'static> {
    Plan { wants_reply: true, index: 3, token: 5, ..Plan::of(kind) }
}

fn code<'a>(image: &'a [u8], name: &'a str) -> PlanCode<'a> {
    PlanCode { image, id: CodeId([9; 16]), epoch: 11, name, family: None }
}

/// The words at 24 of a frame with no code.
fn no_code() -> [u64; 5] {
    panic!("a frame of a kind that names no code was asked for its code")
}

/// A frame in plain memory: signal 7, payload bytes counting up.
fn bytes(plan: &Plan<'_>, base: usize, payload_len: usize) -> (Vec<u8>, Layout) {
    let layout = plan.layout(base, payload_len, Trailer::Never);
    let header = plan.header(&layout, payload_len);
    let mut frame = vec![0xee; header.frame_len as usize];
    let [lengths, rest] = header.to_words();
    for (at, word) in [(0, 7), (8, lengths), (16, rest)] {
        put_word(&mut frame, at, word);
    }
    if let (Some(code), Some(part)) = (&plan.code, plan.code_part(&layout)) {
        for (index, word) in part.to_words(layout.payload as u32).into_iter().enumerate() {
            put_word(&mut frame, HEADER_LEN + index * 8, word);
        }
        let (name, behind) = frame[CODE_HEADER_LEN..].split_at_mut(code.name.len());
        name.copy_from_slice(code.name.as_bytes());
        if let Some(family) = code.family {
            behind[..16].copy_from_slice(&family.0);
        }
        frame[part.image_offset as usize..][..code.image.len()].copy_from_slice(code.image);
    }
    for (index, byte) in frame[layout.payload..][..payload_len].iter_mut().enumerate() {
        *byte = index as u8;
    }
    (frame, layout)
}

fn put_word(frame: &mut [u8], at: usize, word: u64) {
    frame[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

proptest! {
    #[test]
    fn a_header_of_every_kind_reads_back(
        frame_len: u32, payload_len: u32, flags: u8, index: u16, token: u32,
    ) {
        for kind in KINDS {
            let mut flags = Flags::from_bits_retain(flags);
            flags.set(Flags::TRAVELLED, flags.contains(Flags::TRAVELLED) && kind.travels());
            let header = Header { frame_len, payload_len, kind, flags, index, token };
            prop_assert_eq!(Header::from_words(header.to_words()), Ok(header));
            prop_assert_eq!(header.align_log2(), flags.bits() & 15);
        }
    }

    #[test]
    fn two_words_are_a_header_only_if_kind_and_flags_are_known(lengths: u64, rest: u64) {
        let (kind, flags) = (rest as u8, (rest >> 8) as u8);
        let expected_error = if !(1..=KINDS.len() as u8).contains(&kind) {
            Some(FrameError::Kind(kind))
        } else if flags & 0x80 != 0 && !(2..=4).contains(&kind) {
            Some(FrameError::Flags(flags))
        } else {
            None
        };
        match Header::from_words([lengths, rest]) {
            Ok(header) => {
                prop_assert_eq!(expected_error, None);
                prop_assert_eq!(header.to_words(), [lengths, rest]);
            }
            Err(error) => prop_assert_eq!(Some(error), expected_error),
        }
    }

    #[test]
    fn the_longer_header_reads_back(
        image_offset: u32, image_len: u32, id: [u8; 16], epoch: u64, name_len: u16, has_family: bool, payload: u32,
    ) {
        let family_len = if has_family { 16 } else { 0 };
        let part = CodePart { image_offset, image_len, id: CodeId(id), epoch, name_len, family_len };
        let words = part.to_words(payload);
        let expected = [
            u64::from(image_offset) | u64::from(image_len) << 32,
            u64::from_le_bytes(id[..8].try_into().unwrap()),
            u64::from_le_bytes(id[8..].try_into().unwrap()),
            epoch,
            u64::from(payload) | u64::from(name_len) << 32 | if has_family { 16 << 48 } else { 0 },
        ];
        prop_assert_eq!(words, expected);
    }
}

#[test]
fn the_family_of_code_lies_behind_its_name() {
    let image = [0x90; 40];
    for name in ["", "sum", &"n".repeat(255)] {
        for (kind, image) in [(Kind::CallCode, &image[..]), (Kind::CallId, &[])] {
            for family in [None, Some(&FamilyId([0xfa; 16]))] {
                let plan = Plan { code: Some(PlanCode { family, ..code(image, name) }), ..plan(kind) };
                let (frame, _) = bytes(&plan, 0, 24);
                let view = FrameView::new_checked(&frame, 0, NO_LIMIT).unwrap();
                assert_eq!((view.family(), view.name()), (family.copied(), Some(name.as_bytes())));
                assert_eq!(view.image().unwrap_or_default(), image);
                assert_eq!(view.payload(), (0..24).collect::<Vec<u8>>());
            }
        }
    }
}

#[test]
fn numbers_of_kinds_and_statuses_read_back_and_no_others_exist() {
    for kind in KINDS {
        assert_eq!(Kind::from_number(kind as u8), Some(kind));
        let carries = matches!(kind, Kind::CallCode | Kind::CallInPlace | Kind::Bind);
        assert_eq!(kind.carries_image(), carries);
        assert_eq!(kind.names_code(), carries || matches!(kind, Kind::CallId | Kind::CallLocal));
    }
    assert_eq!((0..=u8::MAX).filter_map(Kind::from_number).count(), KINDS.len());
    for status in [ReplyStatus::Done, ReplyStatus::Panicked, ReplyStatus::Incomplete] {
        assert_eq!(ReplyStatus::from_number(status as u16), Some(status));
    }
    assert_eq!((0..=u16::MAX).filter_map(ReplyStatus::from_number).count(), 3);
}

#[test]
fn only_bytes_that_can_land_in_pieces_get_a_trailer() {
    use farjump_core::transport::ArrivalRules;
    for line_whole in [false, true] {
        for rule in
            [ArrivalRules::STORES, ArrivalRules::FENCED, ArrivalRules::WRITE_IMM, ArrivalRules::DELIVERED]
        {
            assert_eq!(Trailer::for_rule(rule, line_whole), Trailer::Never);
        }
        assert_eq!(Trailer::for_rule(ArrivalRules::CHECKED, line_whole), Trailer::Always);
    }
    assert_eq!(Trailer::for_rule(ArrivalRules::IN_ORDER, true), Trailer::LongFrames);
    assert_eq!(Trailer::for_rule(ArrivalRules::IN_ORDER, false), Trailer::Always);
}
