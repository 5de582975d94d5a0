//! The body for images and bitcode. Its input is one of them.

use farjump_core::bitcode::{BitcodeParts, BitcodeView};
use farjump_core::code::CodeView;
use farjump_core::image::{ImageParts, ImageView, Import, Level, Place, PlaceError, SPAN_DISTANCE, Space};
use farjump_loader::code_id;

use crate::assert_words;

/// Longest span 2 that is placed, in bytes: a few bytes of an image may request a gigabyte of zeroes.
const MOST_STATICS: usize = 1 << 20;
/// Bytes on either side of each span that must not be written.
const GUARD: usize = 64;
const UNTOUCHED: u8 = 0xa5;
/// Address at which the code would run.
const ADDRESS: u64 = 0x7f00_0000_0000;

/// Reads an image, encodes it again from its parts, and places it; reads bitcode, and encodes it again.
pub fn image(data: &[u8]) {
    let view = match CodeView::new_checked(data) {
        Ok(CodeView::Image(view)) => view,
        Ok(CodeView::Bitcode(view)) => return bitcode(&view, data),
        Err(error) => return assert_words(&error),
    };
    let parts = ImageParts {
        machine: view.machine(),
        level: view.platform().map_or(Level::BASELINE, |platform| platform.level),
        features: view.features().collect(),
        landing_pads: view.has_landing_pads(),
        align_log2: view.align_log2(),
        payload_align_log2: view.payload_align_log2(),
        span1: view.span1(),
        entry: view.entry(),
        data: view.data(),
        bss_len: (view.span2_len() - view.data().len()) as u32,
        imports: view.imports().collect(),
        relatives: view.relatives().collect(),
        wanted: view.wanted().collect(),
    };
    let again = parts.encode().expect("an image made of the parts of one is one");
    assert_eq!(code_id(&again), code_id(data), "one image has two encodings");
    if view.span2_len() <= MOST_STATICS {
        place(&view, &parts);
    }
}

fn bitcode(view: &BitcodeView<'_>, data: &[u8]) {
    let parts = BitcodeParts {
        machine: view.machine(),
        payload_align_log2: view.payload_align_log2(),
        llvm: view.llvm(),
        name: view.name(),
        wanted: view.wanted().collect(),
        modules: view.modules().collect(),
    };
    let again = parts.encode().expect("bitcode made of the parts of some is bitcode");
    assert_eq!(again, data, "the same bitcode has two encodings");
}

/// Returns an address for four of five names. Weak imports may stay without one.
fn resolve(import: &Import<'_>) -> Option<u64> {
    let sum: u64 = import.name.bytes().map(u64::from).sum();
    (!sum.is_multiple_of(5)).then_some(sum << 40)
}

fn place(view: &ImageView<'_>, parts: &ImageParts<'_>) {
    let (mut room1, mut room2) = (guarded(view.span1().len()), guarded(view.span2_len()));
    let mut asked = 0;
    let placed = view.place(space(&mut room1, &mut room2), |import| {
        assert_eq!(*import, parts.imports[asked], "imports are asked for in order");
        asked += 1;
        resolve(import)
    });
    for bytes in [&room1, &room2] {
        let (before, after) = (&bytes[..GUARD], &bytes[bytes.len() - GUARD..]);
        assert!(
            before.iter().chain(after).all(|&byte| byte == UNTOUCHED),
            "bytes outside a span were written"
        );
    }
    let missing = parts.imports.iter().position(|import| !import.weak && resolve(import).is_none());
    match missing {
        Some(index) => assert_eq!(placed, Err(PlaceError::Unresolved(index))),
        None => {
            assert_eq!(placed, Ok(ADDRESS + u64::from(view.entry())));
            let (span1, span2) = expected(view, parts);
            assert!(room1[GUARD..room1.len() - GUARD] == span1, "span 1 is not what was asked for");
            assert!(room2[GUARD..room2.len() - GUARD] == span2, "span 2 is not what was asked for");
        }
    }
    // A space of another length is refused before anything is written.
    room1.push(UNTOUCHED);
    room1.fill(UNTOUCHED);
    assert!(matches!(
        view.place(space(&mut room1, &mut room2), resolve),
        Err(PlaceError::Space { span: 1, .. })
    ));
    assert!(room1.iter().all(|&byte| byte == UNTOUCHED));
}

fn guarded(len: usize) -> Vec<u8> {
    vec![UNTOUCHED; len + 2 * GUARD]
}

fn space<'a>(room1: &'a mut [u8], room2: &'a mut [u8]) -> Space<'a> {
    let (end1, end2) = (room1.len() - GUARD, room2.len() - GUARD);
    Space { span1: &mut room1[GUARD..end1], span2: &mut room2[GUARD..end2], address: ADDRESS }
}

/// The expected spans: the bytes that travelled, zeroes behind the data, and each site patched.
fn expected(view: &ImageView<'_>, parts: &ImageParts<'_>) -> (Vec<u8>, Vec<u8>) {
    let (mut span1, mut span2) = (view.span1().to_vec(), view.data().to_vec());
    span2.resize(view.span2_len(), 0);
    let mut write = |site: Place, word: u64| {
        let (span, at) = match site {
            Place::Span1(at) => (&mut span1, at as usize),
            Place::Span2(at) => (&mut span2, at as usize),
        };
        span[at..at + 8].copy_from_slice(&word.to_le_bytes());
    };
    for import in &parts.imports {
        write(import.site, resolve(import).unwrap_or(0).wrapping_add_signed(import.addend));
    }
    for relative in &parts.relatives {
        let to = match relative.to {
            Place::Span1(at) => u64::from(at),
            Place::Span2(at) => SPAN_DISTANCE + u64::from(at),
        };
        write(relative.site, ADDRESS + to);
    }
    (span1, span2)
}
