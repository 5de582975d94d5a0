//! Reading ifunc libraries without running their code: the file is parsed, not loaded.

mod symbols;

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use farjump_core::bitcode::BitcodeView;
use farjump_core::code::{CodeError, CodeKind, CodeView};
use farjump_core::image::{CodeId, ImageView};
use farjump_loader::library::bundle::{Bundle, BundleError, BundleImage, Sizes};
use farjump_loader::library::file_contents::Carrier;
use farjump_loader::library::manifest::{Manifest, ManifestError};
use farjump_loader::library::open_file;
use farjump_loader::library::signature::Signature;
use farjump_loader::{FileKind, code_id, import_causes};

use crate::compile::source::Source;

pub use symbols::{Symbols, symbols};

/// The contents of an ifunc library.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Report {
    /// NAME of its routines.
    pub name: String,
    /// Routines of that name which it exports, in the order main, payload_get_max_size, payload_bound,
    /// payload_init, payload_init_shrink.
    pub routines: Vec<String>,
    /// Whether its payloads are the arguments unchanged. If not, the author's routines make them, and a source must
    /// load the library.
    pub payload_is_args: bool,
    /// Size and alignment of arguments and reply, if the library states them.
    pub signature: Option<Signature>,
    /// Family id, in hexadecimal digits: the hash of the manifest, which lists the images for platforms.
    pub family: String,
    /// Names of the files of the source that it carries; empty if it carries none.
    pub source: Vec<String>,
    /// One for each platform or CPU.
    pub images: Vec<ImageReport>,
}

/// One image.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct ImageReport {
    /// The target triple of the image, or the number of its machine.
    pub machine: String,
    /// The least CPU level that runs it: `baseline`, or on x86-64 also `v2`, `v3`, `v4`. `exact` for an image compiled
    /// for one CPU, `bitcode` for bitcode, which the target compiles for its own CPU.
    pub level: String,
    /// For bitcode, the major version of the LLVM that wrote it; otherwise `None`.
    pub llvm: Option<u16>,
    /// The CPU features that it needs, if it was compiled for one CPU; otherwise none.
    pub features: Vec<String>,
    /// Length of the image as it travels, in bytes.
    pub bytes: usize,
    /// Sizes of its parts; all 0 for bitcode.
    pub sizes: Sizes,
    /// Code id, in hexadecimal digits.
    pub id: String,
    /// Whether it has landing pads. A target may make the processor check that indirect branches reach nothing else.
    pub landing_pads: bool,
    /// Alignment that the code needs, in bytes; 0 for bitcode.
    pub align: u32,
    /// Alignment that the payload needs, in bytes; `None` for the default rule.
    pub payload_align: Option<u32>,
    /// The symbols that it needs from the target, ascending by location. Empty for bitcode, in which only LLVM can read
    /// them.
    pub imports: Vec<ImportReport>,
    /// The causes of imports that few targets offer, and the remedies: a clause each.
    pub import_causes: Vec<String>,
    /// Sonames of the libraries that define some of the imports, ascending.
    pub wanted: Vec<String>,
    /// Number of words that hold addresses of the image itself.
    pub relative_sites: usize,
}

/// A word that holds the address of a symbol that the target offers.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct ImportReport {
    /// The symbol.
    pub name: String,
    /// Added to its address.
    pub addend: i64,
    /// True if the code runs without the symbol; the word is then no address.
    pub weak: bool,
    /// Location of the word: span and offset.
    pub site: String,
}

