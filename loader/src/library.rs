//! Ifunc libraries, opened or loaded: the images that travel, and the routines that make payloads here.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Weak};

use farjump_core::image::{CodeId, ImageView, Machine};
use rustix::fs::OFlags;

use crate::bundle::{self, ALIGN, Bundle, BundleError, Sizes};
use crate::carried::{Carrier, IS_ARGS};
use crate::code_id::code_id;
use crate::error::{Error, FileKind};
use crate::shared_library::Loaded;

/// Longest file that is opened, in bytes: code and debugging symbols are far shorter.
const MAX_FILE: u64 = 256 << 20;
/// The bytes that are read of a file to be loaded: an ELF header up to the machine.
const HEAD_LEN: u64 = 20;

/// `NAME_main(payload, payload_size, target_args)`.
pub type MainRoutine = unsafe extern "C" fn(*mut c_void, usize, *mut c_void);
type MaxSizeRoutine = unsafe extern "C" fn(*mut c_void, usize) -> usize;
type InitRoutine = unsafe extern "C" fn(*mut c_void, usize, *mut c_void, usize) -> c_int;
type ShrinkRoutine = unsafe extern "C" fn(*mut c_void, *mut usize, *mut c_void, usize) -> c_int;
type ArgsFirstRoutine = unsafe extern "C" fn(*mut c_void, usize, *mut c_void, *mut usize) -> c_int;

/// An ifunc library built by `farjump build`: its images, and the routines for its payloads.
///
/// [`Library::open`] reads the file and runs none of its code. Payloads are then the arguments, byte for
/// byte, as most libraries request (`FARJUMP_COPY_ARGS`, `ifunc!` without `payload:`). Payload routines of
/// the author's run only if the library is loaded into this process, by [`Library::load`]. If such a library
/// was only opened, calls of its function are refused with [`Error::NotLoaded`].
///
/// A clone is another handle on the same library. When the last one goes, everything is released, and a
/// loaded library is unloaded.
#[derive(Clone)]
pub struct Library(Arc<Opened>);

/// The identity of a library, see [`Library::identity`].
#[derive(Clone)]
pub struct LibraryIdentity {
    address: usize,
    /// Keeps the address from becoming that of another library, but keeps nothing of the library open.
    _reserved: Weak<Opened>,
}

impl LibraryIdentity {
    /// Whether this is the identity of `library` or a clone of it.
    #[inline(always)]
    pub fn is(&self, library: &Library) -> bool {
        self.address == Arc::as_ptr(&library.0).addr()
    }
}

impl fmt::Debug for LibraryIdentity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LibraryIdentity").finish_non_exhaustive()
    }
}

struct Opened {
    name: String,
    path: PathBuf,
    /// The payload is the arguments unchanged: neither of the two routines is called.
    is_args: bool,
    max_size: MaxSizeRoutine,
    init: Init,
    /// The function itself, if the library is loaded.
    main: Option<MainRoutine>,
    images: Vec<LibraryImage>,
    /// Last, so that it is unloaded after everything that points into it is gone.
    _loaded: Option<Loaded>,
}

#[derive(Clone, Copy)]
enum Init {
    Exact(InitRoutine),
    Shrink(ShrinkRoutine),
    /// Three-Chains' order of arguments; it may shrink.
    ArgsFirst(ArgsFirstRoutine),
    /// Routines of the author's, which are not loaded.
    Missing,
}

/// One image of a library: the code for one machine. A clone is another handle on the same bytes, and keeps
/// no library open.
#[derive(Clone)]
pub struct LibraryImage {
    machine: Machine,
    id: CodeId,
    sizes: Sizes,
    payload_align_log2: u8,
    span2_len: usize,
    bytes: Lines,
}

/// Bytes that start on a multiple of 64, shared by clones.
#[derive(Clone)]
struct Lines {
    lines: Arc<[Line]>,
    len: usize,
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; ALIGN]);

