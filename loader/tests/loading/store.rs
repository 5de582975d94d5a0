//! Placing images, running them, and refusing invalid ones.

use std::ffi::c_void;
use std::sync::Arc;

use crate::code::{
    DECREMENT, INCREMENT, foreign, image, importing, native, relative, reporter, static_counter,
    static_reader, text,
};
use farjump_core::cpu::Cpu;
#[cfg(target_arch = "x86_64")]
use farjump_core::image::Machine;
use farjump_core::image::{ImageParts, Import, Level, Place, Platform, SPAN_DISTANCE};
#[cfg(target_arch = "x86_64")]
use farjump_loader::InPlace;
use farjump_loader::{
    Arena, Copied, Domain, Exports, Inserted, LinkedImage, Refused, Resolver, Store, code_id,
};

fn store() -> Store {
    Store::new(Arena::new(256 * 1024).unwrap())
}

fn insert(
    store: &mut Store,
    image: &[u8],
    name: &str,
    resolver: &Resolver,
) -> Result<Arc<LinkedImage>, Refused> {
    store.insert(image, code_id(image), name, resolver)
}

fn run<T>(linked: &LinkedImage, args: &mut T) {
    // SAFETY: the code of these tests reads no payload, and writes as many words as `T` has to its arguments.
    unsafe { (linked.main())(std::ptr::null_mut(), 0, (&raw mut *args).cast()) };
}

fn run_for<const WORDS: usize>(linked: &LinkedImage) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    run(linked, &mut words);
    words
}

static OFFERED: [u64; 8] = [0; 8];

fn offering(name: &str) -> (Resolver, u64) {
    let mut exports = Exports::new();
    // SAFETY: the code declares it with this type.
    unsafe { exports.insert(name, (&raw const OFFERED).cast::<c_void>()) };
    (Resolver::new(exports), (&raw const OFFERED).addr() as u64)
}

#[test]
fn an_inserted_image_runs_and_states_its_name_and_id() {
    let mut store = store();
    let bytes = image(&INCREMENT);
    let linked = insert(&mut store, &bytes, "counter", &Resolver::default()).unwrap();
    let mut number = 40_u64;
    run(&linked, &mut number);
    run(&linked, &mut number);
    assert_eq!(number, 42);
    assert_eq!((linked.name(), linked.id(), linked.image()), ("counter", code_id(&bytes), &bytes[..]));
    assert_eq!((linked.block().code_len(), linked.block().data_len()), (INCREMENT.len(), 0));
    assert!(!linked.link_time().is_zero());
}

#[test]
fn new_code_keeps_its_copys_bytes_with_or_without_preparation() {
    let (mut store, resolver) = (store(), Resolver::default());
    let origin = Arc::from("a source");
    for (ahead, code) in [(false, &INCREMENT[..]), (true, &DECREMENT)] {
        let bytes = image(code);
        let id = code_id(&bytes);
        if ahead {
            store.prepare();
        }
        let mut copied = Copied::new(&bytes, b"code");
        let place = copied.image().as_ptr();
        let Ok(Inserted::New(linked)) =
            store.insert_copied(&mut copied, (&id).into(), &resolver, Some(&origin))
        else {
            panic!("it is new");
        };
        assert_eq!((linked.name(), linked.origin(), linked.image()), ("code", "a source", &bytes[..]));
        assert_eq!(linked.image().as_ptr(), place);
        assert!(copied.image().is_empty() && copied.name().is_empty());
        copied.set(&bytes, b"other");
        let Ok(Inserted::Stored(again)) = store.insert_copied(&mut copied, (&id).into(), &resolver, None)
        else {
            panic!("it is there");
        };
        assert!(Arc::ptr_eq(&again, &linked));
        assert_eq!((copied.image(), copied.name()), (&bytes[..], &b"other"[..]), "it was not needed");
        let error = store.insert_copied(&mut copied, (&code_id(b"")).into(), &resolver, None).unwrap_err();
        assert!(matches!(error, Refused::IdMismatch { .. }), "{error}");
        assert_eq!(copied.image(), bytes, "a refused copy can be tried again");
    }
}

