//! The target's endpoint of work, for all ways.

use super::data::Store;
use super::functions::Function;
use crate::perf::experiments::role::Receiver;
use crate::perf::process::liveness::Watch;
use crate::program::failure::Failure;

/// Serves by a way of receiving calls, and checks the bytes written by calls after each measurement.
pub(super) struct Serving<W> {
    function: Function,
    store: &'static Store,
    method: W,
    size: usize,
}

impl<W: Receiver> Serving<W> {
    pub(super) fn new(function: Function, store: &'static Store, method: W) -> Serving<W> {
        Serving { function, store, method, size: 0 }
    }
}

impl<W: Receiver> Receiver for Serving<W> {
    fn prepare(&mut self, size: usize, streams: bool) -> Result<(), Failure> {
        self.size = size;
        self.store.prepare(self.function, size);
        self.method.prepare(size, streams)
    }

    #[inline]
    fn look(&mut self) -> Result<u64, Failure> {
        self.method.look()
    }

    #[inline]
    fn reply(&mut self, watch: &Watch) -> Result<(), Failure> {
        self.method.reply(watch)
    }

    fn counted(&mut self) -> Result<u64, Failure> {
        let counted = self.method.counted()?;
        if counted != 0 {
            self.store.check(self.function, self.size)?;
        }
        Ok(counted)
    }
}

#[cfg(test)]
mod tests {
    use super::super::data::store_append;
    use super::*;

    /// Reports a number of finished calls.
    struct Says(u64);

    impl Receiver for Says {
        fn prepare(&mut self, _size: usize, _streams: bool) -> Result<(), Failure> {
            Ok(())
        }

        fn look(&mut self) -> Result<u64, Failure> {
            Ok(0)
        }

        fn reply(&mut self, _watch: &Watch) -> Result<(), Failure> {
            Ok(())
        }

        fn counted(&mut self) -> Result<u64, Failure> {
            Ok(self.0)
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
    fn preparing_a_measurement_discards_earlier_writes() {
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