impl Lines {
    fn copy_of(bytes: &[u8]) -> Lines {
        let (whole, rest) = bytes.as_chunks::<ALIGN>();
        let mut last = [0; ALIGN];
        last[..rest.len()].copy_from_slice(rest);
        let lines = whole.iter().chain((!rest.is_empty()).then_some(&last)).copied().map(Line).collect();
        Lines { lines, len: bytes.len() }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        // SAFETY: lines are bytes without padding, and there are at least `len` of them (`copy_of`).
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

impl LibraryImage {
    /// The machine that it was linked for.
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// Its code id.
    pub fn id(&self) -> CodeId {
        self.id
    }

    /// Sizes of its parts.
    pub fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// log2 of the alignment that its payload needs, in bytes: 3 to 12, or 0 for the default rule.
    pub fn payload_align_log2(&self) -> u8 {
        self.payload_align_log2
    }

    /// Length in bytes of its writable statics; 0 if it has none.
    pub fn span2_len(&self) -> usize {
        self.span2_len
    }

    /// The image as it travels, checked when the library was opened: a copy of the file's contents at that
    /// time, at a multiple of 64 bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.bytes()
    }
}

impl fmt::Debug for LibraryImage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LibraryImage")
            .field("machine", &self.machine)
            .field("id", &self.id)
            .field("len", &self.bytes.len)
            .finish_non_exhaustive()
    }
}

impl Library {
    /// Reads the library at `path` and checks its images. The file is read once, into memory of this process.
    /// Nothing is mapped, and none of its code runs.
    ///
    /// A path without a slash is a file of the current directory.
    ///
    /// # Errors
    /// [`Error::NoSuchFile`], [`Error::Unreadable`], [`Error::NotALibrary`], [`Error::Malformed`],
    /// [`Error::TooLong`] and [`Error::ForeignLibrary`] for files that are no libraries of this machine.
    /// [`Error::NoBundle`], [`Error::Bundle`] (also for a name that is no ifunc's), [`Error::Image`],
    /// [`Error::MissingRoutine`] and [`Error::TwoInits`] for libraries that `farjump build` would not make.
    pub fn open(path: impl AsRef<Path>) -> Result<Library, Error> {
        let path = in_folder(path.as_ref());
        let file = read_elf(&path, MAX_FILE + 1)?;
        let malformed = |problem| Error::Malformed { path: path.clone(), problem };
        let carrier = Carrier::parse(&file).map_err(malformed)?;
        let carried = carrier.bundle().map_err(malformed)?;
        let carried = carried.ok_or_else(|| Error::NoBundle { path: path.clone() })?;
        let damaged = |source| Error::Bundle { path: path.clone(), source };
        let bundle = whole_bundle(carried).and_then(Bundle::parse).map_err(damaged)?;
        let images = check_images(&bundle, &path)?;
        let name = bundle.name.to_owned();
        let exported = carrier.routines(&name);
        check_routines(&name, &path, |routine| exported.iter().any(|other| other == routine))?;
        let is_args = carrier.payload_is_args(&name);
        let (max_size, init, main): (MaxSizeRoutine, _, _) = (no_routine, Init::Missing, None);
        let opened = Opened { name, path, is_args, max_size, init, main, images, _loaded: None };
        Ok(Library(Arc::new(opened)))
    }

    /// Loads the library at `path` into this process (`dlopen`, every symbol bound now, none offered to other
    /// libraries), finds its routines and checks its images. This runs the library's constructors.
    ///
    /// A path without a slash is a file of the current directory: unlike `dlopen`, nothing is searched for.
    /// While a library is loaded the dynamic linker identifies it by its path. Loading a file that was
    /// rebuilt under the same path gives the old one until its last handle is gone.
    ///
    /// # Errors
    /// Those of [`Library::open`], and [`Error::Load`] if the dynamic linker refuses the file.
    ///
    /// # Safety
    /// The library is native code that runs in this process: you must trust its author.
    /// * Its constructors, and those of its dependencies, must be sound to run now, and its destructors on
    ///   the thread that drops the last handle.
    /// * The file must not be changed in place while the library is loaded: its pages are mapped.
    /// * `NAME_payload_get_max_size` or `NAME_payload_bound`, `NAME_payload_init` and
    ///   `NAME_payload_init_shrink` must have the types of `farjump_ifunc.h`, and
    ///   - read at most `source_args_size` bytes at `source_args`, and write none there; with a size of 0
    ///     they must not follow the pointer,
    ///   - write only into the buffer that they are given,
    ///   - be safe to call from several threads at once: threads can share a `Library`,
    ///   - return: they must neither unwind nor jump out.
    pub unsafe fn load(path: impl AsRef<Path>) -> Result<Library, Error> {
        let path = in_folder(path.as_ref());
        read_elf(&path, HEAD_LEN)?;
        // SAFETY: the caller trusts the library (see Safety).
        let loaded = unsafe { Loaded::open(path.as_os_str()) };
        let loaded = loaded.map_err(|message| Error::Load { path: path.clone(), message })?;
        let damaged = |source| Error::Bundle { path: path.clone(), source };
        let carried = copy_bundle(&loaded).map_err(damaged)?;
        let carried = carried.ok_or_else(|| Error::NoBundle { path: path.clone() })?;
        let bundle = Bundle::parse(&carried).map_err(damaged)?;
        let images = check_images(&bundle, &path)?;
        let name = bundle.name.to_owned();
        // SAFETY: the caller trusts the library's routines (see Safety).
        unsafe { Library::of_loaded(loaded, name, path, images) }
    }

