//! One test for each way in which bytes are no image, at the edges.

use farjump_core::image::{
    ImageError, ImageParts, ImageView, Import, MAX_SONAME, MAX_SPAN, MAX_WANTED, Machine, Place, Relative,
};

use super::parts;

const SPAN2: u32 = 1 << 31;
/// Offsets of imports, relative sites and names in the encoding of `parts`.
const IMPORTS: usize = 32;
const RELATIVES: usize = IMPORTS + 4 * 16;
const NAMES: usize = RELATIVES + 3 * 8;

fn check(change: impl FnOnce(&mut Vec<u8>)) -> Result<(), ImageError> {
    let mut bytes = parts().encode().unwrap();
    change(&mut bytes);
    ImageView::new_checked(&bytes).map(|_| ())
}

/// Checks the image with one 32-bit word replaced.
fn with_word(at: usize, word: u32) -> Result<(), ImageError> {
    check(|bytes| bytes[at..at + 4].copy_from_slice(&word.to_le_bytes()))
}

fn with_byte(at: usize, byte: u8) -> Result<(), ImageError> {
    check(|bytes| bytes[at] = byte)
}

#[test]
fn the_image_that_the_tests_below_spoil_is_good() {
    assert_eq!(check(|_| ()), Ok(()));
}

#[test]
fn images_cut_short_anywhere_are_truncated() {
    let whole = parts().encode().unwrap().len() as u64;
    for found in 0..whole {
        let needed = if found < 32 { 32 } else { whole };
        let error = check(|bytes| bytes.truncate(found as usize));
        assert_eq!(error, Err(ImageError::Truncated { needed, found }));
    }
}

#[test]
fn counts_and_lengths_beyond_the_images_bytes_are_truncated() {
    for (at, word) in [(8, MAX_SPAN as u32), (16, MAX_SPAN as u32 - 16), (24, u32::MAX), (28, u32::MAX)] {
        assert!(matches!(with_word(at, word), Err(ImageError::Truncated { .. })), "{at}");
    }
}

#[test]
fn bytes_behind_the_end_are_overlong() {
    let end = parts().encode().unwrap().len() as u64;
    for more in [1, 8, 4096] {
        let found = end + more;
        assert_eq!(check(|bytes| bytes.resize(found as usize, 0)), Err(ImageError::Overlong { end, found }));
    }
}

#[test]
fn a_wrong_magic_version_or_abi_has_its_own_error() {
    for at in 0..3 {
        assert_eq!(with_byte(at, 0), Err(ImageError::Magic));
    }
    for version in [0, 1, 3, 255] {
        assert_eq!(with_byte(3, version), Err(ImageError::Version(version)));
    }
    // Bit 3 is that of landing pads: tests/image/landing_pads.rs.
    for abi in [0, 2, 8, 10, 15, 0x32, 255] {
        assert_eq!(with_byte(6, abi), Err(ImageError::Abi(abi & 15)));
    }
}

#[test]
fn levels_that_the_machine_does_not_have_are_refused() {
    // 15 announces features: tests/image/features.rs.
    for level in 0..15 {
        let expected = match level {
            0 | 2..=4 => Ok(()),
            _ => Err(ImageError::Level { machine: Machine::X86_64, level }),
        };
        assert_eq!(with_byte(6, 1 | level << 4), expected);
    }
}

#[test]
fn code_aligns_from_1_and_payloads_from_8_to_4096() {
    for code in 0..16 {
        for payload in 0..16 {
            let expected = match (code, payload) {
                (13.., _) => Err(ImageError::Alignment(code)),
                (_, 1 | 2 | 13..) => Err(ImageError::PayloadAlignment(payload)),
                _ => Ok(()),
            };
            assert_eq!(with_byte(7, code | payload << 4), expected);
        }
    }
}

#[test]
fn an_image_without_text_is_empty() {
    assert_eq!(with_word(8, 0), Err(ImageError::Empty));
}

#[test]
fn spans_over_2_to_the_30_are_too_long() {
    let max = MAX_SPAN as u64;
    assert_eq!(with_word(8, 1 + MAX_SPAN as u32), Err(ImageError::SpanTooLong { span: 1, len: max + 1 }));
    assert_eq!(with_word(8, u32::MAX), Err(ImageError::SpanTooLong { span: 1, len: u64::from(u32::MAX) }));
    // Data and bss each fit but not together; and their sum does not fit 32 bits.
    assert_eq!(with_word(20, MAX_SPAN as u32 - 31), Err(ImageError::SpanTooLong { span: 2, len: max + 1 }));
    let len = u64::from(u32::MAX) + 32;
    assert_eq!(with_word(20, u32::MAX), Err(ImageError::SpanTooLong { span: 2, len }));
}

