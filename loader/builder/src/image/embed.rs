//! The library itself: everything linked the ordinary way, with the bundle of images in its own section.

use std::fs;
use std::path::Path;

use farjump_core::image::CodeId;
use farjump_loader::library::bundle::{self, Bundle};
use farjump_loader::library::carried_source::SECTION;
use farjump_loader::library::file_contents::IS_ARGS;
use farjump_loader::library::signature;
use farjump_loader::runtime_cause;
use object::read::elf::Sym;
use object::write::{Symbol, SymbolSection};
use object::{SectionFlags, SectionKind, SymbolFlags, SymbolKind, SymbolScope, elf};

use crate::compile::Compiled;
use crate::error::BuildError;
use crate::image::Image;
use crate::link::link_flags::link_flags;
use crate::objects::edit_symbols::{self, Table};
use crate::objects::{Elf, LITTLE, read};
use crate::options::Options;
use crate::rules::Rules;
use crate::tools::run_tool;
use crate::tools::temp_folder::{self, Scratch};

/// The personality routine that Rust's core names in tables of landing pads. With panic=abort it is never
/// called.
const RUST_PERSONALITY: &[u8] = b"rust_eh_personality";

/// The contents that a library carries for injection.
pub(crate) struct Carried<'a> {
    pub(crate) bundle: &'a Bundle<'a>,
    /// For each image its code id, and a linked ELF file with its contents, for debuggers.
    pub(crate) symbols: Vec<(CodeId, &'a [u8])>,
    /// The source, encoded, if the library carries it.
    pub(crate) source: Option<Vec<u8>>,
    /// True if the payload is the arguments unchanged: the library then says so.
    pub(crate) payload_is_args: bool,
    /// True if the author's objects state a signature, which the library then exports.
    pub(crate) has_signature: bool,
}

impl Carried<'_> {
    /// The data symbols at the start of the bundle: the one by which it is found, and those that state facts
    /// about it.
    fn symbols(&self) -> Vec<String> {
        let is_args = self.payload_is_args.then(|| format!("{}{IS_ARGS}", self.bundle.name));
        [bundle::SYMBOL.to_owned()].into_iter().chain(is_args).collect()
    }
}

/// Links `compiled`, the objects of `host`, into the shared library `options.output`. The library exports their
/// routines and carries `carried`. The library loads without the symbols that the image finds at the target. Returns
/// the linker's warnings.
///
/// # Errors
/// The linker's error, or an output that cannot be written.
pub(crate) fn write_library(
    options: &Options,
    host: &Image,
    compiled: &Compiled,
    carried: &Carried<'_>,
    folder: &Scratch,
) -> Result<String, BuildError> {
    let routines = &host.routines;
    let carrier = folder.write("bundle.o", &carrier(carried, host.rules)?)?;
    let signature = carried.has_signature.then(|| format!("{}{}", carried.bundle.name, signature::SUFFIX));
    let exported: Vec<String> = routines.iter().cloned().chain(carried.symbols()).chain(signature).collect();
    let versions = format!("{{ global: {}; local: *; }};\n", exported.join("; "));
    let versions = folder.write("library.map", versions.as_bytes())?;
    let library = folder.path("library.so");
    let mut command = host.compiler.command(compiled.cxx);
    command.args(["-shared", "-fPIC", "-o"]).arg(&library);
    command.args(["-Wl,--gc-sections", "-Wl,-Bsymbolic", "-Wl,--as-needed"]);
    command.arg(run_tool::option("-Wl,--version-script=", &versions));
    command.args(routines.iter().map(|routine| format!("-Wl,-u,{routine}")));
    command.args(compiled.files.iter().filter(|file| !file.archive).map(|file| &file.path)).arg(carrier);
    command.arg("-Wl,--start-group");
    command.args(compiled.files.iter().filter(|file| file.archive).map(|file| &file.path));
    let flags = link_flags(&options.cflags);
    // The last flag wins: loading the library makes no process's stacks executable.
    command.arg("-Wl,--end-group").args(&flags).arg("-Wl,-z,noexecstack");
    let output = host.compiler.run(&mut command)?;
    let messages = run_tool::messages(&output);
    if !output.status.success() {
        return Err(BuildError::Link { linker: run_tool::program(&command), messages });
    }
    make_imports_weak(&library, host.imports())?;
    // The author may link a runtime by its name.
    if !flags.iter().any(|flag| flag.starts_with("-l") || !flag.starts_with('-')) {
        check_runtimes(&library)?;
    }
    replace(&library, &options.output)?;
    Ok(if messages.is_empty() { messages } else { messages + "\n" })
}

