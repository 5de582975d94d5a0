//! Images for one CPU, which name the features that they need.

use farjump_core::cpu::{Cpu, MAX_FEATURE, MAX_FEATURES};
use farjump_core::image::{ImageError, ImageParts, ImageView, Level, Machine};

use super::parts;

const NAMES: usize = 32 + 4 * 16 + 3 * 8;

/// An image of no sites whose name table is `table`.
fn with_table(table: &[u8]) -> Vec<u8> {
    let mut bytes = ImageParts::text(Machine::X86_64, &[0xc3]).encode().unwrap();
    let padding = table.len().next_multiple_of(16) - table.len();
    bytes[6] |= 15 << 4;
    bytes[28..32].copy_from_slice(&(table.len() as u32).to_le_bytes());
    bytes.splice(32..32, [table, &vec![0; padding]].concat());
    bytes
}

fn check(table: &[u8]) -> Result<(), ImageError> {
    ImageView::new_checked(&with_table(table)).map(|_| ())
}

#[test]
fn the_list_of_features_comes_before_all_names() {
    let level = Level::new(Machine::X86_64, 3).unwrap();
    let features = vec!["fma", "sse4.1", "avx2", "fma"];
    let encoded = ImageParts { level, features, wanted: vec!["libz.so.1"], ..parts() }.encode().unwrap();
    assert_eq!(encoded[6], 0xf1, "features stand in place of a level");
    assert!(encoded[NAMES..].starts_with(b"avx2 fma sse4.1\0libz.so.1\0store_get\0"));
    let view = ImageView::new_checked(&encoded).unwrap();
    assert_eq!(view.platform(), None);
    assert!(view.features().eq(["avx2", "fma", "sse4.1"]));
    assert!(view.wanted().eq(["libz.so.1"]));
    assert!(view.imports().map(|import| import.name).eq(["store_get", "table", "maybe", "table"]));
    // An image of a level has none.
    let encoded = parts().encode().unwrap();
    let view = ImageView::new_checked(&encoded).unwrap();
    assert!(view.platform().is_some() && view.features().next().is_none());
}

#[test]
fn a_malformed_list_of_features_is_refused() {
    assert_eq!(check(b"avx2\0"), Ok(()));
    assert_eq!(check(b"avx2 sse4.1\0"), Ok(()));
    let feature = |index| Err(ImageError::Feature { index });
    for (table, expected) in [
        (&b""[..], Err(ImageError::Features)),
        (b"avx2", Err(ImageError::Features)),
        (b"\0", feature(0)),
        (b" \0", feature(0)),
        (b" avx2\0", feature(0)),
        (b"avx2 \0", feature(1)),
        (b"avx2  fma\0", feature(1)),
        (b"avx2 -fma\0", feature(1)),
        (b"AVX2\0", feature(0)),
        (b"avx\xff\0", feature(0)),
        (b"avx,fma\0", feature(0)),
        (b"avx2\nfma\0", feature(0)),
        (b"fma avx2\0", Err(ImageError::FeatureOrder { index: 1 })),
        (b"avx2 avx2\0", Err(ImageError::FeatureOrder { index: 1 })),
        // Behind the list comes the first name of an import, and there is no import.
        (b"avx2\0fma\0", Err(ImageError::Names)),
    ] {
        assert_eq!(check(table), expected, "{:?}", String::from_utf8_lossy(table));
    }
}

#[test]
fn a_list_of_features_has_bounds() {
    let many = |count: usize, len: usize| -> Vec<String> {
        (0..count).map(|number| format!("{number:0len$}")).collect()
    };
    for (count, len, expected) in [
        (MAX_FEATURES, MAX_FEATURE, Ok(())),
        (MAX_FEATURES + 1, MAX_FEATURE, Err(ImageError::Features)),
        (1, MAX_FEATURE + 1, Err(ImageError::Feature { index: 0 })),
        (100_000, 8, Err(ImageError::Features)),
    ] {
        let names = many(count, len);
        assert_eq!(check(format!("{}\0", names.join(" ")).as_bytes()), expected, "{count} of {len}");
        let features = names.iter().map(String::as_str).collect();
        assert_eq!(ImageParts { features, ..parts() }.encode().map(|_| ()), expected, "{count} of {len}");
    }
    for name in ["avx2 fma", "avx2\0", "", "-mavx2"] {
        let encoded = ImageParts { features: vec![name], ..parts() }.encode();
        assert_eq!(encoded, Err(ImageError::Feature { index: 0 }), "{name:?}");
    }
}

#[test]
fn an_image_runs_where_each_of_its_features_is() {
    let of =
        |features: &[&'static str]| ImageParts { features: features.to_vec(), ..parts() }.encode().unwrap();
    let v2 = Level::new(Machine::X86_64, 2).unwrap();
    let cpu = Cpu::new(Machine::X86_64, v2, "", ["aes", "avx"]).unwrap();
    let runs = |image: &[u8]| cpu.runs(&ImageView::new_checked(image).unwrap());
    assert!(runs(&of(&["aes", "avx"])));
    // The level promises them.
    assert!(runs(&of(&["aes", "sse2", "sse4.2"])));
    for lacking in ["avx2", "no-such", "avx512f"] {
        assert!(!runs(&of(&["aes", lacking])), "{lacking}");
    }
    let lacked = cpu.lacks(["aes", "avx2", "sse3", "zzz"].into_iter());
    assert!(lacked.eq(["avx2", "zzz"]));
    // Features of one name are another machine's.
    let arm = Cpu::new(Machine::AARCH64, Level::BASELINE, "", ["aes"]).unwrap();
    assert!(!arm.runs(&ImageView::new_checked(&of(&["aes"])).unwrap()));
    // Levels.
    let level = |number| ImageParts { level: Level::new(Machine::X86_64, number).unwrap(), ..parts() };
    assert!(runs(&level(0).encode().unwrap()) && runs(&level(2).encode().unwrap()));
    assert!(!runs(&level(3).encode().unwrap()));
}
