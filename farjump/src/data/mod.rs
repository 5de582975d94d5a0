//! A file as injected functions see it: `struct farjump_data` of `farjump_ifunc.h`.

pub(crate) mod files;

use std::ffi::{CStr, CString, c_char};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use memmap2::{MmapOptions, MmapRaw};

use crate::Error;
use crate::data::files::Listed;

/// A file, mapped for injected functions: give it to [`crate::TargetBuilder::args`], and `NAME_main` gets a
/// `struct farjump_data *` as its `target_args`. `farjump serve --data FILE` does so.
///
/// [`Data::from_bytes`] is for bytes that lie in memory already.
///
/// The mapping is private and read-only. Injected code cannot change the file: code that tries ends the
/// target with a fault instead of altering the data of later functions. A process that writes to the file may
/// change the data that functions see. A process that shortens the file while it is mapped ends the target when
/// the missing bytes are read (mmap(2), `SIGBUS`). With [`crate::TargetBuilder::crash_report`] standard error
/// then names the file. To change the data, write a new file, rename it to this path, and start a new target.
///
/// ```
/// # fn main() -> Result<(), farjump::Error> {
/// # let file = std::env::current_exe().unwrap();
/// # let socket = std::env::temp_dir().join(format!("farjump-doc-data-{}", std::process::id()));
/// # let address = format!("unix:{}", socket.display());
/// let mut data = farjump::Data::open(&file)?;
/// let target = farjump::Target::listen(&address).args(&mut data).build()?;
/// # Ok(())
/// # }
/// ```
#[repr(C)]
pub struct Data {
    /// End of the C structure: injected code must not use the fields after `path`.
    size: u32,
    reserved: u32,
    bytes: *const u8,
    len: usize,
    path: *const c_char,
    // Owners of the memory behind the pointers; moving them moves no byte of it.
    owner: Owner,
    name: CString,
}

/// The memory of the bytes. Nothing touches a vector until [`Data::into_bytes`] returns it.
enum Owner {
    Bytes(Vec<u8>),
    /// A mapping, and its place in the list for crash reports, which ends first.
    Mapping {
        _listed: Listed,
        mapping: MmapRaw,
    },
}

/// Length of the C structure, in bytes; later versions may only append to it.
const SIZE: u32 = 32;

// SAFETY: the pointers go to memory that `owner` and the path own, and that no thread writes.
unsafe impl Send for Data {}
// SAFETY: the memory is never written through the value, so shared reads from several threads are sound.
unsafe impl Sync for Data {}

impl Data {
    /// Maps the file at `path`, which injected code sees as given here.
    ///
    /// # Errors
    /// [`Error::DataFile`] when the file does not exist, cannot be read or is not regular.
    pub fn open(path: impl AsRef<Path>) -> Result<Data, Error> {
        let path = path.as_ref();
        let failed = |source| Error::DataFile { path: path.to_owned(), source };
        let file = farjump_os::open_without_waiting(path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(failed(io::Error::other("it is no regular file")));
        }
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| failed(error.into()))?;
        // SAFETY: no reference is made to the pages, which other processes may change by writing the file. A
        // process that shortens the file ends this one with a signal, as the type's docs say.
        let mapping = unsafe { MmapOptions::new().map_copy_read_only(&file) }.map_err(failed)?;
        let mapping = MmapRaw::from(mapping);
        let listed = Listed::new(mapping.as_ptr(), mapping.len(), path);
        Ok(Data::new(Owner::Mapping { _listed: listed, mapping }, name))
    }

    /// No bytes, and an empty path.
    pub fn empty() -> Data {
        Data::from_bytes(Vec::new())
    }

    /// Bytes that lie in memory already, and an empty path. They are moved, not copied.
    pub fn from_bytes(bytes: Vec<u8>) -> Data {
        Data::new(Owner::Bytes(bytes), CString::default())
    }

    /// Returns the bytes of [`Data::from_bytes`] without a copy. `None` for a mapped file, which it unmaps.
    pub fn into_bytes(self) -> Option<Vec<u8>> {
        match self.owner {
            Owner::Bytes(bytes) => Some(bytes),
            Owner::Mapping { .. } => None,
        }
    }

    fn new(owner: Owner, name: CString) -> Data {
        // Even an empty vector or mapping has a pointer that is not null.
        let (bytes, len) = match &owner {
            Owner::Bytes(bytes) => (bytes.as_ptr(), bytes.len()),
            Owner::Mapping { mapping, .. } => (mapping.as_ptr(), mapping.len()),
        };
        Data { size: SIZE, reserved: 0, bytes, len, path: name.as_ptr(), owner, name }
    }

    /// Number of mapped bytes: the file's length when it was opened.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of the [`Data::len`] bytes, valid for reads as long as the value. A process that writes the
    /// file changes them, so there is no slice of them.
    pub fn as_ptr(&self) -> *const u8 {
        self.bytes
    }

    /// Copies from the bytes at `at` to the start of `into`, as many as fit and exist, and returns their
    /// number. Each is read once.
    pub fn copy_to(&self, at: usize, into: &mut [u8]) -> usize {
        let len = self.len.saturating_sub(at).min(into.len());
        for (byte, to) in into[..len].iter_mut().enumerate() {
            // SAFETY: the sum is less than `self.len`, and so many bytes are mapped. Volatile, because other
            // processes may write them.
            *to = unsafe { self.bytes.add(at + byte).read_volatile() };
        }
        len
    }

    /// The path, as given to [`Data::open`].
    pub fn path(&self) -> &CStr {
        &self.name
    }
}

