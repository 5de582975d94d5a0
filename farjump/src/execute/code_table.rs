//! What a source's code indices stand for.

use std::sync::Arc;

use farjump_core::frame::INLINE_ALIGN_LOG2;
use farjump_core::image::CodeId;
use farjump_loader::Linked;

use super::call::Main;
use crate::refusal::Refusal;

/// The code that one source has bound to indices.
#[derive(Debug, Default)]
pub struct CodeTable {
    pub(super) bindings: Vec<Binding>,
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
    /// Code that was refused: whatever calls it by its index is refused for the same reason.
    Refused(Refusal),
}

impl CodeTable {
    /// A table in which nothing is bound.
    pub fn new() -> Self {
        Self::default()
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
    }

    /// Refuses every index that misses the code `id`.
    pub(crate) fn withhold(&mut self, id: &CodeId, refusal: &Refusal) {
        self.fill(id, || Binding::Refused(refusal.clone()));
    }

    pub(super) fn fill(&mut self, id: &CodeId, with: impl Fn() -> Binding) {
        for binding in &mut self.bindings {
            if matches!(binding, Binding::Missing(missing, _) if missing == id) {
                *binding = with();
            }
        }
    }

    pub(super) fn bind(&mut self, index: u16, binding: Binding) {
        let index = usize::from(index);
        if self.bindings.len() <= index {
            self.bindings.resize_with(index + 1, || Binding::Nothing);
        }
        self.bindings[index] = binding;
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

/// What is needed to call code, out of the table that holds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callable {
    pub(super) main: Main,
    /// Alignment in bytes that it needs for its payload; at least that of a word.
    pub(crate) align: usize,
}

impl Callable {
    pub(super) fn of(linked: &Linked) -> Self {
        Callable { main: linked.main(), align: 1 << linked.payload_align_log2().max(INLINE_ALIGN_LOG2) }
    }
}

/// The code that a frame names, in memory that nobody else writes.
#[derive(Debug)]
pub(crate) struct Named<'a> {
    pub(crate) id: CodeId,
    pub(crate) epoch: u64,
    pub(crate) name: &'a [u8],
    /// The whole image; empty if only the id came.
    pub(crate) image: &'a [u8],
}

/// Whether the code bound to an index can run now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ready {
    Yes,
    /// The source must send the code first.
    Needs(CodeId),
}