#[test]
fn code_of_one_domain_is_not_that_of_another() {
    let (mut store, resolver) = (store(), Resolver::default());
    let span1 = static_counter();
    let bytes = ImageParts { bss_len: 8, ..text(&span1) }.encode().unwrap();
    let id = code_id(&bytes);
    let keys = [0, 1].map(|number| Domain::numbered(number).key(id));
    let insert = |store: &mut Store, key| {
        let mut copied = Copied::new(&bytes, b"counter");
        match store.insert_copied(&mut copied, key, &resolver, None).unwrap() {
            Inserted::New(linked) | Inserted::Stored(linked) => linked,
        }
    };
    let linked = keys.map(|key| {
        assert!(store.get(key).is_none(), "{key:?}");
        insert(&mut store, key)
    });
    assert!(!Arc::ptr_eq(&linked[0], &linked[1]));
    assert_eq!(linked.each_ref().map(|linked| linked.key()), keys);
    // Each image has its own statics.
    assert_eq!([0, 0, 1].map(|index| run_for::<1>(&linked[index])), [[1], [2], [1]]);
    let same = insert(&mut store, keys[1]);
    assert!(Arc::ptr_eq(&same, &linked[1]));
    assert!(store.drop_code(&id) && !store.drop_code(keys[0]));
    assert!(store.get(&id).is_none() && store.get(keys[1]).is_some_and(|held| Arc::ptr_eq(held, &same)));
    assert_eq!((store.len(), store.bytes()), (1, bytes.len()));
}

#[test]
fn the_entry_need_not_be_the_start() {
    let before = if native().instruction_align_log2() == 0 { 61 } else { 60 };
    let mut span1 = vec![0xcc; before];
    span1.extend(INCREMENT);
    let bytes = ImageParts { entry: before as u32, payload_align_log2: 9, ..text(&span1) }.encode().unwrap();
    let linked = insert(&mut store(), &bytes, "late", &Resolver::default()).unwrap();
    assert_eq!(run_for(&linked), [1]);
    assert_eq!(linked.block().entry(), linked.block().address() + before as u64);
    assert_eq!(linked.payload_align_log2(), 9);
}

#[test]
fn imports_in_both_spans_get_address_and_addend() {
    let (span1, got) = reporter(2, 2);
    let import = |site, addend| Import { site, name: "offered", addend, weak: false };
    let parts = ImageParts {
        data: &[0; 16],
        imports: vec![
            import(Place::Span1(got), 0),
            import(Place::Span1(got + 8), 24),
            import(Place::Span2(0), -8),
            import(Place::Span2(8), 1 << 40),
        ],
        ..text(&span1)
    };
    let (resolver, offered) = offering("offered");
    let linked = insert(&mut store(), &parts.encode().unwrap(), "sites", &resolver).unwrap();
    assert_eq!(run_for(&linked), [offered, offered + 24, offered - 8, offered + (1 << 40)]);
}

#[test]
fn an_unoffered_weak_import_is_its_addend_and_offered_ones_resolve() {
    let (span1, got) = reporter(3, 0);
    let import =
        |index: u32, name, addend| Import { site: Place::Span1(got + 8 * index), name, addend, weak: true };
    let imports = vec![import(0, "absent", 0), import(1, "absent", 16), import(2, "offered", 8)];
    let bytes = ImageParts { imports, ..text(&span1) }.encode().unwrap();
    let (resolver, offered) = offering("offered");
    let linked = insert(&mut store(), &bytes, "weak", &resolver).unwrap();
    assert_eq!(run_for(&linked), [0, 16, offered + 8]);
}

#[test]
fn relative_sites_in_both_spans_point_into_both() {
    let (span1, got) = reporter(2, 2);
    let parts = ImageParts {
        data: &[0; 16],
        bss_len: 100,
        relatives: vec![
            relative(Place::Span1(got), Place::Span1(3)),
            relative(Place::Span1(got + 8), Place::Span2(115)),
            relative(Place::Span2(0), Place::Span1(got)),
            relative(Place::Span2(8), Place::Span2(0)),
        ],
        ..text(&span1)
    };
    let linked = insert(&mut store(), &parts.encode().unwrap(), "sites", &Resolver::default()).unwrap();
    let code = linked.block().address();
    let data = code + SPAN_DISTANCE;
    assert_eq!(run_for(&linked), [code + 3, data + 115, code + u64::from(got), data]);
}

