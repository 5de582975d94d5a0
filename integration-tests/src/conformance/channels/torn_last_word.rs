//! A receiver that takes the last word of a write for its end, like programs that poll it. Tests whether this path
//! tears writes visibly. No rule of farjump relies on the last word; the check shows why.

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::thread;

use farjump_core::transport::{Endpoint, LocalMemory, RemoteMemory};

use super::connect::Raw;
use super::stream::Patience;
use crate::conformance::failure::{Failure, ensure};
use crate::conformance::pattern;
use crate::conformance::subject::Subject;

/// Lengths of writes: of one packet, and some of several.
const SIZES: [usize; 12] = [32, 40, 64, 72, 96, 128, 136, 200, 256, 512, 1024, 8192];
/// Length of the region, in bytes.
const REGION: usize = 64 << 10;
/// Lines between the starts of consecutive writes, so that they lie everywhere.
const STEP: usize = 131;
const SEED: u64 = 61;

/// The observations of polling the last words of writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LastWords {
    /// Writes that were whole when the last word had arrived.
    pub whole: u64,
    /// Writes of which some bytes came later.
    pub torn: u64,
    /// The first of these.
    pub first: Option<String>,
}

/// Makes `writes` writes of 32 B to 8 KiB from one thread, one at a time. Another thread polls the last word
/// of each and then compares all of it.
///
/// # Errors
/// A path without memory that peers write, an error of the path, or bytes that stay wrong.
pub fn last_words(subject: &Subject, writes: u64) -> Result<LastWords, Failure> {
    let raw = Raw::connect(subject, REGION, REGION / 2)?;
    let (Endpoint::OneSided { local: _own, remote }, Endpoint::OneSided { local, remote: mut back }) =
        (raw.left, raw.right)
    else {
        return Err(Failure::new("it delivers whole frames: there is no memory to poll"));
    };
    ensure!(local.len() >= REGION, "its region has {} bytes", local.len());
    let (taken, looks) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let writer = scope.spawn(|| write_all(remote, writes, &taken, &looks));
        let mut seen = LastWords { whole: 0, torn: 0, first: None };
        let polled = (0..writes).try_for_each(|number| -> Result<(), Failure> {
            let mut patience = Patience::new();
            while !arrived(&*local, number) {
                looks.fetch_add(1, Release);
                back.progress()?;
                patience.stuck(|| format!("write {number} does not come"))?;
            }
            match difference(&*local, number) {
                None => seen.whole += 1,
                Some(byte) => {
                    let len = length(number);
                    let mut patience = Patience::new();
                    while difference(&*local, number).is_some() {
                        looks.fetch_add(1, Release);
                        patience.stuck(|| {
                            format!("byte {byte} of write {number} of {len} bytes does not come")
                        })?;
                    }
                    seen.torn += 1;
                    let text =
                        || format!("byte {byte} of write {number} of {len} bytes came after the last word");
                    seen.first.get_or_insert_with(text);
                }
            }
            taken.store(number + 1, Release);
            Ok(())
        });
        if polled.is_err() {
            taken.store(u64::MAX, Release);
        }
        let written = writer.join().unwrap_or_else(|_| Err(Failure::new("the writer's thread panicked")));
        polled.and(written).map(|()| seen)
    })
}

/// Makes the writes, each when the one before has been taken. Between two steps of progress the other thread polls at
/// least once. On a shared processor, a path that moves bytes only in these steps would otherwise be polled only
/// after the end.
fn write_all(
    remote: Box<dyn RemoteMemory>,
    writes: u64,
    taken: &AtomicU64,
    looks: &AtomicU64,
) -> Result<(), Failure> {
    // The bytes stay in place until they have arrived, or until the path is gone, which is dropped first.
    let mut bytes: Vec<u8>;
    let mut remote = remote;
    for number in 0..writes {
        bytes = pattern::bytes(length(number), SEED, number);
        let mut patience = Patience::new();
        while let Err(error) = remote.put(offset(number), &bytes, number) {
            if !error.is_full() {
                return Err(error.into());
            }
            remote.progress()?;
            patience.stuck(|| format!("there is no space for write {number}"))?;
        }
        let mut patience = Patience::new();
        while taken.load(Acquire) <= number {
            let before = looks.load(Acquire);
            remote.progress()?;
            while looks.load(Acquire) == before && taken.load(Acquire) <= number {
                patience.stuck(|| format!("write {number} is not taken"))?;
                thread::yield_now();
            }
        }
        if taken.load(Relaxed) == u64::MAX {
            break;
        }
    }
    Ok(())
}

fn length(number: u64) -> usize {
    SIZES[(number % SIZES.len() as u64) as usize]
}

/// Start of a write: at a line, like a frame.
fn offset(number: u64) -> usize {
    let lines = (REGION - SIZES[SIZES.len() - 1]) / 64;
    number as usize * STEP % lines * 64
}

/// Returns whether the last word of a write has arrived.
fn arrived(local: &dyn LocalMemory, number: u64) -> bool {
    let at = offset(number) + length(number) - 8;
    // SAFETY: `LocalMemory` guarantees its bytes while it is borrowed, `last_words` has checked that they are
    // enough, and lengths are multiples of 8. Other writers are observed atomically.
    let word = unsafe { AtomicU64::from_ptr(local.base().as_ptr().add(at).cast()) };
    word.load(Acquire) == pattern::word(SEED, number, (length(number) / 8 - 1) as u64)
}

/// The first byte of a write that has not arrived.
fn difference(local: &dyn LocalMemory, number: u64) -> Option<usize> {
    // SAFETY: `LocalMemory` guarantees its bytes while it is borrowed, and `last_words` has checked that they
    // are enough.
    unsafe { pattern::first_difference(local.base().add(offset(number)), length(number), SEED, number) }
}

#[cfg(test)]
mod tests {
    use farjump_core::transport::ArrivalRules;

    use super::*;
    use crate::conformance::Pair;
    use crate::fakes::{FakeOneSided, Rule};

    fn seen(rule: Rule, arrival: ArrivalRules) -> LastWords {
        let subject = Subject::new("fake", arrival, move || {
            Pair::new(Box::new(FakeOneSided::new(rule, 1)), Box::new(FakeOneSided::new(rule, 2)))
        });
        last_words(&subject, 2000).unwrap()
    }

    #[test]
    fn polling_the_last_word_sees_torn_writes_only_without_promised_order() {
        let disorderly = seen(Rule::Fenced, ArrivalRules::FENCED);
        assert!(disorderly.torn > 0, "{disorderly:?}");
        assert!(disorderly.first.is_some());
        assert_eq!(disorderly.whole + disorderly.torn, 2000);
        let orderly = seen(Rule::InOrder, ArrivalRules::IN_ORDER);
        assert_eq!(orderly, LastWords { whole: 2000, torn: 0, first: None });
    }
}
