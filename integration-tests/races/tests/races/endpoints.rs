//! Two endpoints of a link over `shm`, both on one mapping.
//!
//! Each endpoint of such a link maps both regions, so two endpoints in one process access the same memory at
//! two addresses. ThreadSanitizer compares addresses and would see no conflict. Therefore each endpoint
//! writes to its peer's region at the peer's own address.

use std::ptr::NonNull;

use farjump_core::channel::{Channel, ChannelParams};
use farjump_core::mailbox::region_len;
use farjump_core::signal::LinkKey;
use farjump_core::transport::{
    ArrivalRules, Endpoint, LocalMemory, OpenRequest, RemoteMemory, Transport, TransportError,
};
use farjump_transports::shm::Shm;

/// Time limit for the two endpoints to connect, in milliseconds.
const DEADLINE_MS: u32 = 10_000;

/// The peer's region at the address where the peer maps it.
struct SameMapping {
    inner: Box<dyn RemoteMemory>,
    base: NonNull<u8>,
}

// SAFETY: `base` is only an address. Both threads use the regions under the mailbox protocol, which this test
// examines.
unsafe impl Send for SameMapping {}

// SAFETY: the region is the peer's own, and its `LocalMemory` gives the same guarantees. `Endpoints` keeps both
// channels until no thread uses either.
unsafe impl RemoteMemory for SameMapping {
    fn len(&self) -> usize {
        self.inner.len()
    }

    fn mapped(&self) -> Option<NonNull<u8>> {
        Some(self.base)
    }

    fn put(&mut self, offset: usize, bytes: &[u8], frame: u64) -> Result<(), TransportError> {
        self.inner.put(offset, bytes, frame)
    }

    fn put_word(&mut self, offset: usize, word: u64, frame: u64) -> Result<(), TransportError> {
        self.inner.put_word(offset, word, frame)
    }

    fn fence(&mut self) -> Result<(), TransportError> {
        self.inner.fence()
    }

    fn wake_peer(&mut self) -> Result<(), TransportError> {
        self.inner.wake_peer()
    }

    fn store_load_ordered(&self) -> bool {
        self.inner.store_load_ordered()
    }
}

/// The two channels of a link. Must outlive both threads.
pub(crate) struct Endpoints {
    pub(crate) left: Channel,
    pub(crate) right: Channel,
}

impl Endpoints {
    /// Makes a link whose rings have these lengths in bytes: that of the left endpoint, then that of the
    /// right one.
    pub(crate) fn new(rings: [usize; 2]) -> Endpoints {
        let requests = rings.map(|ring| OpenRequest::new(region_len(ring), ring));
        let [left, right] = requests.map(|request| Shm::new().open(&request).unwrap());
        let to_right = left.address().try_to_owned().unwrap();
        let to_left = right.address().try_to_owned().unwrap();
        let (left, right) =
            (left.connect(to_left, DEADLINE_MS).unwrap(), right.connect(to_right, DEADLINE_MS).unwrap());
        let (left, right) = (parts(left), parts(right));
        let bases = [left.0.base(), right.0.base()];
        let end = |(local, remote): (Box<dyn LocalMemory>, _), own: usize| {
            let keys = [*b"to the left side", *b"to the right one"].map(LinkKey::from_bytes);
            let terms = ChannelParams {
                rule: ArrivalRules::STORES,
                line_whole: true,
                send_key: keys[1 - own],
                receive_key: keys[own],
                send_limit: rings[1 - own],
                receive_limit: rings[own],
                send_region: region_len(rings[1 - own]),
                receive_region: region_len(rings[own]),
            };
            let remote = Box::new(SameMapping { inner: remote, base: bases[1 - own] });
            Channel::new(Endpoint::OneSided { local, remote }, terms).unwrap()
        };
        Endpoints { left: end(left, 0), right: end(right, 1) }
    }
}

fn parts(endpoint: Endpoint) -> (Box<dyn LocalMemory>, Box<dyn RemoteMemory>) {
    match endpoint {
        Endpoint::OneSided { local, remote } => (local, remote),
        Endpoint::TwoSided(_) => panic!("shm is one-sided"),
    }
}
