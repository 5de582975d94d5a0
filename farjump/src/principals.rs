//! Principals: the parties for which calls run.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farjump_control::{NamedKey, PeerIdentity, Rights};
use farjump_loader::Domain;

/// The party for which a call runs: a source's link, or the program itself.
///
/// A call that waits in a target, to run again or for code, a destination or the program's release, carries its
/// principal. It runs for that principal later, even if the link has ended meanwhile. So do the calls that it leads to
/// there. A call that another target has forwarded has that target as its principal.
///
/// Functions that a program exports query the principal of the running call ([`principal`](crate::principal)).
pub struct Principal {
    number: u64,
    link: Option<u64>,
    peer: Option<Arc<PeerIdentity>>,
    key: Option<Arc<NamedKey>>,
    rights: Rights,
    domain: Domain,
    word: Option<Box<dyn Any + Send + Sync>>,
}

impl Principal {
    /// Makes a principal for calls of the program's own ([`Target::call_for`](crate::Target::call_for)). `word` is the
    /// host's word: information on these calls for functions that the program exports, such as a user and a database.
    pub fn with_word<T: Any + Send + Sync>(word: T) -> Arc<Principal> {
        Arc::new(Principal { word: Some(Box::new(word)), ..Principal::own() })
    }

    /// The program itself.
    pub(crate) fn own() -> Principal {
        Principal {
            number: next_number(),
            link: None,
            peer: None,
            key: None,
            rights: Rights::all(),
            domain: Domain::default(),
            word: None,
        }
    }

    /// The source behind the link with this number.
    pub(crate) fn of_link(
        link: u64,
        peer: PeerIdentity,
        key: Option<Arc<NamedKey>>,
        rights: Rights,
        domain: Domain,
    ) -> Principal {
        Principal { link: Some(link), peer: Some(Arc::new(peer)), key, rights, domain, ..Principal::own() }
    }

    /// Sets the host's word.
    pub(crate) fn set_word(&mut self, word: Box<dyn Any + Send + Sync>) {
        self.word = Some(word);
    }

    /// Its number: that of no other principal of this process.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The number of the call's link. Each link of a target has its own number, which is never used again. `None` for
    /// calls of the program's own.
    pub fn link(&self) -> Option<u64> {
        self.link
    }

    /// The process at the other end of the link, with the operator's name for its key. `None` for calls of the program's own.
    pub fn peer(&self) -> Option<&Arc<PeerIdentity>> {
        self.peer.as_ref()
    }

    /// The operator's name for the key of the link, if it has one.
    pub fn key(&self) -> Option<&str> {
        self.peer.as_ref()?.key.as_deref()
    }

    /// Its rights: all of them, for calls of the program's own.
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// The host's word, if it is a `T`: see [`Principal::with_word`] and
    /// [`TargetBuilder::host_word`](crate::TargetBuilder::host_word).
    pub fn word<T: 'static>(&self) -> Option<&T> {
        self.word.as_deref()?.downcast_ref()
    }

    /// The key of the link.
    pub(crate) fn named_key(&self) -> Option<&NamedKey> {
        self.key.as_deref()
    }

    /// The domain of its code.
    pub(crate) fn domain(&self) -> Domain {
        self.domain
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Principal")
            .field("number", &self.number)
            .field("link", &self.link)
            .field("peer", &self.peer)
            .field("rights", &self.rights)
            .field("has_word", &self.word.is_some())
            .finish_non_exhaustive()
    }
}

fn next_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}
