//! The exports of a target.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fmt;

/// The functions and data that a target offers by name.
///
/// Those of [`Exports::ALWAYS`] are always among them.
#[derive(Clone)]
pub struct Exports(BTreeMap<String, u64>);

impl Exports {
    /// The functions that compilers call implicitly, in safe Rust too: those that core requires.
    pub const ALWAYS: [&str; 6] = ["bcmp", "memcmp", "memcpy", "memmove", "memset", "strlen"];

    /// Makes exports with those of [`Exports::ALWAYS`], from libc.
    pub fn new() -> Exports {
        let mut exports = Exports(BTreeMap::new());
        // SAFETY: they are the functions that every compiler expects by these names, and libc is never
        // unloaded.
        unsafe {
            exports.insert("memcpy", libc::memcpy as *const c_void);
            exports.insert("memmove", libc::memmove as *const c_void);
            exports.insert("memset", libc::memset as *const c_void);
            exports.insert("memcmp", libc::memcmp as *const c_void);
            // `bcmp` only has to report whether the bytes are equal, so `memcmp` implements it.
            exports.insert("bcmp", libc::memcmp as *const c_void);
            exports.insert("strlen", libc::strlen as *const c_void);
        }
        exports
    }

    /// Offers `address` as `name`. Replaces an earlier offer of that name.
    ///
    /// A Rust function must be `extern "C"` and is cast: `store_get as *const c_void`.
    ///
    /// # Safety
    /// Code that is placed from now on gets the address. It calls the function or reads the data there for as
    /// long as the code exists. The address must
    /// * stay valid that long,
    /// * have the type that the authors of ifuncs declare, be it a function or data,
    /// * not unwind, if it is a function.
    pub unsafe fn insert(&mut self, name: impl Into<String>, address: *const c_void) {
        self.0.insert(name.into(), address.expose_provenance() as u64);
    }

    /// The address offered as `name`.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// The names on offer, in alphabetical order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl Default for Exports {
    fn default() -> Exports {
        Exports::new()
    }
}

impl fmt::Debug for Exports {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.names()).finish()
    }
}
