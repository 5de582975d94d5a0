//! Placing: both spans copied, bss zeroed, every site patched, and no other byte touched.

use farjump_core::image::{ImageView, Import, Place, PlaceError, Relative, SPAN_DISTANCE, Space};
use proptest::prelude::*;

use super::encode::any_parts;
use super::parts;

const ADDRESS: u64 = 0x7f00_0000_1000;

/// An address for each name, far from the others.
fn address_of(name: &str) -> u64 {
    name.bytes().fold(0x5500_0000_0000, |sum: u64, byte| sum.wrapping_mul(257).wrapping_add(u64::from(byte)))
}

struct Placed {
    span1: Vec<u8>,
    span2: Vec<u8>,
    result: Result<u64, PlaceError>,
}

fn place(bytes: &[u8], resolve: impl FnMut(&Import<'_>) -> Option<u64>) -> Placed {
    let view = ImageView::new_checked(bytes).unwrap();
    let (mut span1, mut span2) = (vec![0xaa; view.span1().len()], vec![0xaa; view.span2_len()]);
    let space = Space { span1: &mut span1, span2: &mut span2, address: ADDRESS };
    let result = view.place(space, resolve);
    Placed { span1, span2, result }
}

fn word(span: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(span[at..at + 8].try_into().unwrap())
}

proptest! {
    #[test]
    fn placing_patches_each_site_and_changes_no_other_byte(parts in any_parts()) {
        let bytes = parts.encode().unwrap();
        let placed = place(&bytes, |import| Some(address_of(import.name)));
        prop_assert_eq!(placed.result, Ok(ADDRESS + u64::from(parts.entry)));
        let (mut span1, mut span2) = (parts.span1.to_vec(), parts.data.to_vec());
        span2.resize(parts.data.len() + parts.bss_len as usize, 0);
        let mut expect = |site: Place, word: u64| {
            let (span, at) = match site {
                Place::Span1(at) => (&mut span1, at as usize),
                Place::Span2(at) => (&mut span2, at as usize),
            };
            span[at..at + 8].copy_from_slice(&word.to_le_bytes());
        };
        for Import { site, name, addend, .. } in parts.imports {
            expect(site, address_of(name).wrapping_add(addend as u64));
        }
        for Relative { site, to } in parts.relatives {
            expect(site, match to {
                Place::Span1(at) => ADDRESS + u64::from(at),
                Place::Span2(at) => ADDRESS + SPAN_DISTANCE + u64::from(at),
            });
        }
        prop_assert_eq!(placed.span1, span1);
        prop_assert_eq!(placed.span2, span2);
    }
}

#[test]
fn addends_are_added_and_may_be_negative() {
    let placed = place(&parts().encode().unwrap(), |_| Some(0x1000));
    assert_eq!(placed.result, Ok(ADDRESS + 5));
    assert_eq!(word(&placed.span1, 8), 0x1000);
    assert_eq!(word(&placed.span1, 40), 0x1000 - 24);
    assert_eq!(word(&placed.span2, 0), 0x1000 + 3);
    assert_eq!(word(&placed.span2, 40), 0x1000 + (1 << 63), "wraps as the processor does");
}

#[test]
fn relative_sites_point_into_the_named_span_at_its_run_address() {
    let placed = place(&parts().encode().unwrap(), |_| Some(0));
    assert_eq!(word(&placed.span1, 16), ADDRESS + SPAN_DISTANCE + 47);
    assert_eq!(word(&placed.span2, 8), ADDRESS + 64);
    assert_eq!(word(&placed.span2, 24), ADDRESS + SPAN_DISTANCE);
}

#[test]
fn an_import_that_is_not_offered_is_named_unless_it_is_weak() {
    let bytes = parts().encode().unwrap();
    for (number, missing) in [(0, "store_get"), (1, "table")] {
        let placed = place(&bytes, |import| (import.name != missing).then_some(0x1000));
        assert_eq!(placed.result, Err(PlaceError::Unresolved(number)), "{missing}");
    }
    let placed = place(&bytes, |import| (import.name != "maybe").then_some(0x1000));
    assert_eq!(placed.result, Ok(ADDRESS + 5));
    assert_eq!(word(&placed.span2, 0), 3, "zero and the addend");
}

#[test]
fn space_longer_or_shorter_than_its_span_is_refused() {
    let bytes = parts().encode().unwrap();
    let view = ImageView::new_checked(&bytes).unwrap();
    for (len1, len2, span, needed, found) in
        [(63, 48, 1, 64, 63), (65, 48, 1, 64, 65), (64, 47, 2, 48, 47), (64, 49, 2, 48, 49), (0, 0, 1, 64, 0)]
    {
        let (mut span1, mut span2) = (vec![0; len1], vec![0; len2]);
        let space = Space { span1: &mut span1, span2: &mut span2, address: ADDRESS };
        assert_eq!(view.place(space, |_| Some(0)), Err(PlaceError::Space { span, needed, found }));
    }
}
