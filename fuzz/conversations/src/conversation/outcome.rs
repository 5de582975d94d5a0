//! The result of a conversation.

/// The result of a conversation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Links that the hostile source made.
    pub links: u64,
    /// Links with a stream.
    pub streams: u64,
    /// Replies that the hostile source got.
    pub replies: u64,
    /// Calls that the target ran.
    pub calls: u64,
    /// Frames that the target refused.
    pub refused: u64,
    /// Calls of the honest link.
    pub honest: u64,
    /// Images that the target placed.
    pub placed: u64,
    /// Admin requests that the target responded to.
    pub responses: u64,
    /// Messages of bursts that the target took.
    pub taken: u64,
    /// Bytes of bursts that the target checksummed.
    pub summed: u64,
    /// Refusals by cause: each is a bit.
    pub causes: u64,
    /// Most open descriptors after a step, and most bytes of shared memory, beyond those before the conversation.
    pub most: (usize, u64),
}

impl Outcome {
    /// The sum of two results.
    #[must_use]
    pub fn and(self, other: Outcome) -> Outcome {
        Outcome {
            links: self.links + other.links,
            streams: self.streams + other.streams,
            replies: self.replies + other.replies,
            calls: self.calls + other.calls,
            refused: self.refused + other.refused,
            honest: self.honest + other.honest,
            placed: self.placed + other.placed,
            responses: self.responses + other.responses,
            taken: self.taken + other.taken,
            summed: self.summed + other.summed,
            causes: self.causes | other.causes,
            most: (self.most.0.max(other.most.0), self.most.1.max(other.most.1)),
        }
    }
}