#[test]
fn the_entry_lies_in_span_1() {
    assert_eq!(with_word(12, 63), Ok(()));
    for entry in [64, SPAN2, u32::MAX] {
        assert_eq!(with_word(12, entry), Err(ImageError::Entry { entry, len: 64 }));
    }
}

#[test]
fn sites_lie_in_their_span_with_all_eight_bytes() {
    let last = IMPORTS + 3 * 16;
    for offset in [48, 56, 1 << 30, SPAN2 - 8] {
        let place = Place::Span2(offset);
        let expected = Err(ImageError::Outside { index: 3, place, len: 48 });
        assert_eq!(with_word(last, offset | SPAN2), expected);
    }
    let last_relative = RELATIVES + 16;
    for offset in [44, 48, 1 << 30, SPAN2 - 1] {
        let place = Place::Span2(offset);
        let expected = Err(ImageError::Outside { index: 6, place, len: 48 });
        assert_eq!(with_word(last_relative, offset | SPAN2), expected);
    }
    // In span 1, which ends at 64.
    for offset in [57, 64, 1 << 30] {
        let image = ImageParts {
            imports: vec![],
            relatives: vec![Relative { site: Place::Span1(offset), to: Place::Span1(0) }],
            ..parts()
        };
        let expected = ImageError::Outside { index: 0, place: Place::Span1(offset), len: 64 };
        assert_eq!(image.encode().unwrap_err(), expected);
    }
}

#[test]
fn a_relative_site_may_point_at_most_one_past_its_span() {
    for (to, place, len) in [
        (65, Place::Span1(65), 64),
        (SPAN2 - 1, Place::Span1(SPAN2 - 1), 64),
        (SPAN2 | 49, Place::Span2(49), 48),
        (u32::MAX, Place::Span2(SPAN2 - 1), 48),
    ] {
        assert_eq!(with_word(RELATIVES + 4, to), Err(ImageError::Outside { index: 4, place, len }));
    }
    for to in [64, SPAN2 | 48] {
        assert_eq!(with_word(RELATIVES + 4, to), Ok(()), "one past the end, as C allows");
    }
}

#[test]
fn sites_of_imports_are_multiples_of_8_and_relative_ones_anywhere() {
    for offset in 9..16 {
        let expected = Err(ImageError::Unaligned { index: 0, place: Place::Span1(offset) });
        assert_eq!(with_word(IMPORTS, offset), expected);
        assert_eq!(with_word(RELATIVES, 8 + offset), Ok(()));
    }
}

#[test]
fn sites_that_overlap_or_are_out_of_order_are_refused() {
    let overlap = |index, place| Err(ImageError::Overlap { index, place });
    // An import where another is, a relative site where an import is, a relative site where another is.
    assert_eq!(with_word(IMPORTS + 16, 8), overlap(1, Place::Span1(8)));
    assert_eq!(with_word(RELATIVES, 8), overlap(4, Place::Span1(8)));
    assert_eq!(with_word(RELATIVES + 16, SPAN2 | 8), overlap(6, Place::Span2(8)));
    // In part: behind an import at 8 and one at 40, and before the latter.
    for (offset, apart) in [(15, false), (16, true), (32, true), (33, false), (47, false), (48, true)] {
        let expected = if apart { Ok(()) } else { overlap(if offset < 32 { 4 } else { 1 }, Place::Span1(0)) };
        let found = with_word(RELATIVES, offset);
        assert_eq!(found.is_ok(), expected.is_ok(), "{offset}: {found:?}");
    }
    // Out of order.
    assert_eq!(with_word(IMPORTS + 16, 0), overlap(1, Place::Span1(0)));
    assert_eq!(with_word(RELATIVES + 16, 24), overlap(6, Place::Span1(24)));
}

