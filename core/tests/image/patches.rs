//! Patching an image in the mailbox: the result equals the same image, placed.

use std::ptr::NonNull;

use farjump_core::image::{ImageParts, ImageView, Import, Patches, Place, PlaceError, Relative, Space};

use super::parts;

const ADDRESS: u64 = 0x7f00_0000_1000;

/// An image without span 2, with imports and a relative site.
fn alone<'a>() -> ImageParts<'a> {
    let import = |at, name, addend, weak| Import { site: Place::Span1(at), name, addend, weak };
    ImageParts {
        data: &[],
        bss_len: 0,
        imports: vec![
            import(8, "store_get", 0, false),
            import(40, "table", -24, false),
            import(56, "maybe", 3, true),
        ],
        relatives: vec![
            Relative { site: Place::Span1(16), to: Place::Span1(64) },
            Relative { site: Place::Span1(27), to: Place::Span1(5) },
        ],
        ..parts()
    }
}

#[test]
fn patching_an_image_in_place_overwrites_old_sites_like_placing_it() {
    let bytes = alone().encode().unwrap();
    let view = ImageView::new_checked(&bytes).unwrap();
    for offered in [["store_get", "table", "maybe"].as_slice(), &["store_get", "table"]] {
        let resolve =
            |import: &Import<'_>| offered.contains(&import.name).then_some(0x1000 + import.name.len() as u64);
        let mut placed = vec![0; view.span1().len()];
        view.place(Space { span1: &mut placed, span2: &mut [], address: ADDRESS }, resolve).unwrap();
        let patches = Patches::of(&view, resolve).unwrap();
        assert_eq!(patches.sites(), 5);
        // Words, so that the copy is aligned.
        let mut lap = [0_u64; 8];
        for (word, bytes) in lap.iter_mut().zip(view.span1().chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().unwrap()).to_le();
        }
        for site in [1, 2, 5, 7] {
            lap[site] = !0;
        }
        // The site at 27.
        lap[3] |= 0xffff_ffff_ff00_0000_u64.to_le();
        lap[4] |= 0x00ff_ffff_u64.to_le();
        let span1 = NonNull::from(&mut lap).cast();
        // SAFETY: 64 bytes aligned to 8, as long as span 1, which nothing else uses.
        unsafe { patches.apply(span1, ADDRESS) };
        let found: Vec<u8> = lap.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(found, placed);
    }
}

#[test]
fn an_import_that_is_not_offered_and_statics_are_refused() {
    let bytes = alone().encode().unwrap();
    let view = ImageView::new_checked(&bytes).unwrap();
    let lacking = Patches::of(&view, |import| (import.name != "table").then_some(1));
    assert_eq!(lacking.unwrap_err(), PlaceError::Unresolved(1));
    let bytes = parts().encode().unwrap();
    let statics = Patches::of(&ImageView::new_checked(&bytes).unwrap(), |_| Some(1));
    assert_eq!(statics.unwrap_err(), PlaceError::Space { span: 2, needed: 48, found: 0 });
}
