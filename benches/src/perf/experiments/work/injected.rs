//! Work by injected functions.

use farjump::{Library, Link};

use super::Task;
use super::data::{Slot, Store, store_append, store_get, store_slot};
use super::functions::Function;
use super::source::{Calls, Perform, WorkSource};
use super::target::Serving;
use crate::perf::experiments::baselines::injection::Polls;
use crate::perf::experiments::role::{Receiver, Source};
use crate::perf::process::child_protocol::Set;
use crate::perf::process::liveness::{PATIENCE, Watch};
use crate::program::failure::Failure;

/// Calls of an injected function.
pub(super) struct Injected<'a> {
    pub(super) link: &'a Link,
    pub(super) library: &'a Library,
}

impl<C: Calls> Perform<C> for Injected<'_> {
    #[inline]
    fn perform(&mut self, call: &C, reply: &mut Vec<u8>, _watch: &Watch) -> Result<(), Failure> {
        Ok(self.link.call_into(self.library, call.args(), PATIENCE, reply)?)
    }

    fn settle(&mut self, _calls: u64, _watch: &Watch) -> Result<(), Failure> {
        Ok(())
    }
}

/// Returns the source's endpoint, for work on `size` bytes.
pub(crate) fn source<'a>(
    link: &'a Link,
    function: Function,
    library: &'a Library,
    size: usize,
) -> Box<dyn Source + 'a> {
    Box::new(WorkSource::of(function, Injected { link, library }, size))
}

/// Returns a target for a task over one transport.
pub(crate) fn receiver(task: &Task, transport: &str, set: &Set) -> Result<Box<dyn Receiver>, Failure> {
    let store = Store::own(task.longest);
    let library = Library::open(&task.library)?;
    let polls = Polls::listen(&task.host(transport), transport, set, &library, |builder| {
        let builder = builder
            .export("store_get", store_get as extern "C" fn(*const Store, u64) -> u64)
            .export("store_slot", store_slot as extern "C" fn(*const Store, u64, *mut Slot) -> i32)
            .export("store_append", store_append as extern "C" fn(*const u8, usize) -> i32);
        // SAFETY: the store is leaked. This target is for `perf`'s own functions, which were compiled against
        // the store's functions and fields.
        unsafe { builder.args_raw(store.as_args()) }
    })?;
    Ok(Box::new(Serving::new(task.function, store, polls)))
}
