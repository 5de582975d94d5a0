//! The bodies over the kept corpus, and over mutations of it by a seeded mutator.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use farjump_builder::inspect as inspector;
use farjump_control::Keys;
use farjump_fixtures::allocation::{Counting, is_counting, most_at_once};
use farjump_fuzz::{BODIES, Body, Mutator, seeds};
use farjump_loader::Library;

#[global_allocator]
static COUNTING: Counting = Counting;

/// The variable with the mutator's seed, a number. Without it each run draws another one.
const SEED: &str = "FARJUMP_FUZZ_SEED";
/// The variable with the number of mutated inputs for each body.
const RUNS: &str = "FARJUMP_FUZZ_RUNS";
/// Longest mutated input, in bytes.
const MOST: usize = 16 * 1024;

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable} is {value:?}: it must be a number")))
}

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus").join(target)
}

/// The kept inputs of a target by name, in order.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(folder(target))
        .unwrap_or_else(|error| panic!("{}: {error}", folder(target).display()))
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
        })
        .collect();
    files.sort();
    files
}

fn body(target: &str) -> Body {
    BODIES.iter().find(|(name, _)| *name == target).expect("a body of that name").1
}

/// Passes the kept inputs of `target`, and `runs` mutations of them, to its body. A seed, and the number of mutations
/// before it, identify a failing input.
fn fuzz(target: &str, runs: u64) {
    assert!(is_counting(), "memory is not counted");
    let (kept, body) = (corpus(target), body(target));
    for (name, bytes) in &kept {
        run(body, bytes, || format!("{target}: the kept input {name} fails"));
    }
    let seed = number(SEED).unwrap_or_else(|| fastrand::u64(..));
    let mut mutator = Mutator::new(seed);
    for ran in 0..number(RUNS).unwrap_or(runs) {
        let mut bytes = kept[mutator.below(kept.len())].1.clone();
        mutator.mutate(&mut bytes, 128, MOST);
        run(body, &bytes, || {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{target}: input {ran} of {SEED}={seed} fails; keep it in fuzz/corpus/{target}: {hex}")
        });
    }
}

fn run(body: Body, bytes: &[u8], what: impl FnOnce() -> String) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body(bytes))) {
        eprintln!("{}", what());
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn frames_that_are_accepted_are_sound_whatever_was_changed() {
    fuzz("frame", 200_000);
}

#[test]
fn accepted_images_have_one_encoding_and_stay_in_their_space() {
    fuzz("image", 100_000);
}

#[test]
fn whoever_connects_and_sends_anything_gets_no_link_and_bounded_memory() {
    fuzz("handshake", 5_000);
}

#[test]
fn changed_records_deliver_whole_messages_in_order_or_end_the_link() {
    fuzz("records", 2_000);
}

#[test]
fn inspecting_any_file_ends_with_a_report_or_words() {
    fuzz("inspect", 20_000);
}

#[test]
fn libraries_that_are_opened_hold_whole_images_whatever_the_file_is() {
    fuzz("library", 20_000);
}

#[test]
fn files_of_keys_hold_keys_apart_and_are_not_repeated_in_words() {
    fuzz("keys", 5_000);
}

#[test]
fn a_store_keeps_its_limits_and_its_objects_whatever_its_sources_send() {
    fuzz("objects", 5_000);
}

#[test]
fn handles_that_are_decoded_have_one_encoding() {
    fuzz("handles", 100_000);
}

#[test]
fn each_request_ends_in_a_value_or_error_for_any_reply() {
    fuzz("replies", 300);
}

#[test]
fn the_seeds_are_taken() {
    for (target, seeds) in seeds::seeds() {
        for (name, bytes) in seeds.into_iter().filter(|_| matches!(target, "inspect" | "library" | "keys")) {
            let path =
                std::env::temp_dir().join(format!("farjump-fuzz-{}-{target}-{name}", std::process::id()));
            let mut options = fs::OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(0o600).open(&path).unwrap();
            file.write_all(&bytes).unwrap();
            let taken = match target {
                "inspect" => inspector::inspect(&path).map(drop).map_err(|error| error.to_string()),
                "library" => Library::open(&path).map(drop).map_err(|error| error.to_string()),
                _ => Keys::read(&path).map(drop).map_err(|error| error.to_string()),
            };
            fs::remove_file(&path).unwrap();
            // The seeds are for one machine.
            assert!(taken.is_ok() || (target != "keys" && cfg!(not(target_arch = "x86_64"))), "{taken:?}");
        }
    }
}

/// A decoded message can be far larger than its bytes: an empty string is one byte there, and takes 24 in memory.
#[test]
fn the_largest_hellos_take_bounded_memory() {
    assert!(is_counting(), "memory is not counted");
    // Hello with no CPU, from pid 1: no name and more transports than bytes, each without a name; or a name of
    // maximal length. Hello with a CPU of maximal length.
    let hellos = [&[0, 0, 1, 0, 0xff, 0xff, 0x03][..], &[0, 0, 1, 0xf9, 0xff, 0x03], &[0, 0xfc, 0xff, 0x03]];
    for (hello, body_len) in hellos.into_iter().flat_map(|hello| [(hello, 20), (hello, 64 * 1024_u32)]) {
        let mut sent = [&[0][..], b"FARJUMP\0\x08\0\0\0", &body_len.to_le_bytes(), &[0; 4], hello].concat();
        sent.resize(sent.len() + body_len as usize - hello.len(), 0);
        body("handshake")(&sent);
    }
}

#[test]
fn the_kept_corpus_holds_what_the_generator_makes() {
    for (target, seeds) in seeds::seeds() {
        let kept = corpus(target);
        for (name, bytes) in seeds {
            let file = kept.iter().find(|(kept, _)| kept == name);
            let advice = "run `cargo run -p farjump-fuzz --bin seeds`";
            assert!(file.is_some_and(|(_, kept)| *kept == bytes), "{target}/{name} is not as made: {advice}");
        }
    }
}

#[test]
fn every_target_has_its_body_its_seeds_and_its_binary() {
    let names: BTreeSet<_> = BODIES.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, seeds::seeds().iter().map(|(name, _)| *name).collect());
    let binaries = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz_targets");
    for name in names {
        let text = fs::read_to_string(binaries.join(format!("{name}.rs"))).unwrap();
        assert!(text.contains(&format!("farjump_fuzz::{name}(")), "{name} does not call its body");
    }
}

#[test]
fn a_mutator_does_the_same_again_for_the_same_seed() {
    let spoilt = |seed| {
        let (mut mutator, mut bytes) = (Mutator::new(seed), vec![7; 200]);
        (0..50).for_each(|_| mutator.mutate(&mut bytes, 64, 300));
        bytes
    };
    assert_eq!(spoilt(1), spoilt(1));
    assert_ne!(spoilt(1), spoilt(2));
    assert!(spoilt(3).len() <= 300);
}

#[test]
fn memory_is_counted_at_its_highest_and_by_thread() {
    let ((), most) = most_at_once(|| {
        drop(vec![0_u8; 10_000]);
        drop(vec![0_u8; 20_000]);
        std::thread::spawn(|| drop(vec![0_u8; 1_000_000])).join().unwrap();
    });
    assert!((20_000..100_000).contains(&most), "{most}");
}
