//! Queries of eviction: random keys, and their order of eviction.

use std::ffi::c_int;

use crate::api::context::Context;
use crate::api::functions::functions;
use crate::api::keys::Key;
use crate::api::strings::Str;
use crate::api::types::{NO_TOUCH, NOTIFY_EVICTED, OK, READ};

/// The order in which keys are evicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rank {
    /// By the time since the last use.
    Idle,
    /// By the frequency of use, the lowest first.
    Frequency,
    /// By the time until expiry.
    Expiry,
    /// In no order.
    None,
}

/// Returns the server's memory that counts, as a fraction of its limit.
pub(crate) fn used_memory() -> f32 {
    // SAFETY: the function takes no arguments. It is called on the server's thread, because contexts exist only there.
    unsafe { functions().get_used_memory_ratio()() }
}

/// Selects a database again when it is dropped, even if a panic unwinds.
pub(crate) struct Back<'c>(&'c Context<'c>, c_int);

impl Drop for Back<'_> {
    fn drop(&mut self) {
        if self.0.database() != self.1 {
            self.0.select(self.1);
        }
    }
}

impl Context<'_> {
    /// The number of the database that commands use.
    pub(crate) fn database(&self) -> c_int {
        // SAFETY: the context is valid.
        unsafe { functions().get_selected_db()(self.raw()) }
    }

    /// Runs `work` with another database selected. `None` if there is no database of this number.
    pub(crate) fn in_database<T>(&self, number: c_int, work: impl FnOnce() -> T) -> Option<T> {
        let back = self.keep_database();
        let result = self.select(number).then(work);
        drop(back);
        result
    }

    /// Selects another database. Returns `false` if there is none of this number.
    pub(crate) fn select(&self, number: c_int) -> bool {
        // SAFETY: the context is valid; the server checks the number.
        unsafe { functions().select_db()(self.raw(), number) == OK }
    }

    /// Returns a guard that selects the present database again when it is dropped.
    pub(crate) fn keep_database(&self) -> Back<'_> {
        Back(self, self.database())
    }

    /// Returns the name of a random key. `None` if the database is empty. This may delete keys that have expired.
    pub(crate) fn random_key(&self) -> Option<Str> {
        // SAFETY: the context is valid. It has no automatic memory, so the string's reference is the caller's.
        unsafe { Str::owned(functions().random_key()(self.raw())) }
    }

    /// Returns the rank of a key for eviction: the higher, the sooner it is evicted. `None` if the key does not exist,
    /// or if only keys with an expiry count and it has none.
    pub(crate) fn rank(&self, name: &Str, rank: Rank, only_volatile: bool) -> Option<i64> {
        // SAFETY: context and name are alive. A key that is opened to read is null if it is absent.
        let key = unsafe { Key::new(functions().open_key()(self.raw(), name.raw(), READ | NO_TOUCH)) }?;
        // SAFETY: the key is open.
        let expires = unsafe { functions().get_expire()(key.raw()) };
        if only_volatile && expires < 0 {
            return None;
        }
        let mut value = 0_i64;
        match rank {
            // SAFETY: the key is open, and the server writes the number.
            Rank::Idle => unsafe { functions().get_lru()(key.raw(), &raw mut value) },
            // SAFETY: as before.
            Rank::Frequency => unsafe { functions().get_lfu()(key.raw(), &raw mut value) },
            Rank::Expiry | Rank::None => OK,
        };
        Some(match rank {
            Rank::Idle => value,
            Rank::Frequency => -value,
            Rank::Expiry => -expires,
            Rank::None => 0,
        })
    }

    /// Notifies clients that watch the keyspace, and other modules, that a key was evicted.
    pub(crate) fn notify_evicted(&self, key: &Str) {
        // SAFETY: context and key are alive, and the text is zero-terminated.
        unsafe {
            functions().notify_keyspace_event()(self.raw(), NOTIFY_EVICTED, c"evicted".as_ptr(), key.raw())
        };
    }
}
