//! The model of a wire, for messages and for fetches: bytes count as arrived some time after they were sent.
//!
//! Shards are in this process, so a fetch is a load. Without a wire it takes no other time. With a wire, the list is
//! used at the time at which it would have come. That is a round trip after its request, behind the bytes of earlier
//! fetches, and with a limited number of requests under way.

use std::hint;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use farjump::placement::Wire;

/// Latency one way in nanoseconds, of all messages of this process.
static LATENCY: AtomicU64 = AtomicU64::new(0);

/// Returns the time by the clock of all threads, in nanoseconds.
pub extern "C" fn graph_now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Waits until the clock shows this time.
pub extern "C" fn graph_wait(until: u64) {
    while graph_now() < until {
        hint::spin_loop();
    }
}

/// Returns the latency in nanoseconds.
pub extern "C" fn graph_latency() -> u64 {
    LATENCY.load(Ordering::Relaxed)
}

/// The source's view of the wire.
#[derive(Debug)]
pub struct Line {
    latency: u64,
    bytes_per_ns: f64,
    window: usize,
    /// Nanoseconds between two requests of fetches, if the most are under way.
    pace: f64,
    request_at: f64,
    /// The times at which the last bytes of fetches have come, and the last bytes of calls have gone.
    fetched_at: f64,
    sent_at: f64,
}

impl Line {
    /// Makes a wire with at most `window` requests of fetches under way. Sets the latency of all messages, so none may
    /// be under way.
    pub fn new(wire: Wire, window: usize) -> Line {
        let latency = (wire.latency_us * 1e3) as u64;
        LATENCY.store(latency, Ordering::Relaxed);
        let pace = 2.0 * latency as f64 / window as f64;
        let bytes_per_ns = if latency == 0 { f64::INFINITY } else { wire.bytes_per_us / 1e3 };
        Line { latency, bytes_per_ns, window, pace, request_at: 0.0, fetched_at: 0.0, sent_at: 0.0 }
    }

    /// Returns the most requests of fetches that may be under way.
    pub fn window(&self) -> usize {
        self.window
    }

    /// Returns the time at which fetches requested now have all come.
    pub fn fetch(&mut self, now: u64, requests: usize, bytes: usize) -> u64 {
        if self.latency == 0 {
            return now;
        }
        let (now, latency) = (now as f64, self.latency as f64);
        let first = self.request_at.max(now);
        self.request_at = first + requests as f64 * self.pace;
        self.fetched_at = self.fetched_at.max(first + latency) + bytes as f64 / self.bytes_per_ns;
        (self.fetched_at + latency).max(self.request_at - self.pace + 2.0 * latency) as u64
    }

    /// Returns the time at which a call sent now arrives.
    pub fn send(&mut self, now: u64, bytes: usize) -> u64 {
        self.sent_at = self.sent_at.max(now as f64) + bytes as f64 / self.bytes_per_ns;
        self.sent_at as u64 + self.latency
    }

    /// Returns the time at which a reply arrives that was sent at this time, over so many hops.
    pub fn reply(&self, sent: u64, hops: u64, bytes: usize) -> u64 {
        sent + hops * self.latency + (bytes as f64 / self.bytes_per_ns) as u64
    }

    /// Measures the wire, as a program does: by fetches of few bytes and of many.
    pub fn measure(&mut self) -> Wire {
        let mut least = |bytes: usize| {
            let times = (0..8).map(|_| {
                let asked = graph_now();
                graph_wait(self.fetch(asked, 1, bytes));
                graph_now() - asked
            });
            (bytes, times.min().unwrap_or_default() as f64 / 1e3)
        };
        let (short, long) = (least(64), least(1 << 20));
        // Without a wire the bytes of a load take no time of their own.
        let none = Wire { latency_us: 0.0, bytes_per_us: f64::INFINITY };
        if self.latency == 0 { none } else { Wire::measured(short, long).unwrap_or(none) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetches_wait_for_a_round_trip_earlier_bytes_and_a_slot() {
        let mut line = Line::new(Wire::with_latency(2.0), 4);
        assert_eq!(line.fetch(100, 1, 125), 100 + 4000 + 10);
        assert_eq!(line.fetch(100, 1, 125), 100 + 1000 + 4000 + 10);
        // The last one of four is requested three paces after the first.
        assert_eq!(line.fetch(1_000_000, 4, 0), 1_000_000 + 3000 + 4000);
        assert_eq!(line.send(100, 125), 100 + 2000 + 10);
        assert_eq!(line.reply(100, 2, 125), 100 + 4000 + 10);
        let measured = Line::new(Wire::with_latency(20.0), 4).measure();
        assert!(measured.latency_us >= 20.0, "{measured:?}");
        let mut none = Line::new(Wire::with_latency(0.0), 4);
        assert_eq!((none.fetch(5, 9, 1 << 30), none.send(5, 1 << 30)), (5, 5));
    }
}