    /// Loads the shared library at `path` as that of the ifunc `name`, whoever built it. A library without
    /// images, or with those of another ifunc, has none here ([`Library::images`] is empty): its function
    /// runs only where the library is installed. For the papers' interface, whose libraries any compiler
    /// makes. Otherwise like [`Library::load`].
    ///
    /// # Errors
    /// Those of [`Library::load`], except [`Error::NoBundle`].
    ///
    /// # Safety
    /// The conditions of [`Library::load`].
    pub unsafe fn load_named(path: impl AsRef<Path>, name: &str) -> Result<Library, Error> {
        let path = path.as_ref().to_path_buf();
        if !bundle::is_name(name) {
            return Err(Error::Bundle { path, source: BundleError::Name });
        }
        read_elf(&path, HEAD_LEN)?;
        // SAFETY: the caller trusts the library (see Safety).
        let loaded = unsafe { Loaded::open(path.as_os_str()) };
        let loaded = loaded.map_err(|message| Error::Load { path: path.clone(), message })?;
        let damaged = |source| Error::Bundle { path: path.clone(), source };
        let carried = copy_bundle(&loaded).map_err(damaged)?;
        let images = match carried.as_deref().map(Bundle::parse).transpose().map_err(damaged)? {
            Some(bundle) if bundle.name == name => check_images(&bundle, &path)?,
            _ => Vec::new(),
        };
        // SAFETY: the caller trusts the library's routines (see Safety).
        unsafe { Library::of_loaded(loaded, name.to_owned(), path, images) }
    }

    /// Makes a library from a loaded one.
    ///
    /// # Safety
    /// The routines must meet the conditions of [`Library::load`].
    unsafe fn of_loaded(
        loaded: Loaded,
        name: String,
        path: PathBuf,
        images: Vec<LibraryImage>,
    ) -> Result<Library, Error> {
        // SAFETY: the caller trusts the library's routines (see Safety).
        let (max_size, init, main) = unsafe { find_routines(&loaded, &name, &path) }?;
        let (is_args, main) = (loaded.symbol(&format!("{name}{IS_ARGS}")).is_some(), Some(main));
        let opened = Opened { name, path, is_args, max_size, init, main, images, _loaded: Some(loaded) };
        Ok(Library(Arc::new(opened)))
    }

    /// NAME of the ifunc: that of its routines, whatever the file is called.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The path that was opened, with `./` before a bare file name.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The images in it, one for each machine that it was built for.
    pub fn images(&self) -> &[LibraryImage] {
        &self.0.images
    }

    /// The image for a target of this machine.
    ///
    /// # Errors
    /// [`Error::NoImage`].
    pub fn image_for(&self, machine: Machine) -> Result<&LibraryImage, Error> {
        self.images().iter().find(|image| image.machine == machine).ok_or_else(|| Error::NoImage {
            name: self.name().to_owned(),
            machine,
            offered: self
                .images()
                .iter()
                .map(|image| image.machine.to_string())
                .collect::<Vec<_>>()
                .join(", "),
        })
    }

    /// The function of this library, to run in this process; `None` if the library was only opened. Valid as
    /// long as this handle or a clone of it.
    pub fn main(&self) -> Option<MainRoutine> {
        self.0.main
    }

    /// Checks that payloads can be made: the library is loaded, or its payloads are the arguments unchanged.
    ///
    /// # Errors
    /// [`Error::NotLoaded`].
    #[inline]
    pub fn check_payload(&self) -> Result<(), Error> {
        match self.0.init {
            Init::Missing if !self.0.is_args => Err(*self.not_loaded()),
            _ => Ok(()),
        }
    }

