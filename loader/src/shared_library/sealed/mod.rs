//! Loading a shared library from a sealed copy in memory, which nothing can shorten or change.
//!
//! The dynamic linker maps a library's file. When another process truncates the file, the pages behind its new end
//! disappear in this process too, and their next use ends it (`SIGBUS`). A checked and sealed copy cannot be truncated.
//! The loader also copies needed libraries to which the RUNPATH or RPATH leads. It leaves the libraries of the system
//! and of `LD_LIBRARY_PATH` to the dynamic linker.
//!
//! A copy has no folder. So the loader replaces `$ORIGIN` in its RUNPATH by the folder of the file, and the names of
//! needed libraries by the paths of their copies. After loading, each copy gets its file's path as its name: in
//! dladdr(3), gdb, core dumps, and for the next `dlopen` of that path (`docs/design/images.md`).

mod object;
mod search;

use std::ffi::{CString, OsStr, c_int, c_void};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use farjump_core::image::CodeId;
use farjump_os::limits;
use libloading::os::unix;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;

use crate::code_id;
use crate::library::carried_source::CarriedSource;
use crate::library::file_contents::Carrier;
use crate::shared_library::elf_file;
use object::{Object, Role};
pub(crate) use object::{check_complete, check_stack};
use search::{Folders, absolute, expand, replace_origin};

/// Bound all at once, and none offered to other libraries.
const FLAGS: c_int = unix::RTLD_NOW | unix::RTLD_LOCAL;
/// Maximum number of copies for one library: none needs so many of its own.
const MOST: usize = 512;

/// A library's file after reading.
pub(crate) struct LibraryFile {
    file: File,
    /// From the root.
    path: PathBuf,
    bytes: Vec<u8>,
    /// The hash of the bytes.
    id: CodeId,
}

impl LibraryFile {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// The reason, with `it` for the library.
    pub(crate) fn read(path: &Path) -> Result<LibraryFile, String> {
        let said = |error: std::io::Error| error.to_string();
        let path = absolute(path).ok_or("its path has a zero byte, or no current folder to start from")?;
        let file = elf_file::open(&path).map_err(said)?;
        let file = file.ok_or("it is a directory, a device or a pipe")?;
        let mut bytes = Vec::new();
        // The file may grow or shrink during the read: only the bytes read count.
        (&file).read_to_end(&mut bytes).map_err(said)?;
        let id = code_id(&bytes);
        Ok(LibraryFile { file, path, bytes, id })
    }

    /// Its path, and the hash of its contents.
    pub(crate) fn identity(&self) -> (&Path, CodeId) {
        (&self.path, self.id)
    }

    /// The source that it carries, if it is an ifunc library.
    pub(crate) fn source(&self) -> Option<CarriedSource> {
        source_in(&self.bytes, &self.path)
    }

    /// Loads the library. If the process has it loaded, returns another handle on that. With `must_copy`, the loaded
    /// library has other contents, so this makes a copy.
    ///
    /// # Errors
    /// The reason, with `it` for the library.
    ///
    /// # Safety
    /// The conditions of [`crate::shared_library::Loaded::open`].
    pub(crate) unsafe fn load(self, must_copy: bool) -> Result<unix::Library, String> {
        let LibraryFile { file, path, bytes, .. } = self;
        if !must_copy
            // SAFETY: the caller trusts the library, and this loads none.
            && let Some((library, _)) = unsafe { loaded_already(&path, &file) }?
        {
            return Ok(library);
        }
        let metadata = file.metadata().map_err(|error| error.to_string())?;
        let name = path.file_name().unwrap_or_default().to_owned();
        let mut copies = Copies::default();
        copies.add_bytes(bytes, &name, Some((path, (metadata.dev(), metadata.ino()))), None)?;
        // SAFETY: the caller trusts the library.
        unsafe { copies.load() }
    }
}

/// The source that the library of these bytes carries, if it is an ifunc library.
pub(crate) fn source_in(bytes: &[u8], path: &Path) -> Option<CarriedSource> {
    CarriedSource::of(Carrier::parse(bytes).ok()?.elf(), path)
}

