//! Memory that a further source costs a target, besides its mailbox and UCX's own.

use std::sync::mpsc;
use std::thread;

use farjump_fixtures::allocation;
use farjump_transports::make;

use crate::support::{PATIENCE, Place, library};

/// Limit of farjump's own bytes for each further source.
const MOST: i64 = 4096;
/// Sources before counting begins, and those that are counted.
const SOURCES: (usize, usize) = (8, 16);

/// Bytes that the target's thread has allocated for each further source that has called over `transport`. Returns
/// `None`, with a message, if that transport is unavailable.
fn for_each_source(transport: &'static str) -> Option<i64> {
    if let Err(error) = make(transport) {
        println!("skipped: {error}");
        return None;
    }
    let place = Place::new();
    let mut count = 0_u64;
    let mut target = place
        .target()
        .args(&mut count)
        .mailbox_size(1 << 16)
        .transport(transport)
        .build()
        .expect("it is usable");
    let (go, turns) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let sources = scope.spawn(|| {
            let counter = library("counter");
            let mut links = Vec::new();
            for () in turns {
                let link = place.link().transport(transport).reply_mailbox_size(1 << 16).connect().unwrap();
                link.inject(&counter, b"12345678").unwrap().wait(PATIENCE).unwrap();
                links.push(link);
            }
        });
        let mut come = |more: usize| {
            for _ in 0..more {
                let calls = target.stats().calls;
                go.send(()).unwrap();
                while target.stats().calls == calls {
                    target.poll().unwrap();
                }
            }
            allocation::live()
        };
        let before = come(SOURCES.0);
        let after = come(SOURCES.1);
        drop(go);
        while !sources.is_finished() {
            target.poll().unwrap();
        }
        Some((after - before) / SOURCES.1 as i64)
    })
}

#[test]
fn another_source_costs_at_most_4_kib_besides_its_mailbox() {
    for transport in ["shm", "ucx-put"] {
        if let Some(bytes) = for_each_source(transport) {
            println!("{transport}: {bytes} bytes");
            assert!((1..=MOST).contains(&bytes), "{transport}: {bytes} bytes for each source");
        }
    }
}
