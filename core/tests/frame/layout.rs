//! Layouts of plans: aligned in memory, no longer than necessary, and never refused by the check.

use farjump_core::frame::{Flags, INLINE_PAYLOAD, Kind, LINE, Layout, Plan, TRAILER_LEN, Trailer};
use farjump_core::image::{ImageParts, ImageView, Import, Level, Machine, Place};

use super::{NO_LIMIT, TRAILERS, code, no_code, plan};

const BASES: std::ops::Range<usize> = 0..4096 / LINE;

/// A frame whose parts end at `end` has a trailer exactly if its link requires one there.
fn trailer_len(trailer: Trailer, end: usize) -> usize {
    match trailer {
        Trailer::Never => 0,
        Trailer::LongFrames => {
            if end > LINE {
                TRAILER_LEN
            } else {
                0
            }
        }
        Trailer::Always => TRAILER_LEN,
    }
}

/// Asserts that the receiver accepts the header that the layout gives for `used` bytes, and that the frame is
/// as short as possible.
fn assert_good(plan: &Plan<'_>, base: usize, layout: &Layout, used: usize, trailer: Trailer) {
    let header = plan.header(layout, used);
    let what = || format!("{:?} at {base}, {used} used, {trailer:?}: {layout:?} {header:?}", plan.kind);
    let end = layout.payload + used;
    let frame_len = header.frame_len as usize;
    assert_eq!((base + layout.payload) % (1 << layout.align_log2), 0, "unaligned: {}", what());
    assert_eq!(frame_len, (end + trailer_len(trailer, end)).next_multiple_of(LINE), "length: {}", what());
    assert!(frame_len <= layout.frame_len, "longer than reserved: {}", what());
    let has_trailer = header.flags.contains(Flags::TRAILER);
    let due = match trailer {
        Trailer::Never => false,
        Trailer::LongFrames => frame_len > LINE,
        Trailer::Always => true,
    };
    assert_eq!(has_trailer, due, "trailer: {}", what());
    let code = || match plan.code_part(layout) {
        Some(part) => part.to_words(layout.payload as u32),
        None => no_code(),
    };
    let parts =
        header.check(base, frame_len, NO_LIMIT, code).unwrap_or_else(|error| panic!("{error}: {}", what()));
    assert_eq!(parts.payload as usize, layout.payload, "{}", what());
    assert_eq!(parts.code, plan.code_part(layout), "{}", what());
}

#[test]
fn every_payload_of_every_alignment_is_aligned_minimal_and_accepted() {
    for trailer in TRAILERS {
        for align_log2 in [0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12] {
            let plan = Plan { align_log2, ..plan(Kind::Call) };
            for base in BASES.map(|line| line * LINE) {
                // All lengths that share lines with something, then strides that reach every offset in a
                // line.
                for len in (0..300).chain((300..9_000).step_by(61)) {
                    let layout = plan.layout(base, len, trailer);
                    assert_eq!(plan.header(&layout, len).frame_len as usize, layout.frame_len);
                    assert!(layout.align_log2 >= align_log2);
                    assert_good(&plan, base, &layout, len, trailer);
                }
            }
        }
    }
}

#[test]
fn small_payloads_share_the_line_of_their_header() {
    for kind in [Kind::Call, Kind::Reply, Kind::Flush] {
        for base in BASES.map(|line| line * LINE) {
            for len in 0..=INLINE_PAYLOAD + 1 {
                let lines = |trailer| plan(kind).layout(base, len, trailer).frame_len / LINE;
                assert_eq!(lines(Trailer::Never) == 1, len <= 40, "{len}");
                assert_eq!(lines(Trailer::LongFrames) == 1, len <= 40, "{len}");
                assert_eq!(lines(Trailer::Always) == 1, len <= 32, "{len}");
            }
        }
    }
}

