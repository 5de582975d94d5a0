//! The address of a UCX endpoint: the worker's address, opaque to all but UCX, and the backend's fields.
//!
//! Little-endian: version (`u16`, 6), backend (`u16`: 1 active messages, 2 puts), UCX's major and minor
//! version (`u16` each), checksum of settings (`u16`, `settings.rs`), zero (`u16`), CRC-32 of all else
//! (`u32`), length of the rest (`u32`), and the rest: a [`EndpointAddress`] in postcard's encoding.

use farjump_core::transport::Cause;
use farjump_ucx_sys::Version;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::locality::Locality;
use super::settings::Settings;

const VERSION: u16 = 6;
const HEAD: usize = 20;
/// Range of the checksum.
const SUM: std::ops::Range<usize> = 12..16;
/// Longest address, in bytes (`core::transport::Address::bytes`).
const LONGEST: usize = 64 << 10;

/// The fields of a backend's endpoint address.
pub(super) trait EndpointAddress: Serialize + DeserializeOwned {
    /// The backend's number.
    const BACKEND: u16;

    /// Checks for impossible values.
    fn check(&self) -> Result<(), String>;

    /// Encodes it for a peer, by an endpoint whose UCX is `own`.
    fn to_bytes(&self, own: Version) -> Result<Vec<u8>, Cause> {
        let body = postcard::to_stdvec(self).map_err(|error| {
            Cause::System(format!("the address of this endpoint cannot be encoded: {error}"))
        })?;
        if HEAD + body.len() > LONGEST {
            return Err(Cause::System(format!(
                "UCX's address of this endpoint has {} bytes, and a message takes about {}: name fewer devices in UCX_NET_DEVICES",
                body.len(),
                LONGEST - HEAD
            )));
        }
        let mut bytes = Vec::with_capacity(HEAD + body.len());
        let settings = Settings::own().sum();
        for number in [VERSION, Self::BACKEND, own.major as u16, own.minor as u16, settings, 0] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend([0; 4]);
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend(&body);
        let sum = sum(&bytes);
        bytes[SUM].copy_from_slice(&sum);
        Ok(bytes)
    }

    /// Decodes it from a peer. UCX trusts every byte of its own encoding, so this rejects damaged addresses, and
    /// addresses of a UCX whose encoding may differ.
    fn from_bytes(bytes: &[u8], own: Version) -> Result<Self, Cause> {
        let wrong = |what: String| Err(Cause::Address(what));
        let Some((head, body)) = bytes.split_first_chunk::<HEAD>() else {
            return wrong(format!("it has {} bytes, and its head alone {HEAD}", bytes.len()));
        };
        let short = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        if (short(0), short(2), short(10)) != (VERSION, Self::BACKEND, 0) {
            return wrong(format!("it is of version {} and backend {}", short(0), short(2)));
        }
        let claimed = u32::from_le_bytes(std::array::from_fn(|index| head[16 + index])) as usize;
        if claimed != body.len() || bytes.len() > LONGEST {
            return wrong(format!("it has {} bytes for UCX and claims {claimed}", body.len()));
        }
        if sum(bytes) != bytes[SUM] {
            return wrong("it is damaged: its checksum is wrong".to_owned());
        }
        let (major, minor) = (short(4), short(6));
        if (u32::from(major), u32::from(minor)) != (own.major, own.minor) {
            return wrong(format!(
                "the peer has UCX {major}.{minor} and this process has {}.{}, which may be incompatible: install one version on both machines",
                own.major, own.minor
            ));
        }
        Settings::own().agree(short(8))?;
        match postcard::take_from_bytes::<Self>(body) {
            Ok((address, [])) => address.check().map_err(Cause::Address).map(|()| address),
            Ok((_, rest)) => wrong(format!("{} bytes follow it", rest.len())),
            Err(error) => wrong(format!("it does not decode: {error}")),
        }
    }
}

/// Fields of an endpoint of `ucx-am`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct AmAddress {
    /// Bytes that the endpoint keeps undelivered; it accepts a longer frame when nothing else is under way.
    pub(super) window: u64,
    /// Longest frame that it accepts, in bytes.
    pub(super) max_frame: u64,
    /// Locality of the process.
    pub(super) place: Locality,
    /// The worker's address.
    #[serde(with = "serde_bytes")]
    pub(super) worker: Vec<u8>,
}

impl EndpointAddress for AmAddress {
    const BACKEND: u16 = 1;

    fn check(&self) -> Result<(), String> {
        if self.max_frame == 0 || self.window == 0 {
            return Err(format!("it holds {} bytes and takes frames of {}", self.window, self.max_frame));
        }
        has_worker(&self.worker)
    }
}

