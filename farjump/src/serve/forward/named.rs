//! The code that a destination may request.

use std::collections::{HashMap, HashSet};

use farjump_core::image::{CodeId, FamilyId};
use farjump_loader::{CodeKey, Domain, LinkedImage};

use super::Caller;
use crate::link::Image;

/// Identity of a family: its id, and the domain of its sources.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct FamilyKey {
    pub(super) id: FamilyId,
    pub(super) domain: Domain,
}

impl FamilyKey {
    /// The family that a call named.
    pub(super) fn of(id: FamilyId, caller: &Caller) -> FamilyKey {
        FamilyKey { id, domain: caller.principal.domain() }
    }
}

/// The code and families named by calls that were sent over a link. The destination at its other end gets images and
/// manifests of these, and no others. This has no more entries than a link has code indexes.
#[derive(Default)]
pub(super) struct NamedCode {
    /// With the domain of the first call that named it: all domains have the same bytes.
    codes: HashMap<CodeId, CodeKey>,
    families: HashSet<FamilyKey>,
}

impl NamedCode {
    /// Notes a call that was sent: its frame named code, and the family, unless the destination had the code bound.
    #[inline]
    pub(super) fn note(
        &mut self,
        image: Image<'_>,
        own: &LinkedImage,
        family: Option<FamilyId>,
        caller: &Caller,
    ) {
        let id = match image {
            Image::Bound(_) => return,
            Image::Own => own.id(),
            Image::Stored(other) => other.id(),
            Image::Passed(other) => other.id(),
        };
        // The target's own functions are of another domain than their callers may be.
        let domain = if id == own.id() { own.domain() } else { caller.principal.domain() };
        self.codes.entry(id).or_insert(domain.key(id));
        self.families.extend(family.map(|family| FamilyKey::of(family, caller)));
    }

    /// The code with this id, if it was named.
    pub(super) fn code(&self, id: &CodeId) -> Option<CodeKey> {
        self.codes.get(id).copied()
    }

    /// The family with this id, if it was named, in one of the domains that named it.
    pub(super) fn family(&self, id: FamilyId) -> Option<FamilyKey> {
        self.families.iter().find(|family| family.id == id).copied()
    }

    pub(super) fn has_family(&self, key: &FamilyKey) -> bool {
        self.families.contains(key)
    }

    pub(super) fn families(&self) -> impl Iterator<Item = &FamilyKey> {
        self.families.iter()
    }
}
