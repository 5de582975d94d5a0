//! A target's policy: the code that may come in, the limits of sizes, and the memory that one source may take.
//!
//! The target consults it when it binds code, when a frame takes the general path, and when it takes memory. None of it
//! lies on the path of a call of one line.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use farjump_control::{Limits, MissingRights, RefusalCause, Rights};
use farjump_core::code::CodeView;
use farjump_core::frame::{HEADER_LEN, INLINE_PAYLOAD, LINE};
use farjump_core::image::{CodeId, FamilyId, HEADER_LEN as IMAGE_HEADER_LEN, ImageView};
use farjump_loader::{LinkedImage, Manifest};

use crate::mode::{Allowed, Mode};
use crate::{Error, Limited, Refusal, ServeError};

/// The frames that an executor accepts.
#[derive(Clone, Default, Debug)]
pub(crate) struct Policy {
    /// The allow-list; all code may come in if `None`.
    codes: Option<HashSet<CodeId>>,
    /// Families whose code may come in, with `true` if their code ids are in `codes` already.
    families: HashMap<FamilyId, bool>,
    pub(crate) limits: Limits,
}

impl Policy {
    /// Allows code with one of these ids. From the first call on, only ids given in this and other calls are
    /// allowed.
    pub(crate) fn allow(&mut self, ids: impl IntoIterator<Item = CodeId>) {
        self.codes.get_or_insert_default().extend(ids);
    }

    /// Likewise allows the code of these families.
    pub(crate) fn allow_families(&mut self, ids: impl IntoIterator<Item = FamilyId>) {
        self.codes.get_or_insert_default();
        self.families.extend(ids.into_iter().map(|id| (id, false)));
    }

    /// # Errors
    /// [`crate::ServeError::Limit`] for a limit that admits nothing; [`crate::ServeError::InPlaceOfAllowed`] for an
    /// allow-list that the allowed modes could bypass.
    pub(crate) fn check(&self, modes: Allowed) -> Result<(), Error> {
        if self.codes.is_some() && modes.has(Mode::InPlace) {
            return Err(Error::Serve(ServeError::InPlaceOfAllowed));
        }
        at_least(Limited::Payload, self.limits.payload, 1)?;
        at_least(Limited::Image, self.limits.image, IMAGE_HEADER_LEN + 1)
    }

    /// Checks whether the code `id` may come in.
    #[inline]
    pub(crate) fn code(&self, id: &CodeId) -> Result<(), Refusal> {
        match &self.codes {
            Some(codes) => listed(codes, id),
            None => Ok(()),
        }
    }

    /// Checks whether code that [`Policy::code`] refuses may come in as one of an allowed family. `image` is its
    /// image, if that is here; `refusal` the refusal without a family.
    #[cold]
    pub(crate) fn by_family(
        &mut self,
        id: CodeId,
        family: Option<FamilyId>,
        image: Option<&[u8]>,
        refusal: Refusal,
    ) -> Result<ByFamily, Refusal> {
        if let Some(family) = family.filter(|family| self.families.contains_key(family)) {
            if self.families.get(&family) == Some(&false) {
                return Ok(ByFamily::NeedsManifest(family));
            }
            let text = format!("code {id} is not in the manifest of its family {family}, which may come in");
            return Err(Refusal::new(RefusalCause::Policy, text));
        }
        if self.families.is_empty() || family.is_some() {
            return Err(refusal);
        }
        // The only code of its library: its manifest follows from the image.
        let Some(image) = image else { return Ok(ByFamily::NeedsImage) };
        let kind = CodeView::new_checked(image).map_err(|_| refusal.clone())?.kind();
        // Code for one CPU is in none.
        let Ok(manifest) = Manifest::new([(kind, id)]) else { return Err(refusal) };
        if !self.families.contains_key(&manifest.id()) {
            return Err(refusal);
        }
        self.learn(&manifest);
        Ok(ByFamily::Allowed)
    }

    /// Allows the code of a manifest whose family may come in.
    pub(crate) fn learn(&mut self, manifest: &Manifest) {
        if let Some(known) = self.families.get_mut(&manifest.id()) {
            *known = true;
            self.codes.get_or_insert_default().extend(manifest.images().iter().map(|(_, id)| *id));
        }
    }

