//! What a source's code indices stand for.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use farjump_core::frame::INLINE_ALIGN_LOG2;
use farjump_core::image::CodeId;
use farjump_loader::{Linked, Need, Usage};

use super::call::Main;
use super::executor::in_place::Checked;
use crate::policy::Budget;
use crate::refusal::Refusal;

/// Most bytes of reasons that a table keeps: a source that has code refused without end costs no more than this.
const REASONS: usize = 64 << 10;

/// The code that one source has bound to indices.
#[derive(Debug, Default)]
pub struct CodeTable {
    pub(super) bindings: Vec<Binding>,
    /// What was checked to run in place.
    pub(super) in_place: Checked,
    /// Bytes of the texts of those that were refused.
    reasons: usize,
    /// Memory that the source may take.
    pub(crate) budget: Budget,
}

/// What an index stands for.
#[derive(Debug)]
pub(super) enum Binding {
    /// Nothing yet.
    Nothing,
    /// Code that can run, and what keeps it in its place.
    Linked(Callable, Arc<Linked>),
    /// The same where calls by index are not allowed: only frames that bring the code again call it.
    Once(Callable, Arc<Linked>),
    /// Code that the store does not hold, or no longer, and its name.
    Missing(CodeId, Box<str>),
    /// Code that was refused: whatever calls it by its index is refused for the same reason. Without words where the table
    /// keeps too many already.
    Refused(Refusal),
}

impl CodeTable {
    /// A table in which nothing is bound.
    pub fn new() -> Self {
        Self::default()
    }

    /// One for a source that may take `budget`.
    pub(crate) fn with_budget(budget: Budget) -> Self {
        CodeTable { budget, ..Self::default() }
    }

    /// Drops what is bound to `id`, so that its next call asks for the code again.
    pub(crate) fn forget(&mut self, id: &CodeId) {
        for binding in &mut self.bindings {
            if let Binding::Linked(_, linked) | Binding::Once(_, linked) = binding
                && linked.id() == *id
            {
                *binding = Binding::Missing(*id, linked.name().into());
            }
        }
        self.in_place.forget(id);
    }

    /// Refuses every index that misses the code `id`.
    pub(crate) fn withhold(&mut self, id: &CodeId, refusal: &Refusal) {
        for index in 0..self.bindings.len() {
            if matches!(&self.bindings[index], Binding::Missing(missing, _) if missing == id) {
                self.refuse(index as u16, refusal);
            }
        }
    }

    pub(super) fn fill(&mut self, id: &CodeId, with: impl Fn() -> Binding) {
        for binding in &mut self.bindings {
            if matches!(binding, Binding::Missing(missing, _) if missing == id) {
                *binding = with();
            }
        }
    }

    /// Refuses what calls `index` for this reason.
    pub(crate) fn refuse(&mut self, index: u16, refusal: &Refusal) {
        // What was there goes first, and its words with it.
        self.bind(index, Binding::Nothing);
        let mut kept = Refusal { cause: refusal.cause, text: String::new() };
        if self.reasons + refusal.text.len() <= REASONS {
            kept.text.clone_from(&refusal.text);
        }
        self.reasons += kept.text.len();
        self.bindings[usize::from(index)] = Binding::Refused(kept);
    }

    pub(super) fn bind(&mut self, index: u16, binding: Binding) {
        let index = usize::from(index);
        if self.bindings.len() <= index {
            self.bindings.resize_with(index + 1, || Binding::Nothing);
        }
        if let Binding::Refused(old) = std::mem::replace(&mut self.bindings[index], binding) {
            self.reasons -= old.text.len();
        }
    }

    /// The code bound to `index`, also if only the frame that brings it may call it.
    #[inline]
    pub(crate) fn bound(&self, index: u16) -> Option<(Callable, &Arc<Linked>)> {
        match self.bindings.get(usize::from(index)) {
            Some(Binding::Linked(callable, linked) | Binding::Once(callable, linked)) => {
                Some((*callable, linked))
            }
            _ => None,
        }
    }

