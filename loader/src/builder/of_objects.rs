//! An image of objects in memory, by farjump's own linker: for a target that has compiled bitcode. No file is touched.

use std::path::Path;

use farjump_core::cpu::Cpu;

use super::error::BuildError;
use super::extract::{self, Needs};
use super::locate_symbol::locate;
use super::objects::{Inputs, Objects};
use super::own;
use super::rules::Rules;

/// Objects to be linked, and what they are for.
#[derive(Clone, Debug)]
pub struct ObjectsOf<'a> {
    /// NAME of the routines.
    pub name: &'a str,
    /// Relocatable ELF files for the machine of [`ObjectsOf::cpu`], each with its name for people.
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
/// As [`build`](super::build)'s of farjump's own linker: code that images cannot have, and damaged objects.
pub fn link_objects(objects: ObjectsOf<'_>) -> Result<Linked, BuildError> {
    let ObjectsOf { name, objects, cpu, wanted } = objects;
    let machine = cpu.machine();
    let rules = Rules::of(machine).ok_or(BuildError::Unsupported { machine: machine.triple() })?;
    let objects = Objects::of(objects, rules)?;
    let (files, runtime, folder) = (&[][..], None, Path::new(""));
    let inputs = Inputs { files, objects: &objects, name, runtime, rules, folder };
    let named = |error| locate(error, &objects, name);
    let linked = own::link(&inputs, false).map_err(named)?;
    let needs = Needs { level: cpu.level(), features: cpu.features() };
    let extracted = extract::extract(&linked, name, needs, rules, |_| Ok(wanted)).map_err(named)?;
    let has_statics = extracted.sizes.data != 0 || extracted.sizes.bss != 0;
    Ok(Linked { image: extracted.image, has_statics })
}