/// The reason why a file is no ifunc library.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// An unreadable file.
    #[error("cannot read `{}`: {source}", path.display())]
    Unreadable {
        /// The path as given.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// No 64-bit little-endian ELF shared library, or a damaged one.
    #[error("`{}` is no shared library for a 64-bit machine: {problem}", path.display())]
    NotALibrary {
        /// The path as given.
        path: PathBuf,
        /// The damage.
        problem: String,
    },
    /// A library without images.
    #[error("`{}` carries no images: was it built with `farjump build`?", path.display())]
    NoBundle {
        /// The path as given.
        path: PathBuf,
    },
    /// Missing symbols of an image.
    #[error("`{}` keeps no symbols of its image {id}: was it stripped? Build it again", path.display())]
    NoSymbols {
        /// The path as given.
        path: PathBuf,
        /// The image's code id.
        id: String,
    },
    /// A damaged bundle.
    #[error("`{}`: {source}", path.display())]
    Bundle {
        /// The path as given.
        path: PathBuf,
        /// The damage.
        source: BundleError,
    },
    /// Two images for one platform, or more images than a library can have.
    #[error("`{}`: {source}", path.display())]
    Manifest {
        /// The path as given.
        path: PathBuf,
        /// The reason.
        source: ManifestError,
    },
    /// A damaged image.
    #[error("`{}`, image {index}: {source}", path.display())]
    Image {
        /// The path as given.
        path: PathBuf,
        /// Its position in the library.
        index: usize,
        /// The damage.
        source: CodeError,
    },
}

/// Reads the ifunc library at `path`.
///
/// # Errors
/// See [`InspectError`]. Nothing outside the file is read, whatever it holds.
pub fn inspect(path: impl AsRef<Path>) -> Result<Report, InspectError> {
    let path = path.as_ref();
    look_into(path, |carrier, bundle| {
        let malformed = |problem| InspectError::NotALibrary { path: path.to_owned(), problem };
        let images = bundle.images.iter().enumerate();
        let images = images.map(|(index, image)| ImageReport::new(image).map_err(damaged(path, index)));
        let images: Vec<_> = images.collect::<Result<_, _>>()?;
        let listed = images.iter().map(|(kind, id, _)| (*kind, *id));
        let manifest = Manifest::of(listed)
            .map_err(|source| InspectError::Manifest { path: path.to_owned(), source })?;
        Ok(Report {
            name: bundle.name.to_owned(),
            family: manifest.id().to_string(),
            source: Source::of(carrier.elf())
                .map_err(malformed)?
                .map_or_else(Vec::new, |source| source.names()),
            images: images.into_iter().map(|(_, _, report)| report).collect(),
            routines: carrier.routines(bundle.name),
            payload_is_args: carrier.payload_is_args(bundle.name),
            signature: carrier.signature(bundle.name).map_err(malformed)?,
        })
    })
}

/// Opens the library at `path` and passes it to `look`.
fn look_into<T>(
    path: &Path,
    look: impl FnOnce(&Carrier<'_>, &Bundle<'_>) -> Result<T, InspectError>,
) -> Result<T, InspectError> {
    let unreadable = |source| InspectError::Unreadable { path: path.to_owned(), source };
    let no_file = || unreadable(io::Error::other(format!("it is {}", FileKind::NoFile)));
    let mut file = open_file(path).map_err(unreadable)?.ok_or_else(no_file)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(unreadable)?;
    let malformed = |problem| InspectError::NotALibrary { path: path.to_owned(), problem };
    let carrier = Carrier::parse(&bytes).map_err(malformed)?;
    let no_bundle = || InspectError::NoBundle { path: path.to_owned() };
    let carried = carrier.stated_bundle().map_err(malformed)?.ok_or_else(no_bundle)?;
    let bundle =
        Bundle::parse(carried).map_err(|source| InspectError::Bundle { path: path.to_owned(), source })?;
    look(&carrier, &bundle)
}

fn damaged(path: &Path, index: usize) -> impl FnOnce(CodeError) -> InspectError {
    move |source| InspectError::Image { path: path.to_owned(), index, source }
}

impl ImageReport {
    fn new(image: &BundleImage<'_>) -> Result<(CodeKind, CodeId, ImageReport), CodeError> {
        let view = CodeView::new_checked(image.bytes)?;
        let (kind, id) = (view.kind(), code_id(image.bytes));
        let report = match &view {
            CodeView::Image(view) => ImageReport::of_image(image, view, id),
            CodeView::Bitcode(view) => ImageReport::of_bitcode(image, view, id),
        };
        Ok((kind, id, report))
    }

