//! Ifunc libraries, opened: the routines that make payloads here, and the images that travel.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;

use farjump_core::image::{CodeId, ImageView, Machine};

use crate::bundle::{self, Bundle, BundleError, Sizes};
use crate::code_id::code_id;
use crate::error::Error;
use crate::loaded::Loaded;

/// `NAME_main(payload, payload_size, target_args)`.
pub type MainRoutine = unsafe extern "C" fn(*mut c_void, usize, *mut c_void);
type MaxSizeRoutine = unsafe extern "C" fn(*mut c_void, usize) -> usize;
type InitRoutine = unsafe extern "C" fn(*mut c_void, usize, *mut c_void, usize) -> c_int;
type ShrinkRoutine = unsafe extern "C" fn(*mut c_void, *mut usize, *mut c_void, usize) -> c_int;
type ArgsFirstRoutine = unsafe extern "C" fn(*mut c_void, usize, *mut c_void, *mut usize) -> c_int;

/// An ifunc library that `farjump build` made, loaded into this process.
///
/// A clone is another handle on the same library; it is unloaded when the last one goes.
///
/// # What the routines must keep to
/// They are native code that this process runs: whoever opens a library trusts its author. `NAME_payload_get_max_size` or
/// `NAME_payload_bound`, `NAME_payload_init` and `NAME_payload_init_shrink` must
/// - read `source_args_size` bytes at `source_args` at most, and write none there; with a size of 0 the pointer must not
///   be followed,
/// - write only into the room they are given,
/// - be fit to be called from several threads at once: a `Library` can be shared between them,
/// - return: they must neither unwind nor jump out.
#[derive(Clone)]
pub struct Library(Arc<Opened>);

struct Opened {
    name: String,
    path: PathBuf,
    max_size: MaxSizeRoutine,
    init: Init,
    main: MainRoutine,
    images: Vec<LibraryImage>,
    /// Last, so that it is unloaded after everything that points into it is gone.
    _loaded: Loaded,
}

#[derive(Clone, Copy)]
enum Init {
    Exact(InitRoutine),
    Shrink(ShrinkRoutine),
    /// Three-Chains' order, and it may shrink.
    ArgsFirst(ArgsFirstRoutine),
}

/// One image of a library: the code for one machine.
pub struct LibraryImage {
    machine: Machine,
    id: CodeId,
    sizes: Sizes,
    payload_align_log2: u8,
    span2_len: usize,
    /// Memory of the library. Never handed out for longer than the library is borrowed.
    bytes: &'static [u8],
}

impl LibraryImage {
    /// The machine it was linked for.
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// Its identity.
    pub fn id(&self) -> CodeId {
        self.id
    }

    /// What it is made of.
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

    /// The image as it travels, checked when the library was opened. Read-only memory of the library, so it lives as
    /// long as any handle on it. `farjump build` starts it on a multiple of 64 bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes
    }
}

