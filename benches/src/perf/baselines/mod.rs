//! The baselines with an endpoint in each process, over any transport.

pub(crate) mod connect;
#[cfg(feature = "iceoryx2")]
mod iceoryx;
pub(crate) mod injection;
pub(crate) mod memcpy;
pub(crate) mod ring;
pub(crate) mod stores;
mod stream;
#[cfg(feature = "ucx")]
pub(crate) mod ucx;

use std::path::Path;

use super::child_protocol::{Offer, Subject};
use super::role::{Other, Source};
use super::shared_memory::Memory;
#[cfg(feature = "ucx")]
use super::work::am;
use super::work::mapped::Mapped;
#[cfg(feature = "ucx")]
use super::work::store_len;
use super::work::{Task, Way, one_sided};
use crate::program::failure::Failure;
use ring::{Layout, Ring};
use stores::Stores;
use stream::Stream;

/// An unconnected endpoint of a baseline.
pub(super) enum Half {
    Raw,
    RawFetch(Task),
    Stream(stream::Opening),
    #[cfg(feature = "iceoryx2")]
    Samples(Box<iceoryx::Samples>),
    #[cfg(feature = "ucx")]
    Ucx(Subject, ucx::Opening),
}

/// A connected endpoint of a baseline.
pub(super) enum Joined {
    Raw(Box<Ring<Stores>>),
    Stream(Box<Stream>),
    #[cfg(feature = "iceoryx2")]
    Samples(Box<iceoryx::Samples>),
    #[cfg(feature = "ucx")]
    Messages(Box<ucx::Messages>),
    #[cfg(feature = "ucx")]
    Stores(Box<ucx::Written<Stores>>),
    #[cfg(feature = "ucx")]
    Puts(Box<ucx::Written<ucx::Puts>>),
    /// The source's endpoint of work, and UCX's transports for it.
    Asking(Box<dyn Source>, Option<String>),
    /// The target's endpoint of work.
    Serving(Box<dyn Other>),
}

/// Opens this process's endpoint of a baseline, with memory of its own where needed, and files in `folder`.
/// `host` is the address at which the target's endpoint listens, if it does; the source's has none.
///
/// # Errors
/// The reason why this baseline is missing here.
pub(super) fn open(
    baseline: &Subject,
    layout: &Layout,
    folder: &Path,
    host: Option<&str>,
) -> Result<Half, Failure> {
    match baseline {
        Subject::Raw => Ok(Half::Raw),
        Subject::Stream { sealed } => Ok(Half::Stream(stream::Opening::of(*sealed, host)?)),
        #[cfg(feature = "iceoryx2")]
        Subject::Iceoryx2 => {
            Ok(Half::Samples(Box::new(iceoryx::Samples::open(folder, host.is_none(), layout)?)))
        }
        #[cfg(not(feature = "iceoryx2"))]
        Subject::Iceoryx2 => {
            let _ = folder;
            Err(Failure::new(
                "this program was built without iceoryx2: build with cargo build --release -p farjump-cli --features iceoryx2",
            ))
        }
        Subject::Work(task @ Task { way: Way::RawFetch, .. }) => Ok(Half::RawFetch(task.clone())),
        subject if subject.is_farjump() => Err(Failure::new("farjump is no baseline")),
        #[cfg(feature = "ucx")]
        subject => {
            let region = match subject {
                Subject::Work(task) => store_len(task.longest),
                _ => layout.region,
            };
            Ok(Half::Ucx(subject.clone(), ucx::Opening::of(subject, region)?))
        }
        #[cfg(not(feature = "ucx"))]
        _ => {
            let _ = layout;
            Err(Failure::new("this program was built without UCX: build with --features ucx"))
        }
    }
}

impl Half {
    /// Returns the data that the peer needs.
    pub(super) fn offer(&self) -> Result<Offer, Failure> {
        match self {
            Half::Raw | Half::RawFetch(_) => Ok(Offer::default()),
            Half::Stream(opening) => Ok(Offer { address: opening.address()?, ..Offer::default() }),
            #[cfg(feature = "iceoryx2")]
            Half::Samples(_) => Ok(Offer::default()),
            #[cfg(feature = "ucx")]
            Half::Ucx(_, opening) => opening.offer(),
        }
    }

