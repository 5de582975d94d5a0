//! The image for one target: sources compiled, linked and extracted.

pub(crate) mod bitcode;
mod debug_file;
pub(crate) mod embed;
pub(crate) mod extract;
mod facts;
pub(crate) mod routines;
mod wanted;

use std::path::PathBuf;

use farjump_core::cpu::Cpu;
use farjump_core::image::{CodeId, Platform};
use farjump_loader::code_id;
use farjump_loader::library::bundle::Sizes;

use crate::compile::compiler::Compiler;
use crate::compile::exact::Exact;
use crate::compile::{self, Compiled, Job};
use crate::error::BuildError;
use crate::image::extract::{Extracted, Needs};
use crate::link::Linker;
use crate::objects::locate_symbol::locate;
use crate::objects::{Inputs, Objects};
use crate::options::{BuiltImage, Options};
use crate::rules::{CodeModel, Rules};
use crate::tools::temp_folder::Scratch;

/// The purpose of an image.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal<'a> {
    /// All CPUs of a platform.
    Platform(Platform),
    /// One CPU.
    Cpu(&'a Cpu),
}

impl Goal<'_> {
    /// The platform, or that of the CPU.
    fn platform(self) -> Platform {
        match self {
            Goal::Platform(platform) => platform,
            Goal::Cpu(cpu) => cpu.platform(),
        }
    }
}

/// An image, and the objects and tools that made it.
pub(crate) struct Image {
    pub(crate) target: Platform,
    /// The features that it needs, if it is for one CPU.
    features: Vec<String>,
    pub(crate) rules: &'static Rules,
    pub(crate) compiler: Compiler,
    pub(crate) compiled: Compiled,
    /// The routines that the objects define.
    pub(crate) routines: Vec<String>,
    extracted: Extracted,
    pub(crate) id: CodeId,
    /// A linked ELF file with the contents of the image, for debuggers.
    pub(crate) linked: Vec<u8>,
    /// Version text of the linker.
    linker: String,
}

impl Image {
    /// Builds the image for `goal`.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub(crate) fn build(
        options: &Options,
        goal: Goal<'_>,
        name: &str,
        scratch: &Scratch,
    ) -> Result<Image, BuildError> {
        let target = goal.platform();
        let rules =
            Rules::of(target.machine).ok_or(BuildError::Unsupported { machine: target.machine.triple() })?;
        let mut compiler = Compiler::find(options, target, rules)?;
        let exact = match goal {
            Goal::Platform(_) => Exact::default(),
            Goal::Cpu(cpu) => Exact::find(&compiler, cpu, rules.is_native(), compile::languages(options)?)?,
        };
        compiler.add_flags(&exact.cflags);
        let linker = Linker::find(options.linker.as_deref(), &compiler, rules)?;
        let build = Build { options, target, exact: &exact, rules, name, scratch };
        let image = |made: Made, compiler, linker| made.image(&build, compiler, linker);
        let (last, first) = rules.models.split_last().ok_or(BuildError::NoInput)?;
        for model in first {
            match build.by(model, &compiler, &linker) {
                // The code and data are too far apart for this model.
                Err(BuildError::Link { .. } | BuildError::NotPositionIndependent { .. }) => {}
                made => return made.map(|made| image(made, compiler, linker)),
            }
        }
        build.by(last, &compiler, &linker).map(|made| image(made, compiler, linker))
    }

    /// Compiles the objects of this machine's image by the code model with the longest reach. `None` if there is only
    /// one model.
    ///
    /// # Errors
    /// A compiler's.
    pub(crate) fn compiled_for_far(
        &self,
        options: &Options,
        name: &str,
        scratch: &Scratch,
    ) -> Result<Option<Compiled>, BuildError> {
        let [_, .., model] = self.rules.models else { return Ok(None) };
        let folder = scratch.folder("library")?;
        let (rules, compiler) = (self.rules, &self.compiler);
        let job = Job {
            options,
            target: self.target,
            rules,
            model,
            compiler,
            rust_cpu: &[],
            folder: &folder,
            scratch,
        };
        let compiled = compile::compile(&job)?;
        expose(name, &compiled, scratch)?;
        Ok(Some(compiled))
    }

    /// Checks that a source can make one payload for the targets of both images.
    ///
    /// # Errors
    /// [`BuildError::ImagesDisagree`].
    pub(crate) fn check_agrees(&self, other: &Image, name: &str) -> Result<(), BuildError> {
        let of = |image: &Image| {
            let made = if image.payload_is_args() { "the arguments" } else { "made by its routines" };
            let align = match image.extracted.payload_align_log2 {
                0 => "as usual".to_owned(),
                log2 => format!("{}", 1 << log2),
            };
            let signature = image.extracted.signature.as_ref().map_or("none", |signature| &*signature.text);
            [
                ("the payload", made.to_owned()),
                ("its alignment", align),
                ("the signature", signature.to_owned()),
            ]
        };
        for ((property, first), (_, second)) in of(self).into_iter().zip(of(other)) {
            if first != second {
                let (name, targets) = (name.to_owned(), (self.target, other.target));
                return Err(BuildError::ImagesDisagree { name, property, targets, first, second });
            }
        }
        Ok(())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.extracted.image
    }

    pub(crate) fn sizes(&self) -> Sizes {
        self.extracted.sizes
    }

    /// Names of the imports.
    pub(crate) fn imports(&self) -> &[String] {
        &self.extracted.imports
    }

    /// Sonames of the libraries that define some of the imports, each once.
    pub(crate) fn wanted(&self) -> &[String] {
        &self.extracted.wanted
    }

    /// log2 of the alignment that the payload needs, or 0 for the default.
    pub(crate) fn payload_align_log2(&self) -> u8 {
        self.extracted.payload_align_log2
    }

    /// Returns whether the payload is the arguments unchanged: the payload routines are farjump's.
    pub(crate) fn payload_is_args(&self) -> bool {
        self.extracted.payload_is_args
    }

    pub(crate) fn has_signature(&self) -> bool {
        self.extracted.signature.is_some()
    }

    /// Warnings of compiler and linker.
    pub(crate) fn messages(&self) -> &str {
        &self.compiled.messages
    }

    pub(crate) fn report(&self) -> BuiltImage {
        BuiltImage {
            target: self.target,
            features: self.features.clone(),
            bytes: self.extracted.image.clone(),
            sizes: self.extracted.sizes,
            id: self.id,
            wanted: self.extracted.wanted.clone(),
            linker: self.linker.clone(),
            llvm: None,
        }
    }
}