    /// Checks whether an image of `len` bytes may come in.
    #[inline]
    pub(crate) fn image(&self, len: usize) -> Result<(), Refusal> {
        within(
            "image",
            len,
            self.limits.image,
            "build it smaller, or have the target take more (TargetBuilder::max_image)",
        )
    }

    /// Checks whether a payload of `len` bytes may come in.
    #[inline]
    pub(crate) fn payload(&self, len: usize) -> Result<(), Refusal> {
        within(
            "payload",
            len,
            self.limits.payload,
            "send less at a time, or have the target take more (TargetBuilder::max_payload)",
        )
    }

    /// Longest frame whose payload cannot be over the limit, whatever its header says; `None` if no payload
    /// is. The payloads of longer frames need a check.
    pub(crate) fn unchecked_frame_len(&self) -> Option<usize> {
        (self.limits.payload != Limits::NONE).then(|| {
            let most = self.limits.payload.saturating_add(HEADER_LEN);
            most - most % LINE
        })
    }

    /// The limits announced to a source that may take `memory` bytes besides its mailbox. A source does not
    /// send an image that can never fit.
    pub(crate) fn announced(&self, memory: usize) -> Limits {
        let Limits { payload, image, .. } = self.limits;
        Limits { payload, image: image.min(memory), ..Limits::default() }
    }
}

/// The outcome of a search for code in the families that may come in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ByFamily {
    /// The code may come in.
    Allowed,
    /// The manifest of this family decides, which is not here.
    NeedsManifest(FamilyId),
    /// The image decides.
    NeedsImage,
}

/// Checks whether a source with `rights` may do an operation that requires `needed`. The target checks each frame that
/// brings or misses code, and the source checks before it sends one: the words are the same. `of_key` returns whether
/// they are the rights of a key.
pub(crate) fn may(rights: Rights, needed: Rights, of_key: impl FnOnce() -> bool) -> Result<(), Refusal> {
    match rights.lacks(needed) {
        None => Ok(()),
        Some(what) => Err(Refusal::new(RefusalCause::Rights, MissingRights { of_key: of_key(), ..what })),
    }
}

/// Returns whether calls whose payloads fit a line need no check of their length.
pub(crate) fn takes_lines(limits: &Limits) -> bool {
    limits.payload >= INLINE_PAYLOAD
}

/// Checks whether the code `id` is in an allow-list.
#[cold]
fn listed(codes: &HashSet<CodeId>, id: &CodeId) -> Result<(), Refusal> {
    if codes.contains(id) {
        return Ok(());
    }
    Err(Refusal::new(
        RefusalCause::Policy,
        format_args!(
            "code {id} is not among the {} that may come in: have the target allow it (TargetBuilder::allow_code)",
            codes.len()
        ),
    ))
}

#[inline]
fn within(what: &str, len: usize, max: usize, mend: &str) -> Result<(), Refusal> {
    if len <= max { Ok(()) } else { Err(over(what, len, max, mend)) }
}

#[cold]
fn over(what: &str, len: usize, max: usize, mend: &str) -> Refusal {
    Refusal::new(
        RefusalCause::TooLarge,
        format_args!("its {what} has {len} bytes, and the target takes {max} at most: {mend}"),
    )
}

/// # Errors
/// [`crate::ServeError::Limit`] if `limit` is less than `least`.
pub(crate) fn at_least(limited: Limited, limit: usize, least: usize) -> Result<(), Error> {
    if limit >= least { Ok(()) } else { Err(Error::Serve(ServeError::Limit { limited, limit, least })) }
}

/// Memory that a source may take of its target, which several parts of the target charge: the target's own, and its store.
/// A clone is the same memory.
#[derive(Clone, Debug)]
pub struct SourceMemory {
    limit: usize,
    used: Arc<AtomicUsize>,
}

impl SourceMemory {
    /// Memory of `limit` bytes; `usize::MAX` is no limit.
    pub fn of(limit: usize) -> SourceMemory {
        SourceMemory { limit, used: Arc::default() }
    }

    fn is_limited(&self) -> bool {
        self.limit != usize::MAX
    }

    fn left(&self) -> usize {
        self.limit.saturating_sub(self.used.load(Ordering::Relaxed))
    }

