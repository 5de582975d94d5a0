//! Ifunc libraries, and code ids.

use std::ffi::{CString, c_char, c_void};

use farjump::{CodeId, Library, LibraryImage, Machine, Platform};

use crate::api::c_text::c_text;
use crate::api::catch::{
    bytes, give, guarded, object, path, place, take, text, text_or_null, value, variable,
};
use crate::api::last_error::Failure;
use crate::api::status::farjump_status_t::{self, *};

/// An ifunc library that is open or loaded: code to inject, and routines that make its payload. Any number of
/// threads may use it at once.
#[derive(Debug)]
pub struct farjump_library_t {
    library: Library,
    name: CString,
    path: CString,
}

impl farjump_library_t {
    #[inline(always)]
    pub(crate) fn rust(&self) -> &Library {
        &self.library
    }

    /// Returns the image for targets of this machine's kind.
    fn image(&self) -> Result<&LibraryImage, Failure> {
        let machine = Machine::native().unwrap_or(Machine::X86_64);
        self.library
            .image_for(Platform::baseline(machine))
            .map_err(|error| Failure::from(farjump::Error::from(error)))
    }
}

/// A code id: the first 16 bytes of the BLAKE3 hash of an image. Names are for people.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct farjump_code_id_t {
    /// The bytes, in the order in which the hash has them.
    pub bytes: [u8; 16],
}

/// Opens the ifunc library at `path`, as `farjump build` makes it. A path without a slash is a file of the
/// current directory. The file is read, and none of its code runs: payloads are the arguments as they are
/// (FARJUMP_COPY_ARGS). A library with payload routines of its own has to be loaded, by
/// farjump_library_load(). If it was only opened, calls of its function fail with FARJUMP_ERROR_LIBRARY.
/// farjump_library_close() ends it; links and targets that use it keep the parts that they need.
///
/// FARJUMP_ERROR_LIBRARY for a file that does not exist, cannot be read, or is no such library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_library_open(
    path: *const c_char,
    library: *mut *mut farjump_library_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable for a pointer, and for a text.
        let (opened, path) = unsafe { (variable(library, "library")?, self::path(path, "path")?) };
        *opened = given(Library::open(path).map_err(farjump::Error::from)?);
        Ok(FARJUMP_OK)
    })
}

/// Loads the ifunc library at `path` into this process, as dlopen() does: its constructors run now, and its
/// payload routines with each call, so load only libraries you trust. Otherwise it does the same as
/// farjump_library_open().
///
/// FARJUMP_ERROR_LIBRARY for a file that does not exist, cannot be loaded, or is no such library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_library_load(
    path: *const c_char,
    library: *mut *mut farjump_library_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable for a pointer, and for a text.
        let (loaded, path) = unsafe { (variable(library, "library")?, self::path(path, "path")?) };
        // SAFETY: the header says that it is loaded now; its caller is responsible for its constructors.
        *loaded = given(unsafe { Library::load(path) }.map_err(farjump::Error::from)?);
        Ok(FARJUMP_OK)
    })
}

/// Opens a library in memory, `size` bytes at `bytes`, which are copied. They are the contents of a library's
/// file, or an image (farjump_library_image()), whose payloads are the arguments. They are checked as a file
/// is, and none of their code runs. `name` is the NAME of the function: an image needs one; of a library it
/// may be NULL. farjump_library_path() is `<memory>`. Otherwise it does the same as farjump_library_open().
///
/// FARJUMP_ERROR_LIBRARY for bytes that are neither, are damaged, or state another name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_library_open_bytes(
    bytes: *const c_void,
    size: usize,
    name: *const c_char,
    library: *mut *mut farjump_library_t,
) -> farjump_status_t {
    // SAFETY: the header requires what this requires.
    unsafe { of_bytes(bytes, size, name, library, Library::from_bytes) }
}

/// Loads a library in memory into this process, from a file in memory that nothing can change. Its
/// constructors run now, and its payload routines with each call, so load only libraries you trust. Otherwise
/// it does the same as farjump_library_open_bytes().
///
/// FARJUMP_ERROR_LIBRARY for bytes that cannot be loaded, or are no such library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_library_load_bytes(
    bytes: *const c_void,
    size: usize,
    name: *const c_char,
    library: *mut *mut farjump_library_t,
) -> farjump_status_t {
    // SAFETY: the header says that it is loaded now; its caller is responsible for its constructors.
    let load = |name: Option<&str>, bytes: &[u8]| unsafe { Library::load_bytes(name, bytes) };
    // SAFETY: the header requires what this requires.
    unsafe { of_bytes(bytes, size, name, library, load) }
}

