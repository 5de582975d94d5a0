//! Fake transports: one of each family, inside one process, driven by a seed.
//!
//! A fake behaves as the contract allows and as hardware seldom does. It splits and reorders writes up to the
//! next fence, delays them, is full at awkward moments, and aligns messages no better than it states. It also
//! watches core: violations of the contract are recorded ([`Violation`]), and a test ends with
//! [`FakeHandle::assert_clean`].
//!
//! Nothing moves by itself. Each call of a sender (and of a two-sided receiver) delivers a few pieces.
//! [`FakeHandle::pump`] delivers more, and [`FakeHandle::pump_in_background`] starts a thread for that, like
//! an adapter.

mod contract_violation;
mod control;
mod directory;
mod one_sided;
mod two_sided;

pub use contract_violation::Violation;
pub use control::{Background, FakeHandle};
pub use one_sided::{FakeOneSided, Rule};
pub use two_sided::FakeTwoSided;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks the mutex. After a panicked thread its state is good enough for a test that has failed already.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
