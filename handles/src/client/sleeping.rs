//! Sleeps until a word of the owner's memory changes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use farjump::Patience;
use rustix::event::Timespec;
use rustix::thread::futex;

use crate::error::Error;
use crate::owner::topic::Wait;
use crate::region::Region;

/// Longest sleep where the owner's memory is not mapped.
pub(crate) const NAP: Duration = Duration::from_millis(10);
/// First sleep where the owner's memory is not mapped.
const FIRST_NAP: Duration = Duration::from_micros(50);

/// The next sleep where the word cannot be read.
#[derive(Debug)]
pub(crate) struct Nap(Duration);

impl Default for Nap {
    fn default() -> Nap {
        Nap(FIRST_NAP)
    }
}

/// Sleeps until the word changes, `longest` is over, or the caller's patience ends. If the word cannot be read here,
/// sleeps for a nap, each longer than the one before. Returns `Ok(false)` when the patience is over.
pub(crate) fn sleep_on_word(
    region: Option<&Region>,
    wait: Wait,
    longest: Duration,
    nap: &mut Nap,
    patience: &mut Patience<'_>,
) -> Result<bool, Error> {
    let word = region.filter(|_| wait.offset.is_multiple_of(4)).and_then(|region| region.at(wait.offset, 4));
    let until = Instant::now() + longest;
    loop {
        if !patience.may_continue() {
            return Err(Error::Interrupted);
        }
        if patience.is_over() {
            return Ok(false);
        }
        let Some(word) = word else {
            let time = patience.slice(nap.0);
            nap.0 = (nap.0 * 2).min(NAP);
            patience.sleep(|| std::thread::sleep(time));
            return Ok(true);
        };
        // SAFETY: the word lies in the mapped region, at a multiple of 4. The owner changes it by atomic
        // operations, and here it is only read.
        let word = unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) };
        if word.load(Ordering::Acquire) != wait.value || Instant::now() >= until {
            return Ok(true);
        }
        let time = patience.slice(patience.longest_sleep(longest));
        let time = Timespec::try_from(time).ok();
        // Woken, timed out or failed: the word shows whether to continue.
        patience.sleep(|| _ = futex::wait(word, futex::Flags::empty(), wait.value, time.as_ref()));
    }
}
