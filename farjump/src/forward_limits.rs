//! Limits for calls that forward themselves.

use crate::config::TargetConfig;

/// A target's limits for functions that forward themselves, by `farjump_forward` and `farjump_again`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ForwardLimits {
    /// Messages that one call may send, to destinations and to this target.
    pub(crate) messages: usize,
    /// Targets that may forward a call, one after the other.
    pub(crate) hops: u32,
    /// Bytes of payload that may wait to be sent to one destination, or to run again here; one payload may wait
    /// in any case. `None`: as many as a mailbox holds.
    pub(crate) bytes: Option<usize>,
    /// Times that a call may run again here, one after the other.
    pub(crate) repeats: u32,
}

impl Default for ForwardLimits {
    fn default() -> ForwardLimits {
        ForwardLimits::of(&TargetConfig::default())
    }
}

impl ForwardLimits {
    /// The limits of a configuration.
    pub(crate) fn of(config: &TargetConfig) -> ForwardLimits {
        ForwardLimits {
            messages: config.max_forwards,
            hops: config.max_hops,
            bytes: config.max_forward_bytes,
            repeats: config.max_again,
        }
    }
}
