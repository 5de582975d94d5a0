//! Errors of libraries, of arenas and of a target's exports.

use std::io;
use std::path::PathBuf;

use farjump_core::code::CodeError;
use farjump_core::image::{Machine, PlaceError, Platform};
use farjump_core::{debug_in_words, worded};
use farjump_os::limits;

use crate::arena::layout as arena_layout;
use crate::library::bundle::BundleError;
use crate::library::manifest::ManifestError;
use crate::library::signature::Shape;

/// Failures in opening a library, calling its routines, and making or using an arena. For the causes of refused code,
/// see [`crate::Refused`].
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No file at the path.
    #[error("there is no file `{}`: build one with `farjump build`", path.display())]
    NoSuchFile {
        /// The path as it was opened.
        path: PathBuf,
    },
    /// A file that cannot be read.
    #[error("cannot read `{}`: {source}", path.display())]
    Unreadable {
        /// The path as it was opened.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Something other than a 64-bit little-endian ELF shared library.
    #[error("`{}` is no ifunc library: it is {found}; build one with `farjump build`", path.display())]
    NotALibrary {
        /// The path as it was opened.
        path: PathBuf,
        /// The kind of the file.
        found: FileKind,
    },
    /// A shared library for another machine, whose routines cannot run here.
    #[error(
        "`{}` was built for {machine}, its routines cannot run on this machine: build it again here",
        path.display()
    )]
    ForeignLibrary {
        /// The path as it was opened.
        path: PathBuf,
        /// The machine that it was built for.
        machine: Machine,
    },
    /// A type that the function does not have.
    #[error(transparent)]
    OtherType(Box<OtherType>),
    /// A type that needs more alignment than payloads of the function have.
    #[error(
        "a `{type_name}` is aligned to {needed} bytes, and payloads of `{name}` to {given} at least: build the function with \
         FARJUMP_PAYLOAD_ALIGN({name}, {needed})"
    )]
    TypeAlign {
        /// Name of the ifunc.
        name: String,
        /// The program's type.
        type_name: &'static str,
        /// Its alignment in bytes.
        needed: usize,
        /// The least alignment of a payload in bytes.
        given: usize,
    },
    /// The dynamic linker refused the library.
    #[error("cannot load `{}`: {message}", path.display())]
    Load {
        /// The path, or the name to search for, as given.
        path: PathBuf,
        /// The dynamic linker's message.
        message: String,
    },
    /// A name that is no soname.
    #[error("{name:?} is no soname: 1 to 255 printable characters without a slash, as libz.so.1")]
    Soname {
        /// The name as given.
        name: String,
    },
    /// An ELF file that is damaged.
    #[error("`{}` is no shared library that can be read: {problem}", path.display())]
    Malformed {
        /// The path as it was opened.
        path: PathBuf,
        /// The damage.
        problem: String,
    },
    /// A file that is too long to read.
    #[error("`{}` is longer than {max} bytes: strip it, or keep large data out of the library", path.display())]
    TooLong {
        /// The path as it was opened.
        path: PathBuf,
        /// Longest file that is read, in bytes.
        max: u64,
    },
    /// A library with its author's payload routines that was opened, not loaded: opening runs none of its code.
    #[error(
        "`{name}` (`{}`) has payload routines of its own, which run in this process: if you trust their author, load the library, by `unsafe {{ Library::load(..) }}` in place of `Library::open`, in C by `farjump_library_load()`",
        path.display()
    )]
    NotLoaded {
        /// Name of the ifunc.
        name: String,
        /// The path as it was opened.
        path: PathBuf,
    },
    /// A shared library that carries no images.
    #[error("`{}` is a shared library, but carries no images: was it built with `farjump build`?", path.display())]
    NoBundle {
        /// The path as it was opened.
        path: PathBuf,
    },
    /// An ifunc library without symbols for debuggers.
    #[error("`{}` keeps no symbols of its images: was it stripped, or not built with `farjump build`?", path.display())]
    NoSymbols {
        /// The path as it was opened.
        path: PathBuf,
    },
    /// A bundle that is damaged, or names no ifunc.
    #[error("`{}`: {source}", path.display())]
    Bundle {
        /// The path as it was opened.
        path: PathBuf,
        /// The damage.
        source: BundleError,
    },
    /// An image in memory without a name.
    #[error(
        "an image does not say the name of its function: give the name with it, or the library that it is from"
    )]
    NoName,
    /// Bytes in memory that state another name than the given one.
    #[error("these bytes are the function `{found}` and not `{given}`: give its own name, or none")]
    OtherName {
        /// The name as given.
        given: String,
        /// The name that the bytes state.
        found: String,
    },
    /// A damaged image.
    #[error("`{}`, image {index}: {source}", path.display())]
    Image {
        /// The path as it was opened.
        path: PathBuf,
        /// Its position in the library.
        index: usize,
        /// The damage.
        source: CodeError,
    },
    /// A missing routine that every ifunc library must export.
    #[error("`{}` has no routine `{routine}`: define it, or let FARJUMP_COPY_ARGS do so", path.display())]
    MissingRoutine {
        /// The path as it was opened.
        path: PathBuf,
        /// Name of the routine; both names if either of two is enough.
        routine: String,
    },
    /// Both forms of the payload routine.
    #[error("`{}` has both `{name}_payload_init` and `{name}_payload_init_shrink`: keep one", path.display())]
    TwoInits {
        /// The path as it was opened.
        path: PathBuf,
        /// Name of the ifunc.
        name: String,
    },
    /// Two images for one platform, or more images than a library can have.
    #[error("`{}`: {source}: build the library again", path.display())]
    Manifest {
        /// The path as given.
        path: PathBuf,
        /// The reason.
        source: ManifestError,
    },
    /// Images that require different alignments of the payload, which exists before the target is chosen.
    #[error(
        "`{}`: the images for {} and {} ask for different alignments of the payload: build the library again",
        path.display(), platforms[0], platforms[1]
    )]
    PayloadAlignments {
        /// The path as given.
        path: PathBuf,
        /// The platforms of the two images; `exact` instead of a level for an image that was compiled for one CPU.
        platforms: [String; 2],
    },
    /// The library has no image that the target's CPU runs.
    #[error(
        "`{name}` has no image for {target} (it has {offered}){hint} build it for that target too (`farjump build \
         --target {}`)", target.machine
    )]
    NoImage {
        /// Name of the ifunc.
        name: String,
        /// The machine and level of the target's CPU.
        target: Platform,
        /// The platforms of its images.
        offered: String,
        /// Another remedy, and the sign before the first.
        hint: &'static str,
    },
    /// The library's payload routine failed; nothing is sent.
    #[error("the payload routine of `{name}` failed with {value}: nothing was sent")]
    PayloadInit {
        /// Name of the ifunc.
        name: String,
        /// The value that the routine returned.
        value: i32,
    },
    /// The payload routine claims to have written more than fits; nothing is sent.
    #[error("the payload routine of `{name}` reports {used} bytes in a buffer of {space}: nothing was sent")]
    PayloadOverrun {
        /// Name of the ifunc.
        name: String,
        /// Length that the routine returned, in bytes.
        used: usize,
        /// Length of its buffer, in bytes.
        space: usize,
    },
    /// An arena of no bytes, or longer than the distance between the spans.
    #[error("an arena of {len} bytes cannot be made: it has between 1 byte and {max}")]
    ArenaLength {
        /// Requested length.
        len: usize,
        /// Largest possible length.
        max: usize,
    },
    /// The system has no memory or addresses for an arena.
    #[error(
        "{} an arena of {len} bytes ({step}: {source}){}",
        if is_forbidden(source) { "the system does not let this process make" } else { "no memory for" },
        arena_advice(*len, *step, source, *addresses)
    )]
    ArenaMemory {
        /// Requested length.
        len: usize,
        /// The step that failed.
        step: ArenaStep,
        /// The limit of this process's address space and the part in use then, in bytes; `None` if there is no limit.
        addresses: Option<(u64, u64)>,
        /// The system's error.
        source: io::Error,
    },
    /// This process may not run code from memory that it wrote.
    #[error(
        "this process may not make memory executable ({source}): SELinux without execmem, a noexec policy, systemd's \
         MemoryDenyWriteExecute= or a seccomp filter forbids it; a target needs it, so allow it for this program"
    )]
    ExecForbidden {
        /// The system's error.
        source: io::Error,
    },
    /// No gap of the arena is long enough.
    #[error(
        "the arena has no gap for an image of {needed} bytes (of its {capacity}, {used} are in use and at most \
         {largest} are free in one piece): drop code, or make the arena larger"
    )]
    ArenaFull {
        /// Length of the longer of the image's two spans, in bytes.
        needed: usize,
        /// Length of the longest span that would fit, in bytes.
        largest: usize,
        /// Bytes in use.
        used: usize,
        /// Length of the arena, in bytes.
        capacity: usize,
    },
    /// The arena was made before this process was forked: its memory is not mapped here.
    #[error("this arena belongs to the process that this one was forked from: make one after the fork")]
    ArenaForked,
    /// The image does not fit its space or its imports, see [`PlaceError`].
    #[error(transparent)]
    Place(#[from] PlaceError),
}