    /// Whether this is `other` or a clone of it; another library with the same code is not.
    #[inline(always)]
    pub fn is(&self, other: &Library) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// An identity by which to recognise this library later, without keeping it open.
    pub fn identity(&self) -> LibraryIdentity {
        LibraryIdentity { address: Arc::as_ptr(&self.0).addr(), _reserved: Arc::downgrade(&self.0) }
    }

    /// The most bytes that a payload made of `args` can need: their length, or the result of
    /// `NAME_payload_get_max_size` or `NAME_payload_bound`. `usize::MAX` if the routine is not loaded
    /// ([`Library::check_payload`]). Allocates and locks nothing.
    #[inline]
    pub fn payload_max_size(&self, args: &[u8]) -> usize {
        // SAFETY: `args` is readable for its length.
        unsafe { self.payload_max_size_of(args.as_ptr().cast_mut().cast(), args.len()) }
    }

    /// Whether payloads are the arguments, byte for byte, made by no routine.
    #[inline]
    pub fn payload_is_args(&self) -> bool {
        self.0.is_args
    }

    /// [`Library::payload_max_size`] for arguments that only the library's routines read: C passes a pointer,
    /// which may be null, and a number.
    ///
    /// # Safety
    /// `args` and `len` must be arguments that the library's routines accept. If payloads are the arguments
    /// unchanged, `args` must be valid for reads of `len` bytes.
    #[inline]
    pub unsafe fn payload_max_size_of(&self, args: *mut c_void, len: usize) -> usize {
        if self.0.is_args {
            return len;
        }
        // SAFETY: the caller keeps the arguments valid (see Safety), and the routine meets the conditions of
        // `Library::load`.
        unsafe { (self.0.max_size)(args, len) }
    }

    /// Makes the payload of `args` in `room`, and returns its length in bytes. Either copies the arguments,
    /// or calls `NAME_payload_init` or `NAME_payload_init_shrink`. The length is that of the arguments, `max`
    /// after `payload_init`, or the routine's result after `payload_init_shrink` and after a `payload_init`
    /// beside `payload_bound`. Allocates and locks nothing unless it fails. The error is boxed so that the
    /// length travels in a register.
    ///
    /// # Errors
    /// [`Error::NotLoaded`] if the routine is not loaded, [`Error::PayloadInit`] with a returned value other
    /// than 0, and [`Error::PayloadOverrun`] for a returned length above `max`. `room` then holds garbage. A
    /// routine that writes past `room` without saying so is not detected.
    ///
    /// # Safety
    /// `room` must be valid for reads and writes of `max` bytes, which nothing else uses during the call.
    #[inline]
    pub unsafe fn payload_init(&self, room: *mut u8, max: usize, args: &[u8]) -> Result<usize, Box<Error>> {
        // SAFETY: the caller keeps `room` valid (see Safety), and `args` is readable for its length.
        unsafe { self.payload_init_of(room, max, args.as_ptr().cast_mut().cast(), args.len()) }
    }

    /// [`Library::payload_init`] for arguments that only the library's routines read.
    ///
    /// # Errors
    /// Those of [`Library::payload_init`].
    ///
    /// # Safety
    /// The conditions of [`Library::payload_init`] and [`Library::payload_max_size_of`].
    #[inline]
    pub unsafe fn payload_init_of(
        &self,
        room: *mut u8,
        max: usize,
        args: *mut c_void,
        len: usize,
    ) -> Result<usize, Box<Error>> {
        if self.0.is_args {
            if len > max {
                return Err(self.init_failed(-1));
            }
            if len != 0 {
                // SAFETY: the caller keeps both valid (see Safety), and `room` is used by nothing else.
                // Either may be null only without bytes, which is excluded here.
                unsafe { ptr::copy_nonoverlapping(args.cast::<u8>(), room, len) };
            }
            return Ok(len);
        }
        let mut used = max;
        // SAFETY: the caller keeps `room` and arguments valid (see Safety), and the routine meets the
        // conditions of `Library::load`.
        let value = unsafe {
            match self.0.init {
                Init::Exact(init) => init(room.cast(), max, args, len),
                Init::Shrink(init) => init(room.cast(), &raw mut used, args, len),
                Init::ArgsFirst(init) => init(args, len, room.cast(), &raw mut used),
                Init::Missing => return Err(self.not_loaded()),
            }
        };
        if value != 0 {
            return Err(self.init_failed(value));
        }
        if used > max {
            return Err(self.init_overran(used, max));
        }
        Ok(used)
    }

