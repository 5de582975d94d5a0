//! Images of earlier compilations: in memory, and in a folder for later runs.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::protocol::{Job, MAX_CONTENTS, Tier};

/// Most bytes of images in memory.
const MAX_BYTES: usize = 64 << 20;
/// Start of a file: magic and version of its contents. Then follow the hash of the rest, a byte that says whether the
/// image is optimised, and the image.
const MAGIC: [u8; 8] = *b"FJCACHE\x01";
const HASH: usize = 32;

/// The key of an image: a hash of the code id, the CPU, the tier, the LLVM, the machine's CPU and farjump's
/// version.
type Key = [u8; 32];

/// An image, and whether it is optimised.
pub(super) type Kept = (bool, Vec<u8>);

pub(super) struct Cache {
    memory: HashMap<Key, Kept>,
    /// The keys in memory, the oldest first.
    order: VecDeque<Key>,
    bytes: usize,
    folder: Option<PathBuf>,
}

/// The key of a job by an LLVM with this version text, for which this machine's CPU is `host`.
pub(super) fn key(job: &Job, llvm: &str, host: &str) -> Key {
    let mut hasher = blake3::Hasher::new();
    for part in [
        &job.id.0[..],
        &job.cpu.encode(),
        llvm.as_bytes(),
        host.as_bytes(),
        env!("CARGO_PKG_VERSION").as_bytes(),
    ] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.update(&[u8::from(job.tier == Tier::Optimised)]);
    *hasher.finalize().as_bytes()
}

impl Cache {
    /// A cache that also uses `folder`, which is made if it is missing.
    ///
    /// # Errors
    /// The folder cannot be made, or users other than its owner can write to it, or it belongs to another
    /// user.
    pub(super) fn new(folder: Option<&Path>) -> Result<Cache, String> {
        if let Some(folder) = folder {
            check_folder(folder)
                .map_err(|problem| format!("cannot keep images in `{}`: {problem}", folder.display()))?;
        }
        let folder = folder.map(Path::to_path_buf);
        Ok(Cache { memory: HashMap::new(), order: VecDeque::new(), bytes: 0, folder })
    }

    pub(super) fn get(&mut self, key: &Key) -> Option<Kept> {
        if let Some(kept) = self.memory.get(key) {
            return Some(kept.clone());
        }
        let kept = read(&self.file(key)?).ok()?;
        self.keep(*key, kept.clone());
        Some(kept)
    }

    /// Keeps an image. An image that cannot be written is kept in memory alone.
    pub(super) fn add(&mut self, key: Key, kept: Kept) {
        if let Some(file) = self.file(&key) {
            drop(write(&file, &kept));
        }
        self.keep(key, kept);
    }

    fn keep(&mut self, key: Key, kept: Kept) {
        self.bytes += kept.1.len();
        self.order.push_back(key);
        if let Some((_, before)) = self.memory.insert(key, kept) {
            self.bytes -= before.len();
        }
        while self.bytes > MAX_BYTES
            && let Some(oldest) = self.order.pop_front()
        {
            self.bytes -= self.memory.remove(&oldest).map_or(0, |(_, image)| image.len());
        }
    }

    fn file(&self, key: &Key) -> Option<PathBuf> {
        let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(self.folder.as_ref()?.join(digits + ".fji"))
    }
}

/// Makes the folder if it is missing, and checks that no other user can put images into it.
fn check_folder(folder: &Path) -> Result<(), String> {
    if let Err(error) = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder) {
        return Err(error.to_string());
    }
    let found = fs::symlink_metadata(folder).map_err(|error| error.to_string())?;
    if !found.is_dir() {
        return Err("it is no folder".to_owned());
    }
    check_owner(&found)
}

fn check_owner(found: &fs::Metadata) -> Result<(), String> {
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(format!("it belongs to user {}", found.uid()));
    }
    match found.mode() & 0o022 {
        0 => Ok(()),
        _ => Err("others than its owner can write to it: chmod go-w".to_owned()),
    }
}

fn read(path: &Path) -> io::Result<Kept> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let found = file.metadata()?;
    check_owner(&found).map_err(io::Error::other)?;
    let mut bytes = Vec::new();
    file.take(MAX_CONTENTS as u64).read_to_end(&mut bytes)?;
    let damaged = || io::Error::other("damaged");
    let rest = bytes.strip_prefix(&MAGIC).ok_or_else(damaged)?;
    let (hash, rest) = rest.split_first_chunk::<HASH>().ok_or_else(damaged)?;
    if blake3::hash(rest) != *hash {
        return Err(damaged());
    }
    let (optimised, image) = rest.split_first().ok_or_else(damaged)?;
    Ok((*optimised != 0, image.to_vec()))
}

/// Writes a file that is there whole or not at all.
fn write(path: &Path, (optimised, image): &Kept) -> io::Result<()> {
    let temporary = path.with_extension(format!("{}.part", std::process::id()));
    let rest = [&[u8::from(*optimised)][..], image].concat();
    let written = File::create_new(&temporary).and_then(|mut file| {
        file.write_all(&[&MAGIC[..], blake3::hash(&rest).as_bytes(), &rest].concat())?;
        fs::rename(&temporary, path)
    });
    written.inspect_err(|_| drop(fs::remove_file(&temporary)))
}
