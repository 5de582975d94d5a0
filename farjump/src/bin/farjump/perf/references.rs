//! The references that have a side in each process, whatever they stand on.

use super::memory::Memory;
use super::message::{Offer, Subject};
use super::ring::Ring;
use super::side::{Other, Source};
use super::stores::Stores;
#[cfg(feature = "ucx")]
use super::ucx;
use crate::failure::Failure;

/// A side that does not know the other yet.
pub(super) enum Half {
    Raw,
    #[cfg(feature = "ucx")]
    Ucx(Subject, ucx::Opening),
}

/// A side that does.
pub(super) enum Joined {
    Raw(Box<Ring<Stores>>),
    #[cfg(feature = "ucx")]
    Messages(Box<ucx::Messages>),
    #[cfg(feature = "ucx")]
    Stores(Box<ucx::Written<Stores>>),
    #[cfg(feature = "ucx")]
    Puts(Box<ucx::Written<ucx::Puts>>),
}

/// This process's side of a reference, with `region` bytes where it needs memory of its own.
///
/// # Errors
/// Why there is none here.
pub(super) fn open(reference: &Subject, region: usize) -> Result<Half, Failure> {
    match reference {
        Subject::Raw => Ok(Half::Raw),
        Subject::Farjump(_) => Err(Failure::new("farjump is no reference")),
        #[cfg(feature = "ucx")]
        subject => Ok(Half::Ucx(subject.clone(), ucx::Opening::of(subject, region)?)),
        #[cfg(not(feature = "ucx"))]
        _ => {
            let _ = region;
            Err(Failure::new("this program was built without UCX: build with --features ucx"))
        }
    }
}

impl Half {
    /// What the other side has to know.
    pub(super) fn offer(&self) -> Result<Offer, Failure> {
        match self {
            Half::Raw => Ok(Offer::default()),
            #[cfg(feature = "ucx")]
            Half::Ucx(_, opening) => opening.offer(),
        }
    }

    /// Joins the other side. `source` says which side this is; payloads have up to `longest` bytes.
    pub(super) fn join(
        self,
        offer: &Offer,
        memory: &Memory,
        source: bool,
        longest: usize,
    ) -> Result<Joined, Failure> {
        #[cfg(not(feature = "ucx"))]
        let _ = offer;
        match self {
            Half::Raw => {
                let (first, second, len) = memory.regions();
                let (own, theirs) = if source { (first, second) } else { (second, first) };
                // SAFETY: both regions are so long, begin at a page, stay mapped to the end of the run, after which nothing
                // is measured, and are used by the two rings alone. How long they are the source has computed from what is
                // sent (`ring::region_len`).
                let ring = unsafe { Ring::new(Stores::new(theirs, len, longest), own, len) };
                Ok(Joined::Raw(Box::new(ring)))
            }
            #[cfg(feature = "ucx")]
            Half::Ucx(Subject::UcxStores, opening) => {
                Ok(Joined::Stores(Box::new(ucx::Written::by_stores(opening, offer, longest)?)))
            }
            #[cfg(feature = "ucx")]
            Half::Ucx(Subject::UcxPut, opening) => {
                Ok(Joined::Puts(Box::new(ucx::Written::by_puts(opening, offer, longest)?)))
            }
            #[cfg(feature = "ucx")]
            Half::Ucx(_, opening) => {
                Ok(Joined::Messages(Box::new(ucx::Messages::join(opening, offer, longest)?)))
            }
        }
    }
}

impl Joined {
    pub(super) fn source(&mut self) -> &mut dyn Source {
        match self {
            Joined::Raw(ring) => &mut **ring,
            #[cfg(feature = "ucx")]
            Joined::Messages(messages) => &mut **messages,
            #[cfg(feature = "ucx")]
            Joined::Stores(written) => &mut **written,
            #[cfg(feature = "ucx")]
            Joined::Puts(written) => &mut **written,
        }
    }

    pub(super) fn other(&mut self) -> &mut dyn Other {
        match self {
            Joined::Raw(ring) => &mut **ring,
            #[cfg(feature = "ucx")]
            Joined::Messages(messages) => &mut **messages,
            #[cfg(feature = "ucx")]
            Joined::Stores(written) => &mut **written,
            #[cfg(feature = "ucx")]
            Joined::Puts(written) => &mut **written,
        }
    }

    /// By which of UCX's transports it goes, where that can be told.
    pub(super) fn lanes(&self) -> Option<String> {
        match self {
            Joined::Raw(_) => None,
            #[cfg(feature = "ucx")]
            Joined::Messages(messages) => messages.lanes(),
            #[cfg(feature = "ucx")]
            Joined::Stores(written) => written.lanes(),
            #[cfg(feature = "ucx")]
            Joined::Puts(written) => written.lanes(),
        }
    }
}
