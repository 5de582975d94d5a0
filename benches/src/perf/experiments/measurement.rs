//! One measurement: a number of calls, or of messages in a stream, of one size.

use std::time::Duration;

use super::baselines::connect::Endpoint;
use super::baselines::memcpy::Copy;
use super::role::Source;
use crate::perf::process::child::Pair;
use crate::perf::process::child_protocol::Order;
use crate::perf::process::counterpart::Playing;
use crate::perf::process::liveness::Watch;
use crate::perf::process::shared_memory::Memory;
use crate::perf::report::metric::Metric;
use crate::perf::report::statistics::{Round, median_call};
use crate::program::failure::Failure;

/// The longest payload, in bytes, whose message is as fast as its reply: for farjump both are one line.
const ONE_LINE: usize = 40;
/// Calls between readings of the clock, where single times are not needed.
const BATCH: u32 = 64;
/// A longer call is timed alone: reading the clock is less than a hundredth of it.
const LONG_CALL: Duration = Duration::from_micros(10);
/// Calls that measure the machine's state.
pub(in crate::perf) const STATE_CALLS: u32 = 2048;
/// Payload of those calls, in bytes: the least in the layout of the raw ring.
pub(in crate::perf) const LINE_SIZE: usize = 8;
const MEBIBYTE: f64 = (1 << 20) as f64;

/// The parameters of a measurement.
#[derive(Clone, Copy, Debug)]
pub(in crate::perf) struct Measurement {
    pub(in crate::perf) metric: Metric,
    /// Bytes of payload.
    pub(in crate::perf) size: usize,
    /// Calls that count, at least 1.
    pub(in crate::perf) iterations: u32,
    /// Calls before them.
    pub(in crate::perf) warmup: u32,
}

impl Measurement {
    /// Measures a source against endpoint number `endpoint`. `times` has as many entries as iterations.
    pub(in crate::perf) fn measure(
        &self,
        counterpart: &mut impl Playing,
        endpoint: usize,
        source: &mut dyn Source,
        times: &mut [Duration],
    ) -> Result<Round, Failure> {
        if self.metric.streams() {
            if self.warmup != 0 {
                self.stream(counterpart, endpoint, source, self.warmup)?;
            }
            let time = self.stream(counterpart, endpoint, source, self.iterations)?;
            return Ok(Round::of(self.throughput(time)));
        }
        // Time of a reply without payload on its way back; for a message as short as that, half of its own
        // round trip. Work is done only when its reply has come.
        let back = match (self.metric, self.times_return()) {
            (Metric::Work, _) => 0.0,
            (_, false) => f64::INFINITY,
            (_, true) => {
                round_trips(counterpart, endpoint, source, &Measurement { size: 0, ..*self }, times)? / 2.0
            }
        };
        let one_way = |round_trip: f64| round_trip - back.min(round_trip / 2.0);
        let median = round_trips(counterpart, endpoint, source, self, times)?;
        let singles = &mut times[..self.iterations as usize];
        self.play(counterpart, endpoint, self.iterations, source, |source, _, watch| {
            source.calls(singles, 1, watch)
        })?;
        let singles = singles.iter().map(|time| one_way(time.as_nanos() as f64) as u64).collect();
        Ok(Round::timed(one_way(median) / 1e3, singles))
    }

    /// Measures copying, which has no reply.
    pub(in crate::perf) fn measure_alone(
        &self,
        pair: &Pair,
        copy: &mut Copy,
        times: &mut [Duration],
    ) -> Result<Round, Failure> {
        copy.prepare(self.size, self.metric.streams())?;
        pair.rest(|memory, watch| {
            if self.metric.streams() {
                copy.stream(u64::from(self.warmup), memory, watch)?;
                let time = copy.stream(u64::from(self.iterations), memory, watch)?;
                return Ok(Round::of(self.throughput(time)));
            }
            copy.calls(&mut times[..1], self.warmup, watch)?;
            let (batch, batches) = self.batches();
            copy.calls(&mut times[..batches], batch, watch)?;
            let median = median_call(&times[..batches], batch);
            let singles = &mut times[..self.iterations as usize];
            copy.calls(singles, 1, watch)?;
            let singles = singles.iter().map(|time| time.as_nanos() as u64).collect();
            Ok(Round::timed(median / 1e3, singles))
        })
    }

