//! The model of a wire: each message counts as arrived a fixed time after it was sent.
//!
//! A sender stamps the message with the time, and its receiver spins until that time and the wire's latency are over.
//! The times of [`farjump::placement::Wire`] are added to measured ones. This model's times really pass.

use std::hint;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::perf::machine::clock;

/// Latency one way in nanoseconds, of all messages of this process.
static LATENCY: AtomicU64 = AtomicU64::new(0);

/// Latencies one way in nanoseconds, in the order of measuring. There is at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Latencies(pub(super) Vec<u64>);

/// Longest latency of a wire in nanoseconds.
const LONGEST: f64 = 1e6;

/// Reads `0,0.5us,10us`.
///
/// # Errors
/// A sentence for the user.
pub(crate) fn parse_latencies(text: &str) -> Result<Latencies, String> {
    let one = |text: &str| {
        let number: f64 = text.strip_suffix("us").unwrap_or(text).parse().map_err(|_| {
            format!("`{text}` is no latency: write a number of microseconds, for example 0.5us")
        })?;
        let nanoseconds = (number * 1e3).round();
        match (0.0..=LONGEST).contains(&nanoseconds) {
            true => Ok(nanoseconds as u64),
            false => Err(format!("`{text}`: a wire's latency is from 0 to 1000us")),
        }
    };
    let mut latencies = Vec::new();
    for latency in text.split(',').map(one) {
        let latency = latency?;
        if !latencies.contains(&latency) {
            latencies.push(latency);
        }
    }
    Ok(Latencies(latencies))
}

/// Sets the latency in nanoseconds, while no message is under way.
pub(super) fn set(latency: u64) {
    LATENCY.store(latency, Ordering::Relaxed);
}

/// Returns the latency in nanoseconds.
#[inline]
pub(super) fn latency() -> u64 {
    LATENCY.load(Ordering::Relaxed)
}

/// Returns the stamp of a message that is sent now. Without a wire the clock is not read.
#[inline]
pub(super) extern "C" fn stamp() -> u64 {
    if latency() == 0 { 0 } else { clock::now() }
}

/// Waits until a message with this stamp has arrived.
#[inline]
pub(super) extern "C" fn wait(sent: u64) {
    let latency = latency();
    if latency != 0 {
        while clock::now() < sent + latency {
            hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_microseconds_each_once() {
        let read = |text| parse_latencies(text).map(|latencies| latencies.0);
        assert_eq!(read("0,1us,0.5,10us,1"), Ok(vec![0, 1000, 500, 10_000]));
        for wrong in ["", "us", "-1us", "1ms", "1001us", "nan", "0,"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
