//! The address of verbs, read and written from its description (`transports/src/verbs/device/address.rs`),
//! so that code outside farjump can change it on its way.

use farjump_core::transport::Address;
use serde::{Deserialize, Serialize};

/// Version, backend and checksum.
const HEAD: usize = 8;

/// The fields in the order of the encoding. Peers accept plausible values; they must refuse the others.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct AddressBody {
    /// Number of the queue pair.
    pub(crate) queue: u32,
    packet: u32,
    is_ethernet: bool,
    lid: u16,
    gid: [u8; 16],
    gid_kind: u8,
    is_global: bool,
    mtu: u16,
    partition: u16,
    in_order: bool,
    /// Receives that the endpoint keeps posted.
    pub(crate) receives: u32,
    max_frame: u64,
    credit_word: Place,
    /// Memory into which the peer writes frames; for writes only.
    pub(crate) region: Place,
}

/// Memory that a peer may write.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Place {
    address: u64,
    /// In bytes.
    pub(crate) len: u64,
    pub(crate) key: u32,
}

/// Returns the address with its endpoint changed by `lie`.
///
/// # Panics
/// If it is no address of verbs with one endpoint.
pub(crate) fn changed(address: &Address, lie: impl FnOnce(&mut AddressBody)) -> Address {
    let (head, body) = address.bytes.split_at(HEAD);
    // The number of the peer's endpoint for which the address is, and its endpoints.
    let mut parts: (u8, Vec<AddressBody>) =
        postcard::from_bytes(body).expect("the address is as it is described");
    let [endpoint] = &mut parts.1[..] else { panic!("the machine has one port") };
    lie(endpoint);
    let mut bytes =
        [&head[..4], &[0; 4], &postcard::to_stdvec(&parts).expect("numbers are encoded")].concat();
    let mut sum = crc32fast::Hasher::new();
    sum.update(&bytes[..4]);
    sum.update(&bytes[HEAD..]);
    bytes[4..HEAD].copy_from_slice(&sum.finalize().to_le_bytes());
    Address { bytes, descriptors: Vec::new(), stream: None }
}
