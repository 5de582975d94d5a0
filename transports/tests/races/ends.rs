//! Two ends of a link over `shm`, both on one mapping.
//!
//! Each end of such a link maps both regions, so two ends in one process reach the same memory at two addresses, and ThreadSanitizer,
//! which goes by the address, would see no two accesses meet. So each end writes to its peer's region where the peer has it.

use std::ptr::NonNull;

use farjump_core::channel::{Channel, Terms};
use farjump_core::mailbox::region_len;
use farjump_core::signal::LinkKey;
use farjump_core::transport::{
    ArrivalRules, Endpoint, LocalMemory, OpenRequest, RemoteMemory, Transport, TransportError,
};
use farjump_transports::shm::Shm;

/// How long the two may take to reach each other, in milliseconds.
const DEADLINE_MS: u32 = 10_000;

/// The peer's region where the peer itself has it.
struct SameMapping {
    inner: Box<dyn RemoteMemory>,
    base: NonNull<u8>,
}

// SAFETY: an address; the regions are used by both threads by what the protocol makes of them, which is what is tested.
unsafe impl Send for SameMapping {}

// SAFETY: the region is the peer's own, whose `LocalMemory` promises as much. `Ends` keeps both channels until no thread uses either.
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

    fn ring(&mut self) -> Result<(), TransportError> {
        self.inner.ring()
    }

    fn store_load_ordered(&self) -> bool {
        self.inner.store_load_ordered()
    }
}

/// The two channels of a link. To be kept until both threads are done.
pub(crate) struct Ends {
    pub(crate) left: Channel,
    pub(crate) right: Channel,
}

impl Ends {
    /// A link with rings of so many bytes to the left and to the right.
    pub(crate) fn new(rings: [usize; 2]) -> Ends {
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
            let terms = Terms {
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
        Ends { left: end(left, 0), right: end(right, 1) }
    }
}

fn parts(endpoint: Endpoint) -> (Box<dyn LocalMemory>, Box<dyn RemoteMemory>) {
    match endpoint {
        Endpoint::OneSided { local, remote } => (local, remote),
        Endpoint::TwoSided(_) => panic!("shm is one-sided"),
    }
}
