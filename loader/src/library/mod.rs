//! Ifunc libraries, opened or loaded: the images that travel, and the routines that make payloads here.

pub mod bundle;
pub mod carried_source;
pub mod file_contents;
mod fileless;
mod image;
mod in_memory;
pub mod manifest;
mod read;
mod routines;
pub mod signature;
pub(crate) mod typed;

use std::ffi::{c_int, c_void};
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Arc, Weak};

use farjump_core::code::CodeKind;
use farjump_core::cpu::{Cpu, Forms};
use farjump_core::image::{Machine, Platform};

use crate::error::Error;
use crate::library::bundle::{Bundle, BundleError};
use crate::library::carried_source::CarriedSource;
use crate::library::file_contents::{Carrier, IS_ARGS};
use crate::library::manifest::{Manifest, best_for};
use crate::library::signature::Signature;
use crate::shared_library::Loaded;
pub use crate::shared_library::elf_file::open as open_file;
use crate::shared_library::sealed::{check_complete, check_stack};
pub use image::LibraryImage;
use image::{check_images, manifest_of};
pub(crate) use read::read_whole;
use read::{MAX_FILE, check_elf, copy_bundle, copy_signature, in_folder, read_any_elf, whole_bundle};
use routines::{Init, MaxSizeRoutine, Owner, check_routines, find_main, find_routines, no_routine};
pub use routines::{MainRoutine, PayloadRoutines};

/// An ifunc library built by `farjump build`: its images, and the routines for its payloads.
///
/// [`Library::open`] reads the file and runs none of its code. Payloads are then the arguments, byte for byte, as most
/// libraries request (`FARJUMP_COPY_ARGS`, `#[ifunc]` without `payload`). The author's payload routines run only after
/// [`Library::load`] has loaded the library into this process. If such a library was only opened, calls of its function
/// fail with [`Error::NotLoaded`].
///
/// A clone is another handle on the same library. Dropping the last handle releases everything, and unloads a loaded
/// library.
#[derive(Clone)]
pub struct Library(Arc<Opened>);

/// The identity of a library, see [`Library::identity`].
#[derive(Clone)]
pub struct LibraryIdentity {
    address: usize,
    /// Reserves the address, so that no other library gets it, but keeps nothing of the library open.
    reserved: Weak<Opened>,
}

impl LibraryIdentity {
    /// Returns whether this is the identity of `library` or a clone of it.
    #[inline(always)]
    pub fn is(&self, library: &Library) -> bool {
        self.address == library.address()
    }

    /// Returns whether a handle on the library still exists.
    pub fn is_open(&self) -> bool {
        self.reserved.strong_count() != 0
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
    manifest: Option<Arc<Manifest>>,
    signature: Option<Signature>,
    source: Option<CarriedSource>,
    /// Keeps the owner of the routines, and the file in memory from which gdb reads it. The last field, so that it is
    /// dropped after all pointers into it.
    _owner: Option<Owner>,
}

impl Library {
    /// Reads the library at `path` and checks its images. Reads the file once, into memory of this process. Maps
    /// nothing, and runs none of its code.
    ///
    /// A path without a slash is a file of the current directory. The library may come from another machine if its
    /// payloads are the arguments: then no routine of it has to run here.
    ///
    /// # Errors
    /// [`Error::NoSuchFile`], [`Error::Unreadable`], [`Error::NotALibrary`], [`Error::Malformed`], [`Error::TooLong`]
    /// and [`Error::ForeignLibrary`] for files that are no libraries of this machine, nor of another machine with the
    /// arguments as payloads. [`Error::NoBundle`], [`Error::Bundle`] (also for a name that no ifunc can have),
    /// [`Error::Image`], [`Error::Manifest`], [`Error::PayloadAlignments`], [`Error::MissingRoutine`] and
    /// [`Error::TwoInits`] for libraries that `farjump build` would not make. [`Error::Load`] for a library that
    /// requests an executable stack.
    pub fn open(path: impl AsRef<Path>) -> Result<Library, Error> {
        let path = in_folder(path.as_ref());
        let (file, foreign) = read_any_elf(&path, MAX_FILE + 1)?;
        Library::of_contents(path, &file, foreign)
    }

