//! Code table: one source's code indexes and the code bound to them.

use std::ptr::NonNull;
use std::sync::Arc;

use farjump_control::RefusalCause;
use farjump_core::frame::INLINE_ALIGN_LOG2;
use farjump_core::image::{CodeId, FamilyId};
use farjump_loader::{Copied, Domain, LinkedImage, Need, Usage};

use super::in_place::Checked;
use crate::executor::enter::Main;
use crate::policy::Budget;
use crate::refusal::Refusal;

/// Most bytes of text that a table keeps: reasons of refusals, and names of missing code. A source whose code
/// is refused or dropped without end costs no more than this.
const WORDS: usize = 64 << 10;
/// Number of indexes.
const INDICES: usize = 1 << 16;

/// The code that one source has bound to indexes.
#[derive(Debug, Default)]
pub struct CodeTable {
    pub(in crate::executor) bindings: Vec<Binding>,
    /// Code checked to run in place.
    pub(in crate::executor) in_place: Checked,
    /// Bytes of the text that [`Binding::words`] counts.
    words: usize,
    /// The source's budget.
    pub(crate) budget: Budget,
    /// The domain of its code.
    domain: Domain,
}

/// Binding of an index.
#[derive(Debug)]
pub(in crate::executor) enum Binding {
    /// Nothing yet.
    Nothing,
    /// Code that can run, and the reference that keeps it placed.
    Linked(Callable, Arc<LinkedImage>),
    /// The same if calls by index are not allowed: only frames that bring the code again call it.
    Once(Callable, Arc<LinkedImage>),
    /// Code that is not in the store, and its name. The name is empty if the table keeps too much text already:
    /// messages then use the code id.
    Missing(CodeId, Box<str>),
    /// Code that was refused: a call by its index is refused for the same reason. The text is empty if the table keeps
    /// too much already.
    Refused(Refusal),
}

impl Binding {
    /// Bytes of its text.
    fn words(&self) -> usize {
        match self {
            Binding::Missing(_, name) => name.len(),
            Binding::Refused(refusal) => refusal.text.len(),
            Binding::Nothing | Binding::Linked(..) | Binding::Once(..) => 0,
        }
    }
}

impl CodeTable {
    /// A table without bindings.
    pub fn new() -> Self {
        Self::default()
    }

    /// A table for a source of this domain, with this budget.
    pub(crate) fn for_source(domain: Domain, budget: Budget) -> Self {
        CodeTable { budget, domain, ..Self::default() }
    }

    /// The domain of its code.
    pub(crate) fn domain(&self) -> Domain {
        self.domain
    }

    /// Drops the bindings to `id`, so that the next call requests the code again.
    pub(crate) fn drop_code(&mut self, id: &CodeId) {
        for index in 0..self.bindings.len() {
            if let Binding::Linked(_, linked) | Binding::Once(_, linked) = &self.bindings[index]
                && linked.id() == *id
            {
                let linked = Arc::clone(linked);
                self.miss(index as u16, *id, linked.name());
            }
        }
        self.in_place.drop_code(id);
    }

    /// Replaces the bindings to older code with the id of `linked`.
    #[cfg(feature = "bitcode")]
    pub(crate) fn exchange(&mut self, linked: &Arc<LinkedImage>) {
        let callable = Callable::of(linked);
        for binding in &mut self.bindings {
            match binding {
                Binding::Linked(old, before) | Binding::Once(old, before) if before.id() == linked.id() => {
                    (*old, *before) = (callable, Arc::clone(linked));
                }
                _ => {}
            }
        }
    }

    /// Notes that the code bound to `index` is missing.
    pub(in crate::executor) fn miss(&mut self, index: u16, id: CodeId, name: &str) {
        // The old binding goes first, and its text with it.
        self.bind(index, Binding::Nothing);
        let name = if self.words + name.len() <= WORDS { name } else { "" };
        self.bind(index, Binding::Missing(id, name.into()));
    }

    /// Refuses every index that misses the code `id`.
    pub(crate) fn withhold(&mut self, id: &CodeId, refusal: &Refusal) {
        for index in 0..self.bindings.len() {
            if matches!(&self.bindings[index], Binding::Missing(missing, _) if missing == id) {
                self.refuse(index as u16, refusal);
            }
        }
    }

