//! The steps of errands that ran, their principals, and the first fault.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use farjump::{Principal, Rights, hold_reply, principal};

/// The host's word for a principal: the tag that its errands carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tag(pub(super) u32);

/// The tag of the first target at its destination.
pub(super) const FORWARDER: Tag = Tag(1 << 20);

/// The operator's grant to a link: its rights, and the name of its key.
pub(super) type Given = (Rights, Option<String>);

/// The number of the earliest release after which a reply may leave, at the target and at its destination.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Held {
    here: Option<u64>,
    there: Option<u64>,
}

#[derive(Default, Debug)]
pub(super) struct Ledger {
    /// The tag of the next link.
    next_tag: u32,
    /// Errands that have begun at the target.
    pub(super) begun: BTreeMap<u32, u32>,
    /// Errands that must not run there any more.
    over: BTreeSet<u32>,
    /// Tags whose errands must not run there any more, whether they have begun or not.
    revoked: BTreeSet<u32>,
    /// The grants to the links of tags. The host's own calls have no link, and all rights.
    given: BTreeMap<u32, Given>,
    held: BTreeMap<u32, Held>,
    /// Releases so far at the target, and at its destination.
    pub(super) releases: u64,
    pub(super) releases_there: u64,
    /// Steps that errands did.
    pub(super) done: u64,
    /// The first fault. A function of the target cannot panic.
    fault: Option<String>,
}

thread_local! {
    static LEDGER: RefCell<Ledger> = RefCell::default();
}

/// Calls `act` with the ledger of this thread's conversation.
pub(super) fn with<T>(act: impl FnOnce(&mut Ledger) -> T) -> T {
    LEDGER.with_borrow_mut(act)
}

impl Ledger {
    /// Returns the tag for a new link.
    pub(super) fn tag(&mut self) -> Tag {
        self.next_tag += 1;
        Tag(self.next_tag)
    }

    /// The tag of the last link.
    pub(super) fn last_tag(&self) -> u32 {
        self.next_tag
    }

    fn note(&mut self, fault: impl FnOnce() -> String) {
        self.fault.get_or_insert_with(fault);
    }

    /// Records that errands of this tag that have begun, and for which `ends` is true, must not run any more.
    pub(super) fn end(&mut self, tag: u32, mut ends: impl FnMut(u32) -> bool) {
        let begun = self.begun.iter().filter(|(_, of)| **of == tag).map(|(errand, _)| *errand);
        self.over.extend(begun.filter(|errand| ends(*errand)));
    }

    /// Records that nothing of these tags must run any more.
    pub(super) fn revoke(&mut self, tags: &[u32]) {
        self.revoked.extend(tags);
    }

    /// Records the grant to the link of the last tag.
    pub(super) fn give(&mut self, given: Given) {
        self.given.insert(self.next_tag, given);
    }

    /// Records the reply to an errand.
    pub(super) fn replied(&mut self, errand: u32) {
        let Some(held) = self.held.get(&errand).copied() else { return };
        let (here, there) = (self.releases, self.releases_there);
        if held.here.is_some_and(|release| here < release)
            || held.there.is_some_and(|release| there < release)
        {
            self.note(|| {
                format!("the reply to errand {errand} left after {here} and {there} releases, and waits for {held:?}")
            });
        }
    }

    /// Fails if there was a fault.
    pub(super) fn check(&self) {
        if let Some(fault) = &self.fault {
            panic!("{fault}");
        }
    }
}

fn given(principal: &Principal) -> Given {
    (principal.rights(), principal.key().map(str::to_owned))
}

/// The function of the target: records the principal for which an errand does a step.
pub(super) extern "C" fn here(tag: u32, errand: u32, step: u32) -> u32 {
    let principal = principal();
    let word = principal.as_ref().and_then(|principal| principal.word::<Tag>().copied());
    let has = principal.map(|principal| given(&principal));
    let holds = step == u32::from(b'h') && hold_reply();
    with(|ledger| {
        ledger.done += 1;
        ledger.begun.insert(errand, tag);
        if word != Some(Tag(tag)) {
            ledger.note(|| format!("errand {errand} of {tag} runs for {word:?}"));
        }
        let may = ledger.given.get(&tag).cloned().unwrap_or((Rights::all(), None));
        if has.as_ref() != Some(&may) {
            ledger.note(|| format!("errand {errand} of {tag} was given {may:?} and runs with {has:?}"));
        }
        if ledger.over.contains(&errand) || ledger.revoked.contains(&tag) {
            ledger.note(|| {
                format!(
                    "errand {errand} of {tag} runs, though its right was withdrawn or its source has left"
                )
            });
        }
        if holds {
            let release = ledger.releases + 1;
            ledger.held.entry(errand).or_default().here = Some(release);
        }
    });
    1
}

/// The function of the destination, where all errands are the first target's.
pub(super) extern "C" fn there(tag: u32, errand: u32, step: u32) -> u32 {
    let word = principal().and_then(|principal| principal.word::<Tag>().copied());
    let holds = step == u32::from(b'h') && hold_reply();
    with(|ledger| {
        ledger.done += 1;
        if word != Some(FORWARDER) {
            ledger.note(|| format!("errand {errand} of {tag} runs at the destination for {word:?}"));
        }
        if holds {
            let release = ledger.releases_there + 1;
            ledger.held.entry(errand).or_default().there = Some(release);
        }
    });
    1
}
