//! The files of its target that injected code needs, and the protection of its memory.

use farjump_fixtures::helper_process::RUNNER;
use farjump_fixtures::raw_source::RawSource;
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::helper::{start_target, start_target_in};
use crate::support::{PATIENCE, Place, image_of, library};

#[test]
fn code_runs_at_a_target_that_has_no_file_at_all() {
    let place = Place::new();
    let empty = place.path("empty");
    std::fs::create_dir(&empty).unwrap();
    let data = library("histogram").path().to_owned();
    let data_path = data.to_str().unwrap();
    let (mut target, _) = start_target_in(&place.address(), "shm", data_path, |command| {
        command
            .current_dir(&empty)
            .env("LD_LIBRARY_PATH", "")
            .env("PATH", "")
            .env_remove("LD_PRELOAD")
            .arg0("target");
    });
    let link = place.link().connect().unwrap();
    if rustix::process::geteuid().is_root() {
        target.obey(&format!("shut-in {}", empty.display()));
    } else {
        eprintln!(
            "not root: the target keeps its root folder, and has an empty working folder and library path"
        );
    }
    let (hello, histogram) = (library("hello"), library("histogram"));
    for round in 1..=3_u64 {
        let reply = link.inject(&hello, b"world").unwrap().wait(PATIENCE).unwrap();
        assert_eq!(*reply, round.to_ne_bytes());
        let reply = link.inject(&histogram, b"").unwrap().wait(PATIENCE).unwrap();
        let counts: Vec<u64> =
            reply.chunks(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect();
        let bytes = std::fs::read(&data).unwrap();
        let mut expected = vec![0; 257];
        expected[0] = bytes.len() as u64;
        bytes.iter().for_each(|byte| expected[1 + usize::from(*byte)] += 1);
        assert_eq!(counts, expected);
    }
    assert_eq!(std::fs::read_dir(&empty).unwrap().count(), 0, "and none was made");
}

#[test]
fn no_page_is_writable_and_executable_while_a_target_links_code() {
    if std::env::var_os(RUNNER).is_some() {
        return println!("skipped: the emulator's own memory, which others see, is writable and executable");
    }
    let place = Place::new();
    let target = start_target(&place.address());
    let linking = AtomicBool::new(true);
    let (looks, linked) = thread::scope(|scope| {
        let linker = scope.spawn(|| {
            let mut source = RawSource::connect(&place.address());
            let image = image_of(&library("twin_one"));
            // The same code with another string at its end is other code.
            for number in 0..1000_u16 {
                let mut other = image.clone();
                let at = other.windows(3).rposition(|bytes| bytes == b"one").unwrap();
                other[at + 1..at + 3].copy_from_slice(&number.to_ne_bytes());
                let reply = source.call_new("twin", &other, b"");
                assert_eq!(reply[1..], number.to_ne_bytes());
            }
            linking.store(false, Ordering::Relaxed);
            1000
        });
        let mut looks = BTreeMap::new();
        while linking.load(Ordering::Relaxed) && !linker.is_finished() {
            for line in target.maps() {
                let rights = line.split(' ').nth(1).unwrap().to_owned();
                assert!(!(rights.contains('w') && rights.contains('x')), "{line}");
                // Code from a source lies in anonymous shared memory, mapped twice.
                if line.contains("/dev/zero") || line.contains("deleted") {
                    *looks.entry(rights).or_insert(0) += 1;
                }
            }
        }
        (looks, linker.join().unwrap())
    });
    assert_eq!(linked, 1000);
    assert!(looks.get("r-xs").is_some_and(|count| *count > 10), "{looks:?}");
    assert!(looks.get("rw-s").is_some_and(|count| *count > 10), "{looks:?}");
}
