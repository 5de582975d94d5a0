//! `shm` in the hands of a liar, who keeps every descriptor that passes and does with it what it likes.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};

use farjump::core::transport::{
    Address, Capabilities, Endpoint, LocalAddress, OpenRequest, Opening, Transport, TransportError,
};
use farjump_transports::shm::Shm;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::net::{SendFlags, send};

/// Copies of the descriptors: region and doorbell of either side, its own first.
#[derive(Clone, Default)]
pub(crate) struct Kept(Arc<Mutex<Vec<OwnedFd>>>);

/// `shm`, under its own name.
pub(crate) struct Spoilt {
    pub(crate) kept: Kept,
}

struct SpoiltOpening {
    inner: Box<dyn Opening>,
    kept: Kept,
}

impl Kept {
    fn keep<'a>(&self, descriptors: impl IntoIterator<Item = &'a (impl AsFd + 'a)>) {
        let copies =
            descriptors.into_iter().map(|descriptor| descriptor.as_fd().try_clone_to_owned().unwrap());
        self.0.lock().unwrap().extend(copies);
    }

    /// Takes the promise not to block off every one of them: their file descriptions are the other side's too.
    pub(crate) fn make_blocking(&self) {
        for descriptor in &*self.0.lock().unwrap() {
            fcntl_setfl(descriptor, OFlags::empty()).unwrap();
        }
    }

    /// The socket by which this side's own doorbell is rung, and that of the other side's.
    fn doorbells(&self) -> [OwnedFd; 2] {
        let kept = self.0.lock().unwrap();
        assert_eq!(kept.len(), 4, "not all descriptors have passed");
        [1, 3].map(|number| kept[number].try_clone().unwrap())
    }

    /// Rings both sides until their doorbells take no more.
    pub(crate) fn fill(&self) {
        for doorbell in self.doorbells() {
            for _ in 0..1 << 16 {
                match send(&doorbell, &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                    Ok(_) => {}
                    Err(rustix::io::Errno::AGAIN) => break,
                    // Descriptors that are no sockets are filled by what is written to them.
                    Err(_) => drop(rustix::io::write(&doorbell, &(u64::MAX - 1).to_ne_bytes())),
                }
            }
        }
    }

    /// The other side's doorbell, to be rung by hand.
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
    fn open(&mut self, request: &OpenRequest) -> Result<Box<dyn Opening>, TransportError> {
        let inner = Shm::new().open(request)?;
        self.kept.keep(&inner.address().descriptors);
        Ok(Box::new(SpoiltOpening { inner, kept: self.kept.clone() }))
    }
}

impl Opening for SpoiltOpening {
    fn address(&self) -> LocalAddress<'_> {
        self.inner.address()
    }
    fn connect(self: Box<Self>, peer: Address, deadline_ms: u32) -> Result<Endpoint, TransportError> {
        self.kept.keep(&peer.descriptors);
        self.inner.connect(peer, deadline_ms)
    }
}