debug_in_words!(Error {
    NoSuchFile { path },
    Unreadable { path, source },
    NotALibrary { path, found },
    ForeignLibrary { path, machine },
    OtherType(inner),
    TypeAlign { name, type_name, needed, given },
    Load { path, message },
    Soname { name },
    Malformed { path, problem },
    TooLong { path, max },
    NotLoaded { name, path },
    NoBundle { path },
    Bundle { path, source },
    NoName,
    OtherName { given, found },
    Image { path, index, source },
    MissingRoutine { path, routine },
    TwoInits { path, name },
    NoImage { name, target, offered, hint },
    Manifest { path, source },
    PayloadAlignments { path, platforms },
    PayloadInit { name, value },
    PayloadOverrun { name, used, space },
    ArenaLength { len, max },
    ArenaMemory { len, step, addresses, source },
    ExecForbidden { source },
    ArenaFull { needed, largest, used, capacity },
    ArenaForked,
    NoSymbols { path },
    Place(inner),
});

/// A type that a function does not have.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{name}` is `{text}`: its {part} {stated}, and `{type_name}` is {passed}: call it with the type that it has"
)]
#[non_exhaustive]
pub struct OtherType {
    /// Name of the ifunc.
    pub name: String,
    /// The function's declaration.
    pub text: String,
    /// Arguments or reply.
    pub part: TypedPart,
    /// The shape that the function declares.
    pub stated: Shape,
    /// The shape that the program passes.
    pub passed: Shape,
    /// The program's type.
    pub type_name: &'static str,
}

