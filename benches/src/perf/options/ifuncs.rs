//! The injected functions: the program's own, built when it runs.

use std::fs;
use std::path::{Path, PathBuf};

use farjump::Library;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::perf::experiments::first_call;
use crate::perf::experiments::work::resident::Query;
use crate::perf::experiments::work::{Function, Functions};
use crate::perf::options::Perf;
use crate::perf::report::metric::Metric;
use crate::perf::report::payload_size::Sizes;
use crate::program::bundled_ifuncs::{self, Source};
use crate::program::failure::Failure;
use crate::program::routines;
use crate::program::workspace::Stage;

/// Bytes of the request for the count.
const REQUEST: usize = 24;
/// Functions compiled at a time.
const COMPILERS: usize = 8;

/// A number that distinguishes this run's code from any other's.
#[derive(Clone, Copy, Debug)]
pub(in crate::perf) struct Nonce(u64);

impl Nonce {
    pub(in crate::perf) fn draw() -> Result<Nonce, Failure> {
        let mut bytes = [0; 8];
        match getrandom(&mut bytes, GetRandomFlags::empty()) {
            Ok(8) => Ok(Nonce(u64::from_ne_bytes(bytes))),
            _ => Err(Failure::new("the system has no random numbers")),
        }
    }

    /// Returns the called function: it counts, and replies the count on request.
    pub(in crate::perf) fn counter(self) -> String {
        let Nonce(nonce) = self;
        format!(
            "#include <farjump_ifunc.h>\n\
             FARJUMP_COPY_ARGS(counter)\n\
             static uint64_t count;\n\
             FARJUMP_IFUNC void counter_main(void *payload, size_t payload_size, void *target_args)\n\
             {{\n\
                 (void)target_args;\n\
                 if (payload_size == {REQUEST} && *(const uint64_t *)payload == {nonce:#x}u)\n\
                     farjump_reply(&count, sizeof count);\n\
                 else\n\
                     count++;\n\
             }}\n"
        )
    }

    /// Returns the payload that requests the count.
    pub(super) fn request(self) -> [u8; REQUEST] {
        let mut request = [0; REQUEST];
        request[..8].copy_from_slice(&self.0.to_ne_bytes());
        request
    }

    /// Returns the function with this number, for first calls: its reply is unique.
    pub(in crate::perf) fn first(self, name: &str, number: usize) -> String {
        let reply = self.reply(number);
        format!(
            "#include <farjump_ifunc.h>\n\
             FARJUMP_COPY_ARGS({name})\n\
             FARJUMP_IFUNC void {name}_main(void *payload, size_t payload_size, void *target_args)\n\
             {{\n\
                 uint64_t reply = {reply:#x}u;\n\
                 (void)payload;\n\
                 (void)payload_size;\n\
                 (void)target_args;\n\
                 farjump_reply(&reply, sizeof reply);\n\
             }}\n"
        )
    }

    pub(super) fn reply(self, number: usize) -> u64 {
        self.0.wrapping_add(number as u64)
    }
}

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
            (Some(images), _) => build_images(images, &text, &library, stage)?,
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

/// Builds `counter`, given as source and library, in images of these lengths.
fn build_images(
    images: &Sizes,
    source: &str,
    counter: &Library,
    stage: &Stage,
) -> Result<Vec<Code>, Failure> {
    let own = image_len(counter)?;
    let mut built = Vec::new();
    for image in &images.0 {
        let name = format!("counter_{image}");
        let text = padded(source, &name, image.saturating_sub(own))?;
        for library in build(&[Source { name: &name, text: &text }], stage)? {
            let image = Some(image_len(&library)?);
            built.push(Code { library, image, function: None });
        }
    }
    Ok(built)
}

/// Returns the source of `counter` under another name, with `bytes` bytes of instructions behind those that
/// run. The assembler puts them behind the others of the section, however the compiler arranges the function.
fn padded(source: &str, name: &str, bytes: usize) -> Result<String, Failure> {
    let renamed = source
        .replace("counter_main", &format!("{name}_main"))
        .replace("COPY_ARGS(counter)", &format!("COPY_ARGS({name})"));
    let end = renamed.rfind('}').ok_or_else(|| Failure::new("the source of `counter` has no end"))?;
    let (body, rest) = renamed.split_at(end);
    Ok(format!("{body}    __asm__ volatile(\".subsection 1\\n.skip {bytes}, 0x90\\n.previous\");\n{rest}"))
}

/// Returns the length of a library's image as sent.
fn image_len(library: &Library) -> Result<usize, Failure> {
    let image = library.images().first();
    image.map(|image| image.bytes().len()).ok_or_else(|| Failure::new("a library has no image"))
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
