//! One more image of a library that carries its source, for one CPU, without the library.

use farjump_core::cpu::Cpu;
use farjump_loader::library::LibraryImage;
use farjump_loader::library::carried_source::CarriedSource;

use crate::compile::source::Source;
use crate::error::BuildError;
use crate::image::{Goal, Image};
use crate::options::Options;
use crate::tools::temp_folder::Scratch;

/// Builds an image for `cpu` from `source`, by the compilers, flags, name and supervisor of `options`. The other
/// options have no effect.
///
/// Blocks and leaves nothing behind, as [`build`](crate::build()) does.
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
    let name = crate::image::routines::name(&options)?;
    let image = Image::build(&options, Goal::Cpu(cpu), &name, &scratch)
        .map_err(|source| BuildError::ForCpu { cpu: cpu.to_string(), source: Box::new(source) })?;
    Ok(LibraryImage::new(image.bytes(), image.sizes())?)
}
