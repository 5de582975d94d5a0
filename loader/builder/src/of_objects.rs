//! Images of objects in memory, by farjump's own linker: for a target that has compiled bitcode, and for programs that
//! compile functions themselves. Reads and writes no file.

use std::path::{Path, PathBuf};

use farjump_core::cpu::Cpu;
use farjump_core::image::Platform;
use farjump_loader::Error;
use farjump_loader::library::bundle;
use farjump_loader::library::{Library, LibraryImage};

use crate::error::BuildError;
use crate::image::extract::{self, Extracted, Needs};
use crate::link::own;
use crate::objects::locate_symbol::locate;
use crate::objects::{Inputs, Objects};
use crate::rules::Rules;

/// Objects to be linked, and their CPU.
#[derive(Clone, Debug)]
pub struct ObjectsOf<'a> {
    /// NAME of the routines.
    pub name: &'a str,
    /// Relocatable ELF files for the machine of [`ObjectsOf::cpu`], each with its name in messages.
    pub objects: Vec<(String, Vec<u8>)>,
    /// The CPU whose features the code may use, all of them.
    pub cpu: &'a Cpu,
    /// Sonames of the libraries that define some of the imports.
    pub wanted: Vec<String>,
}

/// An image that was linked from objects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Linked {
    /// Its bytes. It is for one CPU: it names the features of [`ObjectsOf::cpu`], if that has any.
    pub image: Vec<u8>,
    /// Whether it has writable statics.
    pub has_statics: bool,
}

/// Links the code that `NAME_main` reaches in `objects`.
///
/// # Errors
/// Those of [`build`](crate::build()) with farjump's own linker: code that images cannot have, and damaged objects.
pub fn link_objects(objects: ObjectsOf<'_>) -> Result<Linked, BuildError> {
    let extracted = extracted(objects)?;
    let has_statics = extracted.sizes.data != 0 || extracted.sizes.bss != 0;
    Ok(Linked { image: extracted.image, has_statics })
}

fn extracted(objects: ObjectsOf<'_>) -> Result<Extracted, BuildError> {
    let ObjectsOf { name, objects, cpu, wanted } = objects;
    let machine = cpu.machine();
    let rules = Rules::of(machine).ok_or(BuildError::Unsupported { machine: machine.triple() })?;
    let objects = Objects::of(objects, rules)?;
    objects.check(&format!("{name}_main"), &[])?;
    let (files, runtime, folder) = (&[][..], None, Path::new(""));
    let inputs = Inputs { files, objects: &objects, name, runtime, rules, folder };
    let named = |error| locate(error, &objects, name);
    let linked = own::link(&inputs, false).map_err(named)?;
    let needs = Needs { level: cpu.level(), features: cpu.features() };
    extract::extract(&linked, name, needs, rules, |_| Ok(wanted)).map_err(named)
}

/// The reasons why no library was made of objects.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The objects cannot be linked.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The images make no library: two are for one platform, or their payloads have different alignments.
    #[error(transparent)]
    Library(#[from] Error),
}

/// Links a library without payload routines, whose payloads are the arguments: an image for each platform, of the
/// code that `NAME_main` reaches in its object.
///
/// `origin` is the path of the source, which [`Library::path`] returns. Errors name it.
///
/// # Errors
/// Those of [`link_objects`], names that no ifunc can have, and images that do not belong together.
pub fn link_library(
    name: &str,
    origin: PathBuf,
    objects: Vec<(Platform, Vec<u8>)>,
) -> Result<Library, LinkError> {
    if !bundle::is_name(name) {
        return Err(BuildError::Name { name: name.to_owned() }.into());
    }
    let image = |(platform, object): (Platform, Vec<u8>)| {
        // An image of a CPU without features is for each CPU of its level.
        let cpu = Cpu::new(platform.machine, platform.level, "", [""; 0])
            .map_err(|_| BuildError::Unsupported { machine: platform.machine.triple() })?;
        let objects = vec![(origin.display().to_string(), object)];
        let extracted = extracted(ObjectsOf { name, objects, cpu: &cpu, wanted: Vec::new() })?;
        Ok(LibraryImage::new(&extracted.image, extracted.sizes)?)
    };
    let images = objects.into_iter().map(image).collect::<Result<Vec<_>, BuildError>>()?;
    if images.is_empty() {
        return Err(BuildError::NoInput.into());
    }
    Ok(Library::of_images(name.to_owned(), origin, images, None)?)
}
