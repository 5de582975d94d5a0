//! Wanted libraries: the sonames of the shared libraries, as the linker finds them, that define imports of an
//! image.

use std::fs;

use object::read::elf::{Dyn, SectionHeader};
use object::write::{Relocation, Symbol, SymbolSection};
use object::{
    RelocationEncoding, RelocationFlags, RelocationKind, SectionKind, SymbolFlags, SymbolKind, SymbolScope,
    elf,
};

use crate::compile::compiler::Compiler;
use crate::error::BuildError;
use crate::link::link_flags::link_flags;
use crate::objects::{Elf, LITTLE};
use crate::options::Options;
use crate::rules::Rules;
use crate::tools::run_tool;
use crate::tools::temp_folder::Scratch;

/// Prefixes of the libraries of the C library and the dynamic linker, which every process has or may load without harm.
const EVERYWHERE: [&str; 8] = [
    "libc.so.",
    "libm.so.",
    "libpthread.so.",
    "libdl.so.",
    "librt.so.",
    "libc.musl-",
    "ld-linux",
    "ld-musl-",
];
/// Prefix of the symbols that every target offers.
const SERVICES: &str = "farjump_";

/// The sonames of the libraries linked by `options` that define some of `imports`, in no order. Imports that
/// the C library defines need no other library. Links with the native driver and rules; `cxx`: as for C++.
///
/// # Errors
/// The linker's error.
pub(crate) fn find(
    options: &Options,
    (compiler, rules): (&Compiler, &Rules),
    cxx: bool,
    imports: &[String],
    scratch: &Scratch,
) -> Result<Vec<String>, BuildError> {
    let imports: Vec<&str> =
        imports.iter().map(String::as_str).filter(|import| !import.starts_with(SERVICES)).collect();
    // Without flags, a C compiler links only the C library.
    let flags = link_flags(&options.cflags);
    if imports.is_empty() || (flags.is_empty() && !cxx) {
        return Ok(Vec::new());
    }
    let input = scratch.write("imports.o", &referring(&imports, rules)?)?;
    let output = scratch.path("imports.so");
    let mut command = compiler.command(cxx);
    command.args(["-shared", "-nostartfiles", "-Wl,--as-needed", "-o"]).arg(&output).arg(&input);
    let said = compiler.run(command.args(flags))?;
    if !said.status.success() {
        let (linker, messages) = (run_tool::program(&command), run_tool::messages(&said));
        return Err(BuildError::Link { linker, messages });
    }
    let bytes = fs::read(&output).map_err(|source| BuildError::Read { path: output, source })?;
    let mut wanted = needed(&bytes).map_err(malformed)?;
    wanted.retain(|soname| !EVERYWHERE.iter().any(|start| soname.starts_with(start)));
    Ok(wanted)
}

/// An object that refers to each of these symbols.
fn referring(imports: &[&str], rules: &Rules) -> Result<Vec<u8>, BuildError> {
    let mut object = rules.object();
    let data = object.add_section(Vec::new(), b".data".to_vec(), SectionKind::Data);
    object.set_section_data(data, vec![0; imports.len() * 8], 8);
    for (index, import) in imports.iter().enumerate() {
        let symbol = object.add_symbol(Symbol {
            name: import.as_bytes().to_vec(),
            value: 0,
            size: 0,
            kind: SymbolKind::Unknown,
            scope: SymbolScope::Unknown,
            weak: false,
            section: SymbolSection::Undefined,
            flags: SymbolFlags::None,
        });
        let flags = RelocationFlags::Generic {
            kind: RelocationKind::Absolute,
            encoding: RelocationEncoding::Generic,
            size: 64,
        };
        let relocation = Relocation { offset: index as u64 * 8, symbol, addend: 0, flags };
        object.add_relocation(data, relocation).map_err(unwritable)?;
    }
    object.add_section(Vec::new(), b".note.GNU-stack".to_vec(), SectionKind::Other);
    object.write().map_err(unwritable)
}

/// The libraries that a shared library depends on (`DT_NEEDED`).
fn needed(bytes: &[u8]) -> object::read::Result<Vec<String>> {
    let elf = Elf::parse(bytes)?;
    let sections = elf.elf_section_table();
    let mut found = Vec::new();
    for section in sections.iter() {
        let Some((entries, strings)) = section.dynamic(LITTLE, bytes)? else { continue };
        let strings = sections.strings(LITTLE, bytes, strings)?;
        for entry in entries.iter().filter(|entry| entry.tag(LITTLE) == elf::DT_NEEDED) {
            found.push(String::from_utf8_lossy(entry.string(LITTLE, strings)?).into_owned());
        }
    }
    Ok(found)
}

fn unwritable(error: object::write::Error) -> BuildError {
    BuildError::Malformed { object: "the list of imports".into(), problem: error.to_string() }
}

fn malformed(error: object::read::Error) -> BuildError {
    BuildError::Malformed { object: "the list of imports".into(), problem: error.to_string() }
}