    /// Takes `bytes`, to be returned with [`SourceMemory::give_back`]. Returns `false` if that is more than is left: nothing
    /// was taken then. Without a limit nothing is counted.
    pub fn try_take(&self, bytes: usize) -> bool {
        let within = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.limit);
        !self.is_limited() || self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
    }

    /// Returns taken bytes.
    pub fn give_back(&self, bytes: usize) {
        if self.is_limited() {
            let less = |used: usize| Some(used.saturating_sub(bytes));
            // It always returns `Some`.
            let _ = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }
}

/// Without a limit.
impl Default for SourceMemory {
    fn default() -> Self {
        SourceMemory::of(usize::MAX)
    }
}

/// Memory that one source may take of its target, in bytes. It counts the source's mailbox, the code that it brought
/// while that code is placed, replies that wait for credit or are gathered, and memory that the target's store keeps
/// for it.
#[derive(Debug)]
pub(crate) struct Budget {
    memory: SourceMemory,
    /// Charged code and its price.
    code: Vec<(Weak<LinkedImage>, usize)>,
}

impl Budget {
    /// A budget of `limit` bytes; `usize::MAX` is no limit, and then nothing is counted.
    pub(crate) fn new(limit: usize) -> Budget {
        Budget { memory: SourceMemory::of(limit), code: Vec::new() }
    }

    /// Returns whether there is a limit.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        self.memory.is_limited()
    }

    /// The same memory, for charges to the source elsewhere.
    pub(crate) fn memory(&self) -> SourceMemory {
        self.memory.clone()
    }

    /// Takes `bytes` for `what`, to be returned with [`Budget::give_back`].
    ///
    /// # Errors
    /// A refusal for [`RefusalCause::OutOfMemory`] if that is more than is left. Nothing was taken then.
    pub(crate) fn take(&mut self, what: &str, bytes: usize) -> Result<(), Refusal> {
        if self.try_take(bytes) {
            return Ok(());
        }
        Err(Refusal::new(
            RefusalCause::OutOfMemory,
            format_args!(
                "{what} takes {bytes} bytes, and its source has {} left of the {} that it may take: have the target \
                 allow more (TargetBuilder::max_source_memory), or have it drop code",
                self.left(),
                self.memory.limit
            ),
        ))
    }

    /// As [`Budget::take`], for callers that word the refusal themselves. Returns `false` if refused.
    pub(crate) fn try_take(&mut self, bytes: usize) -> bool {
        if !self.is_limited() {
            return true;
        }
        if bytes > self.left() {
            self.sweep();
        }
        self.memory.try_take(bytes)
    }

    /// Bytes that are taken now, and the limit; `None` if there is none.
    pub(crate) fn taken(&mut self) -> Option<(usize, usize)> {
        self.sweep();
        self.is_limited().then(|| (self.memory.used.load(Ordering::Relaxed), self.memory.limit))
    }

    /// Bytes that may still be taken.
    pub(crate) fn left(&self) -> usize {
        self.memory.left()
    }

    /// Returns taken bytes.
    pub(crate) fn give_back(&mut self, bytes: usize) {
        self.memory.give_back(bytes);
    }

    /// Price of `image` while it is stored: the copy that is kept, and the space of its two spans. 0 for
    /// bytes that are no image, which are never stored.
    pub(crate) fn price(&self, image: &[u8]) -> usize {
        if !self.is_limited() {
            return 0;
        }
        ImageView::new_checked(image).map_or(0, |view| image.len() + view.span1().len() + view.span2_len())
    }

    /// Returns the `bytes` taken for `code` once it is gone.
    pub(crate) fn holds(&mut self, code: Weak<LinkedImage>, bytes: usize) {
        if bytes == 0 {
            return;
        }
        if self.code.len() == self.code.capacity() {
            // Sweep before the list grows: it is at most about twice as long as the number of images that the
            // store may hold.
            self.sweep();
        }
        self.code.push((code, bytes));
    }

    /// Returns the price of code that is gone: evicted or forgotten.
    fn sweep(&mut self) {
        let memory = &self.memory;
        self.code.retain(|(code, bytes)| {
            let held = code.strong_count() != 0;
            if !held {
                memory.give_back(*bytes);
            }
            held
        });
    }
}

