//! A folder in which tests build ifunc libraries, and a target inside the test that runs their images.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use farjump_core::image::ImageView;
use farjump_loader::builder::{BuildError, BuildReport, Options, build};
use farjump_loader::{Arena, Exports, Linked, Resolver, Store};

/// A folder for each test, removed at its end.
pub(crate) struct Workshop(tempfile::TempDir);

impl Workshop {
    pub(crate) fn new() -> Workshop {
        Workshop(tempfile::tempdir().expect("a temporary folder"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders can be made");
        fs::write(&path, text).expect("files can be written");
        path
    }

    /// Options for `lib{name}.so` in this folder.
    pub(crate) fn options(&self, name: &str, inputs: &[PathBuf]) -> Options {
        Options { inputs: inputs.to_vec(), output: self.path(&format!("lib{name}.so")), ..Options::default() }
    }

    /// Builds `lib{name}.so` out of one C source.
    pub(crate) fn c(&self, name: &str, source: &str) -> Result<BuildReport, BuildError> {
        let source = self.write(&format!("{name}.c"), source);
        build(&self.options(name, &[source]))
    }

    /// Runs a tool in this folder; it must succeed.
    pub(crate) fn run(&self, tool: &str, args: &[&str]) {
        let output = Command::new(tool).args(args).current_dir(self.0.path()).output();
        let output = output.unwrap_or_else(|error| panic!("{tool}: {error}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{tool} {args:?}: {said}");
    }

    /// The text of a refusal, which must have left nothing behind.
    pub(crate) fn refusal(&self, result: Result<BuildReport, BuildError>) -> String {
        match result {
            Ok(report) => panic!("was built: {report:?}"),
            Err(error) => {
                let left: Vec<_> = fs::read_dir(self.0.path())
                    .expect("the folder is there")
                    .map(|entry| {
                        entry.expect("entries can be read").file_name().into_string().unwrap_or_default()
                    })
                    .filter(|name| name.contains(".so"))
                    .collect();
                assert_eq!(left, Vec::<String>::new(), "files of a library that was not built");
                error.to_string()
            }
        }
    }
}

/// A file of `ifuncs/samples`.
pub(crate) fn sample(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ifuncs/samples").join(path)
}

/// Names of an image's imports, sorted, each once.
pub(crate) fn imports(image: &[u8]) -> Vec<String> {
    let view = ImageView::new_checked(image).expect("an image");
    let mut names: Vec<String> = view.imports().map(|import| import.name.to_owned()).collect();
    names.sort();
    names.dedup();
    names
}

/// Whether a tool can be run here.
pub(crate) fn is_there(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_ok()
}

thread_local! {
    static REPLY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

unsafe extern "C" fn farjump_reply(bytes: *const c_void, len: usize) -> c_int {
    // SAFETY: injected code passes its own memory and its length, as farjump_ifunc.h says.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), len) };
    REPLY.with_borrow_mut(|reply| reply.extend_from_slice(bytes));
    0
}

/// A target: offers `farjump_reply` and the test's symbols, places images and runs them on the caller's
/// thread.
pub(crate) struct Target {
    store: Store,
    pub(crate) resolver: Resolver,
}

impl Target {
    pub(crate) fn new() -> Target {
        let mut exports = Exports::new();
        // SAFETY: the header declares it with this type.
        unsafe { exports.insert("farjump_reply", farjump_reply as *const c_void) };
        let arena = Arena::new(1 << 20).expect("an arena");
        Target { store: Store::new(arena), resolver: Resolver::new(exports) }
    }

    pub(crate) fn offering(name: &str, address: *const c_void) -> Target {
        let mut target = Target::new();
        // SAFETY: tests pass symbols with the types that their functions declare.
        unsafe { target.resolver.exports_mut().insert(name, address) };
        target
    }

    pub(crate) fn hold(&mut self, report: &BuildReport) -> Arc<Linked> {
        let held = self.store.insert(&report.image, report.id, &report.name, &self.resolver);
        held.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs the image of `report` once, and returns its reply.
    pub(crate) fn run<T>(&mut self, report: &BuildReport, payload: &[u8], args: &mut T) -> Vec<u8> {
        let linked = self.hold(report);
        let mut payload = payload.to_vec();
        REPLY.with_borrow_mut(Vec::clear);
        // SAFETY: the image was built from sources of these tests, which take `T` for their arguments.
        unsafe {
            (linked.main())(payload.as_mut_ptr().cast(), payload.len(), (&raw mut *args).cast());
        }
        REPLY.take()
    }
}

/// `struct farjump_data`, laid out like a target in any language would.
#[repr(C)]
pub(crate) struct FarjumpData {
    size: u32,
    reserved: u32,
    bytes: *const u8,
    len: usize,
    path: *const c_char,
    _path: CString,
}

impl FarjumpData {
    /// Makes data of `bytes`, which must outlive the value.
    pub(crate) fn new(bytes: &[u8]) -> FarjumpData {
        let path = CString::from(c"test data");
        let (bytes, len) = (bytes.as_ptr(), bytes.len());
        FarjumpData { size: 32, reserved: 0, bytes, len, path: path.as_ptr(), _path: path }
    }
}