#[test]
fn names_are_in_their_table_ended_printable_and_not_empty() {
    let bad = |index| Err(ImageError::Name { index });
    let names = parts().encode().unwrap()[NAMES..].iter().take(22).copied().collect::<Vec<u8>>();
    assert_eq!(names, b"store_get\0table\0maybe\0");
    for offset in [22, 23, SPAN2 - 1, u32::MAX] {
        assert_eq!(with_word(IMPORTS + 4, offset), bad(0), "outside");
    }
    assert_eq!(with_word(IMPORTS + 4, 9), bad(0), "empty");
    assert_eq!(with_byte(NAMES + 21, b'x'), bad(2), "not ended");
    for byte in [b' ', b'\n', 0x7f, 0x80, 0xff] {
        assert_eq!(with_byte(NAMES, byte), bad(0), "not printable");
    }
    for name in ["", "a b", "zwölf", "a\0b"] {
        let imports = vec![Import { site: Place::Span1(0), name, addend: 0, weak: false }];
        assert_eq!(ImageParts { imports, ..parts() }.encode().unwrap_err(), ImageError::Name { index: 0 });
    }
}

#[test]
fn names_out_of_order_nested_unused_or_repeated_are_refused() {
    let bad = |index| Err(ImageError::Name { index });
    let offset = |import: usize| IMPORTS + import * 16 + 4;
    // `store_get`, `table`, `maybe`, `table`: used out of order, from within another, and not at all.
    assert_eq!(with_word(offset(0), 10), bad(0));
    assert_eq!(with_word(offset(3), 11), bad(3));
    assert_eq!(with_word(offset(2), SPAN2 | 10), Err(ImageError::Names), "`maybe` is unused");
    let twice = check(|bytes| bytes[NAMES + 16..NAMES + 21].copy_from_slice(b"table"));
    assert_eq!(twice, Err(ImageError::Names));
}

#[test]
fn names_have_at_most_4096_bytes() {
    for (len, fits) in [(4096, true), (4097, false)] {
        let name = &*"n".repeat(len);
        let imports = vec![Import { site: Place::Span1(0), name, addend: 0, weak: false }];
        assert_eq!(ImageParts { imports, ..parts() }.encode().is_ok(), fits, "{len}");
    }
}

/// The check takes time in proportion to the image, not to its names times its imports: that would be minutes
/// here.
#[test]
fn many_imports_of_one_endless_name_are_refused_at_once() {
    const COUNT: u32 = 65_535;
    let text = vec![0; COUNT as usize * 8];
    let import = |word| Import { site: Place::Span1(word * 8), name: "n", addend: 0, weak: false };
    let imports = (0..COUNT).map(import).collect();
    let mut image = ImageParts { span1: &text, imports, relatives: vec![], ..parts() }.encode().unwrap();
    let (names, more) = (IMPORTS + COUNT as usize * 16, 16 << 20);
    image.splice(names..names, vec![b'n'; more]);
    image[28..32].copy_from_slice(&(2 + more as u32).to_le_bytes());
    assert_eq!(ImageView::new_checked(&image).unwrap_err(), ImageError::Name { index: 0 });
}

/// The encoding of an image that wants these libraries, valid or not.
fn wanting(wanted: &[&[u8]]) -> Vec<u8> {
    let mut bytes = parts().encode().unwrap();
    let table: Vec<u8> = wanted.iter().flat_map(|name| [*name, b"\0"].concat()).collect();
    let named = u32::from_le_bytes(bytes[28..32].try_into().unwrap()) as usize;
    let old = (NAMES + named).next_multiple_of(16) - (NAMES + named);
    let names = named + table.len();
    let new = (NAMES + names).next_multiple_of(16) - (NAMES + names);
    bytes.splice(NAMES + named..NAMES + named + old, vec![0; new]);
    bytes.splice(NAMES..NAMES, table.iter().copied());
    bytes[28..32].copy_from_slice(&(names as u32 | (wanted.len() as u32) << 27).to_le_bytes());
    for import in 0..4 {
        let at = IMPORTS + 16 * import + 4;
        let offset = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        bytes[at..at + 4].copy_from_slice(&(offset + table.len() as u32).to_le_bytes());
    }
    bytes
}

fn check_wanting(wanted: &[&[u8]]) -> Result<(), ImageError> {
    ImageView::new_checked(&wanting(wanted)).map(|_| ())
}

#[test]
fn wanted_libraries_stand_before_the_imports_names() {
    let (first, second) = ("libcrypto.so.3", "libz.so.1");
    let encoded = ImageParts { wanted: vec![second, first], ..parts() }.encode().unwrap();
    assert_eq!(encoded, wanting(&[first.as_bytes(), second.as_bytes()]));
    let view = ImageView::new_checked(&encoded).unwrap();
    assert!(view.wanted().eq([first, second]));
    assert!(view.imports().map(|import| import.name).eq(["store_get", "table", "maybe", "table"]));
}