    fn of_bitcode(image: &BundleImage<'_>, view: &BitcodeView<'_>, id: CodeId) -> ImageReport {
        ImageReport {
            machine: view.machine().to_string(),
            level: "bitcode".to_owned(),
            llvm: Some(view.llvm()),
            features: Vec::new(),
            bytes: image.bytes.len(),
            sizes: image.sizes,
            id: id.to_string(),
            landing_pads: false,
            align: 0,
            payload_align: payload_align(view.payload_align_log2()),
            imports: Vec::new(),
            import_causes: Vec::new(),
            wanted: view.wanted().map(str::to_owned).collect(),
            relative_sites: 0,
        }
    }

    fn of_image(image: &BundleImage<'_>, view: &ImageView<'_>, id: CodeId) -> ImageReport {
        let imports = view.imports().map(|import| ImportReport {
            name: import.name.to_owned(),
            addend: import.addend,
            weak: import.weak,
            site: import.site.to_string(),
        });
        let needed = view.imports().filter(|import| !import.weak);
        let import_causes = import_causes(needed.map(|import| import.name));
        ImageReport {
            machine: view.machine().to_string(),
            llvm: None,
            level: view.platform().map_or_else(|| "exact".to_owned(), |platform| platform.level.to_string()),
            features: view.features().map(str::to_owned).collect(),
            bytes: image.bytes.len(),
            sizes: image.sizes,
            id: id.to_string(),
            landing_pads: view.has_landing_pads(),
            align: 1 << view.align_log2(),
            payload_align: payload_align(view.payload_align_log2()),
            imports: imports.collect(),
            import_causes: import_causes.iter().map(ToString::to_string).collect(),
            wanted: view.wanted().map(str::to_owned).collect(),
            relative_sites: view.relatives().len(),
        }
    }
}

/// An alignment in bytes by its log2, in which 0 stands for the default rule.
fn payload_align(log2: u8) -> Option<u32> {
    (log2 != 0).then(|| 1 << log2)
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{}", self.name)?;
        writeln!(out, "  routines  {}", self.routines.join("  "))?;
        let payload = if self.payload_is_args {
            "the arguments"
        } else {
            "made by routines of its own, for which a source has to load it"
        };
        writeln!(out, "  payload   {payload}")?;
        if let Some(signature) = &self.signature {
            writeln!(out, "  function  {}", signature.text)?;
        }
        writeln!(out, "  family    {}", self.family)?;
        if !self.source.is_empty() {
            writeln!(out, "  source    {}", self.source.join("  "))?;
        }
        for image in &self.images {
            image.fmt(out)?;
        }
        Ok(())
    }
}

impl fmt::Display for ImageReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sizes { text, rodata, got, data, bss } = self.sizes;
        let level = if self.level == "baseline" { String::new() } else { format!(":{}", self.level) };
        write!(out, "{}{level}   {} B   ", self.machine, self.bytes)?;
        if let Some(llvm) = self.llvm {
            writeln!(out, "of LLVM {llvm}, compiled by the target   id {}", self.id)?;
            writeln!(out, "  aligned   payload {}", self.payload_alignment())?;
            return self.write_wanted(out);
        }
        writeln!(out, "text {text}  rodata {rodata}  got {got}  data {data}  bss {bss}   id {}", self.id)?;
        if !self.features.is_empty() {
            writeln!(out, "  needs     {}", self.features.join("  "))?;
        }
        writeln!(out, "  aligned   code to {}, payload {}", self.align, self.payload_alignment())?;
        if self.landing_pads {
            writeln!(out, "  guarded   by landing pads")?;
        }
        write!(out, "  imports ")?;
        if self.imports.is_empty() {
            write!(out, "  none")?;
        }
        for import in &self.imports {
            write!(out, "  {import}")?;
        }
        writeln!(out)?;
        for cause in &self.import_causes {
            writeln!(out, "  note      {cause}")?;
        }
        self.write_wanted(out)
    }
}

impl ImageReport {
    fn payload_alignment(&self) -> String {
        self.payload_align.map_or_else(|| "as usual".to_owned(), |align| format!("to {align}"))
    }

    fn write_wanted(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.wanted.is_empty() {
            writeln!(out, "  wants     {}", self.wanted.join("  "))?;
        }
        Ok(())
    }
}

impl fmt::Display for ImportReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.name)?;
        if self.addend != 0 {
            write!(out, "{:+}", self.addend)?;
        }
        if self.weak {
            write!(out, " (weak)")?;
        }
        Ok(())
    }
}