impl fmt::Debug for LibraryImage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LibraryImage")
            .field("machine", &self.machine)
            .field("id", &self.id)
            .field("len", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

impl Library {
    /// Loads the library at `path` (`dlopen`, every symbol bound now, none offered to other libraries), finds its
    /// routines and checks its images. This runs the library's constructors, if it has any.
    ///
    /// A path without a slash is a file of the current directory: nothing is searched for, as `dlopen` would. While a
    /// library is open the dynamic linker knows it by its path, so opening a file that was built again under the same
    /// path gives the old one until the last handle on it is gone.
    ///
    /// # Errors
    /// [`Error::NoSuchFile`], [`Error::Unreadable`], [`Error::NotALibrary`], [`Error::ForeignLibrary`] and
    /// [`Error::Load`] for files that cannot be loaded; [`Error::NoBundle`], [`Error::Bundle`] (this includes a name that
    /// is no ifunc's), [`Error::Image`], [`Error::MissingRoutine`] and [`Error::TwoInits`] for libraries that are not
    /// what `farjump build` makes.
    pub fn open(path: impl AsRef<Path>) -> Result<Library, Error> {
        let path = path.as_ref();
        let path = if path.as_os_str().as_encoded_bytes().contains(&b'/') {
            path.to_path_buf()
        } else {
            Path::new(".").join(path)
        };
        check_elf(&path)?;
        // SAFETY: whoever opens a library trusts its author, as the type's docs say.
        let loaded = match unsafe { Loaded::open(path.as_os_str()) } {
            Ok(loaded) => loaded,
            Err(message) => return Err(Error::Load { path, message }),
        };
        let bundle = match find_bundle(&loaded) {
            Ok(Some(bundle)) => bundle,
            Ok(None) => return Err(Error::NoBundle { path }),
            Err(source) => return Err(Error::Bundle { path, source }),
        };
        let name = bundle.name.to_owned();
        let images = check_images(&bundle, &path)?;
        let (max_size, init, main) = find_routines(&loaded, &name, &path)?;
        Ok(Library(Arc::new(Opened { name, path, max_size, init, main, images, _loaded: loaded })))
    }

    /// Loads the shared library at `path` as that of the ifunc `name`, whoever built it. One that carries no images, or those of
    /// another ifunc, has none here ([`Library::images`] is empty): its function runs only where the library is. For the
    /// papers' interface, whose libraries any compiler makes; otherwise as [`Library::open`].
    ///
    /// # Errors
    /// As [`Library::open`], but for [`Error::NoBundle`].
    pub fn open_named(path: impl AsRef<Path>, name: &str) -> Result<Library, Error> {
        let path = path.as_ref();
        if !bundle::is_name(name) {
            return Err(Error::Bundle { path: path.to_path_buf(), source: BundleError::Name });
        }
        check_elf(path)?;
        let path = path.to_path_buf();
        // SAFETY: whoever opens a library trusts its author, as the type's docs say.
        let loaded = match unsafe { Loaded::open(path.as_os_str()) } {
            Ok(loaded) => loaded,
            Err(message) => return Err(Error::Load { path, message }),
        };
        let images = match find_bundle(&loaded) {
            Ok(Some(bundle)) if bundle.name == name => check_images(&bundle, &path)?,
            Ok(_) => Vec::new(),
            Err(source) => return Err(Error::Bundle { path, source }),
        };
        let (max_size, init, main) = find_routines(&loaded, name, &path)?;
        let name = name.to_owned();
        Ok(Library(Arc::new(Opened { name, path, max_size, init, main, images, _loaded: loaded })))
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

    /// The function itself as it is in this library, to be run in this process: what a target that has the library
    /// calls when only the name travels. Valid as long as this handle or a clone of it.
    pub fn main(&self) -> MainRoutine {
        self.0.main
    }

    /// Whether this is `other` or a clone of it, and not only a library with the same code.
    #[inline(always)]
    pub fn is(&self, other: &Library) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The most bytes that a payload made of `args` can need: what `NAME_payload_get_max_size` or `NAME_payload_bound` says.
    /// Nothing is allocated or locked here.
    #[inline]
    pub fn payload_max_size(&self, args: &[u8]) -> usize {
        // SAFETY: `args` is readable for its length.
        unsafe { self.payload_max_size_of(args.as_ptr().cast_mut().cast(), args.len()) }
    }

    /// As [`Library::payload_max_size`], for arguments that only the library's routines look at: C hands over a pointer, which
    /// may be null, and a number.
    ///
    /// # Safety
    /// `args` and `len` must be what the library's routines were written to be given.
    #[inline]
    pub unsafe fn payload_max_size_of(&self, args: *mut c_void, len: usize) -> usize {
        // SAFETY: the arguments are as the caller vouches, and the routine keeps to what the type's docs ask of it.
        unsafe { (self.0.max_size)(args, len) }
    }

    /// Has `NAME_payload_init` (or `NAME_payload_init_shrink`) write the payload made of `args` into `room`, and returns
    /// its length in bytes: `max` after `payload_init`, what the routine says after `payload_init_shrink`, or after a
    /// `payload_init` beside `payload_bound`. Nothing is allocated or locked here unless it fails. The error is boxed so that the length travels in a register.
    ///
    /// # Errors
    /// [`Error::PayloadInit`] with what the routine returned if that is not 0, and [`Error::PayloadOverrun`] if it gives
    /// back a length above `max`. The room then holds garbage. A routine that wrote past the room without saying so is
    /// not noticed here.
    ///
    /// # Safety
    /// `room` must be valid for reads and writes of `max` bytes, which nobody else uses during the call.
    #[inline]
    pub unsafe fn payload_init(&self, room: *mut u8, max: usize, args: &[u8]) -> Result<usize, Box<Error>> {
        // SAFETY: the caller vouches for the room, and `args` is readable for its length.
        unsafe { self.payload_init_of(room, max, args.as_ptr().cast_mut().cast(), args.len()) }
    }

    /// As [`Library::payload_init`], for arguments that only the library's routines look at.
    ///
    /// # Errors
    /// As [`Library::payload_init`].
    ///
    /// # Safety
    /// As for [`Library::payload_init`] and [`Library::payload_max_size_of`].
    #[inline]
    pub unsafe fn payload_init_of(
        &self,
        room: *mut u8,
        max: usize,
        args: *mut c_void,
        len: usize,
    ) -> Result<usize, Box<Error>> {
        let mut used = max;
        // SAFETY: room and arguments are as the caller vouches, and the routine keeps to what the type's docs ask of it.
        let value = unsafe {
            match self.0.init {
                Init::Exact(init) => init(room.cast(), max, args, len),
                Init::Shrink(init) => init(room.cast(), &raw mut used, args, len),
                Init::ArgsFirst(init) => init(args, len, room.cast(), &raw mut used),
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

/// Looks at the start of the file, because what the dynamic linker says about files that are no libraries helps nobody.
fn check_elf(path: &Path) -> Result<(), Error> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => Error::NoSuchFile { path: path.to_path_buf() },
        _ => Error::Unreadable { path: path.to_path_buf(), source },
    };
    let other = |found| Err(Error::NotALibrary { path: path.to_path_buf(), found });
    // Before it is opened: opening a pipe would wait for a writer.
    if !path.metadata().map_err(failed)?.is_file() {
        return other("a directory or a device");
    }
    let mut head = Vec::with_capacity(20);
    File::open(path).and_then(|file| file.take(20).read_to_end(&mut head)).map_err(failed)?;
    match head[..] {
        [0x7f, b'E', b'L', b'F', class, order, .., type_low, type_high, machine_low, machine_high]
            if head.len() == 20 =>
        {
            if (class, order) != (2, 1) {
                return other("an ELF file, but not a 64-bit little-endian one");
            }
            // ET_DYN (elf.h); a position-independent program has the same type, and the dynamic linker refuses it.
            if u16::from_le_bytes([type_low, type_high]) != 3 {
                return other("an ELF file, but not a shared library");
            }
            let machine = Machine(u16::from_le_bytes([machine_low, machine_high]));
            if Some(machine) != Machine::native() {
                return Err(Error::ForeignLibrary { path: path.to_path_buf(), machine });
            }
            Ok(())
        }
        [] => other("an empty file"),
        [b'!', b'<', b'a', b'r', b'c', b'h', b'>', ..] => other("a static archive"),
        _ => other("not an ELF file"),
    }
}

/// The bundle in a library. The lifetime is the library's: the caller keeps what it makes of it inside [`Opened`].
fn find_bundle(loaded: &Loaded) -> Result<Option<Bundle<'static>>, BundleError> {
    let Some(start) = loaded.symbol(bundle::SYMBOL) else { return Ok(None) };
    let found = loaded.bytes_from(start);
    let start = start.cast::<u8>();
    let prefix = (found >= 8).then(|| {
        // SAFETY: at least eight bytes of the library's loaded segments lie here.
        unsafe { start.cast::<[u8; 8]>().read() }
    });
    let prefix = prefix.ok_or(BundleError::Truncated { needed: 8, found: found as u64 })?;
    let needed = Bundle::total_len(&prefix)?;
    if needed > found {
        return Err(BundleError::Truncated { needed: needed as u64, found: found as u64 });
    }
    // SAFETY: `needed` bytes from `start` on lie inside the library, which is loaded as long as `Opened` lives; they are
    // in a read-only section, so nothing changes them.
    let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), needed) };
    Bundle::parse(bytes).map(Some)
}