impl fmt::Debug for Data {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Data").field("path", &self.name).field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::mem::offset_of;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_c_compiler_finds_every_field_where_rust_puts_it() {
        let fields = [
            ("size", offset_of!(Data, size)),
            ("reserved", offset_of!(Data, reserved)),
            ("bytes", offset_of!(Data, bytes)),
            ("len", offset_of!(Data, len)),
            ("path", offset_of!(Data, path)),
        ];
        let mut source = format!(
            "#include <farjump_ifunc.h>\n_Static_assert(sizeof(struct farjump_data) == {SIZE}, \"size\");\n"
        );
        for (field, offset) in fields {
            source += &format!(
                "_Static_assert(offsetof(struct farjump_data, {field}) == {offset}, \"{field}\");\n"
            );
        }
        let compile = |source: &str| {
            let mut compiler = Command::new("cc")
                .args(["-fsyntax-only", "-x", "c", "-", "-I"])
                .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../ifuncs/include"))
                .stdin(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            compiler.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
            compiler.wait().unwrap().success()
        };
        assert!(compile(&source), "{source}");
        assert!(!compile(&source.replace("== 8", "== 9")), "the compiler checks nothing");
    }

    #[test]
    fn a_file_is_seen_through_the_fields_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some file");
        std::fs::write(&path, "contents").unwrap();
        let data = Data::open(&path).unwrap();
        // SAFETY: `open` and `empty` set the fields as `struct farjump_data` promises them to injected code.
        let (bytes, name) =
            unsafe { (std::slice::from_raw_parts(data.bytes, data.len), CStr::from_ptr(data.path)) };
        let mut copy = [0; 9];
        assert_eq!((data.copy_to(0, &mut copy), &copy), (8, b"contents\0"));
        assert_eq!(
            (data.copy_to(6, &mut copy), data.copy_to(8, &mut copy), data.copy_to(usize::MAX, &mut copy)),
            (2, 0, 0)
        );
        assert_eq!((bytes.len(), name), (data.len(), data.path()));
        assert_eq!((bytes, name.to_bytes()), (&b"contents"[..], path.as_os_str().as_bytes()));
        assert_eq!((data.size, data.reserved), (SIZE, 0));
    }

    #[test]
    fn bytes_in_memory_are_seen_where_they_lie_and_come_back() {
        let bytes = b"contents".to_vec();
        let at = bytes.as_ptr();
        let data = Data::from_bytes(bytes);
        assert_eq!((data.as_ptr(), data.len(), data.path()), (at, 8, c""));
        let bytes = data.into_bytes().unwrap();
        assert_eq!((bytes.as_ptr(), &bytes[..]), (at, &b"contents"[..]));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "contents").unwrap();
        assert!(Data::open(&path).unwrap().into_bytes().is_none());
    }

    #[test]
    fn no_bytes_have_an_address_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("empty");
        File::create(&path).unwrap();
        for data in [Data::empty(), Data::open(&path).unwrap()] {
            assert!(!data.bytes.is_null() && !data.path.is_null());
            assert!(data.is_empty() && data.copy_to(0, &mut [7; 3]) == 0);
        }
    }

    #[test]
    fn anything_but_a_regular_file_is_refused_with_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let error = Data::open(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains(&*folder.path().to_string_lossy()) && error.contains("no regular file"),
            "{error}"
        );
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let error = Data::open(&pipe).unwrap_err().to_string();
        assert!(error.contains("no regular file"), "{error}");
        let error = Data::open(folder.path().join("missing")).unwrap_err().to_string();
        assert!(error.contains("missing"), "{error}");
    }
}