/// An object that holds only the bundle, its symbols, and the linked file.
fn carrier(carried: &Carried<'_>, rules: &Rules) -> Result<Vec<u8>, BuildError> {
    let bytes = carried.bundle.encode()?;
    let mut object = rules.object();
    let home = object.add_section(Vec::new(), b".farjump.bundle".to_vec(), SectionKind::ReadOnlyData);
    // Retained: section garbage collection keeps it. Allocated: `strip` keeps it, and dlopen loads it.
    object.section_mut(home).flags =
        SectionFlags::Elf { sh_type: elf::SHT_PROGBITS, sh_flags: elf::SHF_ALLOC | elf::SHF_GNU_RETAIN };
    let len = bytes.len() as u64;
    object.set_section_data(home, bytes, bundle::ALIGN as u64);
    for symbol in carried.symbols() {
        object.add_symbol(Symbol {
            name: symbol.into_bytes(),
            value: 0,
            size: len,
            kind: SymbolKind::Data,
            scope: SymbolScope::Dynamic,
            weak: false,
            section: SymbolSection::Section(home),
            flags: SymbolFlags::None,
        });
    }
    let symbols = carried.symbols.iter();
    let symbols = symbols.map(|(id, linked)| (format!("{}{id}", bundle::SYMBOLS_SECTION), *linked));
    let source = carried.source.iter().map(|source| (SECTION.to_owned(), &source[..]));
    for (name, contents) in symbols.chain(source) {
        let beside = object.add_section(Vec::new(), name.into_bytes(), SectionKind::Metadata);
        // Not allocated: it is for readers of the file, and costs a process that opens the library nothing.
        object.section_mut(beside).flags =
            SectionFlags::Elf { sh_type: elf::SHT_PROGBITS, sh_flags: elf::SHF_GNU_RETAIN };
        object.set_section_data(beside, contents, 1);
    }
    // Without this note, linkers make the stack of every process that loads the library executable.
    object.add_section(Vec::new(), b".note.GNU-stack".to_vec(), SectionKind::Other);
    object
        .write()
        .map_err(|error| BuildError::Malformed { object: "the bundle".into(), problem: error.to_string() })
}

/// Makes symbols that only the target offers weak. The source never calls `NAME_main`, so the library must
/// load without them.
fn make_imports_weak(library: &Path, imports: &[String]) -> Result<(), BuildError> {
    let mut bytes = read(library)?;
    let edited = edit_symbols::edit(&mut bytes, Table::Dynamic, |name, symbol| {
        let only_at_target = imports.iter().any(|import| import.as_bytes() == name);
        let weaken = symbol.st_shndx(LITTLE) == elf::SHN_UNDEF
            && symbol.st_bind() == elf::STB_GLOBAL
            && (only_at_target || name == RUST_PERSONALITY);
        if weaken {
            symbol.st_info = elf::SymbolInfo::new(elf::STB_WEAK, symbol.st_type());
        }
        weaken
    });
    match edited {
        Ok(true) => temp_folder::write(library.to_owned(), &bytes).map(drop),
        Ok(false) => Ok(()),
        Err(error) => Err(malformed(&error)),
    }
}

/// Checks that the library, whose imports are weak, needs no runtime that compilers link because of a flag. The
/// library's link does not get such flags.
fn check_runtimes(library: &Path) -> Result<(), BuildError> {
    let bytes = read(library)?;
    let elf = Elf::parse(&*bytes).map_err(|error| malformed(&error))?;
    let symbols = elf.elf_dynamic_symbol_table();
    let needed = symbols.iter().filter(|symbol| symbol.is_undefined(LITTLE) && !symbol.is_weak());
    let names: Vec<_> = needed
        .map(|symbol| {
            String::from_utf8_lossy(symbols.symbol_name(LITTLE, symbol).unwrap_or_default()).into_owned()
        })
        .collect();
    match runtime_cause(names.iter().map(String::as_str)) {
        Some(cause) => Err(BuildError::Runtime { cause }),
        None => Ok(()),
    }
}

fn malformed(error: &object::Error) -> BuildError {
    BuildError::Malformed { object: "the linked library".into(), problem: error.to_string() }
}

/// Puts the finished library in its place atomically: a program that has loaded the old one keeps it.
fn replace(finished: &Path, output: &Path) -> Result<(), BuildError> {
    let unwritable = |source| BuildError::Write { path: output.to_owned(), source };
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let neighbour = tempfile::Builder::new().prefix(".farjump-").tempfile_in(folder).map_err(unwritable)?;
    // The copy also keeps the permissions that the linker set.
    fs::copy(finished, neighbour.path()).map_err(unwritable)?;
    neighbour.persist(output).map_err(|error| unwritable(error.error))?;
    Ok(())
}