    /// Makes a library of a file's contents, whose start was checked. `foreign` is the library's machine, if that is
    /// not this one. Errors name `path`.
    fn of_contents(path: PathBuf, file: &[u8], foreign: Option<Machine>) -> Result<Library, Error> {
        let malformed = |problem| Error::Malformed { path: path.clone(), problem };
        check_complete(file).map_err(malformed)?;
        check_stack(file).map_err(|message| Error::Load { path: path.clone(), message })?;
        let carrier = Carrier::parse(file).map_err(malformed)?;
        let carried = carrier.bundle().map_err(malformed)?;
        let carried = carried.ok_or_else(|| Error::NoBundle { path: path.clone() })?;
        let damaged = |source| Error::Bundle { path: path.clone(), source };
        let bundle = whole_bundle(carried).and_then(Bundle::parse).map_err(damaged)?;
        let images = check_images(&bundle, &path)?;
        let name = bundle.name.to_owned();
        let exported = carrier.routines(&name);
        check_routines(&name, &path, |routine| exported.iter().any(|other| other == routine))?;
        let is_args = carrier.payload_is_args(&name);
        if let Some(machine) = foreign.filter(|_| !is_args) {
            return Err(Error::ForeignLibrary { path, machine });
        }
        let signature = carrier.signature(&name).map_err(malformed)?;
        let (max_size, init, main): (MaxSizeRoutine, _, _) = (no_routine, Init::Missing, None);
        let manifest = manifest_of(&images, &path)?;
        Ok(Library(Arc::new(Opened {
            source: CarriedSource::of(carrier.elf(), &path),
            name,
            path,
            is_args,
            max_size,
            init,
            main,
            images,
            manifest,
            signature,
            _owner: None,
        })))
    }

    /// Loads the library at `path` into this process (`dlopen`, every symbol bound now, none offered to other
    /// libraries), finds its routines and checks its images. This runs the library's constructors.
    ///
    /// Loads a sealed copy in memory, and copies of the needed libraries to which its RUNPATH leads: no change of the
    /// files affects the loaded code. The copy has the file's path as its name.
    ///
    /// A path without a slash is a file of the current directory: unlike `dlopen`, this searches no folders. Loading a
    /// file again that did not change gives the same library, and runs no constructor. A file that was rebuilt is
    /// another library, with its own variables, also while the old one is still loaded.
    ///
    /// # Errors
    /// Those of [`Library::open`], and [`Error::Load`] if the dynamic linker refuses the file.
    ///
    /// # Safety
    /// The library is native code that runs in this process: you must trust its author.
    /// * Its constructors, and those of its dependencies, must be sound to run now, and its destructors on
    ///   the thread that drops the last handle.
    /// * `NAME_payload_get_max_size` or `NAME_payload_bound`, `NAME_payload_init` and
    ///   `NAME_payload_init_shrink` must have the types of `farjump_ifunc.h`, and
    ///   - read at most `source_args_size` bytes at `source_args`, and write none there; with a size of 0
    ///     they must not follow the pointer,
    ///   - write only into the buffer that they are given,
    ///   - be safe to call from several threads at once: threads can share a `Library`,
    ///   - return: they must neither unwind nor jump out.
    pub unsafe fn load(path: impl AsRef<Path>) -> Result<Library, Error> {
        let path = in_folder(path.as_ref());
        check_elf(&path)?;
        // SAFETY: the caller trusts the library (see Safety).
        let loaded = unsafe { Loaded::open(path.as_os_str()) };
        let loaded = loaded.map_err(|message| Error::Load { path: path.clone(), message })?;
        // SAFETY: the caller trusts the library's routines (see Safety).
        unsafe { Library::of_built(loaded, path, None) }
    }

    /// Makes a library of a loaded one that `farjump build` made. `memory` is its file in memory, if it has one.
    ///
    /// # Safety
    /// The routines must meet the conditions of [`Library::load`].
    unsafe fn of_built(loaded: Loaded, path: PathBuf, memory: Option<File>) -> Result<Library, Error> {
        let damaged = |source| Error::Bundle { path: path.clone(), source };
        let carried = copy_bundle(&loaded).map_err(damaged)?;
        let carried = carried.ok_or_else(|| Error::NoBundle { path: path.clone() })?;
        let bundle = Bundle::parse(&carried).map_err(damaged)?;
        let images = check_images(&bundle, &path)?;
        let name = bundle.name.to_owned();
        // SAFETY: the caller trusts the library's routines (see Safety).
        unsafe { Library::of_loaded(loaded, name, path, images, memory) }
    }

