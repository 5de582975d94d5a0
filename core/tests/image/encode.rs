//! The canonical bytes: they read back, and do not depend on the linker's order.

use farjump_core::image::{
    ImageError, ImageParts, ImageView, Import, Level, Machine, Place, Platform, Relative,
};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::parts;

/// An image with sites anywhere, in no order.
pub(super) fn any_parts() -> impl Strategy<Value = ImageParts<'static>> {
    const TEXT: [u8; 256] = [0xc3; 256];
    const DATA: [u8; 96] = [0x77; 96];
    static SPANS: ([u8; 256], [u8; 96]) = (TEXT, DATA);
    let unaligned = prop_oneof![Just(0_u32), 1..=8_u32];
    let level = select(Level::all(Machine::X86_64).collect::<Vec<_>>());
    let features = prop_oneof![
        2 => Just(vec![]),
        1 => subsequence(vec!["avx2", "avx512f", "sse4.1", "x"], 1..=4).prop_shuffle(),
    ];
    let header = (0..=12_u8, select(vec![0_u8, 3, 6, 12]), level, features);
    (1..=256_usize, 0..=96_usize, 0..100_u32, header, unaligned).prop_flat_map(
        |(text, data, bss_len, (align_log2, payload_align_log2, level, features), unaligned)| {
            let span2 = data + bss_len as usize;
            // Where relative sites lie anywhere, each site has twice the space.
            let step = if unaligned == 0 { 8 } else { 16 };
            let sites = move |len: usize, place: fn(u32) -> Place| {
                (0..len / step).map(move |number| place((number * step) as u32)).collect::<Vec<_>>()
            };
            let moved = move |site| match site {
                Place::Span1(offset) => Place::Span1(offset + unaligned),
                Place::Span2(offset) => Place::Span2(offset + unaligned),
            };
            let mut all = sites(text, Place::Span1);
            all.extend(sites(span2, Place::Span2));
            let count = all.len();
            let target = prop_oneof![
                (0..=text as u32).prop_map(Place::Span1),
                (0..=span2 as u32).prop_map(Place::Span2)
            ];
            let import =
                (select(vec!["a", "b_2", "store_get", "_Z3fooi", "memcpy"]), any::<i64>(), any::<bool>());
            let what = prop_oneof![import.prop_map(Ok), target.prop_map(Err)];
            let wanted = subsequence(vec!["libcrypto.so.3", "libz.so.1", "a"], 0..=3).prop_shuffle();
            let sites = subsequence(all, 0..=count).prop_shuffle();
            (sites, prop::collection::vec(what, count), 0..text as u32, wanted).prop_map(
                move |(sites, what, entry, wanted)| {
                    let (mut imports, mut relatives) = (vec![], vec![]);
                    for (site, what) in sites.into_iter().zip(what) {
                        match what {
                            Ok((name, addend, weak)) => imports.push(Import { site, name, addend, weak }),
                            Err(to) => relatives.push(Relative { site: moved(site), to }),
                        }
                    }
                    ImageParts {
                        machine: Machine::X86_64,
                        level,
                        features: features.clone(),
                        landing_pads: false,
                        align_log2,
                        payload_align_log2,
                        span1: &SPANS.0[..text],
                        entry,
                        data: &SPANS.1[..data],
                        bss_len,
                        imports,
                        relatives,
                        wanted,
                    }
                },
            )
        },
    )
}

proptest! {
    #[test]
    fn any_encoded_image_reads_back_with_all_its_parts(parts in any_parts()) {
        let bytes = parts.encode().unwrap();
        let view = ImageView::new_checked(&bytes).unwrap();
        prop_assert_eq!(view.as_bytes(), &bytes[..]);
        prop_assert_eq!(view.machine(), parts.machine);
        let platform = Platform { machine: parts.machine, level: parts.level };
        prop_assert_eq!(view.platform(), parts.features.is_empty().then_some(platform));
        let mut features = parts.features.clone();
        features.sort_unstable();
        prop_assert!(view.features().eq(features));
        prop_assert_eq!(view.entry(), parts.entry);
        prop_assert_eq!(view.align_log2(), parts.align_log2);
        prop_assert_eq!(view.payload_align_log2(), parts.payload_align_log2);
        prop_assert_eq!(view.span1(), parts.span1);
        prop_assert_eq!(view.span1_offset() % 16, 0);
        prop_assert_eq!(view.data(), parts.data);
        prop_assert_eq!(view.span2_len(), parts.data.len() + parts.bss_len as usize);
        let (mut imports, mut relatives) = (parts.imports.clone(), parts.relatives.clone());
        imports.sort_by_key(|import| import.site);
        relatives.sort_by_key(|relative| relative.site);
        prop_assert_eq!(view.imports().collect::<Vec<_>>(), imports);
        prop_assert_eq!(view.relatives().collect::<Vec<_>>(), relatives);
        let mut wanted = parts.wanted.clone();
        wanted.sort_unstable();
        prop_assert_eq!(view.wanted().collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn the_order_in_which_sites_are_given_does_not_show(
        (parts, imports, relatives, wanted) in any_parts().prop_flat_map(|parts| {
            let ImageParts { imports, relatives, wanted, .. } = parts.clone();
            // A library that is named twice is wanted once.
            let wanted = [wanted.clone(), wanted].concat();
            let shuffled = (Just(imports).prop_shuffle(), Just(relatives).prop_shuffle(), Just(wanted).prop_shuffle());
            (Just(parts), shuffled).prop_map(|(parts, (imports, relatives, wanted))| (parts, imports, relatives, wanted))
        }),
    ) {
        let shuffled = ImageParts { imports, relatives, wanted, ..parts.clone() };
        prop_assert_eq!(shuffled.encode().unwrap(), parts.encode().unwrap());
    }
}

#[test]
fn each_part_of_an_image_shows_in_its_bytes() {
    let plain = parts().encode().unwrap();
    let changes: [fn(&mut ImageParts<'_>); 15] = [
        |parts| parts.machine = Machine(1),
        |parts| parts.level = Level::all(Machine::X86_64).last().unwrap(),
        |parts| parts.features = vec!["avx2"],
        |parts| parts.features = vec!["avx2", "fma"],
        |parts| parts.align_log2 = 5,
        |parts| parts.payload_align_log2 = 0,
        |parts| parts.span1 = &[0x91; 64],
        |parts| parts.entry = 6,
        |parts| parts.data = &[0x12; 32],
        |parts| parts.bss_len = 17,
        |parts| parts.imports[0].name = "store_put",
        |parts| parts.imports[1].addend = -16,
        |parts| parts.imports[2].weak = false,
        |parts| parts.relatives[0].to = Place::Span1(47),
        |parts| parts.wanted = vec!["libz.so.1"],
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let mut parts = parts();
        change(&mut parts);
        assert_ne!(parts.encode().unwrap(), plain, "change {index}");
    }
}

#[test]
fn a_name_used_twice_travels_once() {
    let bytes = parts().encode().unwrap();
    assert_eq!(bytes.windows(6).filter(|window| window == b"table\0").count(), 1);
}

#[test]
fn more_sites_than_can_be_counted_are_refused() {
    static TEXT: [u8; 8 * 65_536] = [0; 8 * 65_536];
    let relatives = (0..65_536).map(|word| Relative { site: Place::Span1(word * 8), to: Place::Span1(0) });
    let mut image = ImageParts { span1: &TEXT, imports: vec![], relatives: relatives.collect(), ..parts() };
    assert!(matches!(image.encode(), Err(ImageError::Overlong { .. })));
    image.relatives.pop();
    assert!(image.encode().is_ok());
}