/// Loads the library of these bytes. Messages and `/proc/PID/maps` call it `name`. Also returns its file: as long as
/// that is open, gdb can read the library.
///
/// # Errors
/// The reason, with `it` for the library.
///
/// # Safety
/// The conditions of [`crate::shared_library::Loaded::open`].
pub(crate) unsafe fn load_bytes(name: &str, bytes: &[u8]) -> Result<(unix::Library, File), String> {
    let mut copies = Copies::default();
    copies.add_bytes(bytes.to_vec(), OsStr::new(name), None, None)?;
    // SAFETY: the caller trusts the library.
    let library = unsafe { copies.load() }?;
    Ok((library, copies.all.swap_remove(0).memory))
}

/// A file to be copied.
struct Source {
    file: File,
    /// From the root.
    path: PathBuf,
}

/// One library in memory.
struct SealedCopy {
    object: Object,
    memory: File,
    /// The path at which the dynamic linker finds it, which no other copy of this process ever has.
    at: String,
    /// The path of its file, and the file's device and inode number.
    origin: Option<(PathBuf, (u64, u64))>,
    /// For each needed library that has a copy or is loaded: its name in this library, and the path to use instead.
    renamed: Vec<(String, String)>,
}

impl SealedCopy {
    fn folder(&self) -> Option<&Path> {
        self.origin.as_ref().and_then(|(path, _)| path.parent())
    }
}

/// The copies for one loading. The first is the library itself.
#[derive(Default)]
struct Copies {
    all: Vec<SealedCopy>,
    /// Handles on needed libraries that were loaded before, and their files: they stay open until this library is
    /// loaded.
    held: Vec<(unix::Library, Option<File>)>,
}

impl Copies {
    /// Adds the copy of a file that `parent` needs, and the copies of the libraries that the file needs. Returns its
    /// position.
    fn add(&mut self, source: Source, parent: Option<&Folders>) -> Result<usize, String> {
        let metadata = source.file.metadata().map_err(|error| error.to_string())?;
        let identity = (metadata.dev(), metadata.ino());
        let same = |copy: &SealedCopy| copy.origin.as_ref().is_some_and(|(_, other)| *other == identity);
        if let Some(index) = self.all.iter().position(same) {
            return Ok(index);
        }
        let mut bytes = Vec::new();
        // The file may grow or shrink during the read: only the bytes read count.
        (&source.file).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        let name = source.path.file_name().unwrap_or_default().to_owned();
        self.add_bytes(bytes, &name, Some((source.path, identity)), parent)
    }

    fn add_bytes(
        &mut self,
        bytes: Vec<u8>,
        name: &OsStr,
        origin: Option<(PathBuf, (u64, u64))>,
        parent: Option<&Folders>,
    ) -> Result<usize, String> {
        if self.all.len() == MOST {
            return Err(format!("it needs more than {MOST} libraries of its own"));
        }
        elf_file::check_head(&bytes).map_err(|problem| problem.to_string())?;
        let object = Object::check(bytes)?;
        let memory = memory_file(name)?;
        let shown = origin.as_ref().map_or(0, |(path, _)| path.as_os_str().len());
        let at = unique_path(&memory, shown)?;
        let folder = origin.as_ref().and_then(|(path, _)| path.parent());
        let folders = Folders::of(&object, folder, parent);
        let needed = object.needed();
        let index = self.all.len();
        self.all.push(SealedCopy { object, memory, at, origin, renamed: Vec::new() });
        for name in needed {
            if let Some(path) = self.copy_of_needed(&name, index, &folders)? {
                self.all[index].renamed.push((name, path));
            }
        }
        let copy = &mut self.all[index];
        let (renamed, origin) = (&copy.renamed, copy.origin.as_ref().and_then(|(path, _)| path.parent()));
        copy.object.replace_strings(|role, old| match role {
            Role::Needed => {
                renamed.iter().find(|(name, _)| name == old).map(|(_, at)| at.clone().into_bytes())
            }
            Role::Folders => replace_origin(old, origin),
        });
        copy.memory
            .write_all(copy.object.bytes())
            .map_err(|error| no_memory(copy.object.bytes().len(), &error))?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
        fcntl_add_seals(&copy.memory, seals)
            .map_err(|error| format!("its copy in memory cannot be sealed: {error}"))?;
        Ok(index)
    }