worded! {
    /// A part of a typed call.
    TypedPart {
        /// The arguments that the call passes.
        Arguments = "arguments are",
        /// The reply that the call returns.
        Reply = "reply is",
    }
}

worded! {
    /// A file that is no 64-bit little-endian ELF shared library.
    #[non_exhaustive]
    FileKind {
        /// A directory, a device or a pipe.
        NoFile = "a directory, a device or a pipe",
        /// A file without bytes.
        Empty = "an empty file",
        /// A static archive.
        Archive = "a static archive",
        /// A file of another format.
        NoElf = "not an ELF file",
        /// An ELF file for 32-bit or big-endian machines.
        OtherElf = "an ELF file, but not a 64-bit little-endian one",
        /// A program, an object or a core file.
        NoSharedLibrary = "an ELF file, but not a shared library",
    }
}

worded! {
    /// A step in making an arena.
    #[non_exhaustive]
    ArenaStep {
        /// Reserve addresses for code and its data.
        Reserve = "reserving addresses",
        /// Map the memory of code.
        MapCode = "mapping code",
        /// Map the same memory where code runs.
        MapCodeAgain = "mapping code a second time",
        /// Make the second mapping executable.
        MakeExecutable = "making code executable",
        /// Map the memory of data.
        MapData = "mapping data",
        /// Exclude the memory from forked processes.
        KeepFromChildren = "keeping it from forked children",
        /// Make the system provide its pages.
        Populate = "backing it with memory",
    }
}

impl ArenaStep {
    /// The system call of the step.
    fn call(self) -> &'static str {
        match self {
            ArenaStep::Reserve | ArenaStep::MapCode | ArenaStep::MapData => "mmap",
            ArenaStep::MapCodeAgain => "mremap",
            ArenaStep::MakeExecutable => "mprotect",
            ArenaStep::KeepFromChildren | ArenaStep::Populate => "madvise",
        }
    }
}

/// Returns whether a call failed because the process may not make it, not for lack of memory.
fn is_forbidden(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS))
}

/// The remedy if an arena of `len` bytes gets no memory or no addresses, or if the system forbids the call. `limited`
/// is the limit of addresses, and the part in use.
fn arena_advice(len: usize, step: ArenaStep, error: &io::Error, limited: Option<(u64, u64)>) -> String {
    if is_forbidden(error) {
        return limits::behind_call(step.call(), error);
    }
    format!(": {}", memory_advice(len, step, limited))
}

fn memory_advice(len: usize, step: ArenaStep, limited: Option<(u64, u64)>) -> String {
    const SMALLER: &str = "make it smaller (TargetBuilder::arena_size)";
    // Other steps take no addresses.
    let maps = matches!(step, ArenaStep::Reserve | ArenaStep::MapCode | ArenaStep::MapCodeAgain);
    let Some((limit, used)) = limited.filter(|_| maps) else {
        return format!("free memory, or {SMALLER}");
    };
    let asked = arena_layout::addresses(len) as u64;
    // At the failure, other threads may have used more addresses, up to the limit.
    let enough = limit.max(used) + asked;
    let text = format!(
        "the limit of address space is {} KiB, of which {} are in use, and an arena takes twice its length and 1 GiB \
         more: raise the limit to {} KiB (`ulimit -v`, LimitAS= of systemd)",
        limit / 1024,
        used / 1024,
        enough.div_ceil(1024)
    );
    // A smaller arena helps only if there is space for the part that every arena has.
    if used + arena_layout::addresses(1) as u64 <= limit { format!("{text}, or {SMALLER}") } else { text }
}