#[test]
fn default_aligned_payloads_lie_at_64_or_share_the_header_line() {
    for trailer in TRAILERS {
        for base in BASES.map(|line| line * LINE) {
            for len in 0..200 {
                let layout = plan(Kind::Call).layout(base, len, trailer);
                let expected = if layout.frame_len == LINE { (24, 3) } else { (64, 6) };
                assert_eq!((layout.payload, layout.align_log2), expected, "{len} {trailer:?}");
            }
        }
    }
}

#[test]
fn a_shrunk_payload_still_makes_a_minimal_and_accepted_frame() {
    for trailer in TRAILERS {
        for align_log2 in [0, 3, 4, 5, 6, 8, 12] {
            let plan = Plan { align_log2, ..plan(Kind::Call) };
            for base in [0, 64, 1024, 4032] {
                for planned in (0..160).chain([1_000, 4_096]) {
                    let layout = plan.layout(base, planned, trailer);
                    for used in (0..=planned.min(200)).chain([planned]) {
                        assert_good(&plan, base, &layout, used, trailer);
                    }
                }
            }
        }
    }
}

#[test]
fn frames_that_carry_or_name_code_are_aligned_minimal_and_accepted() {
    let image = [0x5a; 5_000];
    let name = "n".repeat(255);
    for trailer in TRAILERS {
        for (kind, image_lens) in [
            (Kind::CallCode, &[1, 15, 64, 500, 5_000][..]),
            (Kind::CallInPlace, &[1, 15, 64, 500, 5_000]),
            (Kind::CallId, &[0]),
            (Kind::CallLocal, &[0]),
        ] {
            for &image_len in image_lens {
                for name_len in [0, 1, 63, 64, 255] {
                    for align_log2 in [0, 3, 6, 9, 12] {
                        let code = code(&image[..image_len], &name[..name_len]);
                        let plan = Plan { align_log2, code: Some(code), ..plan(kind) };
                        for base in [0, 64, 2048, 4032] {
                            for planned in [0, 1, 40, 41, 56, 57, 64, 4_097] {
                                let layout = plan.layout(base, planned, trailer);
                                assert_good(&plan, base, &layout, planned, trailer);
                                assert_good(&plan, base, &layout, planned / 3, trailer);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// An image with code aligned to `2^align_log2` behind `imports` imports.
fn image(align_log2: u8, imports: u32) -> Vec<u8> {
    let import = |index: u32| Import { site: Place::Span1(index * 8), name: "a", addend: 0, weak: false };
    let parts = ImageParts {
        machine: Machine::X86_64,
        level: Level::BASELINE,
        features: vec![],
        landing_pads: false,
        align_log2,
        payload_align_log2: 0,
        span1: &[0; 200],
        entry: 0,
        data: &[],
        bss_len: 0,
        imports: (0..imports).map(import).collect(),
        relatives: vec![],
        wanted: vec![],
    };
    parts.encode().unwrap()
}

#[test]
fn in_place_code_is_aligned_for_its_image_with_minimal_padding() {
    for align_log2 in 0..=12 {
        for imports in [0, 1, 5] {
            let image = image(align_log2, imports);
            let offset = ImageView::new_checked(&image).unwrap().span1_offset();
            for name_len in [0, 7, 63, 255] {
                let name = "n".repeat(name_len);
                let plan = Plan { code: Some(code(&image, &name)), ..plan(Kind::CallInPlace) };
                for base in BASES.map(|line| line * LINE) {
                    let layout = plan.layout(base, 8, Trailer::Never);
                    assert_good(&plan, base, &layout, 8, Trailer::Never);
                    let at = plan.code_part(&layout).unwrap().image_offset as usize;
                    let align = 1 << align_log2.max(3);
                    let gap = at - (64 + name_len);
                    assert_eq!((base + at + offset) % align, 0, "{align_log2} {imports} {name_len} {base}");
                    assert!(gap < align, "{gap} bytes lost to an alignment of {align}");
                }
            }
        }
    }
}
