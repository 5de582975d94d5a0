//! Building ifunc libraries: from C, C++ and Rust, from bitcode, and from objects and archives of any compiler.
//!
//! Every source is compiled to position-independent objects. One link with a short linker script takes exactly the code
//! and data that `NAME_main` reaches. The result becomes a canonical image. An ordinary link of all objects makes the
//! library, which carries the image. No assembly is rewritten. The build refuses unsupported code in front of its
//! author, before it reaches a target.
//!
//! For other machines and CPU levels the build repeats these steps, up to the image. The library itself, and the
//! payload routines in it, are for the machine that builds it.
//!
//! Requires at run time: a C compiler driver (for the library's link, even without sources), and for Rust inputs
//! rustc or cargo. For other machines a compiler for these. Images are linked by GNU ld or lld, and without them by
//! farjump's own linker.

mod bitcode;
mod checks;
mod compile;
mod compiler;
mod debug_file;
mod edit_symbols;
mod embed;
mod error;
mod error_parts;
mod exact;
mod extract;
mod facts;
mod for_cpu;
mod image;
mod link;
mod link_flags;
mod llvm_version;
mod locate_symbol;
mod objects;
mod of_objects;
mod own;
mod reduce;
mod routines;
mod rules;
mod run_tool;
mod rust;
pub(crate) mod source;
mod supervisor;
mod temp_folder;
mod trial;
mod wanted;

use std::path::PathBuf;

use farjump_core::cpu::Cpu;
use farjump_core::image::{CodeId, Machine, Platform};

pub use crate::library::carried_source::CarriedSource;
use bitcode::Bitcode;
pub use error::{BuildError, Pointee, Site};
pub use for_cpu::build_for_cpu;
use image::{Goal, Image};
pub use link::{LINKERS, OWN, follows_scripts};
pub use of_objects::{LinkError, Linked, ObjectsOf, link_library, link_objects};
pub use reduce::rust_llvms;
use rules::Rules;
use source::Source;
pub use supervisor::Supervisor;
use temp_folder::Scratch;
pub use trial::{try_compiler, try_linker};

use crate::library::bundle::{Bundle, BundleImage, Sizes};
use crate::library::file_contents::Carrier;

/// Inputs and settings of a build.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// C sources (`.c`, `.s`, `.S`), C++ sources (`.cc`, `.cpp`, `.cxx`, `.C`), Rust sources (`.rs`), crates (a folder
    /// or its `Cargo.toml`), ELF objects, archives, LLVM bitcode; in any mixture. Or one library that carries its
    /// source. Objects must be position-independent. From objects compiled without `-ffunction-sections` more code
    /// travels than necessary.
    pub inputs: Vec<PathBuf>,
    /// The library to write. An existing file is replaced atomically on success, and kept otherwise.
    pub output: PathBuf,
    /// NAME of the routines. `None`: from the output's, `libNAME.so` or `NAME.so`.
    pub name: Option<String>,
    /// The platforms to build images for, each once; if there are none, the baseline of this machine, or that of
    /// [`Options::cpu`]. Sources are compiled for each. Of objects and archives each takes those for its machine.
    pub targets: Vec<Platform>,
    /// A CPU to build one more image for, as a peer sends it. The image may use each of its features that the compiler
    /// knows, names them, and runs on CPUs that have them all.
    pub cpu: Option<Cpu>,
    /// The C compiler driver: a program, or a program and arguments (`zig cc`). `None`: `cc`. C++ uses the driver
    /// that belongs to it (`g++` to `gcc`, `clang++` to `clang`). If it is clang or zig, it compiles for other
    /// machines too.
    pub cc: Option<String>,
    /// Drivers for other machines. If none is named for a machine, the first one that compiles a line. The order is
    /// `cc`, if it is clang or zig, the machine's own gcc (`aarch64-linux-gnu-gcc`), `clang`, and `zig cc`.
    pub target_ccs: Vec<(Machine, String)>,
    /// Flags for the compiler, after farjump's own (which contain `-Os`). Those that concern the link (`-l`, `-L`,
    /// `-Wl,…`, files) also reach the link of the library, after the objects, so that `-lz` works for the payload
    /// routines. Shared libraries among them that define imports of the image are its *wanted libraries*, except the C
    /// library's own. Rust ignores them.
    pub cflags: Vec<String>,
    /// The linker that makes images: GNU ld or lld. `None`: the one in the environment variable `FARJUMP_LD`, otherwise
    /// the first one of `ld.bfd`, `ld`, `ld.lld` that links a line. For other machines it is used if it links for them;
    /// otherwise their own GNU ld (`aarch64-linux-gnu-ld`) or `ld.lld`. [`OWN`], or none of these: farjump's own.
    pub linker: Option<PathBuf>,
    /// Whether the library carries its source: C and C++ files with the author's headers that they include, and single
    /// Rust files. Such a library can be the only input of a build, and then stands for its source.
    pub carry_source: bool,
    /// Whether compiled code gets debugging information: lines, types and variables. The image stays the
    /// same; the library's file gets larger. Crates are compiled as their release profile says.
    pub debug: bool,
    /// Whether the library also carries bitcode for the machine of each target. Inputs must be C, C++, Rust or bitcode
    /// files. For C and C++ there must be a compiler for bitcode: `cc`, if it is clang or zig, otherwise `clang` or
    /// `zig cc`.
    pub bitcode: bool,
    /// Runs the compilers and linkers. By default nothing bounds them.
    pub supervisor: Supervisor,
}