    /// Connects to the peer. `source` tells this endpoint's role.
    pub(super) fn join(
        self,
        offer: &Offer,
        memory: &Memory,
        source: bool,
        layout: &Layout,
    ) -> Result<Joined, Failure> {
        match self {
            Half::Stream(opening) => {
                Ok(Joined::Stream(Box::new(opening.join(offer.address, layout.longest)?)))
            }
            Half::Raw => {
                let (first, second, region) = memory.regions();
                let (own, theirs) = if source { (first, second) } else { (second, first) };
                let layout = Layout { region, ..*layout };
                // SAFETY: `layout` has the length of both regions, which begin at a page and stay mapped to
                // the end of the run, after the last measurement. Only the two rings use them. The source
                // made the layout for the longest payload that it sends.
                let ring = unsafe { Ring::new(Stores::new(theirs, &layout), own, layout) };
                Ok(Joined::Raw(Box::new(ring)))
            }
            Half::RawFetch(task) => {
                let (start, len) = memory.store();
                // SAFETY: the memory has this many bytes, begins at a page and stays mapped to the end of the
                // run, after the last measurement; the source computed the length from the data to work on.
                // Only the two endpoints of this work use it so, the target's only between measurements.
                unsafe {
                    match source {
                        true => {
                            let mapped = Mapped::new(start, len);
                            Ok(Joined::Asking(one_sided::source(&task, mapped)?, None))
                        }
                        false => Ok(Joined::Serving(one_sided::other(&task, start, len, || ()))),
                    }
                }
            }
            // The endpoints find each other by name.
            #[cfg(feature = "iceoryx2")]
            Half::Samples(samples) => Ok(Joined::Samples(samples)),
            #[cfg(feature = "ucx")]
            Half::Ucx(Subject::Work(task), opening) => join_work(&task, opening, offer, source),
            #[cfg(feature = "ucx")]
            Half::Ucx(Subject::UcxStores, opening) => {
                Ok(Joined::Stores(Box::new(ucx::Written::by_stores(opening, offer, layout)?)))
            }
            #[cfg(feature = "ucx")]
            Half::Ucx(Subject::UcxPut, opening) => {
                Ok(Joined::Puts(Box::new(ucx::Written::by_puts(opening, offer, layout)?)))
            }
            #[cfg(feature = "ucx")]
            Half::Ucx(_, opening) => Ok(Joined::Messages(Box::new(ucx::Messages::join(
                opening,
                offer,
                layout.longest,
                ucx::Counting,
            )?))),
        }
    }
}

/// Connects the endpoints of work over UCX.
#[cfg(feature = "ucx")]
fn join_work(task: &Task, opening: ucx::Opening, offer: &Offer, source: bool) -> Result<Joined, Failure> {
    match (&task.way, source) {
        (Way::Messages, true) => {
            let (asking, lanes) = am::source(task, opening, offer)?;
            Ok(Joined::Asking(asking, lanes))
        }
        (Way::Messages, false) => Ok(Joined::Serving(am::other(task, opening, offer)?)),
        (_, true) => {
            let reach = ucx::Reach::join(opening, offer)?;
            let lanes = reach.lanes();
            Ok(Joined::Asking(one_sided::source(task, reach)?, lanes))
        }
        (_, false) => {
            let reached = ucx::Reached::join(opening, offer)?;
            let (start, len) = reached.memory();
            // SAFETY: UCX has allocated this many bytes, starting at a page. They live as long as `reached`,
            // which the closure keeps with the endpoint that uses them. Both processes computed the length
            // from the data to work on.
            Ok(Joined::Serving(unsafe { one_sided::other(task, start, len, move || reached.progress()) }))
        }
    }
}

impl Joined {
    /// # Errors
    /// This is only a target's endpoint.
    pub(super) fn source(&mut self) -> Result<&mut dyn Source, Failure> {
        match self {
            Joined::Raw(ring) => Ok(&mut **ring),
            Joined::Stream(stream) => Ok(&mut **stream),
            #[cfg(feature = "iceoryx2")]
            Joined::Samples(samples) => Ok(&mut **samples),
            #[cfg(feature = "ucx")]
            Joined::Messages(messages) => Ok(&mut **messages),
            #[cfg(feature = "ucx")]
            Joined::Stores(written) => Ok(&mut **written),
            #[cfg(feature = "ucx")]
            Joined::Puts(written) => Ok(&mut **written),
            Joined::Asking(source, _) => Ok(&mut **source),
            Joined::Serving(_) => Err(Failure::new("this is the target")),
        }
    }

    /// # Errors
    /// This is only a source's endpoint.
    pub(super) fn other(&mut self) -> Result<&mut dyn Other, Failure> {
        match self {
            Joined::Raw(ring) => Ok(&mut **ring),
            Joined::Stream(stream) => Ok(&mut **stream),
            #[cfg(feature = "iceoryx2")]
            Joined::Samples(samples) => Ok(&mut **samples),
            #[cfg(feature = "ucx")]
            Joined::Messages(messages) => Ok(&mut **messages),
            #[cfg(feature = "ucx")]
            Joined::Stores(written) => Ok(&mut **written),
            #[cfg(feature = "ucx")]
            Joined::Puts(written) => Ok(&mut **written),
            Joined::Serving(other) => Ok(&mut **other),
            Joined::Asking(..) => Err(Failure::new("this is the source")),
        }
    }

    /// Returns UCX's transports, if it reports them.
    pub(super) fn lanes(&self) -> Option<String> {
        match self {
            Joined::Raw(_) | Joined::Stream(_) | Joined::Serving(_) => None,
            Joined::Asking(_, lanes) => lanes.clone(),
            #[cfg(feature = "iceoryx2")]
            Joined::Samples(_) => None,
            #[cfg(feature = "ucx")]
            Joined::Messages(messages) => messages.lanes(),
            #[cfg(feature = "ucx")]
            Joined::Stores(written) => written.lanes(),
            #[cfg(feature = "ucx")]
            Joined::Puts(written) => written.lanes(),
        }
    }
}
