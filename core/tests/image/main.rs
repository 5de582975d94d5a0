//! Images: one encoding for one content, no invalid bytes accepted, and sites patched as requested.
#![cfg(not(loom))]

mod arbitrary;
mod encode;
mod features;
mod instructions;
mod landing_pads;
mod patches;
mod place;
mod refusals;

use farjump_core::image::{ImageParts, Import, Level, Machine, Place, Relative};

/// 64 bytes of text and 32 of data with 16 of bss; imports and relative sites into both spans.
fn parts<'a>() -> ImageParts<'a> {
    const TEXT: &[u8] = &[0x90; 64];
    const DATA: &[u8] = &[0x11; 32];
    let import = |site, name, addend, weak| Import { site, name, addend, weak };
    ImageParts {
        machine: Machine::X86_64,
        level: Level::BASELINE,
        features: vec![],
        landing_pads: false,
        align_log2: 4,
        payload_align_log2: 7,
        span1: TEXT,
        entry: 5,
        data: DATA,
        bss_len: 16,
        imports: vec![
            import(Place::Span1(8), "store_get", 0, false),
            import(Place::Span1(40), "table", -24, false),
            import(Place::Span2(0), "maybe", 3, true),
            import(Place::Span2(40), "table", i64::MIN, false),
        ],
        relatives: vec![
            Relative { site: Place::Span1(16), to: Place::Span2(47) },
            Relative { site: Place::Span2(8), to: Place::Span1(64) },
            Relative { site: Place::Span2(24), to: Place::Span2(0) },
        ],
        wanted: vec![],
    }
}