    /// The path to use for a library that the copy at `index` needs; `None` if the dynamic linker should find it in the
    /// system's folders, or finds it loaded by this name.
    fn copy_of_needed(
        &mut self,
        name: &str,
        index: usize,
        folders: &Folders,
    ) -> Result<Option<String>, String> {
        let paths = if name.contains('/') {
            let expanded = expand(name, self.all[index].folder());
            expanded.into_iter().map(|path| PathBuf::from(OsStr::from_bytes(&path))).collect()
        } else {
            // SAFETY: this loads nothing.
            if let Some(library) = unsafe { handle_if_loaded(OsStr::new(name)) } {
                self.held.push((library, None));
                return Ok(None);
            }
            match folders.candidates(name) {
                Some(paths) => paths,
                None => return Ok(None),
            }
        };
        for path in paths.iter().filter_map(|path| absolute(path)) {
            let Ok(Some(file)) = elf_file::open(&path) else { continue };
            let problem = |problem: String| format!("it needs `{}`: {problem}", path.display());
            // The dynamic linker skips libraries for other machines.
            let mut head = [0; elf_file::HEAD_LEN as usize];
            let is_foreign = std::os::unix::fs::FileExt::read_exact_at(&file, &mut head, 0).is_ok()
                && matches!(elf_file::check_head(&head), Err(elf_file::NoLibrary::Foreign(_)));
            if is_foreign {
                continue;
            }
            // SAFETY: this loads nothing.
            if let Some((library, at)) = unsafe { loaded_already(&path, &file) }.map_err(problem)? {
                self.held.push((library, Some(file)));
                return Ok(Some(at));
            }
            let source = Source { file, path: path.clone() };
            let at = self.add(source, Some(folders)).map_err(problem)?;
            return Ok(Some(self.all[at].at.clone()));
        }
        Ok(None)
    }

    /// Loads the first copy, which loads the others, and names them all after their files.
    ///
    /// # Safety
    /// The conditions of [`crate::shared_library::Loaded::open`].
    unsafe fn load(&mut self) -> Result<unix::Library, String> {
        // SAFETY: the caller trusts the library and its dependencies.
        let library = unsafe { unix::Library::open(Some(&self.all[0].at), FLAGS) };
        let library = library.map_err(|error| {
            let message = said(error);
            // The dynamic linker's message names the copies, but the user knows the files.
            self.all.iter().fold(message, |message, copy| match &copy.origin {
                Some((path, _)) => message.replace(&copy.at, &path.display().to_string()),
                None => message.replace(&format!("{}: ", copy.at), ""),
            })
        })?;
        let names = self.all.iter().filter_map(|copy| {
            let name = CString::new(copy.origin.as_ref()?.0.as_os_str().as_bytes()).ok()?;
            Some((CString::new(copy.at.as_bytes()).ok()?, name))
        });
        rename(&names.collect());
        Ok(library)
    }
}

/// The dynamic linker's message.
pub(crate) fn said(error: libloading::Error) -> String {
    match error {
        libloading::Error::DlOpen { source } => source.to_string(),
        other => other.to_string(),
    }
}

/// Renames each loaded object with the first name of a pair to the second, which is not longer.
fn rename(names: &Vec<(CString, CString)>) {
    // SAFETY: `visit` takes its second argument for these names, which live until the call returns.
    unsafe { libc::dl_iterate_phdr(Some(visit), ptr_of(names)) };
}

fn ptr_of(names: &Vec<(CString, CString)>) -> *mut c_void {
    std::ptr::from_ref(names).cast_mut().cast()
}

/// Renames one object: the dynamic linker keeps the path of `dlopen` in its own memory, and shows it to debuggers and
/// dladdr(3).
unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, names: *mut c_void) -> c_int {
    // SAFETY: `rename` passes these names, which nothing changes during the call; dl_iterate_phdr(3) passes a valid
    // description, whose name is a C string or null.
    let (names, at) = unsafe { (&*names.cast::<Vec<(CString, CString)>>(), (*info).dlpi_name) };
    if at.is_null() {
        return 0;
    }
    // SAFETY: the name was checked not to be null, and the object stays while this runs: the dynamic linker's
    // lock is held.
    let found = unsafe { std::ffi::CStr::from_ptr(at) };
    let Some((_, new)) = names.iter().find(|(old, _)| **old == *found) else { return 0 };
    let new = new.as_bytes_with_nul();
    if new.len() <= found.to_bytes_with_nul().len() {
        // SAFETY: `at` is the allocation that the dynamic linker made for this object's path, which no other
        // object shares, and which is at least as long as the new path. The callers of dl_iterate_phdr(3) and
        // `dlopen` read it under the lock that is held here.
        unsafe { new.as_ptr().cast::<libc::c_char>().copy_to_nonoverlapping(at.cast_mut(), new.len()) };
    }
    0
}

