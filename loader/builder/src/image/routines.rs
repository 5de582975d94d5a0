//! The routines of an ifunc library: its name, the routines it needs, and their export.

use std::path::PathBuf;

use farjump_loader::library::bundle;
use object::elf;
use object::read::elf::Sym;

use crate::error::BuildError;
use crate::objects::edit_symbols::{self, Table};
use crate::objects::{LITTLE, Linkable, Objects, read};
use crate::options::Options;
use crate::tools::temp_folder;

/// NAME: the chosen one, or the one in the output's file name.
///
/// # Errors
/// Neither is a valid ifunc name.
pub(crate) fn name(options: &Options) -> Result<String, BuildError> {
    let name = options.name.clone().unwrap_or_else(|| {
        let stem = options.output.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        stem.strip_prefix("lib").map(str::to_owned).unwrap_or(stem)
    });
    if bundle::is_name(&name) { Ok(name) } else { Err(BuildError::Name { name }) }
}

/// The names of all routines that a library of this name may have.
fn all(name: &str) -> [String; 5] {
    ["main", "payload_get_max_size", "payload_init", "payload_init_shrink", "payload_bound"]
        .map(|routine| format!("{name}_{routine}"))
}

/// The routines that the objects define: `NAME_main`; `NAME_payload_get_max_size`, or Three-Chains'
/// `NAME_payload_bound` instead; and `NAME_payload_init` or `NAME_payload_init_shrink`.
///
/// # Errors
/// A routine is missing, both of the last two are present, or one cannot be exported.
pub(crate) fn find(name: &str, objects: &Objects, files: &[Linkable]) -> Result<Vec<String>, BuildError> {
    let definitions = objects.definitions();
    let defined = |routine: &str| definitions.iter().find(|definition| definition.name == routine);
    let missing = |routine: &str| {
        if let Some(object) = objects.intermediate() {
            return BuildError::Intermediate { object: object.to_owned() };
        }
        let mains = definitions.iter().filter(|definition| definition.name.ends_with("_main"));
        BuildError::MissingRoutine {
            name: name.to_owned(),
            routine: routine.to_owned(),
            searched: files.iter().map(|file| file.label.clone()).collect(),
            mains: mains.map(|definition| (definition.name.clone(), definition.object.clone())).collect(),
        }
    };
    let [main, max_size, init, shrink, bound] = all(name);
    let max_size = if defined(&max_size).is_none() && defined(&bound).is_some() { bound } else { max_size };
    let init = match (defined(&init), defined(&shrink)) {
        (Some(_), Some(_)) => return Err(BuildError::TwoPayloadInits { name: name.to_owned() }),
        (None, Some(_)) => shrink,
        _ => init,
    };
    let routines = vec![main, max_size, init];
    for routine in &routines {
        let definition = defined(routine).ok_or_else(|| missing(routine))?;
        if definition.hidden {
            let object = definition.object.clone();
            return Err(BuildError::HiddenRoutine { routine: routine.clone(), object });
        }
    }
    Ok(routines)
}

/// Makes the routines visible in objects that were compiled here: sources are compiled with hidden
/// visibility, and authors need not mark their routines.
///
/// # Errors
/// An object cannot be read or written back.
pub(crate) fn expose<'a>(name: &str, files: impl Iterator<Item = &'a PathBuf>) -> Result<(), BuildError> {
    let routines = all(name);
    for path in files {
        let mut bytes = read(path)?;
        let exposed = edit_symbols::edit(&mut bytes, Table::Static, |name, symbol| {
            let hidden = symbol.st_visibility() == elf::STV_HIDDEN
                && symbol.st_shndx(LITTLE) != elf::SHN_UNDEF
                && routines.iter().any(|routine| routine.as_bytes() == name);
            if hidden {
                symbol.st_other = elf::SymbolOther(elf::STV_DEFAULT.0);
            }
            hidden
        });
        // `Objects::read` refuses other files, with a reason.
        if exposed.unwrap_or(false) {
            temp_folder::write(path.clone(), &bytes)?;
        }
    }
    Ok(())
}