/// Fields of an endpoint of `ucx-put`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct PutAddress {
    /// Start of its region, in UCX's terms. Only UCX of this process interprets it.
    pub(super) address: u64,
    /// The region's length in bytes.
    pub(super) len: u64,
    /// The process's barriers (`crate::barrier`).
    pub(super) barriers: u16,
    /// UCX's key to the region.
    #[serde(with = "serde_bytes")]
    pub(super) key: Vec<u8>,
    /// Locality of the process.
    pub(super) place: Locality,
    /// The worker's address.
    #[serde(with = "serde_bytes")]
    pub(super) worker: Vec<u8>,
}

impl EndpointAddress for PutAddress {
    const BACKEND: u16 = 2;

    fn check(&self) -> Result<(), String> {
        let end = self.address.checked_add(self.len);
        if self.len == 0 || usize::try_from(self.len).is_err() || end.is_none() {
            return Err(format!("its region has {} bytes at {:#x}", self.len, self.address));
        }
        if self.key.is_empty() {
            return Err("it has no key to its region".to_owned());
        }
        has_worker(&self.worker)
    }
}

fn has_worker(worker: &[u8]) -> Result<(), String> {
    if worker.is_empty() { Err("it names no worker of UCX's".to_owned()) } else { Ok(()) }
}

/// Returns the checksum of all but itself.
fn sum(bytes: &[u8]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..SUM.start]);
    hasher.update(&bytes[SUM.end..]);
    hasher.finalize().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Version = Version { major: 1, minor: 13, release: 1 };

    fn inbox() -> AmAddress {
        AmAddress { window: 8192, max_frame: 4096, place: Locality::own(), worker: (0..100).collect() }
    }

    fn mailbox() -> PutAddress {
        PutAddress {
            address: 1 << 40,
            len: 8192,
            barriers: 3,
            key: vec![1; 24],
            place: Locality::own(),
            worker: (0..100).collect(),
        }
    }

    #[test]
    fn an_address_from_another_ucx_release_is_read_by_its_backend_only() {
        let other = Version { release: 7, ..OWN };
        let (inbox_bytes, mailbox_bytes) = (inbox().to_bytes(OWN).unwrap(), mailbox().to_bytes(OWN).unwrap());
        assert_eq!(AmAddress::from_bytes(&inbox_bytes, other), Ok(inbox()));
        assert_eq!(PutAddress::from_bytes(&mailbox_bytes, other), Ok(mailbox()));
        assert!(matches!(PutAddress::from_bytes(&inbox_bytes, OWN), Err(Cause::Address(_))));
        assert!(matches!(AmAddress::from_bytes(&mailbox_bytes, OWN), Err(Cause::Address(_))));
    }

    #[test]
    fn a_cut_longer_or_bit_flipped_ucx_address_is_refused() {
        let bytes = mailbox().to_bytes(OWN).unwrap();
        for len in 0..bytes.len() {
            assert!(matches!(PutAddress::from_bytes(&bytes[..len], OWN), Err(Cause::Address(_))), "{len}");
        }
        assert!(PutAddress::from_bytes(&[&bytes[..], &[0]].concat(), OWN).is_err());
        for bit in 0..bytes.len() * 8 {
            let mut turned = bytes.clone();
            turned[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(PutAddress::from_bytes(&turned, OWN), Err(Cause::Address(_))), "bit {bit}");
        }
    }

    #[test]
    fn another_version_of_ucx_is_refused_by_both_numbers() {
        let bytes = inbox().to_bytes(Version { minor: 15, ..OWN }).unwrap();
        let text = AmAddress::from_bytes(&bytes, OWN).unwrap_err().to_string();
        assert!(text.contains("UCX 1.15") && text.contains("1.13"), "{text}");
    }

    #[test]
    fn impossible_ucx_address_fields_are_refused_despite_a_valid_checksum() {
        for (window, max_frame) in [(0, 4096), (0, 0), (9, 0)] {
            let bytes = AmAddress { window, max_frame, ..inbox() }.to_bytes(OWN).unwrap();
            assert!(AmAddress::from_bytes(&bytes, OWN).is_err(), "{window} {max_frame}");
        }
        let nowhere = AmAddress { worker: vec![], ..inbox() }.to_bytes(OWN).unwrap();
        assert!(AmAddress::from_bytes(&nowhere, OWN).is_err());
        for lie in [
            PutAddress { len: 0, ..mailbox() },
            PutAddress { address: u64::MAX - 5, ..mailbox() },
            PutAddress { key: vec![], ..mailbox() },
            PutAddress { worker: vec![], ..mailbox() },
        ] {
            let bytes = lie.to_bytes(OWN).unwrap();
            assert!(matches!(PutAddress::from_bytes(&bytes, OWN), Err(Cause::Address(_))), "{lie:?}");
        }
    }

    #[test]
    fn encoding_an_overlong_ucx_address_is_an_error() {
        let long = AmAddress { worker: vec![0; LONGEST], ..inbox() };
        assert!(matches!(long.to_bytes(OWN), Err(Cause::System(_))));
    }
}
