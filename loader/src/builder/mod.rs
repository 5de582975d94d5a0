//! Building ifunc libraries: from C, C++ and Rust, and from objects and archives of any compiler.
//!
//! Every source is compiled to position-independent objects. One link with a short linker script takes
//! exactly what `NAME_main` reaches. The result becomes a canonical image. An ordinary link of all objects
//! makes the library, which carries the image. No assembly is rewritten. Unsupported code is refused here,
//! before its author, and not at the target.
//!
//! Requires at run time: a C compiler driver (for the library's link, even without sources), GNU ld or lld,
//! and for Rust inputs rustc or cargo.

mod compile;
mod edit_symbols;
mod embed;
mod error;
mod extract;
mod link;
mod locate_symbol;
mod objects;
mod relocations;
mod routines;
mod run_tool;
mod rust;
mod temp_folder;
mod wanted;

use std::path::PathBuf;

use farjump_core::image::CodeId;

pub use error::{BuildError, Pointee, Site};
pub use link::{LINKERS, follows_scripts};
use temp_folder::Scratch;

use crate::bundle::{Bundle, BundleImage, Sizes};
use crate::code_id;

/// Inputs and settings of a build.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// C sources (`.c`, `.s`, `.S`), C++ sources (`.cc`, `.cpp`, `.cxx`, `.C`), Rust sources (`.rs`), crates
    /// (a folder or its `Cargo.toml`), ELF objects, archives; in any mixture. Objects must be
    /// position-independent. From objects compiled without `-ffunction-sections` more code travels than
    /// necessary.
    pub inputs: Vec<PathBuf>,
    /// The library to write. An existing file is replaced atomically on success, and kept otherwise.
    pub output: PathBuf,
    /// NAME of the routines. `None`: from the output's, `libNAME.so` or `NAME.so`.
    pub name: Option<String>,
    /// The C compiler driver, a program without arguments. `None`: `cc`. C++ uses the driver that belongs to
    /// it (`g++` to `gcc`, `clang++` to `clang`).
    pub cc: Option<String>,
    /// Flags for the compiler, after farjump's own (which contain `-Os`), and for the link of the library,
    /// after the objects, so that `-lz` works for the payload routines. Shared libraries among them that
    /// define imports of the image are its *wanted libraries*, except the C library's own. Rust ignores them.
    pub cflags: Vec<String>,
    /// The linker that makes the image: GNU ld or lld. `None`: the one in the environment variable
    /// `FARJUMP_LD`, otherwise the first usable one of `ld.bfd`, `ld`, `ld.lld`.
    pub linker: Option<PathBuf>,
    /// Whether compiled code gets debugging information: lines, types and variables. The image stays the
    /// same; the library's file gets larger. Crates are compiled as their release profile says.
    pub debug: bool,
}

/// The result of a build.
#[derive(Clone, Debug)]
pub struct BuildReport {
    /// NAME of the routines.
    pub name: String,
    /// The library, as given in [`Options::output`].
    pub library: PathBuf,
    /// The image that it carries.
    pub image: Vec<u8>,
    /// Sizes of the image's parts.
    pub sizes: Sizes,
    /// The image's code id.
    pub id: CodeId,
    /// Whether the payload is the arguments unchanged. If not, a source must load the library.
    pub payload_is_args: bool,
    /// Sonames of the libraries that the image wants of a target.
    pub wanted: Vec<String>,
    /// The version text of the linker that made the image.
    pub linker: String,
    /// Output of compilers and linkers, usually warnings; may be empty.
    pub messages: String,
}

/// Builds an ifunc library.
///
/// Blocks until the compilers and linkers that it starts have ended. Intermediate files are in a folder of
/// their own under the system's temporary folder, removed at the end.
///
/// # Errors
/// See [`BuildError`]. The output is then unchanged.
pub fn build(options: &Options) -> Result<BuildReport, BuildError> {
    let rules = relocations::Rules::native()?;
    let name = routines::name(options)?;
    let scratch = Scratch::new()?;
    let mut compiled = compile::compile(options, rules, &scratch)?;
    let compiled_here = |path: &PathBuf| scratch.holds(path);
    routines::expose(&name, compiled.files.iter().map(|file| &file.path).filter(|path| compiled_here(path)))?;
    let objects = objects::Objects::read(&compiled.files, rules)?;
    let routines = routines::find(&name, &objects, &compiled.files)?;

    let linker = link::Linker::find(options.linker.as_deref())?;
    let runtime = link::runtime_library(compile::cc(options));
    let inputs = link::Inputs {
        files: &compiled.files,
        objects: &objects,
        name: &name,
        runtime: runtime.as_deref(),
        rules,
        scratch: &scratch,
    };
    let (linked, messages) = linker.link_image(&inputs, false)?;
    // A target that shows code to debuggers adds the code's address to each address in these symbols.
    let symbols =
        if options.debug { linker.link_image(&inputs, true).ok().map(|(linked, _)| linked) } else { None };
    compiled.say(&messages);
    let wanted = |imports: &[String]| wanted::find(options, &compiled, imports, rules, &scratch);
    let extracted = extract::extract(&linked, &name, rules, wanted)
        .map_err(|error| locate_symbol::locate(error, &objects, &name))?;

    let image = BundleImage { sizes: extracted.sizes, bytes: &extracted.image };
    let id = code_id(&extracted.image);
    let bundle = Bundle { name: &name, images: vec![image] };
    let payload_is_args = extracted.payload_is_args;
    let symbols = symbols.filter(|symbols| {
        let again = extract::extract(symbols, &name, rules, |_| Ok(extracted.wanted.clone()));
        again.is_ok_and(|again| again.image == extracted.image)
    });
    let linked = symbols.as_deref().unwrap_or(&linked);
    let has_signature = extracted.has_signature;
    let carried = embed::Carried { bundle: &bundle, id, linked, payload_is_args, has_signature };
    embed::write_library(options, &mut compiled, &routines, &carried, &extracted.imports, rules, &scratch)?;
    Ok(BuildReport {
        library: options.output.clone(),
        sizes: extracted.sizes,
        id,
        payload_is_args,
        wanted: extracted.wanted,
        linker: linker.version,
        messages: compiled.messages,
        image: extracted.image,
        name,
    })
}