/// The settings of one build.
struct Build<'a> {
    options: &'a Options,
    target: Platform,
    exact: &'a Exact,
    rules: &'static Rules,
    name: &'a str,
    scratch: &'a Scratch,
}

/// The results of one build.
struct Made {
    compiled: Compiled,
    routines: Vec<String>,
    extracted: Extracted,
    linked: Vec<u8>,
}

impl Made {
    fn image(self, build: &Build<'_>, compiler: Compiler, linker: Linker) -> Image {
        let Made { compiled, routines, extracted, linked } = self;
        let (id, linker) = (code_id(&extracted.image), linker.version);
        let (target, rules, features) = (build.target, build.rules, build.exact.features.clone());
        Image { target, features, rules, compiler, compiled, routines, extracted, id, linked, linker }
    }
}

impl Build<'_> {
    /// Builds by one code model.
    fn by(&self, model: &CodeModel, compiler: &Compiler, linker: &Linker) -> Result<Made, BuildError> {
        let &Build { options, target, exact, rules, name, scratch } = self;
        let kind = if exact.features.is_empty() { "" } else { "-exact" };
        let folder = scratch.folder(&format!("{target}{kind}{}", model.cflags.concat()))?;
        let mut compiled = compile::compile(&Job {
            options,
            target,
            rules,
            model,
            compiler,
            rust_cpu: &exact.rustflags,
            folder: &folder,
            scratch,
        })?;
        expose(name, &compiled, scratch)?;
        let objects = Objects::read(&compiled.files, rules)?;
        let routines = routines::find(name, &objects, &compiled.files)?;
        objects.check(&format!("{name}_main"), &routines)?;

        let runtime = compiler.runtime_library();
        let (files, runtime) = (&compiled.files, runtime.as_deref());
        let inputs = Inputs { files, objects: &objects, name, runtime, rules, folder: &folder };
        let (linked, messages) = linker.link_image(&inputs, false)?;
        // A target with debug mode adds the code's address to each address in these symbols.
        let symbols = if options.debug {
            linker.link_image(&inputs, true).ok().map(|(linked, _)| linked)
        } else {
            None
        };
        compiled.say(&messages);
        // The libraries of this machine stand for those of others, which have the same names.
        let (native, is_cxx) = (Rules::native()?, compiled.cxx);
        let native_compiler = Compiler::native(options, native)?;
        let wanted =
            |imports: &[String]| wanted::find(options, (&native_compiler, native), is_cxx, imports, scratch);
        let needs = Needs { level: target.level, features: &exact.features };
        let extracted = extract::extract(&linked, name, needs, rules, wanted)
            .map_err(|error| locate(error, &objects, name))?;
        let symbols = symbols.filter(|symbols| {
            let again = extract::extract(symbols, name, needs, rules, |_| Ok(extracted.wanted.clone()));
            again.is_ok_and(|again| again.image == extracted.image)
        });
        let linked = symbols.unwrap_or(linked);
        let linked = debug_file::shortened(&linked).unwrap_or(linked);
        Ok(Made { compiled, routines, extracted, linked })
    }
}

/// Makes the routines visible in the objects that were compiled here.
fn expose(name: &str, compiled: &Compiled, scratch: &Scratch) -> Result<(), BuildError> {
    let compiled_here = |path: &&PathBuf| scratch.holds(path);
    routines::expose(name, compiled.files.iter().map(|file| &file.path).filter(compiled_here))
}
