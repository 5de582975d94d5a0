//! Code ids and family ids.

use core::fmt;

/// A code id: the first 16 bytes of the BLAKE3 hash of the canonical image.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CodeId(pub [u8; 16]);

/// A family id: the first 16 bytes of the BLAKE3 hash of a manifest, which lists the images of one library. It
/// names the same function on each machine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FamilyId(pub [u8; 16]);

impl fmt::Display for CodeId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        digits(&self.0, out)
    }
}

impl fmt::Debug for CodeId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "CodeId({self})")
    }
}

impl fmt::Display for FamilyId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        digits(&self.0, out)
    }
}

impl fmt::Debug for FamilyId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "FamilyId({self})")
    }
}

fn digits(bytes: &[u8; 16], out: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
}
