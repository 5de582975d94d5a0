//! Work of another thread, while this one polls targets.

use std::time::{Duration, Instant};

/// Timeout of an honest source: much longer than any operation takes on an idle machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Turns without a pause between them.
const QUICK: usize = 100;
/// Time after which an event counts as missing.
const NEVER: Duration = Duration::from_secs(15);

/// Calls `turn` until it returns true. Returns `false` if it never does.
pub(crate) fn until(turn: impl FnMut() -> bool) -> bool {
    until_within(NEVER, turn)
}

fn until_within(limit: Duration, mut turn: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    (0..).find_map(|turns| match turn() {
        true => Some(true),
        false if turns < QUICK => None,
        false => {
            std::thread::sleep(Duration::from_micros(100));
            (begun.elapsed() > limit).then_some(false)
        }
    }) == Some(true)
}

/// Calls `turn` until `act` has come to its end on another thread.
pub(crate) fn alongside<T: Send>(mut turn: impl FnMut(), act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let other = scope.spawn(act);
        let ends = until_within(2 * PATIENCE, || {
            turn();
            other.is_finished()
        });
        assert!(ends, "an honest source waits for longer than it said");
        other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
