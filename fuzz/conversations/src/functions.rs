//! The functions of conversations, built once for each process.

use std::path::Path;
use std::sync::OnceLock;

use farjump::build::{Options, build};
use farjump::{CodeId, Library};
use farjump_core::image::{ImageParts, ImageView, Import, Machine, Place, Relative};
use farjump_fixtures::IFUNCS;
use farjump_fuzz::Mutator;
use farjump_loader::code_id;
use fastrand::Rng;
use tempfile::TempDir;

/// Functions that hostile peers send. Each is harmless, whatever its payload.
pub const NAMES: [&str; 9] =
    ["echo", "tally", "pure", "aligned", "talker", "onward", "bulky", "lookup", "system"];
/// Index in [`NAMES`] of the function that requires its payload at page boundaries.
pub const ALIGNED: usize = 3;
/// Index in [`NAMES`] of the function without statics.
pub const PURE: usize = 2;

/// A function, as its author built it.
#[derive(Debug)]
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// The library.
    pub library: Library,
    /// The library's file.
    pub file: Vec<u8>,
}

impl Function {
    /// The image for this machine.
    pub fn image(&self) -> &[u8] {
        self.library.images()[0].bytes()
    }

    /// Its code id.
    pub fn id(&self) -> CodeId {
        self.library.images()[0].id()
    }
}

fn built(name: &'static str, folder: &Path) -> Function {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/ifuncs");
    let sources = [own, IFUNCS].map(|folder| Path::new(folder).join(format!("{name}.c")));
    let options = Options {
        inputs: sources.into_iter().filter(|source| source.exists()).collect(),
        output: folder.join(format!("lib{name}.so")),
        ..Options::default()
    };
    let path = build(&options).unwrap_or_else(|error| panic!("{name}: {error}")).library;
    let library = Library::open(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    let file = std::fs::read(&path).expect("what was just built");
    Function { name, library, file }
}

/// All of [`NAMES`], and the honest one last.
pub fn functions() -> &'static [Function] {
    static FUNCTIONS: OnceLock<Vec<Function>> = OnceLock::new();
    FUNCTIONS.get_or_init(|| {
        let folder = TempDir::new().expect("a folder to build in");
        NAMES.into_iter().chain(["honest"]).map(|name| built(name, folder.path())).collect()
    })
}

/// The function that only honest links call.
pub fn honest() -> &'static Function {
    functions().last().expect("it is the last")
}

/// The function of [`errands`](crate::errands), which forwards itself.
pub fn errand() -> &'static Function {
    static ERRAND: OnceLock<Function> = OnceLock::new();
    ERRAND.get_or_init(|| {
        let folder = TempDir::new().expect("a folder to build in");
        built("errand", folder.path())
    })
}

/// Makes an image that does nothing. Its lengths, alignments, sites and names come from the seed. If `spoilt`, it may
/// be no image.
pub fn made_up(seed: u64, spoilt: bool) -> Vec<u8> {
    let mut rng = Rng::with_seed(seed);
    // The code returns from every possible entry.
    let text = 8 * rng.usize(1..24);
    let mut span1 = vec![0xc3; text];
    let sites = rng.usize(..6);
    span1.resize(text + 8 * sites, 0);
    let data = vec![0; 8 * rng.usize(..5)];
    let offered = [
        "farjump_reply",
        "memcpy",
        "fuzz_twice",
        "fuzz_version",
        "getpid",
        "fuzz_nowhere",
        "farjump_forward",
        "farjump_again",
        "farjump_make",
        "farjump_inject",
        "farjump_private_copy",
    ];
    let (mut imports, mut relatives) = (Vec::new(), Vec::new());
    // Imports are at multiples of 8. Relative sites are anywhere: here all behind the last import.
    let first_relative = rng.usize(..=sites);
    let unaligned = if first_relative < sites { rng.usize(..8) } else { 0 };
    span1.resize(span1.len() + unaligned, 0);
    for number in 0..sites {
        let is_import = number < first_relative;
        let site = Place::Span1((text + 8 * number + if is_import { 0 } else { unaligned }) as u32);
        match is_import {
            true => imports.push(Import {
                site,
                name: offered[rng.usize(..offered.len())],
                addend: rng.i64(-64..64),
                weak: rng.bool(),
            }),
            false => relatives.push(Relative { site, to: Place::Span1(rng.u32(..text as u32)) }),
        }
    }
    if !data.is_empty() && rng.bool() {
        relatives.push(Relative { site: Place::Span2(0), to: Place::Span1(0) });
    }
    let parts = ImageParts {
        align_log2: rng.u8(..8),
        payload_align_log2: [0, 3, 6, 12][rng.usize(..4)],
        entry: rng.u32(..text as u32),
        data: &data,
        bss_len: if rng.u8(..4) == 0 { rng.u32(..1 << 18) } else { rng.u32(..256) },
        imports,
        relatives,
        ..ImageParts::text(Machine::native().unwrap_or(Machine::X86_64), &span1)
    };
    let image = parts.encode().unwrap_or_default();
    if !spoilt {
        return image;
    }
    let mut other = image.clone();
    Mutator::new(seed).mutate(&mut other, 64, 1 << 16);
    // Bytes that are still an image run: they must be as harmless as the unchanged ones.
    match ImageView::new_checked(&other) {
        Ok(_) => image,
        Err(_) => other,
    }
}

/// The code id of an image.
pub fn id_of(image: &[u8]) -> CodeId {
    code_id(image)
}
