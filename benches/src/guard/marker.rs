//! Marks in the counted process, by which the counting one knows the current operation.

use super::case::MeasuredOperation;

/// The phase that a mark begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mark {
    /// Not counted.
    Outside,
    Of(MeasuredOperation),
    /// Start of counting: earlier marks have no meaning.
    Counting,
}

impl Mark {
    const ALL: [Mark; 9] = [
        Mark::Outside,
        Mark::Of(MeasuredOperation::Send),
        Mark::Of(MeasuredOperation::Poll),
        Mark::Of(MeasuredOperation::RoundTrip),
        Mark::Counting,
        Mark::Of(MeasuredOperation::Batch),
        Mark::Of(MeasuredOperation::PollBatch),
        Mark::Of(MeasuredOperation::FirstCall),
        Mark::Of(MeasuredOperation::Get),
    ];

    /// Returns the mark with this number; `None` if there is none.
    pub(crate) fn numbered(number: u64) -> Option<Mark> {
        Mark::ALL.get(usize::try_from(number).ok()?).copied()
    }

    const fn number(self) -> u64 {
        match self {
            Mark::Outside => 0,
            Mark::Of(MeasuredOperation::Send) => 1,
            Mark::Of(MeasuredOperation::Poll) => 2,
            Mark::Of(MeasuredOperation::RoundTrip) => 3,
            Mark::Counting => 4,
            Mark::Of(MeasuredOperation::Batch) => 5,
            Mark::Of(MeasuredOperation::PollBatch) => 6,
            Mark::Of(MeasuredOperation::FirstCall) => 7,
            Mark::Of(MeasuredOperation::Get) => 8,
        }
    }

    /// Stops this process for its tracer, which reads the mark's number in the register of a function's first
    /// argument. Only for traced processes.
    #[inline(always)]
    pub(crate) fn here(self) {
        // SAFETY: a breakpoint ends an untraced process, and has no other effect; `in("rdi")` declares the
        // register to the compiler.
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
