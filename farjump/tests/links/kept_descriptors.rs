//! `shm` in the hands of a hostile process, which keeps every descriptor that passes and misuses it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};

use farjump::core::transport::{
    Address, Capabilities, Endpoint, LocalAddress, OpenRequest, Transport, TransportError,
    UnconnectedEndpoint,
};
use farjump_transports::shm::Shm;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::net::{SendFlags, send};

/// Copies of the descriptors: region and doorbell of both processes, its own first.
#[derive(Clone, Default)]
pub(crate) struct Kept(Arc<Mutex<Vec<OwnedFd>>>);

/// `shm`, under its own name.
pub(crate) struct Spoilt {
    pub(crate) kept: Kept,
}

struct UnconnectedSpoilt {
    inner: Box<dyn UnconnectedEndpoint>,
    kept: Kept,
}

impl Kept {
    fn keep<'a>(&self, descriptors: impl IntoIterator<Item = &'a (impl AsFd + 'a)>) {
        let copies =
            descriptors.into_iter().map(|descriptor| descriptor.as_fd().try_clone_to_owned().unwrap());
        self.0.lock().unwrap().extend(copies);
    }

    /// Makes every one of them blocking: the peer shares their file descriptions.
    pub(crate) fn make_blocking(&self) {
        for descriptor in &*self.0.lock().unwrap() {
            fcntl_setfl(descriptor, OFlags::empty()).unwrap();
        }
    }

    /// The socket that signals this side's own doorbell, and that of the peer's.
    fn doorbells(&self) -> [OwnedFd; 2] {
        let kept = self.0.lock().unwrap();
        assert_eq!(kept.len(), 4, "not all descriptors have passed");
        [1, 3].map(|number| kept[number].try_clone().unwrap())
    }

    /// Signals both doorbells until they take no more.
    pub(crate) fn fill(&self) {
        for doorbell in self.doorbells() {
            for _ in 0..1 << 16 {
                match send(&doorbell, &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                    Ok(_) => {}
                    Err(rustix::io::Errno::AGAIN) => break,
                    // Descriptors that are no sockets are filled by writing to them.
                    Err(_) => drop(rustix::io::write(&doorbell, &(u64::MAX - 1).to_ne_bytes())),
                }
            }
        }
    }

    /// The peer's doorbell, to be signalled by hand.
    pub(crate) fn button(&self) -> impl AsFd {
        let [_, theirs] = self.doorbells();
        theirs
    }
}

impl Transport for Spoilt {
    fn name(&self) -> &str {
        "shm"
    }
    fn capabilities(&self) -> Capabilities {
        Shm::new().capabilities()
    }
    fn open(&mut self, request: &OpenRequest) -> Result<Box<dyn UnconnectedEndpoint>, TransportError> {
        let inner = Shm::new().open(request)?;
        self.kept.keep(&inner.address().descriptors);
        Ok(Box::new(UnconnectedSpoilt { inner, kept: self.kept.clone() }))
    }
}

impl UnconnectedEndpoint for UnconnectedSpoilt {
    fn address(&self) -> LocalAddress<'_> {
        self.inner.address()
    }
    fn connect(self: Box<Self>, peer: Address, deadline_ms: u32) -> Result<Endpoint, TransportError> {
        self.kept.keep(&peer.descriptors);
        self.inner.connect(peer, deadline_ms)
    }
}
