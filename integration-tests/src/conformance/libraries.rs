//! The injected functions: farjump's samples, and those of the suite. Each process builds them once, unless they were
//! built on another machine.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;

use farjump::Library;
use farjump::build::{Options, build};

use super::failure::Failure;
use super::settings;

/// Open libraries.
#[derive(Debug)]
pub(super) struct Libraries {
    pub(super) counter: Library,
    pub(super) hello: Library,
    pub(super) histogram: Library,
    pub(super) grep: Library,
    pub(super) crc32: Library,
    pub(super) echo: Library,
    pub(super) fill: Library,
    pub(super) witness: Library,
    pub(super) panics: Library,
    pub(super) missing: Library,
    /// The files of the libraries that any target can link, by file name.
    pub(super) files: Vec<(String, Vec<u8>)>,
}

/// The sources, of which some are links to farjump's samples.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/ifuncs");
const NAMES: [&str; 10] =
    ["counter", "hello", "histogram", "grep", "crc32", "echo", "fill", "witness", "panics", "missing"];

/// The libraries of this process.
pub(super) fn libraries() -> Result<&'static Libraries, Failure> {
    static BUILT: OnceLock<Result<Libraries, Failure>> = OnceLock::new();
    let get = || match settings::libraries() {
        Some(folder) => open_all(&folder),
        None => {
            // They stay loaded when their files are gone.
            let folder = tempfile::tempdir()?;
            build_into(folder.path())?;
            open_all(folder.path())
        }
    };
    BUILT.get_or_init(get).as_ref().map_err(Clone::clone)
}

/// Builds the suite's functions into `folder`, for a machine without a compiler: there the variable
/// `CONFORMANCE_LIBRARIES` names the folder.
///
/// # Errors
/// A missing compiler or linker, or a folder that cannot be written.
pub fn build_into(folder: &Path) -> Result<(), Failure> {
    thread::scope(|scope| {
        let halves = NAMES
            .chunks(NAMES.len().div_ceil(2))
            .map(|half| scope.spawn(move || half.iter().try_for_each(|name| build_one(name, folder))));
        let threads: Vec<_> = halves.collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err(Failure::new("building libraries panicked")))
        })
    })
}

fn open_all(folder: &Path) -> Result<Libraries, Failure> {
    let mut opened = Vec::new();
    let mut files = Vec::new();
    for name in NAMES {
        let file = file_of(name);
        let path = folder.join(&file);
        opened.push(Library::open(&path).map_err(|error| Failure::from(error).at(name))?);
        if name != "missing" {
            files.push((file, std::fs::read(path)?));
        }
    }
    let [counter, hello, histogram, grep, crc32, echo, fill, witness, panics, missing] =
        <[Library; NAMES.len()]>::try_from(opened)
            .map_err(|opened| Failure::new(format!("{} libraries were opened", opened.len())))?;
    Ok(Libraries { counter, hello, histogram, grep, crc32, echo, fill, witness, panics, missing, files })
}

fn build_one(name: &str, folder: &Path) -> Result<(), Failure> {
    let source: PathBuf = Path::new(SOURCES).join(format!("{name}.c"));
    let options = Options { inputs: vec![source], output: folder.join(file_of(name)), ..Options::default() };
    build(&options).map(drop).map_err(|error| Failure::from(error).at(name))
}

fn file_of(name: &str) -> String {
    format!("lib{name}.so")
}
