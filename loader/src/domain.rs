//! Domains: sets of sources that share code.

use farjump_core::image::CodeId;

/// A set of sources that share code and exports. A source finds, links, exchanges and drops only code of its domain.
/// The same image in two domains is linked twice, with separate statics. A target has one domain, the default.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Domain(u32);

impl Domain {
    /// The domain with this number. The default one has 0.
    pub const fn numbered(number: u32) -> Domain {
        Domain(number)
    }

    /// The key of code of this domain.
    pub const fn key(self, id: CodeId) -> CodeKey {
        CodeKey { id, domain: self }
    }
}

/// Identity of code in a store: its id, and its domain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CodeKey {
    /// Its code id.
    pub id: CodeId,
    /// Its domain.
    pub domain: Domain,
}

impl From<&CodeId> for CodeKey {
    /// Code of the default domain.
    fn from(id: &CodeId) -> CodeKey {
        Domain::default().key(*id)
    }
}
