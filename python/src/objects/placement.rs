//! The choice of a place for functions, as `farjump.at(..., place="auto")` makes it.

use std::time::Duration;

use farjump::placement::{Choice, Place, Wire};
use farjump_handles::{Placement as Chooser, Work};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::guarded;
use crate::lock::Lock;

/// Chooses places for functions, and learns from the times that functions took. Times are in seconds.
#[pyclass(frozen, module = "farjump._native")]
pub(crate) struct Placement(Lock<Chooser>);

fn seconds(time: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(time).map_err(|error| PyValueError::new_err(format!("{time} s: {error}")))
}

fn shown(choice: Choice) -> (bool, f64, f64) {
    (choice.place == Place::AtData, choice.here_us / 1e6, choice.there_us / 1e6)
}

#[pymethods]
impl Placement {
    #[new]
    fn new() -> Placement {
        Placement(Lock::new(Chooser::new()))
    }

    /// Returns whether the latency and the rate of this owner are known.
    fn knows(&self, address: &str) -> bool {
        self.0.with(|chooser| chooser.wire(address).is_some())
    }

    /// Records the times of two fetches from an owner, one of few and one of many bytes, each as (bytes, seconds).
    fn set_fetch_times(
        &self,
        py: Python<'_>,
        address: &str,
        short: (usize, f64),
        long: (usize, f64),
    ) -> PyResult<()> {
        guarded(py, || {
            let micro = |(bytes, time): (usize, f64)| (bytes, time * 1e6);
            let latency_us = (short.1 * 1e6 / 2.0).max(0.0);
            let same = Wire { latency_us, bytes_per_us: f64::MAX };
            let wire = Wire::measured(micro(short), micro(long)).unwrap_or(same);
            self.0.with(|chooser| chooser.set_wire(address, wire));
            Ok(())
        })
    }

    /// Forgets an owner that has ended.
    fn forget(&self, address: &str) {
        self.0.with(|chooser| chooser.drop_owner(address));
    }

    /// Chooses the place of a function on an object of so many bytes, with so many bytes of arguments. Returns whether
    /// to run it at the owner, and its expected times here and there.
    fn choose(
        &self,
        py: Python<'_>,
        address: &str,
        function: u64,
        len: u64,
        args: u64,
    ) -> PyResult<(bool, f64, f64)> {
        let work = Work { function: function.into(), len, args };
        guarded(py, || Ok(shown(self.0.with(|chooser| chooser.choose(address, &work)))))
    }

    /// Records that the function ran at the owner, and its time in all.
    fn ended_there(
        &self,
        py: Python<'_>,
        address: &str,
        function: u64,
        len: u64,
        args: u64,
        took: f64,
    ) -> PyResult<()> {
        let work = Work { function: function.into(), len, args };
        guarded(py, || {
            let took = seconds(took)?;
            self.0.with(|chooser| chooser.ended_there(address, &work, 8, took));
            Ok(())
        })
    }

    /// Records that the function ran here, with the time that the object took to come and the function's own.
    #[expect(clippy::too_many_arguments, reason = "numbers of one outcome")]
    fn ended_here(
        &self,
        py: Python<'_>,
        address: &str,
        function: u64,
        len: u64,
        args: u64,
        fetched: f64,
        took: f64,
    ) -> PyResult<()> {
        let work = Work { function: function.into(), len, args };
        guarded(py, || {
            let (fetched, took) = (seconds(fetched)?, seconds(took)?);
            self.0.with(|chooser| chooser.ended_here(address, &work, fetched, took));
            Ok(())
        })
    }
}
