//! The limits of a target: one struct from the command line to the policy and the handshake.

use farjump_core::frame::MAX_FRAME;
use serde::{Deserialize, Serialize};

/// The limits of a target. Lengths are in bytes, and [`Limits::NONE`] stands for no limit.
///
/// In the handshake only `payload` and `image` travel: a source checks these before it sends. The other
/// fields of a received value are defaults.
// The two that a source checks for each call come first, side by side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[repr(C)]
pub struct Limits {
    /// Longest payload that runs. Default: none.
    #[serde(with = "optional")]
    pub payload: usize,
    /// Longest image that comes in. Default: none; the capacity for placed code limits it.
    #[serde(with = "optional")]
    pub image: usize,
    /// Longest payload that gets a large mailbox, if `payload` permits it. Default: 64 MiB.
    #[serde(skip, default = "large_payload")]
    pub large_payload: usize,
    /// Longest frame, with header and code. Default: the longest that there is.
    #[serde(skip, default = "frame")]
    pub frame: usize,
    /// Most sources at a time. Default: 256.
    #[serde(skip, default = "sources")]
    pub sources: usize,
    /// Memory that one source may take, its mailbox included. Default: none.
    #[serde(skip, default = "none")]
    pub source_memory: usize,
}

impl Limits {
    /// The value of a limit that limits nothing.
    pub const NONE: usize = usize::MAX;
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            payload: none(),
            image: none(),
            large_payload: large_payload(),
            frame: frame(),
            sources: sources(),
            source_memory: none(),
        }
    }
}

fn none() -> usize {
    Limits::NONE
}

fn large_payload() -> usize {
    64 << 20
}

fn frame() -> usize {
    MAX_FRAME
}

fn sources() -> usize {
    256
}

/// A limit as an optional number of 64 bits.
mod optional {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Limits;

    pub(super) fn serialize<S: Serializer>(limit: &usize, serializer: S) -> Result<S::Ok, S::Error> {
        (*limit != Limits::NONE).then_some(*limit as u64).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(decoder: D) -> Result<usize, D::Error> {
        let limit = Option::<u64>::deserialize(decoder)?;
        Ok(limit.map_or(Limits::NONE, |limit| usize::try_from(limit).unwrap_or(Limits::NONE)))
    }
}
