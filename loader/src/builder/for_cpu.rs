//! One more image of a library that carries its source, for one CPU, without the library.

use farjump_core::cpu::Cpu;

use super::Options;
use super::error::BuildError;
use super::image::{Goal, Image};
use super::source::Source;
use super::temp_folder::Scratch;
use crate::library::LibraryImage;
use crate::library::carried_source::CarriedSource;

/// Builds an image for `cpu` from `source`, by the compilers, flags, name and supervisor of `options`. The other
/// options have no effect.
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
    let damaged = |reason: String| BuildError::LibraryAsInput { path: source.library().to_owned(), reason };
    let decoded = Source::decode(source.bytes()).map_err(damaged)?;
    let scratch = Scratch::new()?;
    let _guarded = options.supervisor.begin(&scratch)?;
    let options = decoded.unpack(&scratch.folder("source")?, options)?;
    let options = Options { cpu: Some(cpu.clone()), ..options };
    let name = super::routines::name(&options)?;
    let image = Image::build(&options, Goal::Cpu(cpu), &name, &scratch)
        .map_err(|source| BuildError::ForCpu { cpu: cpu.to_string(), source: Box::new(source) })?;
    Ok(LibraryImage::new(image.bytes(), image.sizes())?)
}