#[test]
fn both_spans_are_aligned_as_the_image_demands() {
    let mut store = store();
    for align_log2 in [native().instruction_align_log2(), 6, 9, 12] {
        let span1 = [&INCREMENT[..], &[align_log2]].concat();
        let bytes = ImageParts { align_log2, ..text(&span1) }.encode().unwrap();
        let linked = insert(&mut store, &bytes, "aligned", &Resolver::default()).unwrap();
        assert_eq!(linked.block().address() % (1 << align_log2), 0);
        assert_eq!(run_for(&linked), [1]);
    }
    assert_eq!(store.len(), 4);
}

#[test]
fn statics_start_as_linked_with_one_copy_per_linked_image() {
    let mut store = store();
    let span1 = static_counter();
    let bytes = ImageParts { data: &41_u64.to_le_bytes(), ..text(&span1) }.encode().unwrap();
    let resolver = Resolver::default();
    let first = insert(&mut store, &bytes, "statics", &resolver).unwrap();
    assert_eq!(run_for(&first), [42]);
    let second = insert(&mut store, &bytes, "by_another_name", &resolver).unwrap();
    assert!(Arc::ptr_eq(&first, &second));
    assert_eq!(run_for(&second), [43]);
    assert_eq!(run_for(&first), [44]);
    assert_eq!((store.len(), store.bytes()), (1, bytes.len()));

    assert!(store.drop_code(&code_id(&bytes)));
    assert_eq!(run_for(&first), [45], "code that is held outlives its entry");
    let anew = insert(&mut store, &bytes, "statics", &resolver).unwrap();
    assert_eq!(run_for(&anew), [42]);
    assert_eq!(run_for(&second), [46]);
}

#[test]
fn zeroed_statics_are_zero_also_where_other_data_lay() {
    let mut store = store();
    let span1 = static_counter();
    let before = ImageParts { data: &[0xff; 64], ..text(&span1) }.encode().unwrap();
    let after = ImageParts { bss_len: 64, ..text(&span1) }.encode().unwrap();
    let resolver = Resolver::default();
    let address = insert(&mut store, &before, "before", &resolver).unwrap().block().address();
    assert!(store.drop_code(&code_id(&before)));
    let linked = insert(&mut store, &after, "after", &resolver).unwrap();
    assert_eq!(linked.block().address(), address, "the space was not used again");
    assert_eq!(run_for(&linked), [1]);
}

#[test]
fn different_code_of_one_name_is_held_apart() {
    let mut store = store();
    let resolver = Resolver::default();
    let up = insert(&mut store, &image(&INCREMENT), "step", &resolver).unwrap();
    let down = insert(&mut store, &image(&DECREMENT), "step", &resolver).unwrap();
    let mut number = 10_u64;
    run(&up, &mut number);
    run(&down, &mut number);
    run(&down, &mut number);
    assert_eq!(number, 9);
    assert_eq!((up.name(), down.name(), store.len()), ("step", "step", 2));
}

#[test]
fn dropped_code_leaves_the_store_and_frees_space_once_unused() {
    let mut store = store();
    let (one, other) = (image(&INCREMENT), image(&DECREMENT));
    let linked = insert(&mut store, &one, "one", &Resolver::default()).unwrap();
    insert(&mut store, &other, "other", &Resolver::default()).unwrap();
    assert_eq!((store.len(), store.bytes()), (2, one.len() + other.len()));
    let mut names: Vec<_> = store.iter().map(|linked| linked.name()).collect();
    names.sort();
    assert_eq!(names, ["one", "other"]);

    let used = store.arena().used();
    assert!(store.drop_code(&code_id(&one)));
    assert!(!store.drop_code(&code_id(&one)));
    assert!(store.get(&code_id(&one)).is_none() && store.get(&code_id(&other)).is_some());
    assert_eq!((store.len(), store.bytes(), store.arena().used()), (1, other.len(), used));
    drop(linked);
    assert_eq!(store.arena().used(), used / 2);
    assert!(store.drop_code(&code_id(&other)));
    assert!(store.is_empty());
    assert_eq!((store.bytes(), store.arena().used()), (0, 0));
}

