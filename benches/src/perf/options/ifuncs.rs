//! The injected functions: the program's own, built when it runs.

use std::fs;
use std::path::{Path, PathBuf};

use farjump::Library;

use super::image;
use super::remote_target::Nonce;
use crate::perf::experiments::first_call;
use crate::perf::experiments::work::resident::Query;
use crate::perf::experiments::work::{Function, Functions};
use crate::perf::options::Perf;
use crate::perf::report::metric::Metric;
use crate::program::bundled_ifuncs::{self, Source};
use crate::program::failure::Failure;
use crate::program::routines;
use crate::program::workspace::Stage;

/// Functions compiled at a time.
const COMPILERS: usize = 8;

pub(in crate::perf) struct Code {
    pub(in crate::perf) library: Library,
    /// Bytes of its image, where images are compared.
    pub(in crate::perf) image: Option<usize>,
    /// The work that it does, if any.
    pub(in crate::perf) function: Option<Function>,
}

/// All injected code.
pub(in crate::perf) struct Libraries {
    /// The functions called repeatedly. There is at least one.
    pub(in crate::perf) codes: Vec<Code>,
    /// The functions that work on resident data.
    pub(in crate::perf) resident: Vec<(Query, Library)>,
    /// The library of `counter`, which every target has.
    pub(in crate::perf) counter: PathBuf,
    /// Code new to every target: the functions for each round and mode of first-call, with their files.
    pub(in crate::perf) firsts: Vec<(Library, PathBuf)>,
    /// The nonce in all of these where the target is elsewhere.
    pub(in crate::perf) nonce: Option<Nonce>,
}

impl Libraries {
    /// Builds them. `modes` is the number of measured modes.
    pub(in crate::perf) fn build(
        arguments: &Perf,
        modes: usize,
        stage: &Stage,
    ) -> Result<Libraries, Failure> {
        let nonce = arguments.peer.as_ref().map(|_| Nonce::draw()).transpose()?;
        let text = match nonce {
            Some(nonce) => nonce.counter(),
            None => include_str!("../../../embedded/samples/counter.c").to_owned(),
        };
        let (library, counter) = match &arguments.counter {
            Some(path) => open_counter(path)?,
            None => {
                let mut built = build(&[Source { name: "counter", text: &text }], stage)?;
                let library = built.pop().ok_or_else(|| Failure::new("`counter` was not built"))?;
                (library, stage.folder().join("libcounter.so"))
            }
        };
        let codes = match (&arguments.image, arguments.metric) {
            (Some(images), _) => image::build(images, &text, &library, stage)?,
            (None, Metric::Work) if !arguments.resident => build_work(arguments, stage)?,
            (None, _) => vec![Code { library, image: None, function: None }],
        };
        let resident = if arguments.resident { build_resident(arguments, stage)? } else { Vec::new() };
        let firsts = match arguments.metric {
            Metric::FirstCall => {
                arguments.rounds as usize
                    * modes
                    * arguments.sizes.0.len()
                    * first_call::calls(arguments.warm)
            }
            _ => 0,
        };
        Ok(Libraries { codes, resident, counter, firsts: build_firsts(firsts, nonce, stage)?, nonce })
    }
}

/// Opens a library of `counter` that was built before, and returns its path for a process in another folder.
///
/// # Errors
/// The library is another one.
fn open_counter(path: &Path) -> Result<(Library, PathBuf), Failure> {
    let library = open(path)?;
    if library.name() != "counter" {
        return Err(Failure::new(format!(
            "{} has the function `{}`, and perf measures `counter`",
            path.display(),
            library.name()
        )));
    }
    let path = fs::canonicalize(path)
        .map_err(|error| Failure::new(format!("cannot find `{}`: {error}", path.display())))?;
    Ok((library, path))
}

/// Builds libraries as [`bundled_ifuncs::build`] does, from perf's own sources.
pub(in crate::perf) fn build(sources: &[Source<'_>], stage: &Stage) -> Result<Vec<Library>, Failure> {
    // SAFETY: `sources` are texts of this crate, whose routines only do the measured work.
    unsafe { bundled_ifuncs::build(sources, stage) }
}

/// As [`build`], with further options of `farjump build`.
pub(in crate::perf) fn build_with(
    sources: &[Source<'_>],
    more: &[&str],
    stage: &Stage,
) -> Result<Vec<Library>, Failure> {
    // SAFETY: as in `build`.
    unsafe { bundled_ifuncs::build_with(sources, more, stage) }
}

/// Builds a library from a source of perf's own with bitcode beside its image; without it, and with the reason, where
/// that fails.
pub(in crate::perf) fn build_with_bitcode(
    source: Source<'_>,
    stage: &Stage,
) -> Result<(Library, Option<String>), Failure> {
    // SAFETY: as in `build`.
    let both = unsafe { bundled_ifuncs::build_with(&[source], &["--bitcode"], stage) };
    let (mut built, why) = match both {
        Ok(built) => (built, None),
        Err(failure) => (build(&[source], stage)?, Some(failure.to_string())),
    };
    let library = built.pop().ok_or_else(|| Failure::new(format!("`{}` was not built", source.name)))?;
    Ok((library, why))
}

/// Opens a library that the command line names, or that the other process of perf has built.
pub(in crate::perf) fn open(path: &Path) -> Result<Library, Failure> {
    // SAFETY: the caller of `perf::run` or `perf::run_other` allows the code of these libraries to run.
    unsafe { routines::open(path) }
}

fn build_work(arguments: &Perf, stage: &Stage) -> Result<Vec<Code>, Failure> {
    let functions = arguments.functions.as_ref().map_or(Function::ALL.to_vec(), Functions::of_work);
    let texts: Vec<_> = functions.iter().map(|function| function.source()).collect();
    let sources: Vec<_> = texts.iter().map(|(name, text)| Source { name, text }).collect();
    let built = build(&sources, stage)?.into_iter().zip(functions);
    Ok(built.map(|(library, function)| Code { library, image: None, function: Some(function) }).collect())
}

fn build_resident(arguments: &Perf, stage: &Stage) -> Result<Vec<(Query, Library)>, Failure> {
    let queries = arguments.functions.as_ref().map_or(Query::ALL.to_vec(), Functions::of_resident);
    let source = |query: &Query| {
        let (name, text) = query.source();
        Source { name, text }
    };
    let sources: Vec<_> = queries.iter().map(source).collect();
    Ok(queries.iter().copied().zip(build(&sources, stage)?).collect())
}

fn build_firsts(
    count: usize,
    nonce: Option<Nonce>,
    stage: &Stage,
) -> Result<Vec<(Library, PathBuf)>, Failure> {
    let source = |number| {
        let name = first_call::name(number);
        let text = match nonce {
            Some(nonce) => nonce.first(&name, number),
            None => first_call::source(number),
        };
        (name, text)
    };
    let sources: Vec<_> = (0..count).map(source).collect();
    let mut built = Vec::new();
    for some in sources.chunks(COMPILERS) {
        let some: Vec<_> = some.iter().map(|(name, text)| Source { name, text }).collect();
        for (library, Source { name, .. }) in build(&some, stage)?.into_iter().zip(&some) {
            built.push((library, stage.folder().join(format!("lib{name}.so"))));
        }
    }
    Ok(built)
}