impl Default for Budget {
    fn default() -> Self {
        Budget::new(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_spent_to_the_last_byte_and_no_further() {
        let mut budget = Budget::new(100);
        budget.take("a thing", 60).unwrap();
        budget.take("a thing", 40).unwrap();
        let refusal = budget.take("a thing", 1).unwrap_err();
        assert_eq!(refusal.cause, RefusalCause::OutOfMemory);
        assert!(
            refusal.text.contains("a thing takes 1 bytes, and its source has 0 left of the 100"),
            "{refusal}"
        );
        budget.give_back(40);
        assert!(budget.take("a thing", 41).is_err(), "a refusal takes nothing, and gives nothing");
        budget.take("a thing", 40).unwrap();
        assert!(budget.take("a thing", usize::MAX).is_err());
    }

    #[test]
    fn a_budget_keeps_no_entries_for_code_that_no_longer_exists() {
        let mut budget = Budget::new(usize::MAX - 1);
        for _ in 0..100_000 {
            budget.take("its code", 100).unwrap();
            budget.holds(Weak::new(), 100);
        }
        assert!(budget.code.capacity() <= 64, "{} places", budget.code.capacity());
        assert_eq!(budget.taken(), Some((0, usize::MAX - 1)));
    }

    #[test]
    fn a_budget_without_a_limit_counts_nothing() {
        let mut budget = Budget::default();
        for _ in 0..3 {
            budget.take("all there is", usize::MAX).unwrap();
        }
        assert_eq!((budget.memory.used.load(Ordering::Relaxed), budget.price(b"whatever")), (0, 0));
    }

    #[test]
    fn unchecked_frames_have_no_space_for_a_payload_over_the_limit() {
        for max in 1..1000 {
            let limits = Limits { payload: max, ..Limits::default() };
            let policy = Policy { limits, ..Policy::default() };
            let frame = policy.unchecked_frame_len().unwrap();
            assert!(frame.saturating_sub(HEADER_LEN) <= max && frame.is_multiple_of(LINE), "{max}");
            assert!(frame + LINE - HEADER_LEN > max, "{max}: longer ones could be over it");
        }
        assert_eq!(Policy::default().unchecked_frame_len(), None);
    }

    #[test]
    fn announced_limits_are_the_enforced_ones_of_payload_and_image() {
        let mut policy = Policy::default();
        assert_eq!(policy.announced(Limits::NONE), Limits::default());
        assert!(takes_lines(&policy.limits));
        policy.limits = Limits { image: 500, payload: 40, sources: 1, ..Limits::default() };
        let announced = Limits { image: 500, payload: 40, ..Limits::default() };
        assert_eq!(policy.announced(Limits::NONE), announced);
        assert_eq!(policy.announced(499).image, 499, "what it may take is less");
        assert_eq!(Policy::default().announced(9), Limits { image: 9, ..Limits::default() });
        assert!(takes_lines(&policy.limits));
        policy.limits.payload = 39;
        assert!(!takes_lines(&policy.limits));
    }

    #[test]
    fn a_limit_that_lets_nothing_in_is_an_error_that_names_it() {
        let text = |policy: &Policy| policy.check(Allowed::default()).unwrap_err().to_string();
        let mut policy = Policy::default();
        policy.check(Allowed::default()).unwrap();
        policy.limits.image = 32;
        assert!(text(&policy).contains("32 bytes on the image"), "{}", text(&policy));
        policy.limits.payload = 0;
        assert!(text(&policy).contains("0 bytes on the payload"), "{}", text(&policy));
        policy.limits.payload = 1;
        policy.limits.image = 33;
        policy.check(Allowed::default()).unwrap();
    }

    #[test]
    fn an_allow_list_together_with_in_place_mode_is_an_error() {
        let mut policy = Policy::default();
        let everything = Allowed::only(&Mode::ALL);
        policy.check(everything).unwrap();
        policy.allow([CodeId([1; 16])]);
        let text = policy.check(everything).unwrap_err().to_string();
        assert!(text.contains("in-place") && text.contains("TargetBuilder::allow_code"), "{text}");
        policy.check(Allowed::only(&Mode::DEFAULT)).unwrap();
    }
}