#[test]
fn stores_that_share_an_arena_hold_copies_of_their_own() {
    let arena = Arena::new(64 * 1024).unwrap();
    let span1 = static_counter();
    let bytes = ImageParts { bss_len: 8, ..text(&span1) }.encode().unwrap();
    let (mut one, mut other) = (Store::new(arena.clone()), Store::new(arena));
    let first = insert(&mut one, &bytes, "statics", &Resolver::default()).unwrap();
    let second = insert(&mut other, &bytes, "statics", &Resolver::default()).unwrap();
    assert_eq!((run_for(&first), run_for(&first), run_for(&second)), ([1], [2], [1]));
}

/// Checks that a refusal leaves nothing behind, and has this text.
fn refused(store: &mut Store, result: Result<Arc<LinkedImage>, Refused>, text: &str) {
    assert_eq!(result.unwrap_err().to_string(), text);
    assert!(store.is_empty());
    assert_eq!((store.bytes(), store.arena().used()), (0, 0));
    let good = image(&INCREMENT);
    assert_eq!(run_for(&insert(store, &good, "good", &Resolver::default()).unwrap()), [1]);
    assert!(store.drop_code(&code_id(&good)));
}

#[test]
fn code_that_is_not_what_its_identity_says_is_refused() {
    let mut store = store();
    let (up, down) = (image(&INCREMENT), image(&DECREMENT));
    let result = store.insert(&up, code_id(&down), "liar", &Resolver::default());
    assert!(matches!(result, Err(Refused::IdMismatch { claimed, found, .. })
        if claimed == code_id(&down) && found == code_id(&up)));
    let text = format!(
        "the target refused `liar`: its code is {}, but came as {}; it was damaged on the way or changed while it was read",
        code_id(&up),
        code_id(&down)
    );
    refused(&mut store, result, &text);
}

#[test]
fn an_identity_that_is_held_does_not_let_other_code_pass() {
    let mut store = store();
    let (up, down) = (image(&INCREMENT), image(&DECREMENT));
    let held = insert(&mut store, &up, "held", &Resolver::default()).unwrap();
    let result = store.insert(&down, code_id(&up), "liar", &Resolver::default());
    assert!(matches!(result, Err(Refused::IdMismatch { found, .. }) if found == code_id(&down)));
    assert_eq!((store.len(), run_for(&held)), (1, [1]));
}

#[test]
fn bytes_that_are_no_image_are_refused() {
    let mut store = store();
    let good = image(&INCREMENT);
    let cut = &good[..good.len() - 1];
    let result = insert(&mut store, cut, "cut", &Resolver::default());
    let text = format!(
        "the target refused `cut`: image is truncated: it needs {} bytes and has {}",
        good.len(),
        cut.len()
    );
    refused(&mut store, result, &text);
    let result = insert(&mut store, &[], "nothing", &Resolver::default());
    refused(
        &mut store,
        result,
        "the target refused `nothing`: image is truncated: it needs 32 bytes and has 0",
    );
    let mut text_file = good;
    text_file[..3].copy_from_slice(b"abc");
    let result = insert(&mut store, &text_file, "text", &Resolver::default());
    refused(
        &mut store,
        result,
        "the target refused `text`: these bytes are no image: they do not start with FJI",
    );
}

