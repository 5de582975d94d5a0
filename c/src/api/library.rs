//! Ifunc libraries, and the identity of their code.

use std::ffi::{CString, c_char};

use farjump::{CodeId, Library, LibraryImage, Machine};

use crate::api::status::farjump_status_t::{self, *};
use crate::boundary::{c_text, give, guarded, object, path, place, take, text, value, variable};
use crate::failure::Failure;

/// An ifunc library that is open or loaded: code to inject, and how its payload is made. Any number of threads may use it at
/// once.
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

    /// The image for targets of this machine's kind.
    fn image(&self) -> Result<&LibraryImage, Failure> {
        let machine = Machine::native().unwrap_or(Machine::X86_64);
        self.library.image_for(machine).map_err(|error| Failure::from(farjump::Error::from(error)))
    }
}

/// The identity of code: the first 16 bytes of the BLAKE3 hash of its image. Names are for people.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct farjump_code_id_t {
    /// The bytes, in the order in which the hash has them.
    pub bytes: [u8; 16],
}

/// Opens the ifunc library at `path`, as `farjump build` makes it. A path without a slash is a file of the current directory.
/// The file is read, and nothing of it runs: payloads are the arguments as they are (FARJUMP_COPY_ARGS). A library with payload
/// routines of its own has to be loaded, by farjump_library_load(); if it was only opened, calls of its function fail with
/// FARJUMP_ERROR_LIBRARY. farjump_library_close() ends it; links and targets that were given it keep what they need.
///
/// FARJUMP_ERROR_LIBRARY for a file that is not there, cannot be read, or is no such library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_library_open(
    path: *const c_char,
    library: *mut *mut farjump_library_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header asks for a place for a pointer, and for a text.
        let (opened, path) = unsafe { (variable(library, "library")?, self::path(path, "path")?) };
        *opened = given(Library::open(path).map_err(farjump::Error::from)?);
        Ok(FARJUMP_OK)
    })
}

/// Loads the ifunc library at `path` into this process, as dlopen() does: its constructors run now, and its payload routines with
/// each call, so load what you trust. Otherwise as farjump_library_open().
///
/// FARJUMP_ERROR_LIBRARY for a file that is not there, cannot be loaded, or is no such library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_library_load(
    path: *const c_char,
    library: *mut *mut farjump_library_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header asks for a place for a pointer, and for a text.
        let (loaded, path) = unsafe { (variable(library, "library")?, self::path(path, "path")?) };
        // SAFETY: the header says that it is loaded, by whoever named it.
        *loaded = given(unsafe { Library::load(path) }.map_err(farjump::Error::from)?);
        Ok(FARJUMP_OK)
    })
}

fn given(library: Library) -> *mut farjump_library_t {
    let (name, path) = (c_text(library.name()), c_text(&library.path().to_string_lossy()));
    give(farjump_library_t { library, name, path })
}

/// Closes it, and sets the variable to NULL. One that is NULL already is none to be closed, and no error. No other thread may
/// be using it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_library_close(library: *mut *mut farjump_library_t) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header asks for a variable with what `farjump_library_open` gave, used by nobody else.
        drop(unsafe { take(library, "library", |_| Ok(()))? });
        Ok(FARJUMP_OK)
    })
}

/// NAME of the ifunc: that of its routines, whatever the file is called. The text is the library's. NULL if `library` is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_library_name(library: *const farjump_library_t) -> *const c_char {
    // SAFETY: the header asks for what `farjump_library_open` gave.
    value(std::ptr::null(), || Ok(unsafe { object(library, "library")? }.name.as_ptr()))
}

/// The path that was opened, with `./` before a bare file name. The text is the library's. NULL if `library` is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_library_path(library: *const farjump_library_t) -> *const c_char {
    // SAFETY: the header asks for what `farjump_library_open` gave.
    value(std::ptr::null(), || Ok(unsafe { object(library, "library")? }.path.as_ptr()))
}

/// The identity of its code for targets of this machine's kind.
///
/// FARJUMP_ERROR_LIBRARY if it has none for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_library_code_id(
    library: *const farjump_library_t,
    id: *mut farjump_code_id_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header asks for what `farjump_library_open` gave, and for a place for an id.
        let (library, id) = unsafe { (object(library, "library")?, place(id, "id")?) };
        id.write(farjump_code_id_t { bytes: library.image()?.id().0 });
        Ok(FARJUMP_OK)
    })
}

/// How many bytes of code travel to targets of this machine's kind.
///
/// FARJUMP_ERROR_LIBRARY if it has none for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_library_image_size(
    library: *const farjump_library_t,
    size: *mut usize,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header asks for what `farjump_library_open` gave, and for a place for a size.
        let (library, size) = unsafe { (object(library, "library")?, place(size, "size")?) };
        size.write(library.image()?.bytes().len());
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
        // SAFETY: the header asks for an id, and for a place for 33 bytes.
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
/// FARJUMP_ERROR_ARGUMENT if `digits` is something else; `id` is then as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_code_id_parse(
    digits: *const c_char,
    id: *mut farjump_code_id_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header asks for a text, and for an id's place.
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