    #[cold]
    fn not_loaded(&self) -> Box<Error> {
        Box::new(Error::NotLoaded { name: self.name().to_owned(), path: self.path().to_owned() })
    }

    #[cold]
    fn init_failed(&self, value: c_int) -> Box<Error> {
        Box::new(Error::PayloadInit { name: self.name().to_owned(), value })
    }

    #[cold]
    fn init_overran(&self, used: usize, room: usize) -> Box<Error> {
        Box::new(Error::PayloadOverrun { name: self.name().to_owned(), used, room })
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Library")
            .field("name", &self.0.name)
            .field("path", &self.0.path)
            .field("images", &self.0.images)
            .finish_non_exhaustive()
    }
}

/// Takes a bare file name as one of the current directory.
fn in_folder(path: &Path) -> PathBuf {
    if path.as_os_str().as_encoded_bytes().contains(&b'/') {
        path.to_path_buf()
    } else {
        Path::new(".").join(path)
    }
}

/// Reads the first `most` bytes of the file at `path`, and checks its start: the messages of parsers and of
/// the dynamic linker about other files would help no user. With [`HEAD_LEN`], reads only the start.
fn read_elf(path: &Path, most: u64) -> Result<Vec<u8>, Error> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => Error::NoSuchFile { path: path.to_path_buf() },
        _ => Error::Unreadable { path: path.to_path_buf(), source },
    };
    // Otherwise opening a pipe would wait for a writer.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(Error::NotALibrary { path: path.to_path_buf(), found: FileKind::NoFile });
    }
    let too_long = || Error::TooLong { path: path.to_path_buf(), max: MAX_FILE };
    if metadata.len() > MAX_FILE {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    // The file may grow or shrink meanwhile: only the bytes read count.
    file.take(most).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(too_long());
    }
    check_head(path, &bytes)?;
    Ok(bytes)
}

fn check_head(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let other = |found| Err(Error::NotALibrary { path: path.to_path_buf(), found });
    let head = &bytes[..bytes.len().min(HEAD_LEN as usize)];
    match *head {
        [0x7f, b'E', b'L', b'F', class, order, .., type_low, type_high, machine_low, machine_high]
            if head.len() as u64 == HEAD_LEN =>
        {
            if (class, order) != (2, 1) {
                return other(FileKind::OtherElf);
            }
            // ET_DYN (elf.h). A position-independent program has the same type, and the dynamic linker
            // refuses it.
            if u16::from_le_bytes([type_low, type_high]) != 3 {
                return other(FileKind::NoSharedLibrary);
            }
            let machine = Machine(u16::from_le_bytes([machine_low, machine_high]));
            if Some(machine) != Machine::native() {
                return Err(Error::ForeignLibrary { path: path.to_path_buf(), machine });
            }
            Ok(())
        }
        [] => other(FileKind::Empty),
        [b'!', b'<', b'a', b'r', b'c', b'h', b'>', ..] => other(FileKind::Archive),
        _ => other(FileKind::NoElf),
    }
}

/// The bytes of the bundle at the start of `found`.
fn whole_bundle(found: &[u8]) -> Result<&[u8], BundleError> {
    let len = found.len() as u64;
    let prefix = found.first_chunk().ok_or(BundleError::Truncated { needed: 8, found: len })?;
    let needed = Bundle::total_len(prefix)?;
    found.get(..needed).ok_or(BundleError::Truncated { needed: needed as u64, found: len })
}

/// Copies the bundle of a library.
fn copy_bundle(loaded: &Loaded) -> Result<Option<Vec<u8>>, BundleError> {
    let Some(start) = loaded.symbol(bundle::SYMBOL) else { return Ok(None) };
    let found = loaded.bytes_from(start);
    let start = start.cast::<u8>();
    let prefix = (found >= 8).then(|| {
        // SAFETY: at least eight bytes of the library's loaded segments are at this address.
        unsafe { start.cast::<[u8; 8]>().read_unaligned() }
    });
    let prefix = prefix.ok_or(BundleError::Truncated { needed: 8, found: found as u64 })?;
    let needed = Bundle::total_len(&prefix)?;
    if needed > found {
        return Err(BundleError::Truncated { needed: needed as u64, found: found as u64 });
    }
    let mut copy = vec![0; needed];
    // SAFETY: `needed` bytes from `start` on lie inside the loaded library, and the copy has as many.
    unsafe { start.copy_to_nonoverlapping(NonNull::from(&mut copy[..]).cast(), needed) };
    Ok(Some(copy))
}

