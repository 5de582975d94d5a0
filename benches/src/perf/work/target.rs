//! The target's endpoint of work, for all ways.

use super::data::Store;
use super::functions::Function;
use crate::perf::liveness::Watch;
use crate::perf::role::Other;
use crate::program::failure::Failure;

/// A way of receiving calls.
pub(super) trait Host {
    /// Resets the count of calls.
    fn prepare(&mut self);

    /// Polls once. Returns the number of calls that wait for their replies or have them: one more if
    /// [`Host::answer`] is to be called.
    fn look(&mut self) -> Result<u64, Failure>;

    /// Replies to the last call.
    fn answer(&mut self, watch: &Watch) -> Result<(), Failure>;

    /// Returns the number of finished calls.
    fn done(&mut self, store: &Store) -> u64;
}

/// Serves, and checks the bytes written by calls after each measurement.
pub(super) struct Serving<H> {
    function: Function,
    store: &'static Store,
    host: H,
    size: usize,
}

impl<H: Host> Serving<H> {
    pub(super) fn new(function: Function, store: &'static Store, host: H) -> Serving<H> {
        Serving { function, store, host, size: 0 }
    }
}

impl<H: Host> Other for Serving<H> {
    fn prepare(&mut self, size: usize, _streams: bool) -> Result<(), Failure> {
        self.size = size;
        self.store.prepare(self.function, size);
        self.host.prepare();
        Ok(())
    }

    #[inline]
    fn look(&mut self) -> Result<u64, Failure> {
        self.host.look()
    }

    #[inline]
    fn answer(&mut self, watch: &Watch) -> Result<(), Failure> {
        self.host.answer(watch)
    }

    fn counted(&mut self) -> Result<u64, Failure> {
        let done = self.host.done(self.store);
        if done != 0 {
            self.store.check(self.function, self.size)?;
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::super::data::store_append;
    use super::*;

    /// Reports a number of finished calls.
    struct Says(u64);

    impl Host for Says {
        fn prepare(&mut self) {}

        fn look(&mut self) -> Result<u64, Failure> {
            Ok(0)
        }

        fn answer(&mut self, _watch: &Watch) -> Result<(), Failure> {
            Ok(())
        }

        fn done(&mut self, _store: &Store) -> u64 {
            self.0
        }
    }

    #[test]
    fn calls_that_wrote_nothing_or_something_wrong_end_the_run() {
        for function in [Function::IndirectPut, Function::Codec] {
            let store = Store::own(4096);
            let mut serving = Serving::new(function, store, Says(1));
            serving.prepare(4096, false).unwrap();
            let why = serving.counted().unwrap_err().to_string();
            assert!(why.starts_with(&format!("`{function}` wrote something wrong")), "{why}");
            let mut idle = Serving::new(function, store, Says(0));
            idle.prepare(4096, false).unwrap();
            assert_eq!(idle.counted().unwrap(), 0);
        }
    }

    #[test]
    fn what_was_written_before_is_gone_when_a_measurement_begins() {
        let mut serving = Serving::new(Function::Codec, Store::own(64), Says(1));
        serving.prepare(64, false).unwrap();
        let (_, right) = Function::Codec.written(64).unwrap();
        // In two pieces, with the next call over the first one.
        for _ in 0..2 {
            assert_eq!((store_append(right.as_ptr(), 40), store_append(right[40..].as_ptr(), 24)), (0, 0));
            assert_eq!(serving.counted().unwrap(), 1);
        }
        assert_eq!((store_append(right.as_ptr(), 40), store_append(right.as_ptr(), 25)), (0, -1), "too much");
        serving.prepare(64, false).unwrap();
        assert!(serving.counted().is_err());
    }
}
