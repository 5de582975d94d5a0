//! Locks under which no Python code runs.
//!
//! Making or dropping a Python object can run the garbage collector, and with it a finaliser that takes the same lock
//! in the same thread. So work under a [`Lock`] is a closure that is `Send`. Nothing that borrows `Python<'_>` is
//! `Send`, and no code can make, call or count an object without such a borrow: work that does so does not compile.
//! Objects may be moved into the value and out of it. Work that takes an object out returns it, so that it is dropped
//! after the lock.

use std::sync::{MutexGuard, PoisonError, TryLockError, TryLockResult};

use pyo3::PyTraverseError;
use pyo3::prelude::*;

#[expect(clippy::disallowed_types, reason = "the one place where it is wrapped")]
type Mutex<T> = std::sync::Mutex<T>;

// Does not compile if `Python<'_>` or a reference that borrows it is `Send`: both implementations would then apply.
const _: fn() = || {
    trait NotSend<A> {
        fn is() {}
    }
    impl<T: ?Sized> NotSend<()> for T {}
    impl<T: ?Sized + Send> NotSend<u8> for T {}
    let _ = <Python<'static> as NotSend<_>>::is;
    let _ = <Bound<'static, PyAny> as NotSend<_>>::is;
};

/// A value under a lock that threads wait for. A panic leaves it as it was at that moment.
#[derive(Debug, Default)]
pub(crate) struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Lock<T> {
        Lock(Mutex::new(value))
    }

    /// Runs `work` on the value. Either the lock is one that threads hold for moments, or the calling thread has no
    /// GIL.
    pub(crate) fn with<R: Send>(&self, work: impl FnOnce(&mut T) -> R + Send) -> R {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// As [`Lock::with`], if no other thread has the value.
    pub(crate) fn try_with<R: Send>(&self, work: impl FnOnce(&mut T) -> R + Send) -> Option<R> {
        free(self.0.try_lock()).map(|mut value| work(&mut value))
    }

    /// Lets the garbage collector visit the objects in the value, for `__traverse__`, which runs no Python code. Skips
    /// a value that another thread has. The collector then takes its objects for reachable.
    pub(crate) fn visit(
        &self,
        visit: impl FnOnce(&T) -> Result<(), PyTraverseError>,
    ) -> Result<(), PyTraverseError> {
        free(self.0.try_lock()).map_or(Ok(()), |value| visit(&value))
    }
}

/// A value that one call uses at a time, for as long as that call takes. Python code may run meanwhile, as nothing waits for
/// the value: a further call finds it in use.
#[derive(Debug)]
pub(crate) struct Single<T>(Mutex<T>);

impl<T> Single<T> {
    pub(crate) const fn new(value: T) -> Single<T> {
        Single(Mutex::new(value))
    }

    /// Returns the value, for this call alone. `None` if another call uses it.
    pub(crate) fn take(&self) -> Option<MutexGuard<'_, T>> {
        free(self.0.try_lock())
    }
}

fn free<'m, T>(tried: TryLockResult<MutexGuard<'m, T>>) -> Option<MutexGuard<'m, T>> {
    match tried {
        Ok(value) => Some(value),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
