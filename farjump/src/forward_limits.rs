//! Limits for calls that forward themselves.

/// A target's limits for functions that forward themselves, by `farjump_forward` and `farjump_again`. Set by
/// [`TargetBuilder::forward_limits`](crate::TargetBuilder::forward_limits).
///
/// ```
/// let mut limits = farjump::ForwardLimits::default();
/// limits.hops = 1 << 14;
/// let target = farjump::Target::listen("unix:store.sock").forward_limits(limits);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ForwardLimits {
    /// Messages that one call may send, to destinations and to this target. Default: 64.
    pub messages: usize,
    /// Targets that may forward a call, one after the other. The target reports a call that would go farther to its
    /// source. It refuses calls that come here after more hops. Default: 256.
    pub hops: u32,
    /// Bytes of payload that may wait to be sent to one destination, or to run again here; one payload may wait
    /// in any case. Default: as many as a mailbox holds.
    pub bytes: Option<usize>,
    /// Times that a call may run again here, one after the other. The target reports a call that would run more often
    /// to its source. Default: 1,048,576.
    pub repeats: u32,
}

impl Default for ForwardLimits {
    fn default() -> ForwardLimits {
        ForwardLimits { messages: 64, hops: 256, bytes: None, repeats: 1 << 20 }
    }
}