    /// Returns the number of messages that [`Measurement::measure`] sends in all.
    pub(in crate::perf) fn messages(&self) -> u64 {
        let (warmup, iterations) = (u64::from(self.warmup), u64::from(self.iterations));
        if self.metric.streams() {
            return warmup + iterations;
        }
        let (batch, batches) = self.batches();
        let passes = if self.times_return() { 2 } else { 1 };
        passes * (warmup + u64::from(batch) * batches as u64) + iterations
    }

    /// Returns whether an empty round trip is timed first, for the way back of a reply without payload.
    fn times_return(&self) -> bool {
        self.metric != Metric::Work && self.size > ONE_LINE
    }

    /// Returns the number of calls in a batch, and the number of batches.
    fn batches(&self) -> (u32, usize) {
        let batch = BATCH.min(self.iterations);
        (batch, (self.iterations / batch) as usize)
    }

    fn throughput(&self, time: Duration) -> f64 {
        let a_second = f64::from(self.iterations) / time.as_secs_f64().max(f64::MIN_POSITIVE);
        match self.metric {
            Metric::Bandwidth => a_second * self.size as f64 / MEBIBYTE,
            _ => a_second / 1e6,
        }
    }

    /// Times `count` messages.
    fn stream(
        &self,
        counterpart: &mut impl Playing,
        endpoint: usize,
        source: &mut dyn Source,
        count: u32,
    ) -> Result<Duration, Failure> {
        self.play(counterpart, endpoint, count, source, |source, memory, watch| {
            source.stream(u64::from(count), memory, watch)
        })
    }

    /// Makes both processes run, and checks that all sent messages were counted.
    fn play<T>(
        &self,
        counterpart: &mut impl Playing,
        endpoint: usize,
        messages: u32,
        source: &mut dyn Source,
        measure: impl FnOnce(&mut dyn Source, &Memory, &Watch) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let (size, streams, expected) = (self.size, self.metric.streams(), u64::from(messages));
        source.prepare(size, streams)?;
        let order = Order::Play { endpoint, size, streams, expected };
        let (measured, counted) = counterpart.play_counting(&order, |memory, watch| {
            let measured = measure(source, memory, watch)?;
            source.settle(watch)?;
            Ok(measured)
        })?;
        if counted != expected {
            return Err(Failure::new(format!(
                "{messages} messages of {size} B were sent, and the target counted {counted}"
            )));
        }
        Ok(measured)
    }
}

/// Returns the median round trip of a source's calls, in nanoseconds, by batches.
pub(in crate::perf) fn round_trips(
    counterpart: &mut impl Playing,
    endpoint: usize,
    source: &mut dyn Source,
    calls: &Measurement,
    times: &mut [Duration],
) -> Result<f64, Failure> {
    let (batch, batches) = calls.batches();
    let messages = calls.warmup + batch * batches as u32;
    calls.play(counterpart, endpoint, messages, source, |source, _, watch| {
        source.calls(&mut times[..1], calls.warmup, watch)?;
        if calls.warmup != 0 && times[0] >= LONG_CALL * calls.warmup {
            let times = &mut times[..batches * batch as usize];
            source.calls(times, 1, watch)?;
            return Ok(median_call(times, 1));
        }
        source.calls(&mut times[..batches], batch, watch)?;
        Ok(median_call(&times[..batches], batch))
    })
}

/// Returns the time of a line one way, in nanoseconds, by the raw ring, which is the first endpoint. `times`
/// has at least [`STATE_CALLS`] entries.
pub(in crate::perf) fn line(
    pair: &mut Pair,
    endpoints: &mut [Endpoint],
    times: &mut [Duration],
) -> Result<f64, Failure> {
    let Some(Ok(Some(raw))) = endpoints.first_mut() else {
        return Err(Failure::new("there is no raw ring"));
    };
    let line = Measurement {
        metric: Metric::Latency,
        size: LINE_SIZE,
        iterations: STATE_CALLS,
        warmup: STATE_CALLS / 8,
    };
    Ok(round_trips(pair, 0, raw.source()?, &line, times)? / 2.0)
}
