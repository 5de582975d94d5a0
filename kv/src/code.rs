//! Code that commands call: in memory, and in an ordinary key.
//!
//! The key [`KEY`] is a hash with two fields for each name: `c:NAME` has the library, `s:NAME` its seal. Whoever may write
//! keys may write these. So code in it runs only if the seal is one of the module's own key, or if its id is on the list of
//! ids that may come in.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

use blake3::Hash;
use farjump::{CodeId, Cpu, Library};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::api::{CallFlags, Context, Str, context_flags, key_type};
use crate::host::with_causes;

/// The name of the key.
pub(crate) const KEY: &[u8] = b"farjump:code";
/// The purpose of keys made from the file of the module's key.
const PURPOSE: &str = "farjump-kv 2026-11 code in keys";
/// Least bytes of that file.
const LEAST_KEY: usize = 16;
/// Most bytes of it that count.
const MOST_KEY: u64 = 4096;

/// Loaded code.
#[derive(Default)]
pub(crate) struct Code {
    /// The key of seals, if the configuration names one.
    key: Option<[u8; 32]>,
    loaded: HashMap<Vec<u8>, Loaded>,
}

/// A library, ready to be called.
pub(crate) struct Loaded {
    pub(crate) library: Library,
    /// The seal of the key's field that it came from; `None` if it is in memory alone.
    seal: Option<Hash>,
    pub(crate) figures: Figures,
}

/// Figures of calls by commands.
#[derive(Clone, Copy, Default)]
pub(crate) struct Figures {
    pub(crate) calls: u64,
    pub(crate) failed: u64,
    pub(crate) microseconds: u64,
}

/// Where loaded code is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// In the key.
    Key,
    /// In memory.
    Memory,
    /// In memory, as the key would belong to another node of a cluster.
    Node,
}

impl Loaded {
    /// Whether it came from the key.
    pub(crate) fn is_in_key(&self) -> bool {
        self.seal.is_some()
    }
}

impl Code {
    /// No code yet. Its seals are made with the key in `file`.
    ///
    /// # Errors
    /// Why the file has no key.
    pub(crate) fn new(file: Option<&Path>) -> Result<Code, String> {
        let Some(file) = file else { return Ok(Code::default()) };
        let mut contents = Vec::new();
        let read = File::open(file).and_then(|open| open.take(MOST_KEY).read_to_end(&mut contents));
        read.map_err(|error| format!("code-key {}: {error}", file.display()))?;
        if contents.len() < LEAST_KEY {
            return Err(format!(
                "code-key {} has {} bytes: put at least {LEAST_KEY} random ones there",
                file.display(),
                contents.len()
            ));
        }
        let key = blake3::derive_key(PURPOSE, &contents);
        Ok(Code { key: Some(key), loaded: HashMap::new() })
    }

    /// Number of libraries in memory.
    pub(crate) fn len(&self) -> usize {
        self.loaded.len()
    }

