//! A model of a network between two processes: the time of messages and of fetches, by latency and bandwidth.

/// A network with one latency and one bandwidth. It computes times; nothing waits for them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Wire {
    /// Time from one process to the other, in microseconds, of a message without bytes.
    pub latency_us: f64,
    /// Bandwidth in bytes a microsecond.
    pub bytes_per_us: f64,
}

/// Bytes that a call sends beside its payload, and a reply beside its own: a cache line each.
pub const ENVELOPE: usize = 64;

/// The traffic of one operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Messages there and back, each sent only after the previous one came back.
    pub round_trips: usize,
    /// Bytes of all of them in both directions.
    pub bytes: usize,
}

impl Wire {
    /// A network of 12.5 GB/s, which is 100 Gbit/s, and this latency in microseconds.
    pub const fn with_latency(latency_us: f64) -> Wire {
        Wire { latency_us, bytes_per_us: 12_500.0 }
    }

    /// The network over which fetches took these times: one of few bytes and one of many, each as (bytes, microseconds).
    /// `None` if the long one was not the longer one in both.
    pub fn measured(short: (usize, f64), long: (usize, f64)) -> Option<Wire> {
        let bytes = long.0.checked_sub(short.0).filter(|bytes| *bytes != 0)? as f64;
        let bytes_per_us = bytes / (long.1 - short.1);
        let latency_us = (short.1 - short.0 as f64 / bytes_per_us) / 2.0;
        (bytes_per_us.is_finite() && bytes_per_us > 0.0)
            .then_some(Wire { latency_us: latency_us.max(0.0), bytes_per_us })
    }

    /// Returns the bandwidth in GB/s, of 10^9 bytes.
    pub fn gigabytes_per_second(self) -> f64 {
        self.bytes_per_us / 1e3
    }

    /// Returns the time that the network adds to an operation, in microseconds.
    pub fn time_us(self, traffic: Traffic) -> f64 {
        traffic.round_trips as f64 * 2.0 * self.latency_us + traffic.bytes as f64 / self.bytes_per_us
    }

    /// Returns the traffic that takes less time.
    pub fn quicker(self, one: Traffic, other: Traffic) -> Traffic {
        if self.time_us(other) < self.time_us(one) { other } else { one }
    }

    /// Returns the length of data, in bytes, from which a call at the data takes less time than fetching
    /// them, if the function itself takes equally long at both places. `overhead_us` is the time of the call
    /// without the function and without this network. `steps` is the traffic of a fetch whose length does not
    /// depend on that of the data, if there is such a fetch; `None` if that is always the quicker one.
    pub fn ahead_from(self, overhead_us: f64, call: Traffic, steps: Option<Traffic>) -> Option<u64> {
        let here = overhead_us.max(0.0) + self.time_us(call);
        if steps.is_some_and(|steps| self.time_us(steps) <= here) {
            return None;
        }
        let one_trip = self.time_us(Traffic { round_trips: 1, bytes: 0 });
        Some(((here - one_trip).max(0.0) * self.bytes_per_us).ceil() as u64)
    }
}

impl Traffic {
    /// The traffic of a call: bytes there, and bytes of its reply.
    pub fn of_call(sent: usize, reply: usize) -> Traffic {
        Traffic { round_trips: 1, bytes: sent + reply + 2 * ENVELOPE }
    }

    /// The traffic of fetching so many bytes at once.
    pub fn of_fetch(bytes: usize) -> Traffic {
        Traffic { round_trips: 1, bytes }
    }

    /// The traffic of fetches that depend on each other.
    pub fn of_steps(steps: usize, bytes: usize) -> Traffic {
        Traffic { round_trips: steps, bytes: steps * bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: Wire = Wire::with_latency(5.0);

    #[test]
    fn a_round_trip_is_two_latencies_and_the_time_of_its_bytes() {
        assert_eq!(FAR.time_us(Traffic::of_fetch(125_000)), 20.0);
        assert_eq!(FAR.time_us(Traffic::of_steps(3, 12_500)), 33.0);
        assert_eq!(Wire::with_latency(0.0).time_us(Traffic::of_fetch(25_000)), 2.0);
        assert_eq!(Traffic::of_call(8, 16), Traffic { round_trips: 1, bytes: 152 });
        assert_eq!(FAR.gigabytes_per_second(), 12.5);
    }

    #[test]
    fn the_quicker_fetch_of_few_nodes_depends_on_the_length_of_all() {
        let nodes = Traffic::of_steps(64, 64);
        for (len, quicker) in [(4096, Traffic::of_fetch(4096)), (256 << 20, nodes)] {
            assert_eq!(FAR.quicker(Traffic::of_fetch(len), nodes), quicker);
        }
    }

    #[test]
    fn a_call_is_ahead_once_fetching_the_data_takes_longer() {
        let call = Traffic { round_trips: 1, bytes: 125 };
        // 1 us of overhead are 12,500 bytes, whatever the latency, as both go to and fro once.
        for wire in [0.0, 1.0, 5.0].map(Wire::with_latency) {
            assert_eq!(wire.ahead_from(1.0, call, None), Some(12_625));
            let data = 12_626;
            assert!(1.0 + wire.time_us(call) < wire.time_us(Traffic::of_fetch(data)));
        }
        assert_eq!(FAR.ahead_from(-1.0, call, None), Some(125));
        assert_eq!(FAR.ahead_from(1.0, call, Some(Traffic::of_steps(64, 64))), Some(12_625));
        assert_eq!(FAR.ahead_from(1.0, call, Some(Traffic::of_steps(1, 64))), None);
    }

    #[test]
    fn two_fetches_yield_the_networks_latency_and_bandwidth() {
        for wire in [FAR, Wire { latency_us: 0.3, bytes_per_us: 800.0 }] {
            let fetch = |bytes| (bytes, wire.time_us(Traffic::of_fetch(bytes)));
            let measured = Wire::measured(fetch(64), fetch(1 << 16)).expect("the longer one took longer");
            assert!((measured.latency_us - wire.latency_us).abs() < 1e-6, "{measured:?}");
            assert!((measured.bytes_per_us / wire.bytes_per_us - 1.0).abs() < 1e-6, "{measured:?}");
        }
        assert_eq!(Wire::measured((64, 1.0), (64, 2.0)), None);
        assert_eq!(Wire::measured((64, 2.0), (128, 2.0)), None);
        assert_eq!(Wire::measured((64, 2.0), (128, 1.0)), None);
    }
}
