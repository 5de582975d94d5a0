//! The functions that are injected: farjump's samples, and those of the suite. Built once in each process.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;

use farjump::Library;
use farjump::build::{Options, build};

use super::failure::Failure;

/// Libraries, opened.
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
    /// The files of those that any target can link, by file name.
    pub(super) files: Vec<(String, Vec<u8>)>,
}

const SAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../ifuncs/samples/c");
const OWN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/ifuncs");
const NAMES: [(&str, &str); 10] = [
    (SAMPLES, "counter"),
    (SAMPLES, "hello"),
    (SAMPLES, "histogram"),
    (SAMPLES, "grep"),
    (SAMPLES, "crc32"),
    (OWN, "echo"),
    (OWN, "fill"),
    (OWN, "witness"),
    (OWN, "panics"),
    (OWN, "missing"),
];

/// The libraries of this process.
pub(super) fn libraries() -> Result<&'static Libraries, Failure> {
    static BUILT: OnceLock<Result<Libraries, Failure>> = OnceLock::new();
    BUILT.get_or_init(build_all).as_ref().map_err(Clone::clone)
}

fn build_all() -> Result<Libraries, Failure> {
    // They stay mapped when their files are gone.
    let folder = tempfile::tempdir()?;
    let built = thread::scope(|scope| {
        let halves = NAMES.chunks(NAMES.len().div_ceil(2)).map(|half| {
            let folder = folder.path();
            scope.spawn(move || {
                half.iter().map(|(from, name)| open(from, name, folder)).collect::<Result<Vec<_>, _>>()
            })
        });
        let threads: Vec<_> = halves.collect();
        let mut built = Vec::new();
        for thread in threads {
            let half = thread.join().unwrap_or_else(|_| Err(Failure::new("building libraries panicked")));
            built.extend(half?);
        }
        Ok::<_, Failure>(built)
    })?;
    let mut files = Vec::new();
    for (_, name) in NAMES.into_iter().filter(|(_, name)| *name != "missing") {
        let file = format!("lib{name}.so");
        files.push((file.clone(), std::fs::read(folder.path().join(file))?));
    }
    let [counter, hello, histogram, grep, crc32, echo, fill, witness, panics, missing] =
        <[Library; NAMES.len()]>::try_from(built)
            .map_err(|built| Failure::new(format!("{} libraries were built", built.len())))?;
    Ok(Libraries { counter, hello, histogram, grep, crc32, echo, fill, witness, panics, missing, files })
}

fn open(from: &str, name: &str, folder: &Path) -> Result<Library, Failure> {
    let source: PathBuf = Path::new(from).join(format!("{name}.c"));
    let output = folder.join(format!("lib{name}.so"));
    let options = Options { inputs: vec![source], output, ..Options::default() };
    let report = build(&options).map_err(|error| Failure::from(error).at(name))?;
    Ok(Library::open(report.library)?)
}
