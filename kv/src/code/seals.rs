//! Seals of code in keys, and their generations.
//!
//! Any client that may write the key may keep its contents, and write them again. So each FJ.LOAD and FJ.DELETE seals a
//! new generation, and a server that has seen a generation of a name accepts no earlier one.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::SystemTime;

use blake3::Hash;

/// The purpose of keys made from the file of the module's key.
pub(super) const PURPOSE: &str = "farjump-kv 2026-11 generations of code in keys";

/// The code of a name, in a database of the server.
pub(super) type Named = (i32, Vec<u8>);

/// The contents of the field `s:NAME` of a key: the seal of a library in `c:NAME`, or of its deletion.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Seal {
    generation: u64,
    /// Compared in constant time.
    hash: Hash,
}

impl Seal {
    /// Length of the field.
    const LEN: usize = 40;

    /// Seals a library under a name. Without a library, seals that there is none.
    pub(super) fn new(key: &[u8; 32], of: &Named, generation: u64, library: Option<&[u8]>) -> Seal {
        let (database, name) = of;
        let mut hasher = blake3::Hasher::new_keyed(key);
        hasher.update(&generation.to_le_bytes()).update(&database.to_le_bytes());
        hasher.update(&(name.len() as u64).to_le_bytes()).update(name);
        match library {
            Some(library) => hasher.update(b"c").update(library),
            None => hasher.update(b"d"),
        };
        Seal { generation, hash: hasher.finalize() }
    }

    /// Reads a field. `None` if it has another length.
    pub(super) fn read(field: &[u8]) -> Option<Seal> {
        let (generation, hash) = field.split_first_chunk()?;
        let hash = <[u8; 32]>::try_from(hash).ok()?;
        Some(Seal { generation: u64::from_le_bytes(*generation), hash: Hash::from(hash) })
    }

    /// The field.
    pub(super) fn to_bytes(self) -> [u8; Seal::LEN] {
        let mut field = [0; Seal::LEN];
        field[..8].copy_from_slice(&self.generation.to_le_bytes());
        field[8..].copy_from_slice(self.hash.as_bytes());
        field
    }

    pub(super) fn generation(self) -> u64 {
        self.generation
    }

    /// Returns whether the seal is the module's own, of this library or of a deletion.
    pub(super) fn is_of(self, key: &[u8; 32], of: &Named, library: Option<&[u8]>) -> bool {
        self == Seal::new(key, of, self.generation, library)
    }
}

/// The content of the newest seal of a name.
#[derive(Clone)]
pub(super) enum Content {
    /// This library. Keys that have lost it get it again.
    Library(Rc<[u8]>),
    /// A deletion.
    Deleted,
    /// A library that was not among the data that the server has loaded.
    Gone,
}

/// The newest seals that this server has seen, its own and its primary's, and their contents.
#[derive(Default)]
pub(super) struct Newest(HashMap<Named, (Seal, Content)>);

impl Newest {
    fn seal(&self, of: &Named) -> Option<Seal> {
        self.0.get(of).map(|(seal, _)| *seal)
    }

    /// Returns whether `seal` is newer than all that were seen.
    pub(super) fn is_older_than(&self, of: &Named, seal: Seal) -> bool {
        self.seal(of).is_none_or(|newest| newest.generation < seal.generation)
    }

    /// Returns whether there was code of this name.
    pub(super) fn knows(&self, of: &Named) -> bool {
        self.0.contains_key(of)
    }

    /// Returns whether code with this seal may run, because no newer seal was seen.
    pub(super) fn lets(&self, of: &Named, seal: Seal) -> bool {
        self.is_older_than(of, seal) || self.seal(of) == Some(seal)
    }

    /// Returns whether a valid seal would be new: [`Newest::note`] would take it.
    pub(super) fn lacks(&self, of: &Named, seal: Seal) -> bool {
        let is_gone = |(known, content): &(Seal, Content)| *known == seal && matches!(content, Content::Gone);
        self.is_older_than(of, seal) || self.0.get(of).is_some_and(is_gone)
    }

    /// Notes a valid seal, and its content.
    pub(super) fn note(&mut self, of: Named, seal: Seal, content: Content) {
        if self.lacks(&of, seal) {
            self.0.insert(of, (seal, content));
        }
    }

    /// The code of a name, unless it was deleted.
    pub(super) fn library(&self, of: &Named) -> Option<(Seal, Rc<[u8]>)> {
        match self.0.get(of)? {
            (seal, Content::Library(library)) => Some((*seal, Rc::clone(library))),
            _ => None,
        }
    }

    /// The newest seal of a name, and its content, unless that is gone.
    pub(super) fn get(&self, of: &Named) -> Option<(Seal, Content)> {
        self.0.get(of).filter(|(_, content)| !matches!(content, Content::Gone)).cloned()
    }

    /// Names of the code of a database.
    pub(super) fn names(&self, database: i32) -> impl Iterator<Item = &[u8]> {
        let is_here = move |(of, (_, content)): &(&Named, &(Seal, Content))| {
            of.0 == database && matches!(content, Content::Library(_))
        };
        self.0.iter().filter(is_here).map(|(of, _)| &of.1[..])
    }

    /// All seals and contents that keys should have.
    pub(super) fn all(&self) -> Vec<(Named, Seal, Content)> {
        let known = self.0.iter().filter(|(_, (_, content))| !matches!(content, Content::Gone));
        known.map(|(of, (seal, content))| (of.clone(), *seal, content.clone())).collect()
    }

    /// Forgets libraries, but no generation: the data that the server has loaded count.
    pub(super) fn drop_libraries(&mut self) {
        for (_, content) in self.0.values_mut().filter(|(_, content)| matches!(content, Content::Library(_)))
        {
            *content = Content::Gone;
        }
    }

    /// The number of the next generation: the time in microseconds, and more than the last generation in any case. So
    /// it is also higher than the generations of servers that have ended.
    pub(super) fn next(&self, of: &Named) -> u64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        self.seal(of).map_or(now, |newest| now.max(newest.generation.saturating_add(1)))
    }
}
