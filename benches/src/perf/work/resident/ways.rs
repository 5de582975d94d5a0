//! The ways of working on resident data, as both processes know them, and their endpoints.

use std::cell::{Cell, OnceCell, RefCell};
use std::ffi::c_void;
use std::path::PathBuf;

use farjump::Library;
use serde::{Deserialize, Serialize};

use super::super::data::Store;
use super::super::native::Native;
use super::query::{Job, Query, SHORTEST};
use crate::perf::ifuncs;
use crate::perf::shared_memory::Memory;
use crate::program::failure::Failure;

/// One way of working on resident data, for all functions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) way: Way,
    /// The functions, each with its library.
    pub(crate) libraries: Vec<(Query, PathBuf)>,
    /// Most bytes of data.
    pub(crate) longest: usize,
}

/// A way of working on resident data.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Way {
    /// By injected functions, over a transport.
    Injected(String),
    /// By the handler of UCX's active messages.
    Messages,
    /// At the source, which gets the data by UCX.
    Fetch,
    /// At the source, to which the target sends the data in UCX's active messages.
    FetchMessages,
    /// At the source, in memory that both processes have mapped.
    RawFetch,
}

/// The present work, the same in both processes.
#[derive(Clone, Copy)]
pub(super) struct Present {
    pub(super) query: Query,
    pub(super) size: usize,
    /// Whether the source fetches node after node instead of all data.
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
    /// Returns arguments and result.
    pub(super) fn job(self) -> Job {
        self.query.job(self.size)
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
pub(super) fn add_store(store: &'static Store) {
    STORES.with_borrow_mut(|stores| {
        if !stores.iter().any(|known| std::ptr::eq(*known, store)) {
            stores.push(store);
        }
    });
}

/// Returns the store in the memory of both processes, which the target fills.
pub(super) fn shared_store(memory: &Memory) -> &'static Store {
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
