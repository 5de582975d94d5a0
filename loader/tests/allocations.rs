//! The allocations of the loader: none on the hot path.

mod code;

use std::process::Command;

use code::{RETURN, image, reporter, text};
use farjump_core::image::{ImageParts, Import, Place};
use farjump_fixtures::allocation;
use farjump_loader::library::bundle::{Bundle, BundleImage, SYMBOL, Sizes};
use farjump_loader::{Arena, Library, Resolver, Store, code_id};

#[global_allocator]
static ALLOCATOR: allocation::Counting = allocation::Counting;

fn allocations(work: impl FnOnce()) -> u64 {
    let before = allocation::allocations();
    work();
    allocation::allocations() - before
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1);
}

#[test]
fn calling_the_payload_routines_allocates_nothing() {
    let bytes = image(&RETURN);
    let images = vec![BundleImage { sizes: Sizes::default(), bytes: &bytes }];
    let bundle = Bundle { name: "f", images }.encode().unwrap();
    let source = format!(
        "const unsigned char {SYMBOL}[] = {{{}}};\n\
         void f_main(void *payload, unsigned long size, void *args) {{}}\n\
         unsigned long f_payload_get_max_size(void *args, unsigned long size) {{ return size; }}\n\
         int f_payload_init(void *payload, unsigned long size, void *args, unsigned long len) {{ return 0; }}\n",
        bundle.iter().map(u8::to_string).collect::<Vec<_>>().join(",")
    );
    let directory = tempfile::tempdir().unwrap();
    let (c_file, path) = (directory.path().join("f.c"), directory.path().join("libf.so"));
    std::fs::write(&c_file, source).unwrap();
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let status = Command::new(compiler).args(["-shared", "-fPIC", "-o"]).args([&path, &c_file]).status();
    assert!(status.unwrap().success());
    // SAFETY: built above.
    let library = unsafe { Library::load(&path) }.unwrap();
    let mut space = [0; 64];
    let counted = allocations(|| {
        for _ in 0..100 {
            let max = library.payload_max_size(&[1; 40]);
            // SAFETY: the array is longer than 40 bytes.
            assert!(unsafe { library.payload_init(space.as_mut_ptr(), max, &[1; 40]) }.is_ok());
        }
    });
    assert_eq!(counted, 0);
}

#[test]
fn linking_an_image_allocates_three_times_and_running_it_never() {
    let mut store = Store::new(Arena::new(64 * 1024).unwrap());
    let resolver = Resolver::default();
    let (span1, got) = reporter(1, 1);
    let import = Import { site: Place::Span1(got), name: "memcpy", addend: 0, weak: false };
    let bytes = ImageParts { bss_len: 8, imports: vec![import], ..text(&span1) }.encode().unwrap();
    let id = code_id(&bytes);
    // The store's table grows with its first entry.
    let first = image(&RETURN);
    store.insert(&first, code_id(&first), "first", &resolver).unwrap();

    // The copy of the image, the list of its names during the check, and the `Arc`.
    assert_eq!(allocations(|| drop(store.insert(&bytes, id, "code", &resolver).unwrap())), 3);
    let counted = allocations(|| {
        for _ in 0..100 {
            let linked = store.get(&id).unwrap();
            let mut words = [0_u64; 2];
            // SAFETY: the code writes two words to its arguments.
            unsafe { (linked.main())(std::ptr::null_mut(), 0, words.as_mut_ptr().cast()) };
            assert_ne!(words[0], 0);
        }
    });
    assert_eq!(counted, 0);
}
