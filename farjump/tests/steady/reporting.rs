//! A target in a process of its own, which reports its memory on command.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farjump::Target;
use farjump_fixtures::helper_process::{HelperProcess, commands, say, say_value};

/// Serves, and reports what `taken` returns on each command, until the parent ends this process.
pub(crate) fn serve<const NUMBERS: usize>(mut target: Target<'_>, taken: fn() -> [i64; NUMBERS]) -> ! {
    let asked: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    std::thread::spawn(|| commands().for_each(|_| asked.store(true, Ordering::Relaxed)));
    say(&target.address());
    loop {
        while target.poll().unwrap() != 0 {}
        target.wait(Duration::from_millis(1)).unwrap();
        if asked.swap(false, Ordering::Relaxed) {
            say_value(&taken()[..]);
        }
    }
}

/// The report of such a target.
pub(crate) fn taken<const NUMBERS: usize>(target: &mut HelperProcess) -> [i64; NUMBERS] {
    target.order("look");
    target.hear_value::<Vec<i64>>().try_into().expect("so many numbers")
}
