//! The other way: the file moves to this process, which runs the same function on it.

use std::time::{Duration, Instant};

use farjump::buffer::{AlignedBuffer, FrameRunner, FrameWriter, RunOutcome};
use farjump::core::signal::LinkKey;
use farjump::{Data, Error, Executor, Library, Machine, Platform};

use farjump_cli::program::failure::Failure;

use super::child::DemoTarget;
use super::functions::{Function, FunctionResult};

/// Bytes that are computed at a time: the file need not fit into memory.
const PART: usize = 1 << 20;
/// Space in a frame beside code and arguments.
const FRAME_REST: usize = 4096;

/// A function that runs in this process, by the same machine code as in the target.
pub(super) struct LocalFunction<'f> {
    function: &'f Function,
    library: &'f Library,
    executor: Executor,
    writer: FrameWriter,
    runner: FrameRunner,
    frame: AlignedBuffer,
}

/// The result of moving and computing.
pub(super) struct Computed {
    pub(super) result: FunctionResult,
    /// Time for both.
    pub(super) time: Duration,
    /// The part of `time` that went into computing.
    pub(super) computing: Duration,
}

impl<'f> LocalFunction<'f> {
    /// Prepares `function`, the function of `library`, to run here.
    ///
    /// # Errors
    /// No memory can be made executable, or the library is for other machines.
    pub(super) fn new(function: &'f Function, library: &'f Library) -> Result<LocalFunction<'f>, Failure> {
        let executor = Executor::builder().build()?;
        // Frames stay in this process, so the key need not be secret.
        let key = LinkKey::from_bytes(*b"the demo's frame");
        let code = match Machine::native() {
            Some(machine) => {
                library.image_for(Platform::baseline(machine)).map_err(Error::from)?.bytes().len()
            }
            None => 0,
        };
        Ok(LocalFunction {
            writer: FrameWriter::new(key, executor.epoch()),
            runner: FrameRunner::new(key),
            frame: AlignedBuffer::new(code + function.args.len() + FRAME_REST),
            executor,
            function,
            library,
        })
    }

    /// Moves the target's file here, part by part, and runs the function on it. Calls `moved` with the length of each
    /// part.
    ///
    /// # Errors
    /// The file has changed its length, or the target has ended.
    pub(super) fn compute_moved(
        &mut self,
        target: &mut DemoTarget,
        mut moved: impl FnMut(u64),
    ) -> Result<Computed, Failure> {
        let start = Instant::now();
        let (mut result, mut computing) = (None::<FunctionResult>, Duration::ZERO);
        // The end of a part is also the start of the next, as far as an occurrence may lie across both.
        let mut part = Vec::with_capacity(self.function.overlap() + PART);
        let mut parts = target.fetch()?;
        loop {
            let len = parts.read_part(&mut part, PART)?;
            moved(len as u64);
            if len != 0 || result.is_none() {
                let begin = Instant::now();
                let found;
                (found, part) = self.run(part)?;
                computing += begin.elapsed();
                result = Some(match result {
                    None => found,
                    Some(before) => before.followed_by(found, len as u64),
                });
            }
            if parts.rest() == 0 {
                break;
            }
            let done = part.len().saturating_sub(self.function.overlap());
            part.drain(..done);
        }
        let result = result.ok_or_else(|| Failure::new("the target has sent no part of its file"))?;
        Ok(Computed { result, time: start.elapsed(), computing })
    }

    /// Runs the function on `bytes`, and gives them back.
    fn run(&mut self, bytes: Vec<u8>) -> Result<(FunctionResult, Vec<u8>), Failure> {
        let mut data = Data::from_bytes(bytes);
        let len = self.writer.write(&mut self.frame, self.library, &self.function.args)?;
        // SAFETY: the functions of the demo take a `struct farjump_data`, which `data` is. `data` lives until null
        // replaces it below, and errors end the use of this executor.
        unsafe { self.executor.set_target_args((&raw mut data).cast()) };
        // SAFETY: this process has built the library or its user has named it, and wrote the frame above.
        let outcome = unsafe { self.runner.run(&mut self.executor, &mut self.frame[..len]) }?;
        let result = match outcome {
            RunOutcome::Done { reply, .. } => self.function.result(reply),
            other => {
                Err(Failure::new(format!("`{}` did not run in this process: {other:?}", self.function.name)))
            }
        };
        // SAFETY: null is always valid.
        unsafe { self.executor.set_target_args(std::ptr::null_mut()) };
        Ok((result?, data.into_bytes().unwrap_or_default()))
    }
}
