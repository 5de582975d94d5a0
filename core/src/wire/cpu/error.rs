//! Faults of a CPU's description.

use super::{MAX_FEATURE, MAX_FEATURES, MAX_LEN, MAX_NAME};
use crate::counted;
use crate::image::Machine;

/// The reasons why bytes, or parts, describe no CPU.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CpuError {
    /// More bytes than any description has.
    #[error("its CPU has a description of {found} bytes, the most are {MAX_LEN}")]
    TooLong {
        /// Their number.
        found: usize,
    },
    /// Fewer bytes than the lengths in them add up to.
    #[error("the description of its CPU is truncated: it has {found} bytes, and its lengths ask for more")]
    Truncated {
        /// Their number.
        found: usize,
    },
    /// Bytes behind the last feature.
    #[error("the description of its CPU goes on for {} behind the last feature", counted(*len, "byte"))]
    Excess {
        /// Their number.
        len: usize,
    },
    /// A level that the machine does not have.
    #[error("its CPU has level {number}, which {machine} does not have")]
    Level {
        /// The machine.
        machine: Machine,
        /// Number of the level.
        number: u8,
    },
    /// Forms of code that this farjump does not know.
    #[error(
        "it takes code of forms {0:#04x}, of which this farjump knows 0x01 (images), 0x02 (bitcode) and 0x04 (rather bitcode): install \
         the same farjump at both"
    )]
    Forms(u8),
    /// A name that could not stand in a compiler's option.
    #[error(
        "the name of its CPU is not 1 to {MAX_NAME} lowercase letters, digits, dots, dashes and underscores"
    )]
    Name,
    /// A feature that could not stand in a compiler's option.
    #[error(
        "feature {index} of its CPU is not 1 to {MAX_FEATURE} lowercase letters, digits, dots, dashes and underscores"
    )]
    Feature {
        /// Number of the feature, from 0.
        index: usize,
    },
    /// More features than a description can hold.
    #[error("its CPU has {found} features, the most are {MAX_FEATURES}")]
    Features {
        /// Their number.
        found: usize,
    },
    /// A feature that does not follow the one before it in byte order.
    #[error("feature {index} of its CPU is not greater than the one before it: they ascend, each once")]
    Order {
        /// Number of the feature, from 0.
        index: usize,
    },
}
