//! The baselines with an endpoint in each process, over any transport.

pub(crate) mod connect;
#[cfg(feature = "iceoryx2")]
mod iceoryx;
pub(crate) mod injection;
pub(crate) mod memcpy;
pub(crate) mod resident;
pub(crate) mod ring;
pub(crate) mod stores;
mod stream;
#[cfg(feature = "ucx")]
pub(crate) mod ucx;

use std::path::Path;

use super::role::{Both, Receiver, Source};
#[cfg(feature = "ucx")]
use super::work::am;
use super::work::mapped::Mapped;
#[cfg(feature = "ucx")]
use super::work::store_len;
use super::work::{Method, Task, one_sided};
use crate::perf::process::child_protocol::{EndpointSpec, Offer};
use crate::perf::process::shared_memory::Memory;
use crate::perf::report::metric::Against;
use crate::program::failure::Failure;
use ring::{Layout, Ring};
use stores::Stores;

/// An unconnected endpoint.
pub(in crate::perf) struct Unconnected {
    /// The data that the peer needs.
    pub(in crate::perf) offer: Offer,
    connect: Box<Connect>,
}

/// Connects an endpoint to the peer with this offer.
type Connect = dyn FnOnce(&Offer, &Memory) -> Result<Connected, Failure>;

/// A connected endpoint.
pub(in crate::perf) enum Connected {
    /// Either role: both processes send messages through it.
    Both(Box<dyn Both>),
    Source(Box<dyn Source>),
    Target(Box<dyn Receiver>),
}

impl Unconnected {
    /// Makes an endpoint with this offer. `connect` connects it to the peer.
    fn new(
        offer: Offer,
        connect: impl FnOnce(&Offer, &Memory) -> Result<Connected, Failure> + 'static,
    ) -> Unconnected {
        Unconnected { offer, connect: Box::new(connect) }
    }

    /// Makes the endpoint of a target of farjump's, to which links connect.
    pub(in crate::perf) fn target(target: Box<dyn Receiver>) -> Unconnected {
        Unconnected::new(Offer::default(), |_, _| Ok(Connected::Target(target)))
    }

    /// Connects to the peer with this offer.
    pub(in crate::perf) fn connect(self, offer: &Offer, memory: &Memory) -> Result<Connected, Failure> {
        (self.connect)(offer, memory)
    }
}

/// Opens this process's endpoint of a baseline, with memory of its own where needed, and files in `folder`.
/// `host` is the address at which the target's endpoint listens, if it does; the source's has none.
///
/// # Errors
/// The reason why this baseline is missing here.
pub(in crate::perf) fn open(
    spec: &EndpointSpec,
    layout: &Layout,
    folder: &Path,
    host: Option<&str>,
) -> Result<Unconnected, Failure> {
    let (is_source, layout) = (host.is_none(), *layout);
    match spec {
        EndpointSpec::Farjump { .. } | EndpointSpec::Compiling { .. } => {
            Err(Failure::new("farjump is no baseline"))
        }
        EndpointSpec::Work(task) => open_work(task.clone(), is_source),
        EndpointSpec::Resident(task) => resident::open(task.clone(), is_source),
        EndpointSpec::Baseline(Against::Raw) => Ok(open_raw(layout, is_source)),
        EndpointSpec::Baseline(Against::Stream) => stream::open(false, host, layout.longest),
        EndpointSpec::Baseline(Against::StreamSealed) => stream::open(true, host, layout.longest),
        EndpointSpec::Baseline(Against::Iceoryx2) => open_iceoryx(folder, is_source, &layout),
        EndpointSpec::Baseline(against) => open_ucx(*against, layout),
    }
}

fn open_raw(layout: Layout, is_source: bool) -> Unconnected {
    Unconnected::new(Offer::default(), move |_, memory| {
        let (first, second, region) = memory.regions();
        let (own, theirs) = if is_source { (first, second) } else { (second, first) };
        let layout = Layout { region, ..layout };
        // SAFETY: `layout` has the length of both regions, which begin at a page and stay mapped to the end
        // of the run, after the last measurement. Only the two rings use them. The source made the layout for
        // the longest payload that it sends.
        let ring = unsafe { Ring::new(Stores::new(theirs, &layout), own, layout) };
        Ok(Connected::Both(Box::new(ring)))
    })
}

#[cfg(feature = "iceoryx2")]
fn open_iceoryx(folder: &Path, is_source: bool, layout: &Layout) -> Result<Unconnected, Failure> {
    let samples = iceoryx::Samples::open(folder, is_source, layout)?;
    // The endpoints find each other by name.
    Ok(Unconnected::new(Offer::default(), |_, _| Ok(Connected::Both(Box::new(samples)))))
}