    /// Names and libraries in memory.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &Loaded)> {
        self.loaded.iter().map(|(name, loaded)| (&name[..], loaded))
    }

    fn seal(key: &[u8; 32], name: &[u8], library: &[u8]) -> Hash {
        let mut hasher = blake3::Hasher::new_keyed(key);
        hasher.update(&(name.len() as u64).to_le_bytes()).update(name).update(library);
        hasher.finalize()
    }

    /// Takes a library under this name, for this CPU. Returns its code id, and where it is.
    ///
    /// # Errors
    /// Why it is not taken.
    pub(crate) fn load(
        &mut self,
        context: &Context<'_>,
        name: &[u8],
        bytes: &[u8],
        cpu: &Cpu,
    ) -> Result<(CodeId, Kept), String> {
        let (library, id) = open(bytes, cpu)?;
        let (mut seal, mut kept) = (None, Kept::Memory);
        if let Some(key) = &self.key {
            if context.flags() & context_flags::CLUSTER != 0 {
                kept = Kept::Node;
            } else {
                let made = Code::seal(key, name, bytes);
                let words = [KEY, &field(b"c:", name), bytes, &field(b"s:", name), made.as_bytes()];
                write(context, c"hset", &words)?;
                (seal, kept) = (Some(made), Kept::Key);
            }
        }
        self.loaded.insert(name.to_vec(), Loaded { library, seal, figures: Figures::default() });
        Ok((id, kept))
    }

    /// Removes the code of this name; `false` if there is none.
    ///
    /// # Errors
    /// Why it stays.
    pub(crate) fn delete(&mut self, context: &Context<'_>, name: &[u8]) -> Result<bool, String> {
        let mut deleted = false;
        if self.key.is_some() {
            let words = [KEY, &field(b"c:", name), &field(b"s:", name)];
            deleted = write(context, c"hdel", &words)? != 0;
        }
        Ok(self.loaded.remove(name).is_some() | deleted)
    }

    /// The library to run for this name; `None` if there is none. What is in the key counts, not what was there.
    ///
    /// # Errors
    /// Why the code in the key is not run.
    pub(crate) fn find(
        &mut self,
        context: &Context<'_>,
        name: &[u8],
        cpu: &Cpu,
        allowed: &[CodeId],
    ) -> Result<Option<&mut Loaded>, String> {
        if self.loaded.get(name).is_some_and(|loaded| loaded.seal.is_none()) {
            return Ok(self.loaded.get_mut(name));
        }
        let (Some(key), Some(found)) = (self.key.as_ref(), stored(context, b"s:", name)) else {
            return self.find_allowed(context, name, cpu, allowed);
        };
        let seal = <[u8; 32]>::try_from(found.bytes()).ok().map(Hash::from);
        let is_known =
            self.loaded.get(name).is_some_and(|loaded| loaded.seal.is_some() && loaded.seal == seal);
        if !is_known {
            self.loaded.remove(name);
            let Some(library) = stored(context, b"c:", name) else { return Ok(None) };
            // Hashes are compared in constant time.
            if seal != Some(Code::seal(key, name, library.bytes())) {
                return self.find_allowed(context, name, cpu, allowed);
            }
            let (opened, _) = open(library.bytes(), cpu)?;
            let loaded = Loaded { library: opened, seal, figures: Figures::default() };
            self.loaded.insert(name.to_vec(), loaded);
        }
        Ok(self.loaded.get_mut(name))
    }

    /// Code in the key that nobody has sealed, if its id is among those that may come in.
    fn find_allowed(
        &mut self,
        context: &Context<'_>,
        name: &[u8],
        cpu: &Cpu,
        allowed: &[CodeId],
    ) -> Result<Option<&mut Loaded>, String> {
        self.loaded.remove(name);
        let Some(library) = stored(context, b"c:", name) else { return Ok(None) };
        let (library, id) = open(library.bytes(), cpu)?;
        if !allowed.contains(&id) {
            return Err(format!(
                "BADCODE the code {id} in {} was not put there by this server's FJ.LOAD: load it again, or allow its id",
                String::from_utf8_lossy(KEY)
            ));
        }
        // No seal that a field can have: the next call looks again.
        let loaded = Loaded { library, seal: Some(Hash::from([0; 32])), figures: Figures::default() };
        self.loaded.insert(name.to_vec(), loaded);
        Ok(self.loaded.get_mut(name))
    }
}

/// The name of a field.
fn field(prefix: &[u8], name: &[u8]) -> Vec<u8> {
    [prefix, name].concat()
}

/// A field of the key.
fn stored(context: &Context<'_>, prefix: &[u8], name: &[u8]) -> Option<Str> {
    let name_of_key = Str::new(KEY);
    let key = context.open(&name_of_key)?;
    if key.kind() != key_type::HASH {
        return None;
    }
    key.field(&Str::new(&field(prefix, name)))
}

/// Runs a command that writes the key. Returns the number that it answers.
fn write(context: &Context<'_>, command: &'static std::ffi::CStr, words: &[&[u8]]) -> Result<i64, String> {
    if crate::api::must_not_write() {
        return Err("the server holds writes back (CLIENT PAUSE, or a failover): try again later".to_owned());
    }
    let words: Vec<Str> = words.iter().map(|word| Str::new(word)).collect();
    let answer = context.call(command, &CallFlags::WRITE, &words);
    let answer = answer.ok_or_else(|| "the server did not write the code's key".to_owned())?;
    match answer.error() {
        None => Ok(answer.root().integer()),
        Some(error) => Err(error),
    }
}

/// Opens a library, and finds its image for this CPU. Nothing of it runs.
fn open(bytes: &[u8], cpu: &Cpu) -> Result<(Library, CodeId), String> {
    let failed = |error: std::io::Error| format!("no memory for the library: {error}");
    let memory = memfd_create("farjump-kv", MemfdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    let mut file = File::from(memory);
    file.write_all(bytes).map_err(failed)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let library = Library::open(&path).map_err(|error| {
        let text = with_causes(&error).replace(&path, "the library");
        format!("{text}: load what `farjump build` has made")
    })?;
    if !library.payload_is_args() {
        return Err(format!(
            "the library {} has payload routines, which would have to run in the server: use FARJUMP_COPY_ARGS",
            library.name()
        ));
    }
    let id =
        library.image_for_cpu(cpu).map_err(|error| with_causes(&error).replace(&path, "the library"))?.id();
    Ok((library, id))
}
