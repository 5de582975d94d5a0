//! The resources of the process that a target needs for its first source.

use farjump_os::limits;

use crate::{Error, ServeError};

/// Descriptors that a source takes: its control connection, and of `shm` both mailboxes and both ends of
/// doorbells; one more closes in another thread.
const OF_A_SOURCE: usize = 7;
/// Likewise over UCX, whose worker has its own, and opens some for a moment.
const OF_A_WORKER: usize = 16;

/// Checks that this process may open the descriptors that one source needs over the transport `only`, if
/// there is one alone. Without them the target would reject every source.
///
/// # Errors
/// [`ServeError::Descriptors`].
pub(super) fn check(only: Option<&str>) -> Result<(), Error> {
    let needed = if only.is_some_and(|name| name.starts_with("ucx")) { OF_A_WORKER } else { OF_A_SOURCE };
    let free = limits::free_descriptors(needed);
    match limits::descriptors() {
        Some(limit) if free < needed => Err(ServeError::Descriptors { limit, free, needed }.into()),
        _ => Ok(()),
    }
}
