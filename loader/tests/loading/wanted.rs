//! Wanted libraries: opened only for images that need them, and only if the target lists them. Each test searches this
//! process's mappings for its own library, which belongs to the C library and which nothing else here loads.

use std::ffi::c_void;
use std::fs;
use std::sync::Arc;

use crate::code::{reporter, text};
use farjump_core::image::{ImageError, ImageParts, ImageView, Import, Place};
use farjump_loader::{Arena, Error, Exports, InPlace, LinkedImage, Refused, Resolver, Store, code_id};
use farjump_os::cpu::detected;

/// An image that imports `symbols`, reports their addresses, and wants `wanted`.
fn wanting(symbols: &[&str], weak: bool, wanted: &[&str]) -> Vec<u8> {
    let (span1, got) = reporter(symbols.len(), 0);
    let import = |(word, name): (usize, _)| Import {
        site: Place::Span1(got + 8 * word as u32),
        name,
        addend: 0,
        weak,
    };
    let imports = symbols.iter().copied().enumerate().map(import).collect();
    ImageParts { imports, wanted: wanted.to_vec(), ..text(&span1) }.encode().unwrap()
}

fn insert(image: &[u8], resolver: &Resolver) -> Result<Arc<LinkedImage>, Refused> {
    Store::new(Arena::new(256 * 1024).unwrap()).insert(image, code_id(image), "wants", resolver)
}

/// A resolver that allows images to want these.
fn listing(wanted: &[&str]) -> Resolver {
    let mut resolver = Resolver::default();
    for soname in wanted {
        // SAFETY: libraries of the system, or missing ones.
        unsafe { resolver.allow_wanted(soname) }.unwrap();
    }
    resolver
}

/// Returns whether a library is loaded in this process.
fn is_open(soname: &str) -> bool {
    fs::read_to_string("/proc/self/maps").unwrap().contains(soname)
}

/// The name of the library at an address.
fn home(address: u64) -> String {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let holds = |line: &&str| {
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        (number(start)..number(end)).contains(&address)
    };
    maps.lines().find(holds).and_then(|line| line.rsplit_once('/')).unwrap().1.to_owned()
}

fn run<const WORDS: usize>(linked: &LinkedImage) -> [u64; WORDS] {
    let mut words = [0_u64; WORDS];
    // SAFETY: the code reads no payload and writes one word for each import.
    unsafe { (linked.main())(std::ptr::null_mut(), 0, words.as_mut_ptr().cast()) };
    words
}

#[test]
fn an_unlisted_library_is_not_opened_and_the_refusal_names_it() {
    const LIBRARY: &str = "libresolv.so.2";
    let image = wanting(&["inet_net_ntop"], false, &[LIBRARY, "libother.so.7"]);
    for resolver in [Resolver::default(), listing(&["libresolv.so", "resolv.so.2", "libresolv.so.2."])] {
        let refused = insert(&image, &resolver).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the target refused `wants`: it imports `inet_net_ntop`, which the target does not offer, and wants \
             libother.so.7 and libresolv.so.2, which the target does not open: have the target open \
             them (TargetBuilder::wanted_library), or export what it needs"
        );
        let refused =
            InPlace::new(&image, code_id(&image), "wants", &resolver, &detected(), false).unwrap_err();
        assert!(matches!(refused, Refused::WantedLibraries { libraries, .. } if libraries.len() == 2));
        assert!(!is_open(LIBRARY));
    }
    // The library exists, and the same images open it if it is listed, although the other library is not.
    let resolver = listing(&[LIBRARY]);
    let [found] = run(&insert(&image, &resolver).unwrap());
    assert!(home(found).starts_with("libresolv"), "{}", home(found));
    InPlace::new(&image, code_id(&image), "wants", &resolver, &detected(), false).unwrap();
    // An image that does not want the library finds nothing in it, although it is open.
    let other = wanting(&["inet_net_ntop"], false, &[]);
    assert!(matches!(insert(&other, &resolver), Err(Refused::UnresolvedImport { .. })));
    // An image that imports a symbol of the library's dependencies finds nothing either.
    let other = wanting(&["getpid"], false, &[LIBRARY]);
    assert!(matches!(insert(&other, &resolver), Err(Refused::UnresolvedImport { .. })));
}