    pub(in crate::executor) fn fill(&mut self, id: &CodeId, with: impl Fn() -> Binding) {
        for index in 0..self.bindings.len() {
            if matches!(&self.bindings[index], Binding::Missing(missing, _) if missing == id) {
                self.bind(index as u16, with());
            }
        }
    }

    /// Refuses calls of `index` for this reason.
    pub(crate) fn refuse(&mut self, index: u16, refusal: &Refusal) {
        // The old binding goes first, and its text with it.
        self.bind(index, Binding::Nothing);
        let mut kept = Refusal { cause: refusal.cause, text: String::new() };
        if self.words + refusal.text.len() <= WORDS {
            kept.text.clone_from(&refusal.text);
        }
        self.bind(index, Binding::Refused(kept));
    }

    /// Returns whether the code bound to `index` was refused.
    pub(crate) fn is_refused(&self, index: u16) -> bool {
        matches!(self.bindings.get(usize::from(index)), Some(Binding::Refused(_)))
    }

    /// Allocates memory for the next index.
    pub(in crate::executor) fn reserve_next(&mut self) {
        self.reserve(self.bindings.len().min(INDICES - 1));
    }

    /// Allocates memory for the bindings up to `index`.
    #[inline]
    fn reserve(&mut self, index: usize) {
        if self.bindings.capacity() <= index {
            // Doubled, and never more than the number of indexes.
            let space = (index + 1).next_power_of_two().min(INDICES);
            self.bindings.reserve_exact(space - self.bindings.len());
        }
    }

    pub(in crate::executor) fn bind(&mut self, index: u16, binding: Binding) {
        let index = usize::from(index);
        self.words += binding.words();
        if self.bindings.len() <= index {
            self.reserve(index);
            if self.bindings.len() == index {
                return self.bindings.push(binding);
            }
            self.bindings.resize_with(index + 1, || Binding::Nothing);
        }
        let before = std::mem::replace(&mut self.bindings[index], binding);
        self.words -= before.words();
    }

    /// The code bound to `index`, also if only the frame that brings it may call it.
    #[inline]
    pub(crate) fn bound(&self, index: u16) -> Option<(Callable, &Arc<LinkedImage>)> {
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
        self.callable_ref(index).copied()
    }

    /// As [`CodeTable::callable`], without a copy.
    #[inline(always)]
    pub(crate) fn callable_ref(&self, index: u16) -> Option<&Callable> {
        match self.bindings.get(usize::from(index)) {
            Some(Binding::Linked(callable, _)) => Some(callable),
            _ => None,
        }
    }
}

/// The refusal of a call whose code was refused before.
pub(in crate::executor) fn again(refusal: &Refusal) -> Refusal {
    if refusal.text.is_empty() {
        let cause = refusal.cause;
        return Refusal::new(
            cause,
            format_args!("its code was refused before ({cause}), and so often that the words are gone"),
        );
    }
    refusal.clone()
}

/// Data needed to call code, copied from the table that holds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callable {
    pub(in crate::executor) main: Main,
    /// Counters of its calls, valid as long as the code.
    pub(crate) usage: NonNull<Usage>,
    /// Payload alignment that it needs, in bytes; at least that of a word.
    pub(crate) align: usize,
}

impl Callable {
    /// Returns whether a payload at `address` has the alignment that the code needs.
    #[inline(always)]
    pub(crate) fn takes(&self, address: NonNull<u8>) -> bool {
        address.addr().get() & (self.align - 1) == 0
    }

    /// A function of the target's library itself, counted by `usage`, which the caller keeps.
    pub(in crate::executor) fn of_service(main: Main, usage: &Usage) -> Self {
        Callable { main, usage: NonNull::from(usage), align: 1 << INLINE_ALIGN_LOG2 }
    }

    pub(crate) fn of(linked: &LinkedImage) -> Self {
        Callable {
            main: linked.main(),
            usage: NonNull::from(linked.usage()),
            align: 1 << linked.payload_align_log2().max(INLINE_ALIGN_LOG2),
        }
    }
}

