//! What an end tells its peer: its worker's address, made by UCX for UCX, and what it holds.
//!
//! Little-endian: version (`u16`, 1), UCX's major and minor version (`u16` each), zero (`u16`), bytes that the end holds
//! undelivered (`u64`), longest frame that it takes (`u64`), CRC-32 of all else (`u32`), length of the worker's address
//! (`u32`), the worker's address.

use farjump_core::transport::Cause;
use farjump_ucx_sys::Version;

const VERSION: u16 = 1;
const HEAD: usize = 32;
/// Where the checksum lies in it.
const SUM: std::ops::Range<usize> = 24..28;
/// Longest address, in bytes (`core::transport::Address::bytes`).
const LONGEST: usize = 64 << 10;

/// What is in an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Told {
    /// Bytes that the end holds undelivered, at least `max_frame`.
    pub(super) window: u64,
    /// Longest frame that it takes, in bytes.
    pub(super) max_frame: u64,
    /// By which UCX reaches its worker.
    pub(super) worker: Vec<u8>,
}

impl Told {
    /// As bytes for a peer, by an end whose UCX is `own`.
    pub(super) fn to_bytes(&self, own: Version) -> Result<Vec<u8>, Cause> {
        let len = HEAD + self.worker.len();
        if len > LONGEST {
            return Err(Cause::System(format!(
                "UCX's address of this end has {} bytes, {} at most can be told: name fewer devices in UCX_NET_DEVICES",
                self.worker.len(),
                LONGEST - HEAD
            )));
        }
        let mut bytes = Vec::with_capacity(len);
        for number in [VERSION, own.major as u16, own.minor as u16, 0] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.window.to_le_bytes());
        bytes.extend(self.max_frame.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend((self.worker.len() as u32).to_le_bytes());
        bytes.extend(&self.worker);
        let sum = sum(&bytes);
        bytes[SUM].copy_from_slice(&sum);
        Ok(bytes)
    }

    /// From a peer. UCX believes every byte of a worker's address, so one that was damaged, or made by a UCX whose addresses
    /// may differ, must not come so far.
    pub(super) fn from_bytes(bytes: &[u8], own: Version) -> Result<Told, Cause> {
        let wrong = |what: String| Err(Cause::Address(what));
        let Some((head, worker)) = bytes.split_first_chunk::<HEAD>() else {
            return wrong(format!("it has {} bytes, and its head alone {HEAD}", bytes.len()));
        };
        let short = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| head[at + index]));
        if short(0) != VERSION || short(6) != 0 {
            return wrong(format!("it is of version {}, not {VERSION}", short(0)));
        }
        let (told, there) = (u32::from_le_bytes(std::array::from_fn(|index| head[28 + index])), worker.len());
        if told as usize != there || there == 0 || bytes.len() > LONGEST {
            return wrong(format!("it has {there} bytes for UCX and says {told}"));
        }
        if sum(bytes) != bytes[SUM] {
            return wrong("it is damaged: its checksum is another".to_owned());
        }
        let (major, minor) = (short(2), short(4));
        if (u32::from(major), u32::from(minor)) != (own.major, own.minor) {
            return wrong(format!(
                "the peer has UCX {major}.{minor} and this side {}.{}, which may not understand each other: install one version on both",
                own.major, own.minor
            ));
        }
        let (window, max_frame) = (long(8), long(16));
        if max_frame == 0 || window < max_frame {
            return wrong(format!("it holds {window} bytes and takes frames of {max_frame}"));
        }
        Ok(Told { window, max_frame, worker: worker.to_vec() })
    }
}

/// The checksum of all but itself.
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

    fn told() -> Told {
        Told { window: 8192, max_frame: 4096, worker: (0..100).collect() }
    }

    #[test]
    fn an_address_is_understood_as_it_was_told_by_another_release() {
        let bytes = told().to_bytes(OWN).unwrap();
        assert_eq!(Told::from_bytes(&bytes, Version { release: 7, ..OWN }), Ok(told()));
    }

    #[test]
    fn one_that_is_cut_off_longer_or_has_any_bit_turned_is_refused() {
        let bytes = told().to_bytes(OWN).unwrap();
        for len in 0..bytes.len() {
            assert!(matches!(Told::from_bytes(&bytes[..len], OWN), Err(Cause::Address(_))), "{len}");
        }
        assert!(Told::from_bytes(&[&bytes[..], &[0]].concat(), OWN).is_err());
        for bit in 0..bytes.len() * 8 {
            let mut turned = bytes.clone();
            turned[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(Told::from_bytes(&turned, OWN), Err(Cause::Address(_))), "bit {bit}");
        }
    }

    #[test]
    fn another_version_of_ucx_is_refused_by_both_numbers() {
        let bytes = told().to_bytes(Version { minor: 15, ..OWN }).unwrap();
        let text = Told::from_bytes(&bytes, OWN).unwrap_err().to_string();
        assert!(text.contains("UCX 1.15") && text.contains("1.13"), "{text}");
    }

    #[test]
    fn a_window_that_holds_not_one_frame_is_refused_and_an_address_that_is_too_long_not_told() {
        for (window, max_frame) in [(4095, 4096), (0, 0), (9, 0)] {
            let bytes = Told { window, max_frame, ..told() }.to_bytes(OWN).unwrap();
            assert!(Told::from_bytes(&bytes, OWN).is_err(), "{window} {max_frame}");
        }
        let long = Told { worker: vec![0; LONGEST], ..told() };
        assert!(matches!(long.to_bytes(OWN), Err(Cause::System(_))));
    }
}