    /// Loads the shared library at `path` as that of the ifunc `name`, whichever compiler built it. For a library
    /// without images, or with those of another ifunc, [`Library::images`] is empty: its function runs only where the
    /// library is installed. For the papers' interface, whose libraries any compiler can make. Otherwise like
    /// [`Library::load`].
    ///
    /// # Errors
    /// Those of [`Library::load`], except [`Error::NoBundle`].
    ///
    /// # Safety
    /// The conditions of [`Library::load`].
    pub unsafe fn load_named(path: impl AsRef<Path>, name: &str) -> Result<Library, Error> {
        let path = in_folder(path.as_ref());
        if !bundle::is_name(name) {
            return Err(Error::Bundle { path, source: BundleError::Name });
        }
        check_elf(&path)?;
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
        unsafe { Library::of_loaded(loaded, name.to_owned(), path, images, None) }
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
        memory: Option<File>,
    ) -> Result<Library, Error> {
        // SAFETY: the caller trusts the library's routines (see Safety).
        let (max_size, init) = unsafe { find_routines(&name, &path, |routine| loaded.symbol(routine)) }?;
        // SAFETY: as above.
        let main = unsafe { find_main(&loaded, &name) };
        let is_args = loaded.symbol(&format!("{name}{IS_ARGS}")).is_some();
        let signature = copy_signature(&loaded, &name);
        let manifest = manifest_of(&images, &path)?;
        Ok(Library(Arc::new(Opened {
            source: loaded.source().cloned(),
            name,
            path,
            is_args,
            max_size,
            init,
            main,
            images,
            manifest,
            signature,
            _owner: Some(Arc::new((loaded, memory))),
        })))
    }

    /// NAME of the ifunc: that of its routines, which may differ from the file's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The path that was opened, with `./` before a bare file name.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Its images, one for each platform or CPU that it was built for.
    pub fn images(&self) -> &[LibraryImage] {
        &self.0.images
    }

    /// The list of its images for platforms; `None` if it has none.
    pub fn manifest(&self) -> Option<&Arc<Manifest>> {
        self.0.manifest.as_ref()
    }

    /// The best code for a target with this CPU: of images compiled for one CPU the first that it runs, otherwise the
    /// image of the highest level that it runs. Bitcode if the target accepts that, and there is no image or the target
    /// prefers bitcode.
    ///
    /// # Errors
    /// [`Error::NoImage`].
    pub fn image_for_cpu(&self, cpu: &Cpu) -> Result<&LibraryImage, Error> {
        let best = self.best_for(cpu.platform(), cpu.forms());
        let preferred = best.filter(|image| {
            cpu.forms().contains(Forms::PREFERS_BITCODE) && matches!(image.kind(), CodeKind::Bitcode(_))
        });
        preferred
            .or_else(|| self.native_image_for_cpu(cpu).ok())
            .or(best)
            .ok_or_else(|| self.no_image(cpu.platform(), cpu.forms()))
    }

    /// As [`Library::image_for_cpu`], for a process that accepts only images, whatever `cpu` states.
    ///
    /// # Errors
    /// [`Error::NoImage`].
    pub fn native_image_for_cpu(&self, cpu: &Cpu) -> Result<&LibraryImage, Error> {
        let is_exact = |image: &&LibraryImage| matches!(image.kind(), CodeKind::Exact(_));
        let mut exact = self.images().iter().filter(is_exact);
        exact.find(|image| image.runs_on(cpu)).map_or_else(|| self.image_for(cpu.platform()), Ok)
    }

    /// The best image for a target whose CPU is of this platform: the one of the highest level that it runs. Does not
    /// consider images compiled for one CPU, or bitcode.
    ///
    /// # Errors
    /// [`Error::NoImage`].
    pub fn image_for(&self, target: Platform) -> Result<&LibraryImage, Error> {
        let best = self.best_for(target, Forms::NATIVE);
        best.ok_or_else(|| self.no_image(target, Forms::all()))
    }

    fn best_for(&self, target: Platform, forms: Forms) -> Option<&LibraryImage> {
        best_for(target, forms, self.images().iter().map(|image| (image.kind(), image)))
    }

