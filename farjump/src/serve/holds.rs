//! The releases that replies wait for: only then are the effects of their calls durable.

/// Numbers a target's releases ([`Target::release_replies`](super::Target::release_replies)).
#[derive(Debug)]
pub(super) struct Holds {
    /// The number of the next release.
    next: u64,
    /// Whether a call waits for it.
    is_awaited: bool,
}

impl Default for Holds {
    fn default() -> Holds {
        Holds { next: 1, is_awaited: false }
    }
}

/// The release that a reply waits for, by its number. The default is one that is over.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(super) struct Hold(u64);

impl Holds {
    /// The next release, for a call that holds its reply.
    pub(super) fn hold(&mut self) -> Hold {
        self.is_awaited = true;
        Hold(self.next)
    }

    /// Returns whether a call waits for the next release.
    pub(super) fn are_awaited(&self) -> bool {
        self.is_awaited
    }

    /// Returns whether replies that wait for `hold` may leave.
    pub(super) fn are_over(&self, hold: Hold) -> bool {
        hold.0 < self.next
    }

    /// Ends the holds so far. Returns `false` if there were none.
    pub(super) fn release(&mut self) -> bool {
        let was_awaited = std::mem::take(&mut self.is_awaited);
        self.next += u64::from(was_awaited);
        was_awaited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_ends_with_the_next_release_and_not_before() {
        let mut holds = Holds::default();
        assert!(holds.are_over(Hold::default()) && !holds.release());
        let first = holds.hold();
        assert!(holds.are_awaited() && !holds.are_over(first) && first == holds.hold());
        assert!(holds.release() && holds.are_over(first) && !holds.release());
        let second = holds.hold();
        assert!(second > first && !holds.are_over(second) && holds.are_over(first));
    }
}