/// Stands in for the author's routine, which is not loaded: no length is enough.
extern "C" fn no_routine(_: *mut c_void, _: usize) -> usize {
    usize::MAX
}

fn check_images(bundle: &Bundle<'_>, path: &Path) -> Result<Vec<LibraryImage>, Error> {
    let check = |(index, image): (usize, &bundle::BundleImage<'_>)| {
        let view = ImageView::new_checked(image.bytes).map_err(|source| Error::Image {
            path: path.to_path_buf(),
            index,
            source,
        })?;
        Ok(LibraryImage {
            machine: view.machine(),
            id: code_id(image.bytes),
            sizes: image.sizes,
            payload_align_log2: view.payload_align_log2(),
            span2_len: view.span2_len(),
            bytes: Lines::copy_of(image.bytes),
        })
    };
    bundle.images.iter().enumerate().map(check).collect()
}

/// The suffixes of a library's routines.
struct Routines {
    max_size: &'static str,
    init: &'static str,
}

/// The routines of the library of `name`; `has` says whether a symbol exists.
fn check_routines(name: &str, path: &Path, has: impl Fn(&str) -> bool) -> Result<Routines, Error> {
    let missing = |routine: &str| Error::MissingRoutine {
        path: path.to_path_buf(),
        routine: format!("{name}_{routine}"),
    };
    let has = |suffix: &str| has(&format!("{name}{suffix}"));
    if !has("_main") {
        return Err(missing("main"));
    }
    // Three-Chains renamed one routine and swapped the arguments of the other: the name decides the order.
    let max_size = match (has("_payload_get_max_size"), has("_payload_bound")) {
        (true, _) => "_payload_get_max_size",
        (false, true) => "_payload_bound",
        (false, false) => return Err(missing("payload_get_max_size")),
    };
    let init = match (has("_payload_init"), has("_payload_init_shrink")) {
        (true, false) => "_payload_init",
        (false, true) => "_payload_init_shrink",
        (false, false) => return Err(missing(&format!("payload_init` or `{name}_payload_init_shrink"))),
        (true, true) => return Err(Error::TwoInits { path: path.to_path_buf(), name: name.to_owned() }),
    };
    Ok(Routines { max_size, init })
}

/// Finds the routines of the library.
///
/// # Safety
/// The library's routines must have the types of `farjump_ifunc.h`, or beside `payload_bound` those of
/// Three-Chains.
unsafe fn find_routines(
    loaded: &Loaded,
    name: &str,
    path: &Path,
) -> Result<(MaxSizeRoutine, Init, MainRoutine), Error> {
    let routines = check_routines(name, path, |routine| loaded.symbol(routine).is_some())?;
    let missing = |routine: String| Error::MissingRoutine { path: path.to_path_buf(), routine };
    let need = |suffix: &str| {
        let routine = format!("{name}{suffix}");
        loaded.symbol(&routine).ok_or_else(|| missing(routine))
    };
    let (main, max_size, init) = (need("_main")?, need(routines.max_size)?, need(routines.init)?);
    // SAFETY: the caller ensures that functions of these names have these types (see Safety).
    let (main, max_size) = unsafe {
        (
            std::mem::transmute::<NonNull<c_void>, MainRoutine>(main),
            std::mem::transmute::<NonNull<c_void>, MaxSizeRoutine>(max_size),
        )
    };
    // SAFETY: the caller ensures that functions of these names have these types (see Safety); the names
    // decide which.
    let init = unsafe {
        match (routines.init, routines.max_size) {
            ("_payload_init_shrink", _) => {
                Init::Shrink(std::mem::transmute::<NonNull<c_void>, ShrinkRoutine>(init))
            }
            (_, "_payload_bound") => {
                Init::ArgsFirst(std::mem::transmute::<NonNull<c_void>, ArgsFirstRoutine>(init))
            }
            _ => Init::Exact(std::mem::transmute::<NonNull<c_void>, InitRoutine>(init)),
        }
    };
    Ok((max_size, init, main))
}