/// Gives C the library that `make` makes from a name and bytes.
///
/// # Safety `library` must be a variable for a pointer, `bytes` have `size` bytes, and `name` be a text; or
/// they must be NULL.
unsafe fn of_bytes<E>(
    bytes: *const c_void,
    size: usize,
    name: *const c_char,
    library: *mut *mut farjump_library_t,
    make: impl FnOnce(Option<&str>, &[u8]) -> Result<Library, E>,
) -> farjump_status_t
where
    farjump::Error: From<E>,
{
    guarded(|| {
        // SAFETY: this function's caller guarantees them.
        let (made, bytes, name) = unsafe {
            (variable(library, "library")?, self::bytes(bytes, size, "bytes")?, text_or_null(name, "name")?)
        };
        *made = given(make(name, bytes).map_err(farjump::Error::from)?);
        Ok(FARJUMP_OK)
    })
}

fn given(library: Library) -> *mut farjump_library_t {
    let (name, path) = (c_text(library.name()), c_text(&library.path().to_string_lossy()));
    give(farjump_library_t { library, name, path })
}

/// Closes it, and sets the variable to NULL. Does nothing if it is NULL already. No other thread may be using
/// it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_library_close(library: *mut *mut farjump_library_t) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable with a result of `farjump_library_open`, which nothing else
        // uses.
        drop(unsafe { take(library, "library", |_| Ok(()))? });
        Ok(FARJUMP_OK)
    })
}

/// Returns the NAME of the ifunc: that of its routines, independent of the file's name. The text belongs to
/// the library. NULL if `library` is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_library_name(library: *const farjump_library_t) -> *const c_char {
    // SAFETY: the header requires a result of `farjump_library_open`.
    value(std::ptr::null(), || Ok(unsafe { object(library, "library")? }.name.as_ptr()))
}

/// Returns the path that was opened, with `./` before a bare file name. The text belongs to the library. NULL
/// if `library` is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_library_path(library: *const farjump_library_t) -> *const c_char {
    // SAFETY: the header requires a result of `farjump_library_open`.
    value(std::ptr::null(), || Ok(unsafe { object(library, "library")? }.path.as_ptr()))
}

/// Writes the id of the library's code for targets of this machine's kind to `id`.
///
/// FARJUMP_ERROR_LIBRARY if the library has none for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_library_code_id(
    library: *const farjump_library_t,
    id: *mut farjump_code_id_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a result of `farjump_library_open`, and for a place for an id.
        let (library, id) = unsafe { (object(library, "library")?, place(id, "id")?) };
        id.write(farjump_code_id_t { bytes: library.image()?.id().0 });
        Ok(FARJUMP_OK)
    })
}

/// Writes the number of bytes of code that travel to targets of this machine's kind to `size`.
///
/// FARJUMP_ERROR_LIBRARY if the library has none for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_library_image_size(
    library: *const farjump_library_t,
    size: *mut usize,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a result of `farjump_library_open`, and for a place for a size.
        let (library, size) = unsafe { (object(library, "library")?, place(size, "size")?) };
        size.write(library.image()?.bytes().len());
        Ok(FARJUMP_OK)
    })
}

/// Gives the code that travels to targets of this machine's kind: `image` becomes its address, and `size` its
/// length in bytes. It is for farjump_target_call_image(), and for programs that store images. The image
/// belongs to the library, and is valid until that is closed.
///
/// FARJUMP_ERROR_LIBRARY if the library has none for them; `image` is then NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_library_image(
    library: *const farjump_library_t,
    image: *mut *const c_void,
    size: *mut usize,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a place for a pointer and one for a size.
        let (image, size) = unsafe { (place(image, "image")?, place(size, "size")?) };
        let (image, size) = (image.write(std::ptr::null()), size.write(0));
        // SAFETY: the header requires a result of `farjump_library_open`.
        let bytes = unsafe { object(library, "library")? }.image()?.bytes();
        (*image, *size) = (bytes.as_ptr().cast(), bytes.len());
        Ok(FARJUMP_OK)
    })
}

/// Writes the 32 hexadecimal digits of a code id, and a zero byte after them, to `digits`: 33 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_code_id_print(
    id: *const farjump_code_id_t,
    digits: *mut c_char,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires an id, and for a place for 33 bytes.
        let (id, digits) = unsafe { (object(id, "id")?, place(digits.cast::<[c_char; 33]>(), "digits")?) };
        let mut all = [0; 33];
        for (place, digit) in all.iter_mut().zip(CodeId(id.bytes).to_string().bytes()) {
            *place = digit as c_char;
        }
        digits.write(all);
        Ok(FARJUMP_OK)
    })
}

/// Reads a code id from its 32 hexadecimal digits.
///
/// FARJUMP_ERROR_ARGUMENT if `digits` is anything else; `id` is then unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_code_id_parse(
    digits: *const c_char,
    id: *mut farjump_code_id_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a text, and for an id's place.
        let (digits, id) = unsafe { (text(digits, "digits")?, place(id, "id")?) };
        if digits.len() != 32 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            let text = format!("`{digits}` is no code id: those have 32 hexadecimal digits");
            return Err(Failure::argument(text));
        }
        let number = u128::from_str_radix(digits, 16).unwrap_or_default();
        id.write(farjump_code_id_t { bytes: number.to_be_bytes() });
        Ok(FARJUMP_OK)
    })
}
