//! One more image of a library that carries its source, for one CPU, without the library.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use farjump_core::cpu::Cpu;
use farjump_core::image::CodeId;
use object::LittleEndian;
use object::read::elf::ElfFile64;

use super::error::BuildError;
use super::image::{Goal, Image};
use super::source::Source;
use super::temp_folder::Scratch;
use super::{Options, source};
use crate::code_id;
use crate::library::LibraryImage;

/// The source that an open library carries, as its file had it. A clone is another handle on the same bytes.
#[derive(Clone)]
pub struct CarriedSource {
    /// The library.
    path: PathBuf,
    bytes: Arc<[u8]>,
}

impl CarriedSource {
    /// The source in the library at `path` with the contents `elf`; `None` if there is none that can be read.
    pub(crate) fn of(elf: &ElfFile64<'_, LittleEndian>, path: &Path) -> Option<CarriedSource> {
        let bytes = source::section(elf).ok().flatten()?;
        Some(CarriedSource { path: path.to_owned(), bytes: bytes.into() })
    }

    /// The hash of its bytes: equal sources have equal ones.
    pub fn id(&self) -> CodeId {
        code_id(&self.bytes)
    }
}

impl fmt::Debug for CarriedSource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.bytes.len();
        out.debug_struct("CarriedSource").field("path", &self.path).field("len", &len).finish()
    }
}

/// Builds an image for `cpu` from `source`, by the compilers, flags, name and supervisor of `options`. The rest of
/// them is not used.
///
/// Blocks and leaves nothing behind, as [`build`](super::build) does.
///
/// # Errors
/// See [`BuildError`].
pub fn build_for_cpu(
    source: &CarriedSource,
    cpu: &Cpu,
    options: &Options,
) -> Result<LibraryImage, BuildError> {
    let damaged = |reason: String| BuildError::LibraryAsInput { path: source.path.clone(), reason };
    let decoded = Source::decode(&source.bytes).map_err(damaged)?;
    let scratch = Scratch::new()?;
    let _guarded = options.supervisor.begin(scratch.root())?;
    let options = decoded.unpack(&scratch.folder("source")?, options)?;
    let options = Options { cpu: Some(cpu.clone()), ..options };
    let name = super::routines::name(&options)?;
    let image = Image::build(&options, Goal::Cpu(cpu), &name, &scratch)
        .map_err(|source| BuildError::ForCpu { cpu: cpu.to_string(), source: Box::new(source) })?;
    Ok(LibraryImage::new(image.bytes(), image.sizes())?)
}
