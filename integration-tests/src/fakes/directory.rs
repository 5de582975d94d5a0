//! The registry through which two endpoints in one process find each other: an address is a number.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

use farjump_core::transport::{Address, Cause, LocalAddress};

use super::lock;

/// The live endpoints of one family in this process.
pub(super) struct Registry<T> {
    /// First eight bytes of an address: the family and the version of its address.
    kind: [u8; 8],
    endpoints: Mutex<BTreeMap<u64, Weak<T>>>,
    next: AtomicU64,
}

impl<T> Registry<T> {
    pub(super) const fn new(kind: [u8; 8]) -> Self {
        Registry { kind, endpoints: Mutex::new(BTreeMap::new()), next: AtomicU64::new(1) }
    }

    /// Registers an endpoint, for as long as the returned value exists.
    pub(super) fn enter(&self, end: T) -> (u64, Arc<T>) {
        let (number, end) = (self.next.fetch_add(1, Relaxed), Arc::new(end));
        let mut endpoints = lock(&self.endpoints);
        endpoints.retain(|_, end| end.strong_count() > 0);
        endpoints.insert(number, Arc::downgrade(&end));
        (number, end)
    }

    pub(super) fn address(&self, number: u64) -> LocalAddress<'static> {
        let mut bytes = self.kind.to_vec();
        bytes.extend(number.to_le_bytes());
        LocalAddress { bytes, descriptors: Vec::new() }
    }

    /// The endpoint with this address, which is untrusted.
    pub(super) fn find(&self, address: &Address) -> Result<Arc<T>, Cause> {
        let number = address
            .bytes
            .strip_prefix(&self.kind)
            .and_then(|number| <[u8; 8]>::try_from(number).ok())
            .map(u64::from_le_bytes)
            .ok_or_else(|| Cause::Address("it is not of this kind and version".into()))?;
        lock(&self.endpoints)
            .get(&number)
            .and_then(Weak::upgrade)
            .ok_or_else(|| Cause::Address(format!("no end {number} is open in this process")))
    }
}