/// The code that a frame names, in memory that nothing else writes.
pub(crate) struct Named<'a> {
    pub(crate) id: CodeId,
    pub(crate) epoch: u64,
    /// The family that the frame names.
    pub(crate) family: Option<FamilyId>,
    /// The image, empty if only the id came, and the name. Taken if the image is placed.
    pub(crate) copied: &'a mut Copied,
    /// The program that brings it, in words for users.
    pub(crate) origin: &'a Arc<str>,
    /// True if other code was dropped for an earlier attempt of the same frame ([`Executor::make_space`]).
    ///
    /// [`Executor::make_space`]: crate::executor::Executor::make_space
    pub(crate) space_was_made: bool,
}

/// State of the code bound to an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ready {
    Yes,
    /// The source must send the code first.
    Needs(CodeId),
    /// The compiler is at work on the code. The source need not send it.
    Compiling(CodeId),
    /// The source must send the manifest of this family first.
    NeedsManifest(FamilyId),
    /// Other code must go first ([`Executor::make_space`](crate::executor::Executor::make_space)).
    Crowded(Need),
}

/// Reason why a frame's code could not be bound.
pub(crate) enum Unbound {
    /// The code is refused.
    Refused(Refusal),
    /// The code needs this capacity: other code must go first, and then there is one attempt more.
    NoSpace(Need),
    /// The compiler is at work on it.
    Compiling,
}

impl From<Refusal> for Unbound {
    fn from(refusal: Refusal) -> Self {
        Unbound::Refused(refusal)
    }
}

impl From<Unbound> for Refusal {
    fn from(unbound: Unbound) -> Self {
        match unbound {
            Unbound::Refused(refusal) => refusal,
            // No attempt after the drop of other code returns this.
            Unbound::NoSpace(_) => {
                Refusal::new(RefusalCause::OutOfMemory, "the target has no capacity for its code")
            }
            // No function that links an image returns this.
            Unbound::Compiling => Refusal::new(RefusalCause::CodeMissing, "its code is compiled still"),
        }
    }
}

#[cfg(test)]
mod tests {
    use farjump_core::image::{ImageParts, Machine};
    use farjump_fixtures::allocation::{is_counting, most_at_once};

    use super::*;
    use crate::executor::Supplied;

    /// Most bytes that a table with every index in use takes beside code, as `docs/security.md` states.
    const TABLE: usize = 3 << 20;

    fn words(table: &CodeTable) -> usize {
        table.bindings.iter().map(Binding::words).sum()
    }

    #[test]
    fn a_table_of_refused_code_keeps_few_words_and_every_cause() {
        let mut table = CodeTable::new();
        let refusal = Refusal::new(RefusalCause::Policy, "x".repeat(1000));
        for _ in 0..3 {
            for index in 0..=u16::MAX {
                table.refuse(index, &refusal);
            }
            assert_eq!(table.bindings.len(), INDICES);
            assert!(table.bindings.capacity() * size_of::<Binding>() <= TABLE);
            assert!(words(&table) <= WORDS && words(&table) > WORDS - 2000, "{}", words(&table));
            assert_eq!(words(&table), table.words);
        }
        let Binding::Refused(last) = &table.bindings[usize::from(u16::MAX)] else { panic!("it is refused") };
        let last = again(last);
        assert_eq!(last.cause, RefusalCause::Policy);
        assert!(last.text.contains("refused before (policy)"), "{last}");
        // New bindings free capacity for other text.
        for index in 0..=u16::MAX {
            table.bind(index, Binding::Nothing);
        }
        assert_eq!(table.words, 0);
    }

    #[test]
    fn dropped_code_leaves_few_names_and_supplying_it_restores_every_index() {
        let Some(machine) = Machine::native() else {
            return eprintln!("skipped: no code is placed on this architecture");
        };
        let image = ImageParts::text(machine, &[0xc3; 16]).encode().unwrap();
        let id = farjump_loader::code_id(&image);
        let mut executor = crate::executor::Executor::builder().build().unwrap();
        let (mut table, epoch) = (CodeTable::new(), executor.epoch());
        let (mut copied, origin) = (Copied::default(), Arc::from("a test"));
        for index in 0..=u16::MAX {
            copied.set(&image, &[b'n'; 255]);
            let (copied, origin) = (&mut copied, &origin);
            let mut named = Named { id, epoch, family: None, copied, origin, space_was_made: false };
            assert_eq!(executor.bind(&mut table, index, &mut named), Ok(Ready::Yes));
        }
        let (_, most) = most_at_once(|| table.drop_code(&id));
        assert!(most <= WORDS, "{most} bytes");
        assert!(words(&table) > WORDS - 255 && words(&table) == table.words, "{}", table.words);
        assert_eq!(executor.ready(&table, u16::MAX), Ok(Ready::Needs(id)));
        // When the code comes again it has its name, and every index has the code.
        assert_eq!(executor.supply(&mut table, id, &image, &origin, false), Supplied::Settled);
        assert!((0..=u16::MAX).all(|index| table.callable(index).is_some()));
        assert_eq!(table.words, 0);
    }

