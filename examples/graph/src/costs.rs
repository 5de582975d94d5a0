//! The costs of hops, estimated from runs that did all at one place.

use farjump::placement::{Cost, Sample};

/// Estimated times of an algorithm's hops.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Costs {
    /// Costs of the work here.
    pub here: Cost,
    /// Costs of the work at the data.
    pub there: Cost,
    /// Time of sending a hop, and taking its part of a reply.
    pub call_us: f64,
}

/// Samples of hops, by which their times are estimated.
#[derive(Default, Debug)]
pub(crate) struct Samples {
    pub(crate) here: Vec<Sample>,
    pub(crate) there: Vec<Sample>,
    pub(crate) calls: Calls,
}

/// Hops by calls, and the time that they took here in microseconds.
#[derive(Default, Debug)]
pub(crate) struct Calls {
    pub(crate) hops: f64,
    pub(crate) us: f64,
}

impl Samples {
    /// Adds the samples of another run.
    pub(crate) fn add(&mut self, more: Samples) {
        self.here.extend(more.here);
        self.there.extend(more.there);
        self.calls.hops += more.calls.hops;
        self.calls.us += more.calls.us;
    }

    /// Returns the costs that fit the samples, which are of runs that did all here, and all there.
    pub(crate) fn costs(self) -> Costs {
        let call_us = if self.calls.hops > 0.0 { self.calls.us / self.calls.hops } else { 0.0 };
        Costs {
            here: Cost::fit(self.here).unwrap_or_default(),
            there: Cost::fit(self.there).unwrap_or_default(),
            call_us,
        }
    }
}