/// The result of a build.
#[derive(Clone, Debug)]
pub struct BuildReport {
    /// NAME of the routines.
    pub name: String,
    /// The library, as given in [`Options::output`].
    pub library: PathBuf,
    /// The images that it carries, in the order of [`Options::targets`], then that for [`Options::cpu`], and then the
    /// bitcode for each machine.
    pub images: Vec<BuiltImage>,
    /// Whether the payload is the arguments unchanged. If not, a source must load the library.
    pub payload_is_args: bool,
    /// Output of compilers and linkers, usually warnings; may be empty.
    pub messages: String,
}

/// An image that was built.
#[derive(Clone, Debug)]
pub struct BuiltImage {
    /// The platform that it is for; if it is for one CPU, that of the CPU.
    pub target: Platform,
    /// The CPU features that it needs, if it is for one CPU; otherwise none.
    pub features: Vec<String>,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Sizes of its parts.
    pub sizes: Sizes,
    /// Its code id.
    pub id: CodeId,
    /// Sonames of its wanted libraries.
    pub wanted: Vec<String>,
    /// The version text of the linker that made it; empty for bitcode.
    pub linker: String,
    /// For bitcode, the major version of the LLVM that wrote it, 0 if that is not known; `None` for images.
    pub llvm: Option<u16>,
}