#[test]
#[cfg(target_arch = "x86_64")]
fn code_for_a_level_that_the_cpu_lacks_is_refused() {
    let level = |number| Level::new(Machine::X86_64, number).unwrap();
    let of = |number| ImageParts { level: level(number), ..text(&INCREMENT) }.encode().unwrap();
    let target = Platform { machine: Machine::X86_64, level: level(2) };
    let mut store = store().for_cpu(Arc::new(Cpu::of_level(target.machine, target.level)));
    for number in [3, 4] {
        let result = insert(&mut store, &of(number), "wide", &Resolver::default());
        assert!(matches!(result, Err(Refused::WrongMachine { target: of, .. }) if of == target));
        let text = format!(
            "the target refused `wide`: the code is for x86_64-unknown-linux-gnu:v{number} and the target runs on \
             x86_64-unknown-linux-gnu:v2; send the image for that machine, or build one"
        );
        refused(&mut store, result, &text);
    }
    for number in [0, 2] {
        insert(&mut store, &of(number), "narrow", &Resolver::default()).unwrap();
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn code_that_needs_a_feature_that_the_cpu_lacks_is_refused() {
    let level = Level::new(Machine::X86_64, 2).unwrap();
    let cpu = Arc::new(Cpu::new(Machine::X86_64, level, "", ["aes", "sse4.1"]).unwrap());
    let of = |features: &[&'static str]| {
        ImageParts { features: features.to_vec(), ..text(&INCREMENT) }.encode().unwrap()
    };
    let mut store = store().for_cpu(Arc::clone(&cpu));
    let resolver = Resolver::default();
    for (features, words) in [
        (&["aes", "avx512f"][..], "the CPU feature avx512f"),
        (&["no-such-instructions"], "the CPU feature no-such-instructions"),
        (&["avx", "avx2", "fma"], "the CPU feature avx and 2 more"),
    ] {
        let image = of(features);
        let text = format!(
            "the target refused `exact`: the code needs {words}, which the target's CPU \
             (x86_64-unknown-linux-gnu:v2) does not have; send the image for its level, or build one for this target \
             (farjump build --for-peer)"
        );
        let in_place = InPlace::new(&image, code_id(&image), "exact", &resolver, &cpu, false).unwrap_err();
        assert!(matches!(in_place, Refused::MissingFeatures { .. }) && in_place.to_string() == text);
        let result = insert(&mut store, &image, "exact", &resolver);
        refused(&mut store, result, &text);
    }
    let arm = ImageParts { features: vec!["aes"], ..ImageParts::text(Machine::AARCH64, &INCREMENT) };
    let result = insert(&mut store, &arm.encode().unwrap(), "arm", &resolver);
    assert!(matches!(result, Err(Refused::WrongMachine { .. })));
    // The level promises SSE2.
    let image = of(&["aes", "sse2", "sse4.1"]);
    insert(&mut store, &image, "exact", &resolver).unwrap();
    InPlace::new(&image, code_id(&image), "exact", &resolver, &cpu, false).unwrap();
}

#[test]
fn code_for_another_machine_is_refused() {
    let mut store = store().for_cpu(Arc::new(Cpu::of_level(native(), Level::BASELINE)));
    let bytes = ImageParts::text(foreign(), &INCREMENT).encode().unwrap();
    let result = insert(&mut store, &bytes, "other", &Resolver::default());
    let other = Platform::baseline(foreign());
    assert!(matches!(result, Err(Refused::WrongMachine { image, .. }) if image == other));
    refused(
        &mut store,
        result,
        &format!(
            "the target refused `other`: the code is for {} and the target runs on {}; send the image for that machine, \
             or build one",
            foreign(),
            native()
        ),
    );
}

#[test]
fn an_unoffered_import_is_refused_by_name_with_the_nearest_one() {
    let mut store = store();
    let (resolver, _) = offering("kv_get");
    let result = insert(&mut store, &importing("store_get"), "sum", &resolver);
    assert!(matches!(&result, Err(Refused::UnresolvedImport { missing, suggestion: Some(near), .. })
        if missing.names.first() == "store_get" && near.1 == "kv_get"));
    refused(
        &mut store,
        result,
        "the target refused `sum`: it exports no `store_get` (it offers kv_get, bcmp, memcmp, memcpy, memmove, memset, strlen; did \
         you mean kv_get?). Have the target export it (Target::export, \
         TargetBuilder::export_library).",
    );
    let result = insert(&mut store, &importing("getpid"), "sum", &Resolver::default());
    assert!(matches!(&result, Err(Refused::UnresolvedImport { suggestion: None, .. })));
    refused(
        &mut store,
        result,
        "the target refused `sum`: it exports no `getpid` (it offers bcmp, memcmp, memcpy, memmove, memset, strlen). Have the target offer \
         it with all of libc (TargetBuilder::process_symbols).",
    );
}

#[test]
fn an_import_that_the_policy_allows_is_linked() {
    let bytes = importing("getpid");
    let mut resolver = Resolver::default();
    resolver.allow_process_symbols();
    let linked = insert(&mut store(), &bytes, "pid", &resolver).unwrap();
    assert_eq!(run_for(&linked), [(libc::getpid as *const c_void).addr() as u64]);
}

#[test]
fn code_longer_than_any_gap_is_refused_until_space_is_free() {
    let mut store = Store::new(Arena::new(64 * 1024).unwrap());
    let half = [&INCREMENT[..], &[0; 40_000]].concat();
    let (one, other) = (image(&half), image(&[&half[..], &[0]].concat()));
    let result = insert(&mut store, &image(&[0xc3; 65_536]), "huge", &Resolver::default());
    refused(
        &mut store,
        result,
        "the target refused `huge`: its arena has no gap for 65536 bytes of code or data, the longest is 65472; have it \
         drop code, or give it a larger arena",
    );
    insert(&mut store, &one, "one", &Resolver::default()).unwrap();
    let result = insert(&mut store, &other, "other", &Resolver::default());
    assert!(matches!(result, Err(Refused::ArenaFull { needed, .. }) if needed == half.len() + 1));
    assert!(store.drop_code(&code_id(&one)));
    assert_eq!(run_for(&insert(&mut store, &other, "other", &Resolver::default()).unwrap()), [1]);
}

#[test]
fn the_longest_span_of_statics_that_fits_is_placed_whole() {
    let mut store = Store::new(Arena::new(64 * 1024).unwrap());
    let span1 = static_reader(65_464);
    let mut data = vec![0; 65_472];
    data[65_464..].copy_from_slice(&77_u64.to_le_bytes());
    let bytes = ImageParts { data: &data, ..text(&span1) }.encode().unwrap();
    assert_eq!(run_for(&insert(&mut store, &bytes, "large", &Resolver::default()).unwrap()), [77]);
}

#[test]
fn a_name_that_no_ifunc_can_have_is_refused() {
    let mut store = store();
    let bytes = image(&INCREMENT);
    for name in ["", "..", "a/b", "\u{1b}[2J", "a b"] {
        let result = insert(&mut store, &bytes, name, &Resolver::default());
        let text = format!(
            "the target refused code named {name:?}: an ifunc's name is a C identifier of at most 255 characters"
        );
        refused(&mut store, result, &text);
    }
    let result = insert(&mut store, &bytes, &"x".repeat(256), &Resolver::default());
    assert!(matches!(&result, Err(Refused::Name { name }) if name.len() == 64));
    insert(&mut store, &bytes, &"x".repeat(255), &Resolver::default()).unwrap();
}

#[test]
fn code_runs_on_another_thread_than_the_one_that_placed_it() {
    let linked = insert(&mut store(), &image(&INCREMENT), "counter", &Resolver::default()).unwrap();
    let reply = std::thread::spawn(move || run_for(&linked)).join().unwrap();
    assert_eq!(reply, [1]);
}

#[test]
fn reused_arena_space_runs_the_new_code() {
    let mut store = store();
    let (up, down) = (image(&INCREMENT), image(&DECREMENT));
    let mut number = 0_i64;
    let mut addresses = Vec::new();
    for round in 0..400 {
        let (bytes, name) = if round % 2 == 0 { (&up, "up") } else { (&down, "down") };
        let linked = insert(&mut store, bytes, name, &Resolver::default()).unwrap();
        run(&linked, &mut number);
        assert_eq!(number, (round + 1) % 2);
        addresses.push(linked.block().address());
        assert!(store.drop_code(&linked.id()));
    }
    addresses.dedup();
    assert_eq!(addresses.len(), 1, "the same space each time");
}
