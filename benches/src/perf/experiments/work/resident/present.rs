//! The present work of a process, the memories that it works on, and the placed functions.

use std::cell::{Cell, OnceCell, RefCell};
use std::ffi::c_void;
use std::path::PathBuf;

use farjump::Library;

use super::super::data::Store;
use super::super::native::Native;
use super::Task;
use super::query::{Job, Jobs, Query, SHORTEST};
use crate::perf::options::ifuncs;
use crate::perf::process::shared_memory::Memory;
use crate::program::failure::Failure;

/// The present work, the same in both processes.
#[derive(Clone, Copy)]
pub(super) struct Present {
    pub(super) query: Query,
    pub(super) size: usize,
    /// True if the source fetches node after node instead of all data.
    #[cfg_attr(not(feature = "ucx"), expect(dead_code, reason = "fetches are UCX's"))]
    pub(super) stepwise: bool,
}

thread_local! {
    static PRESENT: Cell<Present> =
        const { Cell::new(Present { query: Query::Column, size: SHORTEST, stepwise: false }) };
    /// The target's memories, which are filled together.
    static STORES: RefCell<Vec<&'static Store>> = const { RefCell::new(Vec::new()) };
    /// The store in the memory of both processes.
    static SHARED: OnceCell<&'static Store> = const { OnceCell::new() };
}

/// Returns the present work.
#[inline]
pub(super) fn present() -> Present {
    PRESENT.get()
}

impl Present {
    /// Returns arguments and results.
    pub(super) fn jobs(self) -> Jobs {
        self.query.jobs(self.size)
    }
}

/// Sets the present work of this process.
pub(crate) fn set_present(query: Query, size: usize, stepwise: bool) {
    PRESENT.set(Present { query, size, stepwise });
    if let Some(store) = SHARED.with(|shared| shared.get().copied()) {
        store.set_len(size);
    }
}

/// Fills all memories of the target.
pub(crate) fn hold(query: Query, size: usize) {
    set_present(query, size, false);
    STORES.with_borrow(|stores| stores.iter().for_each(|store| store.hold(query, size)));
}

/// Adds a memory that [`hold`] fills.
pub(crate) fn add_store(store: &'static Store) {
    STORES.with_borrow_mut(|stores| {
        if !stores.iter().any(|known| std::ptr::eq(*known, store)) {
            stores.push(store);
        }
    });
}

/// Returns the store in the memory of both processes, which the target fills.
pub(crate) fn shared_store(memory: &Memory) -> &'static Store {
    SHARED.with(|shared| {
        *shared.get_or_init(|| {
            let (start, len) = memory.store();
            // SAFETY: the memory has this many bytes, begins at a page and stays mapped to the end of the
            // run, after the last measurement; the source computed the length from the data to work on. All
            // endpoints of a process share this store, and only the target's process fills it.
            unsafe { Store::new(start, len) }
        })
    })
}

/// All functions, placed in this process to work on one store.
pub(super) struct Natives(Vec<(Query, Native)>);

impl Natives {
    pub(super) fn place(task: &Task, store: &'static Store) -> Result<Natives, Failure> {
        let place = |(query, path): &(Query, PathBuf)| {
            let library: Library = ifuncs::open(path)?;
            Ok((*query, Native::place(&library, store)?))
        };
        task.libraries.iter().map(place).collect::<Result<_, Failure>>().map(Natives)
    }

    /// Calls the present function. Its reply is that of `native::with_reply`.
    ///
    /// # Safety
    /// The conditions of [`Native::call`], for a payload of the present function.
    #[inline]
    pub(super) unsafe fn call(&self, payload: *mut c_void, len: usize) {
        let query = present().query;
        if let Some((_, native)) = self.0.iter().find(|(other, _)| *other == query) {
            // SAFETY: the caller keeps the conditions.
            unsafe { native.call(payload, len) };
        }
    }

    /// Calls the present function with its own arguments.
    #[inline]
    pub(super) fn call_here(&self, job: Job) {
        // SAFETY: these are arguments of the function, which only reads them.
        unsafe { self.call(job.args.as_ptr().cast_mut().cast(), job.args.len()) };
    }
}