/// Builds an ifunc library.
///
/// Blocks until the compilers and linkers that it starts have ended. Intermediate files are in a separate folder under
/// the system's temporary folder, removed at the end.
///
/// # Errors
/// See [`BuildError`]. The output is then unchanged.
pub fn build(options: &Options) -> Result<BuildReport, BuildError> {
    let rules = Rules::native()?;
    let scratch = Scratch::new()?;
    let _guarded = options.supervisor.begin(&scratch)?;
    let unpacked = from_library(options, &scratch)?;
    let options = unpacked.as_ref().unwrap_or(options);
    let name = routines::name(options)?;
    let own = Platform::baseline(rules.machine);
    let default = options.cpu.as_ref().map_or(own, |cpu| Platform::baseline(cpu.machine()));
    let targets =
        if options.targets.is_empty() { std::slice::from_ref(&default) } else { &options.targets[..] };
    let twice = targets.iter().enumerate().find(|(index, target)| targets[..*index].contains(target));
    if let Some((_, &target)) = twice {
        return Err(BuildError::TargetTwice { target });
    }
    let host = Image::build(options, Goal::Platform(own), &name, &scratch)?;
    let mut others = Vec::new();
    for &target in targets.iter().filter(|target| **target != own) {
        let image = Image::build(options, Goal::Platform(target), &name, &scratch);
        others.push(image.map_err(|source| BuildError::ForTarget { target, source: Box::new(source) })?);
    }
    let exact = options.cpu.as_ref().map(|cpu| {
        let image = Image::build(options, Goal::Cpu(cpu), &name, &scratch);
        image.map_err(|source| BuildError::ForCpu { cpu: cpu.to_string(), source: Box::new(source) })
    });
    let exact = exact.transpose()?;
    // The host's image is always built: the library has its code too. The library carries it if the options name its
    // target.
    let image_of = |target: &Platform| others.iter().find(|image| image.target == *target).unwrap_or(&host);
    let images: Vec<&Image> = targets.iter().map(image_of).chain(&exact).collect();
    for image in &images {
        host.check_agrees(image, &name)?;
    }

    let mut bitcodes: Vec<Bitcode> = Vec::new();
    for image in images.iter().filter(|_| options.bitcode) {
        if bitcodes.iter().all(|bitcode| bitcode.machine.machine != image.target.machine) {
            let bitcode = Bitcode::build(options, image, &name, &scratch);
            let target = Platform::baseline(image.target.machine);
            bitcodes.push(bitcode.map_err(|source| match target == own {
                true => source,
                false => BuildError::ForTarget { target, source: Box::new(source) },
            })?);
        }
    }
    let source =
        if options.carry_source { Some(carried_source(options, &host, &name, &scratch)?) } else { None };
    let carried = images.iter().map(|image| BundleImage { sizes: image.sizes(), bytes: image.bytes() });
    let compact =
        bitcodes.iter().map(|bitcode| BundleImage { sizes: Sizes::default(), bytes: &bitcode.bytes });
    let bundle = Bundle { name: &name, images: carried.chain(compact).collect() };
    let symbols = images.iter().map(|image| (image.id, &*image.linked)).collect();
    let carried = embed::Carried {
        bundle: &bundle,
        symbols,
        source,
        payload_is_args: host.payload_is_args(),
        has_signature: host.has_signature(),
    };
    let write = |compiled| embed::write_library(options, &host, compiled, &carried, &scratch);
    let mut messages = match write(&host.compiled) {
        // The library may have more constants and variables around its routines than the image has.
        Err(error @ BuildError::Link { .. }) => match host.compiled_for_far(options, &name, &scratch)? {
            Some(compiled) => write(&compiled)?,
            None => return Err(error),
        },
        written => written?,
    };
    let of_images = [&host].into_iter().chain(&others).chain(&exact).map(Image::messages);
    for said in of_images.chain(bitcodes.iter().map(|bitcode| &*bitcode.messages)) {
        if !messages.contains(said) {
            messages.push_str(said);
        }
    }
    Ok(BuildReport {
        library: options.output.clone(),
        payload_is_args: host.payload_is_args(),
        images: images.into_iter().map(Image::report).chain(bitcodes.iter().map(Bitcode::report)).collect(),
        messages,
        name,
    })
}

/// The options for the source of a library that is the only input; `None` if it is no ifunc library.
fn from_library(options: &Options, scratch: &Scratch) -> Result<Option<Options>, BuildError> {
    let [input] = &options.inputs[..] else { return Ok(None) };
    let is_library = |kind| matches!(kind, compile::Kind::Object(Some(_)));
    if !compile::kind(input).is_ok_and(is_library) {
        return Ok(None);
    }
    let bytes = std::fs::read(input).map_err(|source| BuildError::Read { path: input.clone(), source })?;
    let Ok(carrier) = Carrier::parse(&bytes) else { return Ok(None) };
    let bundle = carrier.stated_bundle().ok().flatten().and_then(|bundle| Bundle::parse(bundle).ok());
    let Some(bundle) = bundle else { return Ok(None) };
    let refused = |reason: String| BuildError::LibraryAsInput { path: input.clone(), reason };
    let none =
        || "carries no source to build from: build it with its source (Options::carry_source)".to_owned();
    let source = Source::of(carrier.elf()).and_then(|source| source.ok_or_else(none)).map_err(refused)?;
    let mut options = source.unpack(&scratch.folder("source")?, options)?;
    options.name.get_or_insert(bundle.name.to_owned());
    Ok(Some(options))
}

/// The source to carry, which builds by itself.
fn carried_source(
    options: &Options,
    host: &Image,
    name: &str,
    scratch: &Scratch,
) -> Result<Vec<u8>, BuildError> {
    let include = compile::own_headers(&scratch.folder("own")?)?;
    let source = Source::collect(options, &host.compiler, &include)?;
    let encoded = source.encode()?;
    let alone = Scratch::new()?;
    let again = source.unpack(&alone.folder("alone")?, &Options { cflags: Vec::new(), ..options.clone() })?;
    Image::build(&again, Goal::Platform(host.target), name, &alone)
        .map_err(|source| BuildError::SourceAlone { source: Box::new(source) })?;
    Ok(encoded)
}
