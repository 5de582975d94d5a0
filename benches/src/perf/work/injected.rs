//! Work by injected functions.

use farjump::{Library, Link, Mode, Target, WaitPolicy};

use super::Task;
use super::data::{Slot, Store, store_append, store_get, store_slot};
use super::functions::Function;
use super::source::{Ask, Asking, Job};
use super::target::{Host, Serving};
use crate::perf::child_protocol::Set;
use crate::perf::liveness::Watch;
use crate::perf::liveness::{CONNECTING, PATIENCE};
use crate::perf::place;
use crate::perf::role::{Other, Source};
use crate::program::failure::Failure;

struct Calls<'a> {
    link: &'a Link,
    library: &'a Library,
}

impl Ask for Calls<'_> {
    #[inline]
    fn ask(&mut self, job: &Job, answer: &mut Vec<u8>, _watch: &Watch) -> Result<(), Failure> {
        Ok(self.link.call_into(self.library, job.args, PATIENCE, answer)?)
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
    Box::new(Asking::new(function, Calls { link, library }, size))
}

struct Polls {
    target: Target<'static>,
    done: u64,
}

impl Host for Polls {
    fn prepare(&mut self) {
        self.done = 0;
    }

    #[inline]
    fn look(&mut self) -> Result<u64, Failure> {
        self.done += self.target.poll()? as u64;
        // The target replies by itself.
        Ok(0)
    }

    fn answer(&mut self, _watch: &Watch) -> Result<(), Failure> {
        Ok(())
    }

    fn done(&mut self, _store: &Store) -> u64 {
        self.done
    }
}

/// Returns a target for a task over one transport, with the mailbox length of `set`.
pub(crate) fn listen(task: &Task, transport: &str, set: &Set) -> Result<Box<dyn Other>, Failure> {
    let socket = task.host(transport);
    let store = Store::own(task.longest);
    let builder = place::target(&set.folder, &set.host, &socket, transport)?
        .modes(&Mode::ALL)
        .local(&Library::open(&task.library)?)
        .mailbox_size(set.ring)
        .handshake_timeout(CONNECTING)
        .wait_policy(WaitPolicy::spin_only())
        .export("store_get", store_get as extern "C" fn(*const Store, u64) -> u64)
        .export("store_slot", store_slot as extern "C" fn(*const Store, u64, *mut Slot) -> i32)
        .export("store_append", store_append as extern "C" fn(*const u8, usize) -> i32);
    // SAFETY: the store is leaked. This target is for `perf`'s own functions, which were compiled against the
    // store's functions and fields.
    let target = unsafe { builder.args_raw(store.as_args()) }.build()?;
    place::announce(&set.folder, &socket, transport, &target)?;
    Ok(Box::new(Serving::new(task.function, store, Polls { target, done: 0 })))
}