    #[cold]
    fn no_image(&self, target: Platform, forms: Forms) -> Error {
        let offered: Vec<_> = self.images().iter().map(|image| image.kind().to_string()).collect();
        let for_it = CodeKind::Bitcode(target.machine);
        let hint =
            if self.images().iter().any(|image| image.kind() == for_it) && !forms.contains(Forms::BITCODE) {
                ", and the target takes no bitcode: have it take that (TargetBuilder::bitcode), or"
            } else {
                ":"
            };
        Error::NoImage { name: self.name().to_owned(), target, offered: offered.join(", "), hint }
    }

    /// The source that it carries, from which `build_for_cpu` of `farjump-builder` builds; `None` if it carries none.
    pub fn source(&self) -> Option<&CarriedSource> {
        self.0.source.as_ref()
    }

    /// Size and alignment of its arguments and its reply, if the library states them: libraries built from Rust with
    /// the attribute of `farjump-ifunc` do. [`Library::typed`] compares them.
    pub fn signature(&self) -> Option<&Signature> {
        self.0.signature.as_ref()
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

    /// Returns whether this is `other` or a clone of it; another library with the same code is not.
    #[inline(always)]
    pub fn is(&self, other: &Library) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// An identity by which to recognise this library later, without keeping it open.
    pub fn identity(&self) -> LibraryIdentity {
        LibraryIdentity { address: self.address(), reserved: Arc::downgrade(&self.0) }
    }

    /// The maximum length of a payload made of `args`, in bytes: their length, or the result of
    /// `NAME_payload_get_max_size` or `NAME_payload_bound`. `usize::MAX` if the routine is not loaded
    /// ([`Library::check_payload`]). Allocates and locks nothing.
    #[inline]
    pub fn payload_max_size(&self, args: &[u8]) -> usize {
        // SAFETY: `args` is readable for its length.
        unsafe { self.payload_max_size_of(args.as_ptr().cast_mut().cast(), args.len()) }
    }

    /// An address that this library and its clones share. No other library has it while a handle or a
    /// [`LibraryIdentity`] of this one exists. Never 0.
    #[inline(always)]
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Returns whether payloads are the arguments, byte for byte, without a routine.
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

    /// Makes the payload of `args` in `space`, and returns its length in bytes. Either copies the arguments,
    /// or calls `NAME_payload_init` or `NAME_payload_init_shrink`. The length is that of the arguments, `max`
    /// after `payload_init`, or the routine's result after `payload_init_shrink` and after a `payload_init` beside
    /// `payload_bound`. Allocates and locks nothing unless it fails. The error is boxed so that the length is returned
    /// in a register.
    ///
    /// # Errors
    /// [`Error::NotLoaded`] if the routine is not loaded, [`Error::PayloadInit`] with a returned value other than 0,
    /// and [`Error::PayloadOverrun`] for a returned length above `max`. `space` then holds garbage. A routine that
    /// writes past `space` without reporting it is not detected.
    ///
    /// # Safety
    /// `space` must be valid for reads and writes of `max` bytes, which nothing else uses during the call.
    #[inline]
    pub unsafe fn payload_init(&self, space: *mut u8, max: usize, args: &[u8]) -> Result<usize, Box<Error>> {
        // SAFETY: the caller keeps `space` valid (see Safety), and `args` is readable for its length.
        unsafe { self.payload_init_of(space, max, args.as_ptr().cast_mut().cast(), args.len()) }
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
        space: *mut u8,
        max: usize,
        args: *mut c_void,
        len: usize,
    ) -> Result<usize, Box<Error>> {
        if self.0.is_args {
            if len > max {
                return Err(self.init_failed(-1));
            }
            if len != 0 {
                // SAFETY: the caller keeps both valid (see Safety), and `space` is used by nothing else.
                // Either may be null only without bytes, which is excluded here.
                unsafe { ptr::copy_nonoverlapping(args.cast::<u8>(), space, len) };
            }
            return Ok(len);
        }
        let mut used = max;
        // SAFETY: the caller keeps `space` and arguments valid (see Safety), and the routine meets the
        // conditions of `Library::load`.
        let value = unsafe {
            match self.0.init {
                Init::Exact(init) => init(space.cast(), max, args, len),
                Init::Shrink(init) => init(space.cast(), &raw mut used, args, len),
                Init::ArgsFirst(init) => init(args, len, space.cast(), &raw mut used),
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
    fn init_overran(&self, used: usize, space: usize) -> Box<Error> {
        Box::new(Error::PayloadOverrun { name: self.name().to_owned(), used, space })
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
