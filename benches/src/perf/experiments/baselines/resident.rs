//! The endpoints of work on data that lie at the target.

#[cfg(feature = "ucx")]
use super::ucx;
use super::{Connected, Unconnected};
use crate::perf::experiments::role::Receiver;
use crate::perf::experiments::work::Store;
#[cfg(feature = "ucx")]
use crate::perf::experiments::work::resident::messages;
use crate::perf::experiments::work::resident::{Method, Task, present, source, target};
use crate::perf::process::child_protocol::{Offer, Set};
use crate::perf::process::shared_memory::Memory;
use crate::program::failure::Failure;

/// Opens the target of injected functions.
pub(crate) fn open_target(
    task: &Task,
    transport: &str,
    set: &Set,
    memory: &Memory,
) -> Result<Box<dyn Receiver>, Failure> {
    target::injected(task, transport, held(memory), set)
}

/// Returns the store in the memory of both processes, which [`hold`] fills from now on.
fn held(memory: &Memory) -> &'static Store {
    let store = present::shared_store(memory);
    present::add_store(store);
    store
}

/// Opens this process's endpoint of another way.
pub(crate) fn open(task: Task, is_source: bool) -> Result<Unconnected, Failure> {
    match task.method {
        Method::Injected(_) => Err(Failure::new("farjump is no baseline")),
        Method::RawFetch => Ok(Unconnected::new(Offer::default(), move |_, memory| {
            Ok(match is_source {
                true => Connected::Source(source::loading(&task, memory)?),
                false => Connected::Target(target::fetched(held(memory), || ())),
            })
        })),
        #[cfg(feature = "ucx")]
        Method::Messages => {
            let opening = ucx::Opening::for_messages()?;
            Ok(Unconnected::new(opening.offer()?, move |theirs, memory| {
                Ok(match is_source {
                    true => Connected::Source(messages::calling(opening, theirs)?),
                    false => Connected::Target(messages::called(&task, held(memory), opening, theirs)?),
                })
            }))
        }
        #[cfg(feature = "ucx")]
        Method::FetchMessages => {
            let opening = ucx::Opening::for_messages()?;
            Ok(Unconnected::new(opening.offer()?, move |theirs, memory| {
                Ok(match is_source {
                    true => Connected::Source(messages::data_requester(&task, opening, theirs)?),
                    false => Connected::Target(messages::sending(held(memory), opening, theirs)?),
                })
            }))
        }
        #[cfg(feature = "ucx")]
        Method::Fetch => {
            let opening = ucx::Opening::with_memory(target::memory_len(task.longest))?;
            Ok(Unconnected::new(opening.offer()?, move |theirs, _| {
                if is_source {
                    let reach = ucx::Reach::join(opening, theirs)?;
                    return Ok(Connected::Source(source::fetching(&task, reach)?));
                }
                let reached = ucx::Reached::join(opening, theirs)?;
                let (start, len) = reached.memory();
                // SAFETY: UCX has allocated this many bytes, starting at a page. They live as long as
                // `reached`, which the closure keeps with the endpoint that uses them. The list of stores to
                // fill is used only while the endpoints live. Both processes computed the length from the
                // data to work on.
                let store = unsafe { Store::new(start, len) };
                present::add_store(store);
                Ok(Connected::Target(target::fetched(store, move || reached.progress())))
            }))
        }
        #[cfg(not(feature = "ucx"))]
        Method::Messages | Method::FetchMessages | Method::Fetch => {
            Err(Failure::new(crate::perf::not_built_with("ucx")))
        }
    }
}