/// A handle on the library with this path, or from this file, and a path by which the dynamic linker knows
/// it.
///
/// # Errors
/// `/proc` is not mounted.
///
/// # Safety
/// It loads nothing.
unsafe fn loaded_already(path: &Path, file: &File) -> Result<Option<(unix::Library, String)>, String> {
    // Looks up the path only if an object has it: then the dynamic linker compares names, and opens no file.
    if is_loaded(path)
        && let Some(text) = path.to_str()
        // SAFETY: this loads nothing.
        && let Some(library) = unsafe { handle_if_loaded(path.as_os_str()) }
    {
        return Ok(Some((library, text.to_owned())));
    }
    let at = unique_path(file, 0)?;
    // SAFETY: this loads nothing.
    Ok(unsafe { handle_if_loaded(OsStr::new(&at)) }.map(|library| (library, at)))
}

/// A handle on a library that is loaded, found as the dynamic linker would find it.
///
/// # Safety
/// It loads nothing; the destructors that run if this is the last handle are those of the library's user.
unsafe fn handle_if_loaded(name: &OsStr) -> Option<unix::Library> {
    // SAFETY: RTLD_NOLOAD runs nothing of the library.
    unsafe { unix::Library::open(Some(name), FLAGS | libc::RTLD_NOLOAD) }.ok()
}

/// Returns whether an object with this name is loaded.
fn is_loaded(path: &Path) -> bool {
    unsafe extern "C" fn compare(info: *mut libc::dl_phdr_info, _size: usize, name: *mut c_void) -> c_int {
        // SAFETY: `is_loaded` passes a C string; the object's name is a C string or null, and stays while this
        // runs.
        unsafe {
            let (name, at) = (std::ffi::CStr::from_ptr(name.cast()), (*info).dlpi_name);
            c_int::from(!at.is_null() && std::ffi::CStr::from_ptr(at) == name)
        }
    }
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: `compare` takes its last argument for a C string, which lives until the call returns.
    unsafe { libc::dl_iterate_phdr(Some(compare), name.as_ptr().cast_mut().cast()) != 0 }
}

fn no_memory(len: usize, error: &std::io::Error) -> String {
    format!("its {len} bytes cannot be copied into memory: {error}{}", limits::behind(error))
}

/// An empty file in memory with the name of a library.
fn memory_file(name: &OsStr) -> Result<File, String> {
    let name: Vec<u8> = name.as_bytes().iter().copied().filter(|&byte| byte != 0).take(240).collect();
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // A policy on memfds may require this flag, and kernels before 6.3 do not know it.
    let memory = match memfd_create(&*name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => memfd_create(&*name, flags),
        other => other,
    };
    Ok(File::from(memory.map_err(|error| format!("no file in memory can be made for its copy: {error}"))?))
}

/// A path of this open file that the process never used before, with at least `len` bytes.
///
/// For a path that it has seen, the dynamic linker returns the library that it found there, and descriptors are reused.
fn unique_path(file: &File, len: usize) -> Result<String, String> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // The process's number as seen by other processes with this `/proc`: gdb reads the file by this path.
    let process = fs::read_link("/proc/self");
    let process =
        process.map_err(|error| format!("`/proc/self`, which loading needs, cannot be read: {error}"))?;
    let marks: String = (0..48).map(|bit| if number >> bit & 1 == 1 { "/." } else { "//" }).collect();
    let path = format!("/proc{marks}/{}/fd/{}", process.display(), file.as_raw_fd());
    Ok(format!("{}{path}", "/".repeat(len.saturating_sub(path.len()))))
}