fn check_images(bundle: &Bundle<'static>, path: &Path) -> Result<Vec<LibraryImage>, Error> {
    let check = |(index, image): (usize, &bundle::BundleImage<'static>)| {
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
            bytes: image.bytes,
        })
    };
    bundle.images.iter().enumerate().map(check).collect()
}

fn find_routines(
    loaded: &Loaded,
    name: &str,
    path: &Path,
) -> Result<(MaxSizeRoutine, Init, MainRoutine), Error> {
    let missing = |routine: String| Error::MissingRoutine { path: path.to_path_buf(), routine };
    let find = |suffix: &str| loaded.symbol(&format!("{name}{suffix}"));
    let need = |suffix: &str| find(suffix).ok_or_else(|| missing(format!("{name}{suffix}")));
    let main = need("_main")?;
    // Three-Chains renamed the one and turned the other's arguments around: the name tells which order it is.
    let (max_size, args_first) = match (find("_payload_get_max_size"), find("_payload_bound")) {
        (Some(max_size), _) => (max_size, false),
        (None, Some(bound)) => (bound, true),
        (None, None) => return Err(missing(format!("{name}_payload_get_max_size"))),
    };
    // SAFETY: a function of this name has this signature; it is the convention of ifunc libraries (farjump_ifunc.h
    // declares it so), and this library carries images, so it was built to that convention.
    let (main, max_size) = unsafe {
        (
            std::mem::transmute::<NonNull<c_void>, MainRoutine>(main),
            std::mem::transmute::<NonNull<c_void>, MaxSizeRoutine>(max_size),
        )
    };
    let init = match (find("_payload_init"), find("_payload_init_shrink")) {
        (Some(init), None) if args_first => {
            // SAFETY: as above; the header of Three-Chains declares it so beside `payload_bound`.
            Init::ArgsFirst(unsafe { std::mem::transmute::<NonNull<c_void>, ArgsFirstRoutine>(init) })
        }
        (Some(init), None) => {
            // SAFETY: as above.
            Init::Exact(unsafe { std::mem::transmute::<NonNull<c_void>, InitRoutine>(init) })
        }
        (None, Some(init)) => {
            // SAFETY: as above.
            Init::Shrink(unsafe { std::mem::transmute::<NonNull<c_void>, ShrinkRoutine>(init) })
        }
        (None, None) => return Err(missing(format!("{name}_payload_init` or `{name}_payload_init_shrink"))),
        (Some(_), Some(_)) => {
            return Err(Error::TwoInits { path: path.to_path_buf(), name: name.to_owned() });
        }
    };
    Ok((max_size, init, main))
}
