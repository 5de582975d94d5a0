//! The target's endpoints.

use farjump::Library;

use super::super::data::Store;
use super::super::functions::AREA;
use super::super::one_sided::Holds;
use super::Task;
use super::present::present;
use crate::perf::experiments::baselines::injection::Polls;
use crate::perf::experiments::role::Receiver;
use crate::perf::process::child_protocol::Set;
use crate::perf::process::liveness::Watch;
use crate::program::failure::Failure;

/// Serves by a way of receiving calls, on data that are held already.
pub(super) struct Holding<W> {
    pub(super) store: &'static Store,
    pub(super) method: W,
}

impl<W: Receiver> Receiver for Holding<W> {
    fn prepare(&mut self, size: usize, streams: bool) -> Result<(), Failure> {
        self.store.set_len(present().size);
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
        self.method.counted()
    }
}

/// Returns the target's endpoint of a source that fetches. `progress` is called meanwhile.
pub(crate) fn fetched(store: &'static Store, progress: impl FnMut() + 'static) -> Box<dyn Receiver> {
    Box::new(Holds { store, progress })
}

/// Returns the target of injected functions over one transport.
pub(crate) fn injected(
    task: &Task,
    transport: &str,
    store: &'static Store,
    set: &Set,
) -> Result<Box<dyn Receiver>, Failure> {
    let libraries = task.libraries.iter().map(|(_, path)| Ok(Library::open(path)?));
    let libraries = libraries.collect::<Result<Vec<_>, Failure>>()?;
    let [first, others @ ..] = &libraries[..] else {
        return Err(Failure::new("there is no function to work on resident data"));
    };
    let polls = Polls::listen(&host(transport), transport, set, first, |builder| {
        let builder = others.iter().fold(builder, |builder, library| builder.local(library));
        // SAFETY: the store is leaked, and begins as the data that `perf`'s own functions take. This target
        // is for these alone.
        unsafe { builder.args_raw(store.as_args()) }
    })?;
    Ok(Box::new(Holding { store, method: polls }))
}

/// Returns the socket name of the target over a transport.
pub(crate) fn host(transport: &str) -> String {
    format!("{transport}-r")
}

/// Returns the bytes of memory for up to `longest` bytes of data.
pub(crate) fn memory_len(longest: usize) -> usize {
    (AREA + longest).next_multiple_of(4096)
}
