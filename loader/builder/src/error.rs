//! Errors in building an ifunc library.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use farjump_core::code::CodeError;
use farjump_core::image::{ImageError, Machine, Platform};
use farjump_loader::ImportCause;
use farjump_loader::library::bundle::BundleError;
use farjump_os::temporary::without_path;
use farjump_os::{limits, temporary};

use crate::error_parts::{BITCODE_ADVICE, BOUNDS, STACK, constructor_advice, list, missing_advice, place};
pub use crate::error_parts::{Pointee, Site};

/// The reason why no ifunc library was built. Each text names the finding, its place, and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// No input.
    #[error("nothing to build: give C, C++ or Rust sources, a crate, objects or archives")]
    NoInput,
    /// Images cannot be built for this machine.
    #[error(
        "farjump cannot build ifunc libraries on {machine}: it has images for x86-64, aarch64 and riscv64"
    )]
    Unsupported {
        /// Architecture of this program.
        machine: &'static str,
    },
    /// A target named twice.
    #[error("target {target} is named twice: a library has one image for each")]
    TargetTwice {
        /// The target.
        target: Platform,
    },
    /// The image for one target, if that is not the machine of this program, cannot be built.
    #[error("for {target}: {source}")]
    ForTarget {
        /// The target.
        target: Platform,
        /// The reason.
        source: Box<BuildError>,
    },
    /// The image for one CPU cannot be built.
    #[error("for the CPU {cpu}: {source}")]
    ForCpu {
        /// The CPU: machine, level and name.
        cpu: String,
        /// The reason.
        source: Box<BuildError>,
    },
    /// A compiler that takes no single features.
    #[error(
        "zig cannot be told the features of one CPU: name gcc or clang (Options::cc, Options::target_ccs)"
    )]
    NotForOneCpu,
    /// A source that a library cannot carry.
    #[error("the library cannot carry its source: `{}` {reason} (Options::carry_source)", path.display())]
    NoSource {
        /// The file.
        path: PathBuf,
        /// The reason, as the end of a sentence.
        reason: String,
    },
    /// Carried source that does not build without files which are not carried.
    #[error(
        "the library cannot carry its source, which does not build by itself (Options::carry_source): \
         {source}"
    )]
    SourceAlone {
        /// The error of that build.
        source: Box<BuildError>,
    },
    /// An input library that has no usable source.
    #[error("`{}` is a shared library, and {reason}", path.display())]
    LibraryAsInput {
        /// The library.
        path: PathBuf,
        /// The reason, as the end of a sentence.
        reason: String,
    },
    /// Images of one library with different properties that concern the source.
    #[error(
        "the images of `{name}` do not agree: {property} is {first} for {} and {second} for {}. A source makes one \
         payload, whatever the target is", targets.0, targets.1
    )]
    ImagesDisagree {
        /// Name of the ifunc.
        name: String,
        /// The property.
        property: &'static str,
        /// The two targets.
        targets: (Platform, Platform),
        /// The property of the first one's image.
        first: String,
        /// The property of the second one's image.
        second: String,
    },
    /// Rust's core library for a target is not installed.
    #[error(
        "Rust has no core library for {triple}: run `rustup target add {triple}`, or install it beside the compiler \
         (Debian: libstd-rust-dev of that architecture)"
    )]
    NoRustTarget {
        /// The target triple.
        triple: &'static str,
    },
    /// A name that no ifunc can have.
    #[error(
        "`{name}` cannot name an ifunc: take a C identifier of at most 255 ASCII characters (Options::name)"
    )]
    Name {
        /// The given name, or the one derived from the output's.
        name: String,
    },
    /// An input of no known kind.
    #[error(
        "cannot build from {}: it is no C or C++ source (.c, .cc, .cpp, .cxx, .s, .S), Rust source (.rs), crate \
         (folder or Cargo.toml), ELF object or archive", .path.display()
    )]
    Input {
        /// The input.
        path: PathBuf,
    },
    /// An input or an intermediate file cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// No folder can be made for intermediate files.
    #[error("{}", temporary::lacking(.source))]
    NoTempFolder {
        /// The cause.
        source: io::Error,
    },
    /// Macros of Rust cannot be loaded from any folder for temporary files.
    #[error(
        "the compiler loads macros of Rust from a temporary folder, and {} is mounted noexec, as are the others that were \
         tried: set TMPDIR to a folder that is not",
        temporary::in_words()
    )]
    NoExecFolder,
    /// The library or an intermediate file cannot be written.
    #[error("cannot write {}: {}{}", .path.display(), without_path(.source), limits::behind(without_path(.source)))]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A required program does not start.
    #[error("cannot run `{tool}`: {source}{}", limits::behind_program(.source, .advice))]
    Tool {
        /// The program.
        tool: String,
        /// The cause.
        source: io::Error,
        /// The package to install or the setting to change, if the program is missing.
        advice: String,
    },
    /// An installed program that does not work: it ends before its task, or fails at a line of input.
    #[error(
        "`{tool}` is there and does not {task} ({status}):\n{messages}\nRepair it, or use another: {advice}"
    )]
    Unusable {
        /// The program.
        tool: String,
        /// Its task, as the end of a clause.
        task: &'static str,
        /// Its exit status.
        status: ExitStatus,
        /// Its output.
        messages: String,
        /// The package to install or the setting to change.
        advice: String,
    },
    /// The programs of a supervised build took too long.
    #[error("`{tool}` was ended: the build took longer than {limit:?}")]
    TimedOut {
        /// The program that ran.
        tool: String,
        /// The limit.
        limit: Duration,
    },
    /// A supervised build was stopped ([`Supervisor::stop`](crate::tools::supervisor::Supervisor::stop)).
    #[error("the build was stopped")]
    Stopped,
    /// A compiler rejected a source.
    #[error("`{tool}` does not compile {}:\n{messages}", .path.display())]
    Compile {
        /// The compiler.
        tool: String,
        /// The source or crate.
        path: PathBuf,
        /// Its output.
        messages: String,
    },
    /// A crate that has no library target.
    #[error("{}: cargo made no static library of it. The crate needs a library target (src/lib.rs)", .path.display())]
    NoStaticLibrary {
        /// The crate.
        path: PathBuf,
    },
    /// A linker that does not follow linker scripts.
    #[error(
        "`{linker}` ({version}) cannot link images: it ignores the layout in a linker script. Name GNU ld \
         (ld.bfd) or lld (ld.lld) in FARJUMP_LD"
    )]
    WrongLinker {
        /// The program.
        linker: String,
        /// Its version text.
        version: String,
    },
    /// The linker failed.
    #[error("`{linker}` cannot link it:\n{messages}")]
    Link {
        /// The program.
        linker: String,
        /// Its output.
        messages: String,
    },
    /// Code compiled for one fixed address.
    #[error(
        "injected code runs at any address, and this is not position-independent. Compile it with -fPIC (without \
         -fno-pic and -fPIE). `{linker}` says:\n{messages}"
    )]
    NotPositionIndependent {
        /// The program.
        linker: String,
        /// Its output, with object, section and symbol.
        messages: String,
    },
    /// An object that cannot be read as one.
    #[error("{object} is no usable object: {problem}")]
    Malformed {
        /// The object.
        object: String,
        /// The error in it.
        problem: String,
    },
    /// An object for another machine.
    #[error("{object} is for {found}, and the image is for {expected}: compile it for that")]
    Machine {
        /// The object.
        object: String,
        /// Its word size and machine.
        found: String,
        /// The machine of the image.
        expected: Machine,
    },
    /// An object without machine code.
    #[error(
        "{object} holds a compiler's intermediate code (LTO) and no machine code, so the image would be empty. Compile \
         it without -flto"
    )]
    Intermediate {
        /// The object.
        object: String,
    },
    /// One of the three routines is missing.
    #[error("there is no `{routine}` in {}{}", list(.searched), missing_advice(.name, .mains))]
    MissingRoutine {
        /// Name of the ifunc.
        name: String,
        /// The routine.
        routine: String,
        /// The inputs that do not define it.
        searched: Vec<String>,
        /// Every `*_main` that they do define: the symbol and its object.
        mains: Vec<(String, String)>,
    },
    /// Both forms of the payload routine.
    #[error(
        "`{name}` has both `{name}_payload_init` and `{name}_payload_init_shrink`: keep one. The second may use less \
         than the space it is given"
    )]
    TwoPayloadInits {
        /// Name of the ifunc.
        name: String,
    },
    /// A routine that a shared library cannot export.
    #[error(
        "`{routine}` in {object} is hidden, so a library cannot export it. Mark it FARJUMP_IFUNC, or compile it \
         without -fvisibility=hidden"
    )]
    HiddenRoutine {
        /// The routine.
        routine: String,
        /// The object that defines it.
        object: String,
    },
    /// `NAME_main` is not code.
    #[error("{} defines `{name}_main`, which is not a function: it lies outside the code of the image", place(.site))]
    MainIsNoCode {
        /// Its location, if found.
        site: Option<Site>,
        /// Name of the ifunc.
        name: String,
    },
    /// Nothing was linked.
    #[error("the image of `{name}` is empty: the linker found no machine code that `{name}_main` reaches")]
    Empty {
        /// Name of the ifunc.
        name: String,
    },
    /// Thread-local storage.
    #[error(
        "{} uses thread-local variable `{symbol}`: injected code cannot have any. Make it an argument, or keep it at \
         the target and export a function that gives its address", place(.site)
    )]
    ThreadLocal {
        /// Its location, if found.
        site: Option<Site>,
        /// The variable.
        symbol: String,
    },
    /// An ELF indirect function (`__attribute__((ifunc))`), which the dynamic linker would resolve.
    #[error(
        "{} uses `{symbol}`, which a resolver function chooses at load time (IRELATIVE relocation): nothing runs it at \
         the target. Call one of its implementations, or let the target export it", place(.site)
    )]
    Indirect {
        /// Its location, if found.
        site: Option<Site>,
        /// The function.
        symbol: String,
    },
    /// Data of a shared library that would be copied into the image.
    #[error(
        "{} wants a copy of `{symbol}` (COPY relocation): an image cannot hold another library's data. Compile with \
         -fPIC", place(.site)
    )]
    Copy {
        /// Its location, if found.
        site: Option<Site>,
        /// The variable.
        symbol: String,
    },
    /// A relocation that images do not support.
    #[error(
        "{} needs relocation {relocation} for `{symbol}`: an image can only hold whole addresses of symbols. Compile \
         with -fPIC, and take the symbol's address instead", place(.site)
    )]
    Relocation {
        /// Its location, if found.
        site: Option<Site>,
        /// The symbol that it refers to, or that contains it.
        symbol: String,
        /// Name and number of the relocation's type.
        relocation: String,
    },
    /// The address of an import in an instruction.
    #[error(
        "{} has the address of `{symbol}` in an instruction, as code for the large code model does: an image takes the \
         addresses of imports from a table. Compile it with -mcmodel=small -fPIC (without -mcmodel=large; rustc: \
         -C code-model=small; LLVM's and Numba's JIT: code model small, PIC)", place(.site)
    )]
    AddressInCode {
        /// Its location, if found.
        site: Option<Site>,
        /// The import.
        symbol: String,
    },
    /// The address of an import at a location that cannot be patched.
    #[error(
        "{} has the address of `{symbol}`, which is the target's, in data that is not at a multiple of 8 bytes: do not \
         pack structures that hold pointers", place(.site)
    )]
    Unaligned {
        /// Its location, if found.
        site: Option<Site>,
        /// The import.
        symbol: String,
    },
    /// A pointer to something that does not travel.
    #[error(
        "{} has a pointer in `{symbol}` to something that does not travel ({pointee}): take it from the target instead",
        place(.site)
    )]
    Outside {
        /// Its location, if found.
        site: Option<Site>,
        /// The symbol that contains the pointer.
        symbol: String,
        /// The target of the pointer.
        pointee: Pointee,
    },
    /// An object that needs a stack whose contents can be executed.
    #[error("{object} {STACK}")]
    ExecutableStack {
        /// The object.
        object: String,
    },
    /// The start or the end of a section, as linkers mark it.
    #[error("{site} uses `{symbol}`, {BOUNDS}")]
    SectionBounds {
        /// Its location.
        site: Site,
        /// The symbol.
        symbol: String,
    },
    /// A section that an image cannot contain.
    #[error(
        "{} is a section that an image cannot contain: use .text, .rodata, .data or .bss, or a name that starts with \
         one of these and a dot", site.as_ref().map_or_else(|| section.clone(), Site::to_string)
    )]
    Section {
        /// Its location, if found.
        site: Option<Site>,
        /// The section.
        section: String,
    },
    /// A function that should run before `NAME_main`, or after everything.
    #[error(
        "{} registers `{symbol}` to run before or after everything else: nothing calls it at the target. {}",
        place(.site), constructor_advice(.cause)
    )]
    Constructor {
        /// The compiler's flag that added the function, if it is known to be one.
        cause: Option<ImportCause>,
        /// Its location, if found.
        site: Option<Site>,
        /// The function.
        symbol: String,
    },
    /// Payload routines that need a runtime which a compiler's driver links by a flag.
    #[error("the payload routines would run in processes without a library that they need: {cause}")]
    Runtime {
        /// The flag.
        cause: ImportCause,
    },
    /// Exceptions, or destructors at exit.
    #[error(
        "{} needs `{symbol}`: no exception can pass through injected code, and no destructor of a static runs in it. \
         Compile with -fno-exceptions and catch nothing; in Rust use panic=abort", place(.site)
    )]
    Unwinding {
        /// Its location, if found.
        site: Option<Site>,
        /// The import.
        symbol: String,
    },
    /// An alignment that is not possible.
    #[error(
        "`{name}` requests a payload alignment of {bytes} bytes: it must be a power of two from 8 to 4096"
    )]
    PayloadAlign {
        /// Name of the ifunc.
        name: String,
        /// The requested alignment.
        bytes: u64,
    },
    /// A signature that the attribute of `farjump-ifunc` did not make.
    #[error(
        "`{name}_signature` is no signature: declare the function by #[farjump_ifunc::ifunc], of this version of farjump"
    )]
    Signature {
        /// Name of the ifunc.
        name: String,
    },
    /// The parts do not form an image, or bitcode.
    #[error("the code makes no image: {0}")]
    Image(#[from] CodeError),
    /// No compiler that writes bitcode.
    #[error("there is no compiler for bitcode: {BITCODE_ADVICE}")]
    NoBitcodeCompiler,
    /// An input without bitcode.
    #[error(
        "there is no bitcode of `{}`, which {reason}: give C, C++ or Rust files, or bitcode (Options::bitcode)",
        path.display()
    )]
    NoBitcode {
        /// The input.
        path: PathBuf,
        /// The reason, as the end of a sentence.
        reason: &'static str,
    },
    /// The LLVM of rustc, by which its bitcode is reduced.
    #[error(
        "the LLVM of rustc {problem}: bitcode of Rust needs a toolchain of rustup's, or of one file libLLVM.so"
    )]
    NoRustLlvm {
        /// The problem, as the end of a clause.
        problem: String,
    },
    /// A compiler that wrote no bitcode on request.
    #[error("`{compiler}` was to write bitcode (-flto=thin -c) and wrote something else")]
    NoBitcodeWritten {
        /// The driver.
        compiler: String,
    },
    /// The image cannot be put into a library.
    #[error(transparent)]
    Bundle(#[from] BundleError),
}

impl From<ImageError> for BuildError {
    fn from(error: ImageError) -> Self {
        CodeError::Image(error).into()
    }
}
