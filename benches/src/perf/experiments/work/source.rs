//! The source's endpoint of work, for all ways.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use super::functions::{Function, longest_message};
use crate::perf::experiments::role::Source;
use crate::perf::process::liveness::Watch;
use crate::perf::process::shared_memory::Memory;
use crate::program::failure::Failure;

/// The calls of a kind of work.
pub(super) trait Calls {
    /// Sets the bytes to work on.
    fn prepare(&mut self, size: usize);

    /// Goes on to the next call.
    #[inline]
    fn next(&mut self) {}

    /// Returns the arguments of the present call.
    fn args(&self) -> &'static [u8];

    /// Ends a measurement with the reply of its last call, if there was one.
    ///
    /// # Errors
    /// A wrong reply.
    fn end(&mut self, reply: Option<&[u8]>) -> Result<(), Failure>;
}

/// A way of doing work.
pub(super) trait Perform<C> {
    /// Does the work of the present call, and appends the reply.
    fn perform(&mut self, call: &C, reply: &mut Vec<u8>, watch: &Watch) -> Result<(), Failure>;

    /// Finishes after `calls` calls: reports their number where only this endpoint knows it. No call needs
    /// this endpoint afterwards.
    fn settle(&mut self, calls: u64, watch: &Watch) -> Result<(), Failure>;

    /// Returns UCX's transports, if it reports them.
    fn lanes(&self) -> Option<String> {
        None
    }
}

thread_local! {
    /// Arguments made so far.
    static ARGS: RefCell<BTreeMap<(Function, usize), &'static [u8]>> = const { RefCell::new(BTreeMap::new()) };
}

/// Returns the arguments of a function for a size, made once and leaked: UCX may read the data of an
/// operation that timed out at any later time.
pub(crate) fn args(function: Function, size: usize) -> &'static [u8] {
    ARGS.with_borrow_mut(|made| *made.entry((function, size)).or_insert_with(|| function.args(size).leak()))
}

/// The source's data before a call.
pub(super) struct Job {
    pub(super) function: Function,
    pub(super) size: usize,
    pub(super) args: &'static [u8],
}

impl Job {
    pub(super) fn new(function: Function) -> Job {
        Job { function, size: 0, args: &[] }
    }
}

impl Calls for Job {
    fn prepare(&mut self, size: usize) {
        (self.size, self.args) = (size, args(self.function, size));
    }

    #[inline]
    fn args(&self) -> &'static [u8] {
        self.args
    }

    fn end(&mut self, reply: Option<&[u8]>) -> Result<(), Failure> {
        match reply {
            Some(reply) if !self.function.is_right(self.size, reply) => Err(Failure::new(format!(
                "`{}` gave a wrong result for {} B: {} bytes, {:02x?}",
                self.function,
                self.size,
                reply.len(),
                &reply[..reply.len().min(16)]
            ))),
            _ => Ok(()),
        }
    }
}

/// Does the work, and checks the last reply after each measurement.
pub(super) struct WorkSource<C, W> {
    call: C,
    method: W,
    reply: Vec<u8>,
    calls: u64,
}

impl<C: Calls, W: Perform<C>> WorkSource<C, W> {
    /// Makes an endpoint whose replies have up to `longest` bytes.
    pub(super) fn new(call: C, method: W, longest: usize) -> WorkSource<C, W> {
        WorkSource { call, method, reply: Vec::with_capacity(longest), calls: 0 }
    }
}

impl<W: Perform<Job>> WorkSource<Job, W> {
    /// Makes an endpoint for work on up to `longest` bytes.
    pub(super) fn of(function: Function, method: W, longest: usize) -> WorkSource<Job, W> {
        WorkSource::new(Job::new(function), method, longest_message(longest))
    }
}

impl<C: Calls, W: Perform<C>> Source for WorkSource<C, W> {
    fn prepare(&mut self, size: usize, _streams: bool) -> Result<(), Failure> {
        self.call.prepare(size);
        self.calls = 0;
        Ok(())
    }

    #[inline]
    fn call(&mut self, watch: &Watch) -> Result<(), Failure> {
        self.reply.clear();
        self.calls += 1;
        self.call.next();
        self.method.perform(&self.call, &mut self.reply, watch)
    }

    fn send(&mut self, watch: &Watch) -> Result<(), Failure> {
        self.call(watch)
    }

    fn settle(&mut self, watch: &Watch) -> Result<(), Failure> {
        let settled = self.method.settle(self.calls, watch);
        let ended = self.call.end((self.calls != 0).then_some(&*self.reply));
        settled.and(ended)
    }

    fn finish(&mut self, _memory: &Memory, _watch: &Watch) -> Result<(), Failure> {
        Ok(())
    }

    fn stream(&mut self, _count: u64, _memory: &Memory, _watch: &Watch) -> Result<Duration, Failure> {
        Err(Failure::new("work is called one call at a time"))
    }

    fn lanes(&self) -> Option<String> {
        self.method.lanes()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Gives this reply to every call.
    struct Says(Vec<u8>);

    impl Perform<Job> for Says {
        fn perform(&mut self, _call: &Job, reply: &mut Vec<u8>, _watch: &Watch) -> Result<(), Failure> {
            reply.extend_from_slice(&self.0);
            Ok(())
        }

        fn settle(&mut self, _calls: u64, _watch: &Watch) -> Result<(), Failure> {
            Ok(())
        }
    }

    #[test]
    fn a_wrong_reply_ends_the_run_but_settling_without_calls_passes() {
        let (socket, _other) = UnixStream::pair().unwrap();
        let watch = Watch::of(&socket).unwrap();
        let functions = [Function::Sum, Function::IndirectPut, Function::Histogram, Function::Codec];
        for function in functions {
            let mut source = WorkSource::of(function, Says(vec![9; 3]), 64);
            Source::prepare(&mut source, 64, false).unwrap();
            Source::settle(&mut source, &watch).unwrap();
            Source::call(&mut source, &watch).unwrap();
            let why = Source::settle(&mut source, &watch).unwrap_err().to_string();
            assert!(why.starts_with(&format!("`{function}` gave a wrong result for 64 B: 3 bytes")), "{why}");
        }
        // The sum of the only row that has a key.
        let mut source = WorkSource::of(Function::Sum, Says(1_u64.to_le_bytes().to_vec()), 8);
        Source::prepare(&mut source, 8, false).unwrap();
        Source::call(&mut source, &watch).unwrap();
        Source::settle(&mut source, &watch).unwrap();
    }
}