    #[test]
    fn code_of_one_domain_is_not_found_linked_or_dropped_in_another() {
        let Some(machine) = Machine::native() else {
            return eprintln!("skipped: no code is placed on this architecture");
        };
        let image = ImageParts::text(machine, &[0xc3; 16]).encode().unwrap();
        let id = farjump_loader::code_id(&image);
        let mut executor = crate::executor::Executor::builder().build().unwrap();
        let (epoch, origin) = (executor.epoch(), Arc::from("a test"));
        let domains = [0, 1].map(Domain::numbered);
        let mut tables = domains.map(|domain| CodeTable::for_source(domain, Budget::default()));
        let mut bind = |table: usize, image: &[u8]| {
            let mut copied = Copied::new(image, b"code");
            let (copied, origin) = (&mut copied, &origin);
            let mut named = Named { id, epoch, family: None, copied, origin, space_was_made: false };
            let ready = executor.bind(&mut tables[table], 0, &mut named);
            (ready, tables[table].bound(0).map(|(_, linked)| Arc::clone(linked)))
        };
        let (ready, first) = bind(0, &image);
        assert_eq!(ready, Ok(Ready::Yes));
        // The id alone finds nothing there, and the image is linked once more.
        let (ready, none) = bind(1, b"");
        assert!(ready == Ok(Ready::Needs(id)) && none.is_none());
        let (ready, second) = bind(1, &image);
        assert_eq!(ready, Ok(Ready::Yes));
        let linked = [first, second].map(Option::unwrap);
        assert!(linked[0].main() as usize != linked[1].main() as usize);
        assert_eq!(executor.stats.images_linked, 2);
        // The same holds for code that functions make.
        let mut made =
            |domain: Domain| executor.find_made(domain.key(id), None, &linked[0], false, false).ok();
        assert!(
            domains
                .map(&mut made)
                .iter()
                .zip(&linked)
                .all(|(made, own)| made.as_ref().is_some_and(|made| Arc::ptr_eq(made, own)))
        );
        assert!(made(Domain::numbered(2)).is_none());
        assert!(executor.drop_code(domains[0].key(id)));
        assert!(executor.image(domains[0].key(id)).is_none() && executor.image(domains[1].key(id)).is_some());
    }

    #[test]
    fn a_table_of_missing_code_keeps_few_names_and_every_id() {
        let mut table = CodeTable::new();
        let name = "n".repeat(765);
        let (_, most) = most_at_once(|| {
            for round in 0..3_u8 {
                for index in 0..=u16::MAX {
                    table.miss(index, CodeId([round; 16]), &name);
                }
                assert!(words(&table) <= WORDS && words(&table) > WORDS - 1000, "{}", words(&table));
                assert_eq!(words(&table), table.words);
            }
        });
        assert!(is_counting());
        // While the table grows it exists twice, the old one being half as long.
        assert!(most <= TABLE + TABLE / 2 + WORDS, "{most} bytes");
        assert!(
            matches!(&table.bindings[65_535], Binding::Missing(CodeId([2, ..]), name) if name.is_empty())
        );
        // Code that came frees capacity for other names; refused code, for other reasons.
        table.fill(&CodeId([2; 16]), || Binding::Nothing);
        assert_eq!((words(&table), table.words), (0, 0));
        table.miss(7, CodeId([3; 16]), "short");
        table.withhold(&CodeId([3; 16]), &Refusal::new(RefusalCause::CodeMissing, "gone"));
        assert_eq!(words(&table), table.words);
        assert!(matches!(&table.bindings[7], Binding::Refused(refusal) if refusal.text.contains("gone")));
    }
}