#[test]
fn a_wanted_library_with_a_path_or_unprintable_name_is_refused() {
    for path in ["/lib/libz.so.1", "./libz.so.1", "../libz.so", "lib/", "/"] {
        assert_eq!(check_wanting(&[path.as_bytes()]), Err(ImageError::Wanted { index: 0 }), "{path}");
        let encoded = ImageParts { wanted: vec![path], ..parts() }.encode();
        assert_eq!(encoded, Err(ImageError::Wanted { index: 0 }), "{path}");
    }
    for name in [&b""[..], b"lib z.so", b"libz.so\n", b"lib\x7f.so", b"libz\xc3\xa9.so", b"libz\xff.so"] {
        assert_eq!(check_wanting(&[b"a.so", name]), Err(ImageError::Wanted { index: 1 }), "{name:?}");
    }
}

#[test]
fn a_wanted_librarys_name_with_a_zero_byte_is_refused() {
    let encoded = ImageParts { wanted: vec!["liba.so", "libz.so\0.1"], ..parts() }.encode();
    assert_eq!(encoded, Err(ImageError::Wanted { index: 1 }));
    // The bytes behind the zero are another name, either unused or an import's in the wrong place.
    assert_eq!(check_wanting(&[b"libz.so\0.1"]), Err(ImageError::Name { index: 0 }));
    let without_end = check(|bytes| bytes[28..32].copy_from_slice(&(9_u32 | 1 << 27).to_le_bytes()));
    assert!(without_end.is_err(), "the padding behind the names is not zero");
}

#[test]
fn a_wanted_librarys_name_has_at_most_255_bytes() {
    for (len, fits) in [(MAX_SONAME, true), (MAX_SONAME + 1, false), (1 << 20, false)] {
        let name = "n".repeat(len);
        let expected = if fits { Ok(()) } else { Err(ImageError::Wanted { index: 0 }) };
        assert_eq!(check_wanting(&[name.as_bytes()]), expected, "{len}");
        assert_eq!(ImageParts { wanted: vec![&name], ..parts() }.encode().map(|_| ()), expected, "{len}");
    }
}

#[test]
fn at_most_16_libraries_are_wanted() {
    let names: Vec<String> = (10..41).map(|number| format!("lib{number}.so")).collect();
    for (count, fits) in [(MAX_WANTED, true), (MAX_WANTED + 1, false), (31, false)] {
        let wanted: Vec<&str> = names[..count].iter().map(String::as_str).collect();
        let expected = if fits { Ok(()) } else { Err(ImageError::WantedCount { count }) };
        let bytes: Vec<&[u8]> = wanted.iter().map(|name| name.as_bytes()).collect();
        assert_eq!(check_wanting(&bytes), expected);
        assert_eq!(ImageParts { wanted, ..parts() }.encode().map(|_| ()), expected);
    }
}

#[test]
fn wanted_libraries_are_in_order_and_each_there_once() {
    assert_eq!(check_wanting(&[b"b.so", b"a.so"]), Err(ImageError::WantedOrder { index: 1 }));
    assert_eq!(check_wanting(&[b"a.so", b"b.so", b"b.so"]), Err(ImageError::WantedOrder { index: 2 }));
}

#[test]
fn an_import_is_not_named_by_a_wanted_library() {
    let mut bytes = wanting(&[b"store_get"]);
    bytes[IMPORTS + 4..IMPORTS + 8].copy_from_slice(&0_u32.to_le_bytes());
    assert_eq!(ImageView::new_checked(&bytes).unwrap_err(), ImageError::Name { index: 0 });
}

#[test]
fn padding_is_zero() {
    // Behind the names, and between span 1 and the data.
    let image = ImageParts { span1: &[0x90; 61], imports: vec![], relatives: vec![], ..parts() };
    let bytes = image.encode().unwrap();
    for at in 32 + 61..32 + 64 {
        let mut spoilt = bytes.clone();
        spoilt[at] = 1;
        assert_eq!(ImageView::new_checked(&spoilt).unwrap_err(), ImageError::Padding, "{at}");
    }
    for at in NAMES + 22..(NAMES + 22).next_multiple_of(16) {
        assert_eq!(with_byte(at, 1), Err(ImageError::Padding), "{at}");
    }
}
