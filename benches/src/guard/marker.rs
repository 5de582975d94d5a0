//! Marks in the process that is counted, by which the one that counts knows what is being done.

use super::case::Operation;

/// What begins at a mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mark {
    /// Nothing that is counted.
    Outside,
    /// The operation.
    Of(Operation),
    /// Counting: until then marks mean nothing.
    Counting,
}

impl Mark {
    const ALL: [Mark; 7] = [
        Mark::Outside,
        Mark::Of(Operation::Send),
        Mark::Of(Operation::Poll),
        Mark::Of(Operation::RoundTrip),
        Mark::Counting,
        Mark::Of(Operation::Batch),
        Mark::Of(Operation::PollBatch),
    ];

    /// The mark with this number; `None` if there is none.
    pub(crate) fn numbered(number: u64) -> Option<Mark> {
        Mark::ALL.get(usize::try_from(number).ok()?).copied()
    }

    const fn number(self) -> u64 {
        match self {
            Mark::Outside => 0,
            Mark::Of(Operation::Send) => 1,
            Mark::Of(Operation::Poll) => 2,
            Mark::Of(Operation::RoundTrip) => 3,
            Mark::Counting => 4,
            Mark::Of(Operation::Batch) => 5,
            Mark::Of(Operation::PollBatch) => 6,
        }
    }

    /// Stops this process for the one that steps through it, which reads the mark's number in the register of a function's first
    /// argument. Only where there is such a process.
    #[inline(always)]
    pub(crate) fn here(self) {
        // SAFETY: a breakpoint ends the process unless somebody traces it, and does nothing else; the number is in a register
        // of which the compiler knows.
        unsafe {
            std::arch::asm!("int3", in("rdi") self.number());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_known_by_its_number() {
        for mark in Mark::ALL {
            assert_eq!(Mark::numbered(mark.number()), Some(mark));
        }
        assert_eq!(Mark::numbered(Mark::ALL.len() as u64), None);
    }
}
