//! Repeated refusals of a source cost its target no memory.

use farjump::{RefusalCause, WaitPolicy};
use farjump_fixtures::allocation;

use crate::support::{Pair, Place, id_of, library};

/// Refusals of a source.
const REFUSALS: u64 = 100_000;

#[test]
fn a_source_that_is_refused_100_000_times_costs_no_memory() {
    let place = Place::new();
    let (echo, tally) = (library("echo"), library("tally"));
    let target = place.target().allow_code([id_of(&echo)]).wait_policy(WaitPolicy::spin_only());
    let mut pair = Pair::of(target, place.link());
    let refuse = |pair: &mut Pair<'_>, times: u64| {
        for _ in 0..times {
            assert!(pair.call(&tally, b"").is_err());
        }
    };
    // Buffers that grow once have grown, and the target has allocated for the next code.
    assert!(*pair.call(&echo, b"good").unwrap() == *b"good");
    refuse(&mut pair, 1000);
    let before = allocation::live();
    refuse(&mut pair, REFUSALS);
    assert_eq!(allocation::live() - before, 0);
    let kept = vec![0_u8; 100];
    assert_eq!(allocation::live() - before, 100, "what is held counts");
    drop(kept);
    assert_eq!(pair.target.stats().refused(RefusalCause::Policy), REFUSALS + 1000);
}