#[cfg(not(feature = "iceoryx2"))]
fn open_iceoryx(_folder: &Path, _is_source: bool, _layout: &Layout) -> Result<Unconnected, Failure> {
    Err(Failure::new(crate::perf::not_built_with("iceoryx2")))
}

#[cfg(feature = "ucx")]
fn open_ucx(against: Against, layout: Layout) -> Result<Unconnected, Failure> {
    let opening = match against {
        Against::UcxAm => ucx::Opening::for_messages()?,
        Against::UcxAmTcp => ucx::Opening::for_messages_on_loopback()?,
        _ => ucx::Opening::with_memory(layout.region)?,
    };
    Ok(Unconnected::new(opening.offer()?, move |theirs, _| {
        Ok(Connected::Both(match against {
            Against::UcxStores => Box::new(ucx::ring_by_stores(opening, theirs, &layout)?),
            Against::UcxPut => Box::new(ucx::ring_by_puts(opening, theirs, &layout)?),
            _ => Box::new(ucx::Messages::join(opening, theirs, layout.longest, ucx::Counting)?),
        }))
    }))
}

#[cfg(not(feature = "ucx"))]
fn open_ucx(_against: Against, _layout: Layout) -> Result<Unconnected, Failure> {
    Err(Failure::new(crate::perf::not_built_with("ucx")))
}

fn open_work(task: Task, is_source: bool) -> Result<Unconnected, Failure> {
    match task.method {
        Method::Injected(_) => Err(Failure::new("farjump is no baseline")),
        Method::RawFetch => Ok(Unconnected::new(Offer::default(), move |_, memory| {
            let (start, len) = memory.store();
            // SAFETY: the memory has this many bytes, begins at a page and stays mapped to the end of the
            // run, after the last measurement; the source computed the length from the data to work on. Only
            // the two endpoints of this work use it so, the target's only between measurements.
            unsafe {
                Ok(match is_source {
                    true => Connected::Source(one_sided::source(&task, Mapped::new(start, len))?),
                    false => Connected::Target(one_sided::receiver(&task, start, len, || ())),
                })
            }
        })),
        #[cfg(feature = "ucx")]
        Method::Messages => {
            let opening = ucx::Opening::for_messages()?;
            Ok(Unconnected::new(opening.offer()?, move |theirs, _| {
                Ok(match is_source {
                    true => Connected::Source(am::source(&task, opening, theirs)?),
                    false => Connected::Target(am::receiver(&task, opening, theirs)?),
                })
            }))
        }
        #[cfg(feature = "ucx")]
        Method::Fetch => {
            let opening = ucx::Opening::with_memory(store_len(task.longest))?;
            Ok(Unconnected::new(opening.offer()?, move |theirs, _| {
                if is_source {
                    let reach = ucx::Reach::join(opening, theirs)?;
                    return Ok(Connected::Source(one_sided::source(&task, reach)?));
                }
                let reached = ucx::Reached::join(opening, theirs)?;
                let (start, len) = reached.memory();
                // SAFETY: UCX has allocated this many bytes, starting at a page. They live as long as
                // `reached`, which the closure keeps with the endpoint that uses them. Both processes
                // computed the length from the data to work on.
                let receiver = unsafe { one_sided::receiver(&task, start, len, move || reached.progress()) };
                Ok(Connected::Target(receiver))
            }))
        }
        #[cfg(not(feature = "ucx"))]
        Method::Messages | Method::Fetch => Err(Failure::new(crate::perf::not_built_with("ucx"))),
    }
}

impl Connected {
    /// # Errors
    /// This is only a target's endpoint.
    pub(in crate::perf) fn source(&mut self) -> Result<&mut dyn Source, Failure> {
        match self {
            Connected::Both(both) => Ok(&mut **both),
            Connected::Source(source) => Ok(&mut **source),
            Connected::Target(_) => Err(Failure::new("this is the target")),
        }
    }

    /// # Errors
    /// This is only a source's endpoint.
    pub(in crate::perf) fn receiver(&mut self) -> Result<&mut dyn Receiver, Failure> {
        match self {
            Connected::Both(both) => Ok(&mut **both),
            Connected::Target(target) => Ok(&mut **target),
            Connected::Source(_) => Err(Failure::new("this is the source")),
        }
    }

    /// Returns UCX's transports, if it reports them.
    pub(in crate::perf) fn lanes(&self) -> Option<String> {
        match self {
            Connected::Both(both) => both.lanes(),
            Connected::Source(source) => source.lanes(),
            Connected::Target(_) => None,
        }
    }
}
