//! What can go wrong with a library, with an arena or with what a target offers.

use std::io;
use std::path::PathBuf;

use farjump_core::image::{ImageError, Machine, PlaceError};

use crate::bundle::BundleError;

/// What failed at opening a library, calling its routines, making an arena or using it. Code that a target refuses has
/// causes of its own, see [`crate::Refused`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing is at the path.
    #[error("there is no file `{}`: build one with `farjump build`", path.display())]
    NoSuchFile {
        /// The path as it was opened.
        path: PathBuf,
    },
    /// The file is there and cannot be read.
    #[error("cannot read `{}`: {source}", path.display())]
    Unreadable {
        /// The path as it was opened.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something other than a 64-bit little-endian ELF shared library.
    #[error("`{}` is no ifunc library: it is {found}; build one with `farjump build`", path.display())]
    NotALibrary {
        /// The path as it was opened.
        path: PathBuf,
        /// What it is instead.
        found: &'static str,
    },
    /// A shared library whose routines cannot run here.
    #[error(
        "`{}` was built for {machine}, its routines cannot run on this machine: build it again here",
        path.display()
    )]
    ForeignLibrary {
        /// The path as it was opened.
        path: PathBuf,
        /// The machine it was built for.
        machine: Machine,
    },
    /// The dynamic linker refused it.
    #[error("cannot load `{}`: {message}", path.display())]
    Load {
        /// The path, or the name to search for, as it was given.
        path: PathBuf,
        /// What the dynamic linker said.
        message: String,
    },
    /// What cannot name a library that images want.
    #[error("{name:?} is no soname: 1 to 255 printable characters without a slash, as libz.so.1")]
    Soname {
        /// The name as it was given.
        name: String,
    },
    /// An ELF file that is damaged.
    #[error("`{}` is no shared library that can be read: {problem}", path.display())]
    Malformed {
        /// The path as it was opened.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A file that is too long to be read.
    #[error("`{}` is longer than {max} bytes: strip it, or build the library without what makes it so long", path.display())]
    TooLong {
        /// The path as it was opened.
        path: PathBuf,
        /// Longest file that is read, in bytes.
        max: u64,
    },
    /// Payload routines of the library's author make the payloads, and the library was only opened, which runs nothing of it.
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
    /// What it carries is damaged, or names no ifunc.
    #[error("`{}`: {source}", path.display())]
    Bundle {
        /// The path as it was opened.
        path: PathBuf,
        /// What is wrong with it.
        source: BundleError,
    },
    /// One of the images it carries is damaged.
    #[error("`{}`, image {index}: {source}", path.display())]
    Image {
        /// The path as it was opened.
        path: PathBuf,
        /// Its position in the library.
        index: usize,
        /// What is wrong with it.
        source: ImageError,
    },
    /// A routine that every ifunc library has is not exported by this one.
    #[error("`{}` has no routine `{routine}`: define it, or let FARJUMP_COPY_ARGS do so", path.display())]
    MissingRoutine {
        /// The path as it was opened.
        path: PathBuf,
        /// Name of the routine; where one of two would do, both.
        routine: String,
    },
    /// Both ways to fill in a payload.
    #[error("`{}` has both `{name}_payload_init` and `{name}_payload_init_shrink`: keep one", path.display())]
    TwoInits {
        /// The path as it was opened.
        path: PathBuf,
        /// Name of the ifunc.
        name: String,
    },
    /// No image of the library is for the machine asked for.
    #[error("`{name}` has no image for {machine} (it has {offered}): build it for that machine too")]
    NoImage {
        /// Name of the ifunc.
        name: String,
        /// The machine asked for.
        machine: Machine,
        /// The machines it has images for.
        offered: String,
    },
    /// The library's own routine says that there is no payload; nothing is sent.
    #[error("the payload routine of `{name}` failed with {value}: nothing was sent")]
    PayloadInit {
        /// Name of the ifunc.
        name: String,
        /// What the routine returned.
        value: i32,
    },
    /// The routine says that it wrote more than there was room for; nothing is sent.
    #[error(
        "the payload routine of `{name}` says it wrote {used} bytes into room for {room}: nothing was sent"
    )]
    PayloadOverrun {
        /// Name of the ifunc.
        name: String,
        /// Length that the routine gave back, in bytes.
        used: usize,
        /// Room that it was given, in bytes.
        room: usize,
    },
    /// An arena of no bytes, or longer than the distance between the spans.
    #[error("an arena of {len} bytes cannot be made: it has between 1 byte and {max}")]
    ArenaLength {
        /// Length asked for.
        len: usize,
        /// Longest possible.
        max: usize,
    },
    /// The system has no memory or addresses for an arena.
    #[error(
        "no memory for an arena of {len} bytes ({step}: {source}): ask for a smaller one, or raise the limit"
    )]
    ArenaMemory {
        /// Length asked for.
        len: usize,
        /// What was being done.
        step: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// This process may not run code from memory that it wrote.
    #[error(
        "this process may not make memory executable ({source}): SELinux without execmem, a noexec policy, systemd's \
         MemoryDenyWriteExecute= or a seccomp filter forbids it; a target needs it, so allow it for this program"
    )]
    ExecForbidden {
        /// What the system said.
        source: io::Error,
    },
    /// No gap of the arena is long enough.
    #[error(
        "the arena has no room for an image of {needed} bytes (of its {capacity}, {used} are in use and at most \
         {largest} are free in one piece): forget code, or make the arena larger"
    )]
    ArenaFull {
        /// Length of the longer of the image's two spans, in bytes.
        needed: usize,
        /// Longest that would fit, in bytes.
        largest: usize,
        /// Bytes in use.
        used: usize,
        /// Length of the arena, in bytes.
        capacity: usize,
    },
    /// The arena was made before this process was forked off: its memory is not here.
    #[error("this arena belongs to the process that this one was forked from: make one after the fork")]
    ArenaForked,
    /// The image does not fit what is offered to it, see [`PlaceError`].
    #[error(transparent)]
    Place(#[from] PlaceError),
}