    /// The code bound to `index`, if it can run.
    #[inline(always)]
    pub(crate) fn callable(&self, index: u16) -> Option<Callable> {
        match self.bindings.get(usize::from(index)) {
            Some(Binding::Linked(callable, _)) => Some(*callable),
            _ => None,
        }
    }
}

/// The refusal of a call whose code was refused before.
pub(super) fn again(refusal: &Refusal) -> Refusal {
    if refusal.text.is_empty() {
        let text = format_args!(
            "its code was refused before ({}), and so often that the words are gone",
            refusal.cause
        );
        return Refusal::new(refusal.cause, text);
    }
    refusal.clone()
}

/// What is needed to call code, out of the table that holds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callable {
    pub(super) main: Main,
    /// Where its calls are counted: as long there as the code is.
    pub(super) usage: NonNull<Usage>,
    /// Alignment in bytes that it needs for its payload; at least that of a word.
    pub(crate) align: usize,
}

impl Callable {
    pub(super) fn of(linked: &Linked) -> Self {
        Callable {
            main: linked.main(),
            usage: NonNull::from(linked.usage()),
            align: 1 << linked.payload_align_log2().max(INLINE_ALIGN_LOG2),
        }
    }
}

/// The code that a frame names, in memory that nobody else writes.
pub(crate) struct Named<'a> {
    pub(crate) id: CodeId,
    pub(crate) epoch: u64,
    pub(crate) name: &'a [u8],
    /// The whole image; empty if only the id came.
    pub(crate) image: &'a [u8],
    /// Who brings it.
    pub(crate) origin: &'a dyn fmt::Display,
}

/// Whether the code bound to an index can run now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ready {
    Yes,
    /// The source must send the code first.
    Needs(CodeId),
    /// Other code must go first ([`Executor::make_room`](super::Executor::make_room)).
    Crowded(Need),
}

/// Why a frame's code could not be bound.
pub(super) enum Unbound {
    /// It is refused.
    Refused(Refusal),
    /// It needs so much room, and is refused if there is none to be made.
    NoRoom(Refusal, Need),
}

impl From<Refusal> for Unbound {
    fn from(refusal: Refusal) -> Self {
        Unbound::Refused(refusal)
    }
}

impl From<Unbound> for Refusal {
    fn from(unbound: Unbound) -> Self {
        let (Unbound::Refused(refusal) | Unbound::NoRoom(refusal, _)) = unbound;
        refusal
    }
}

#[cfg(test)]
mod tests {
    use farjump_transports::meet::RefusalCause;

    use super::*;

    #[test]
    fn a_table_of_refused_code_keeps_few_words_and_every_cause() {
        let mut table = CodeTable::new();
        let refusal = Refusal::new(RefusalCause::Policy, "x".repeat(1000));
        let texts = |table: &CodeTable| -> usize {
            let text = |binding: &Binding| match binding {
                Binding::Refused(refusal) => refusal.text.len(),
                other => panic!("{other:?}"),
            };
            table.bindings.iter().map(text).sum()
        };
        for _ in 0..3 {
            for index in 0..=u16::MAX {
                table.refuse(index, &refusal);
            }
            assert_eq!(table.bindings.len(), 1 << 16);
            // As `docs/security.md` says.
            assert!(table.bindings.capacity() * size_of::<Binding>() <= 6 << 20);
            assert!(texts(&table) <= REASONS && texts(&table) > REASONS - 2000, "{}", texts(&table));
            assert_eq!(texts(&table), table.reasons);
        }
        let Binding::Refused(last) = &table.bindings[usize::from(u16::MAX)] else { panic!("it is refused") };
        let last = again(last);
        assert_eq!(last.cause, RefusalCause::Policy);
        assert!(last.text.contains("refused before (policy)"), "{last}");
        // What is bound anew makes room for other words.
        for index in 0..=u16::MAX {
            table.bind(index, Binding::Nothing);
        }
        assert_eq!(table.reasons, 0);
    }
}
