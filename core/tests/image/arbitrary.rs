//! No bytes make the check panic, and every accepted image can be placed without a panic.

use farjump_core::image::{ImageView, MAX_WANTED, Place, Space, is_soname};
use proptest::prelude::*;
use proptest::sample::Index;

use super::encode::any_parts;

/// Uses every method of a view.
fn use_all(bytes: &[u8]) {
    let Ok(view) = ImageView::new_checked(bytes) else { return };
    assert!((view.entry() as usize) < view.span1().len());
    assert!(view.align_log2() <= 12 && matches!(view.payload_align_log2(), 0 | 3..=12));
    let mut sites: Vec<Place> = view.imports().map(|import| import.site).collect();
    sites.extend(view.relatives().map(|relative| relative.site));
    sites.sort();
    for pair in sites.windows(2) {
        let apart = match (pair[0], pair[1]) {
            (Place::Span1(first), Place::Span1(second)) | (Place::Span2(first), Place::Span2(second)) => {
                second - first >= 8
            }
            _ => true,
        };
        assert!(apart, "{pair:?} overlap");
    }
    assert!(view.wanted().all(is_soname) && view.wanted().is_sorted() && view.wanted().count() <= MAX_WANTED);
    for import in view.imports() {
        assert!(!import.name.is_empty() && import.name.bytes().all(|byte| byte.is_ascii_graphic()));
    }
    if view.span2_len() < 1 << 20 {
        let (mut span1, mut span2) = (vec![0; view.span1().len()], vec![0; view.span2_len()]);
        let space = Space { span1: &mut span1, span2: &mut span2, address: 4096 };
        assert!(view.place(space, |_| Some(u64::MAX)).is_ok());
    }
    let _ = format!("{view:?} {}", view.machine());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn no_bytes_make_a_view_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..400), small: bool) {
        // Purely random bytes would never pass the checks of magic and lengths.
        for (at, byte) in b"FJI\x02\x3e\0\x01\x33".iter().enumerate() {
            if let Some(place) = bytes.get_mut(at) {
                *place = *byte;
            }
        }
        if small && bytes.len() >= 32 {
            for at in (8..32).filter(|at| at % 4 != 0 || (24..28).contains(at)) {
                bytes[at] &= if at == 24 || at == 26 { 3 } else { 0 };
            }
        }
        use_all(&bytes);
    }

    #[test]
    fn an_image_with_bytes_changed_is_refused_or_still_sound(
        parts in any_parts(),
        changes in prop::collection::vec((any::<Index>(), any::<u8>()), 1..4),
        in_header: bool,
        cut in prop::option::weighted(0.1, any::<Index>()),
    ) {
        let mut bytes = parts.encode().unwrap();
        // Most of the image is text, where one change is as good as another.
        let within = if in_header { bytes.len().min(64) } else { bytes.len() };
        for (at, byte) in changes {
            let at = at.index(within);
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        use_all(&bytes);
    }

    #[test]
    fn an_image_read_and_encoded_again_has_the_same_bytes(parts in any_parts()) {
        use farjump_core::image::ImageParts;
        let bytes = parts.encode().unwrap();
        let view = ImageView::new_checked(&bytes).unwrap();
        let again = ImageParts {
            imports: view.imports().collect(),
            features: view.features().collect(),
            relatives: view.relatives().collect(),
            wanted: view.wanted().collect(),
            span1: view.span1(),
            data: view.data(),
            ..parts
        };
        prop_assert_eq!(again.encode().unwrap(), bytes);
    }
}