#[test]
fn a_listed_library_is_opened_only_for_imports_found_nowhere_else() {
    const LIBRARY: &str = "libanl.so.1";
    static OFFERED: u64 = 0;
    let mut exports = Exports::new();
    // SAFETY: nothing reads it.
    unsafe { exports.insert("offered", (&raw const OFFERED).cast::<c_void>()) };
    let mut resolver = Resolver::new(exports);
    // SAFETY: a library of the system.
    unsafe { resolver.allow_wanted(LIBRARY) }.unwrap();
    let [found] = run(&insert(&wanting(&["offered"], false, &[LIBRARY]), &resolver).unwrap());
    assert_eq!(found, (&raw const OFFERED).addr() as u64);
    assert_eq!(run(&insert(&wanting(&[], false, &[LIBRARY]), &resolver).unwrap()), [0; 0]);
    assert!(!is_open(LIBRARY));
    // The missing symbol is not in the library: only opening it shows that.
    let refused = insert(&wanting(&["offered", "offred"], false, &[LIBRARY]), &resolver).unwrap_err();
    assert!(
        matches!(&refused, Refused::UnresolvedImport { missing, .. } if missing.names.first() == "offred"),
        "{refused}"
    );
    assert!(is_open(LIBRARY));
}

#[test]
fn a_weak_import_runs_without_the_library() {
    let image = wanting(&["absent"], true, &["libno-such.so.7"]);
    for resolver in [Resolver::default(), listing(&["libno-such.so.7"])] {
        assert_eq!(run(&insert(&image, &resolver).unwrap()), [0]);
    }
}

#[test]
fn a_missing_listed_library_is_refused_with_advice_to_install_it() {
    let image = wanting(&["absent"], false, &["libno-such.so.7"]);
    let refused = insert(&image, &listing(&["libno-such.so.7"])).unwrap_err().to_string();
    assert!(
        refused.starts_with(
            "the target refused `wants`, which wants a library: cannot load `libno-such.so.7`: "
        ) && refused.ends_with("; install it at the target"),
        "{refused}"
    );
}

/// A forged image: a lying source replaces a placeholder as long as `name`.
fn forged(name: &str) -> Vec<u8> {
    let placeholder = "x".repeat(name.len());
    let mut image = wanting(&["a"], false, &[&placeholder]);
    let at = image.windows(name.len()).position(|window| window == placeholder.as_bytes()).unwrap();
    image[at..at + name.len()].copy_from_slice(name.as_bytes());
    image
}

#[test]
fn a_wanted_path_is_refused_before_opening_and_cannot_be_listed() {
    const LIBRARY: &str = "libthread_db.so.1";
    let paths = ["/lib/x86_64-linux-gnu", "/usr/lib64", "/lib64", ".", ""];
    let resolver = listing(&[LIBRARY]);
    for path in paths.map(|folder| format!("{folder}/{LIBRARY}")) {
        let image = forged(&path);
        assert_eq!(ImageView::new_checked(&image).unwrap_err(), ImageError::Wanted { index: 0 });
        let refused = insert(&image, &resolver).unwrap_err();
        assert!(matches!(refused, Refused::BadImage { .. }), "{refused}");
        let refused =
            InPlace::new(&image, code_id(&image), "wants", &resolver, &detected(), false).unwrap_err();
        assert!(matches!(refused, Refused::BadImage { .. }), "{refused}");
        // SAFETY: it is refused.
        let listed = unsafe { Resolver::default().allow_wanted(&path) };
        assert!(matches!(listed, Err(Error::Soname { name }) if name == path));
    }
    assert!(!is_open(LIBRARY));
}

#[test]
fn wanted_libraries_of_bad_name_or_count_are_refused_before_opening() {
    const LIBRARY: &str = "libnss_compat.so.2";
    let resolver = listing(&[LIBRARY]);
    let many: Vec<String> = (10..26).map(|number| format!("lib{number}.so")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let mut too_many = wanting(&["a"], false, &many);
    too_many[31] += 1 << 3;
    let long = "l".repeat(255);
    // One byte longer: the end of the name becomes part of it, and so do the following bytes.
    let mut too_long = wanting(&["a"], false, &[&long]);
    let end = too_long.windows(255).position(|window| window == long.as_bytes()).unwrap() + 255;
    too_long[end] = b'l';
    for (image, expected) in [
        (forged(&format!("{LIBRARY}\0.5")), ImageError::Name { index: 0 }),
        (forged(&format!("\0{LIBRARY}")), ImageError::Wanted { index: 0 }),
        (too_long, ImageError::Wanted { index: 0 }),
        (too_many, ImageError::WantedCount { count: 17 }),
    ] {
        assert_eq!(ImageView::new_checked(&image).unwrap_err(), expected);
        let refused = insert(&image, &resolver).unwrap_err();
        assert!(matches!(refused, Refused::BadImage { .. }), "{refused}");
    }
    assert!(!is_open(LIBRARY));
    for name in ["", &"l".repeat(256), "lib z.so", "a\0b", "libz\u{e9}.so"] {
        // SAFETY: it is refused.
        assert!(unsafe { Resolver::default().allow_wanted(name) }.is_err(), "{name}");
    }
}
