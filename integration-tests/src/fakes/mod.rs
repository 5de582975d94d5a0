//! Fake transports: one of each family, inside one process, driven by a seed.
//!
//! A fake does whatever the contract allows and hardware seldom does: it splits and reorders writes up to the next fence,
//! delays them, is full at awkward moments, aligns messages no better than it says. And it watches core from the backend's
//! side: what breaks the contract is recorded as a [`Violation`], to be asserted empty at the end of a test with
//! [`FakeHandle::assert_clean`].
//!
//! Nothing moves by itself. Each call of a sender (and of a receiver, where the family has one) delivers a few pieces;
//! [`FakeHandle::pump`] delivers as many as the test wants, and [`FakeHandle::pump_in_background`] starts a thread that
//! does so, like an adapter that works without being asked.

mod block;
mod flight;
mod handle;
mod one_sided;
mod registry;
mod two_sided;
mod violation;

pub use handle::{Background, FakeHandle};
pub use one_sided::{FakeOneSided, Rule};
pub use two_sided::FakeTwoSided;
pub use violation::Violation;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks; what a thread that panicked left behind is good enough for a test that has failed already.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
