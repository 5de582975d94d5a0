//! The build of a library: its images, its bitcode, the source that it carries, and its file.

use std::path::PathBuf;

use farjump_core::image::Platform;
use farjump_loader::library::bundle::{Bundle, BundleImage, Sizes};
use farjump_loader::library::file_contents::Carrier;

use crate::compile;
use crate::compile::source::Source;
use crate::error::BuildError;
use crate::image::bitcode::Bitcode;
use crate::image::{Goal, Image, embed, routines};
use crate::options::{BuiltImage, Options};
use crate::rules::Rules;
use crate::tools::temp_folder::Scratch;

/// The result of a build.
#[derive(Clone, Debug)]
pub struct BuildReport {
    /// NAME of the routines.
    pub name: String,
    /// The library, as given in [`Options::output`].
    pub library: PathBuf,
    /// The images that it carries, in the order of [`Options::targets`], then that for [`Options::cpu`], and then the
    /// bitcode for each machine.
    pub images: Vec<BuiltImage>,
    /// Whether the payload is the arguments unchanged. If not, a source must load the library.
    pub payload_is_args: bool,
    /// Output of compilers and linkers, usually warnings; may be empty.
    pub messages: String,
}

/// Builds an ifunc library.
///
/// Blocks until the compilers and linkers that it starts have ended. Intermediate files are in a separate folder under
/// the system's temporary folder, removed at the end.
///
/// # Errors
/// See [`BuildError`]. The output is then unchanged.
pub fn build(options: &Options) -> Result<BuildReport, BuildError> {
    let rules = Rules::native()?;
    let scratch = Scratch::new()?;
    let _guarded = options.supervisor.begin(&scratch)?;
    let unpacked = from_library(options, &scratch)?;
    let options = unpacked.as_ref().unwrap_or(options);
    let name = routines::name(options)?;
    let own = Platform::baseline(rules.machine);
    let default = options.cpu.as_ref().map_or(own, |cpu| Platform::baseline(cpu.machine()));
    let targets =
        if options.targets.is_empty() { std::slice::from_ref(&default) } else { &options.targets[..] };
    let twice = targets.iter().enumerate().find(|(index, target)| targets[..*index].contains(target));
    if let Some((_, &target)) = twice {
        return Err(BuildError::TargetTwice { target });
    }
    let host = Image::build(options, Goal::Platform(own), &name, &scratch)?;
    let mut others = Vec::new();
    for &target in targets.iter().filter(|target| **target != own) {
        let image = Image::build(options, Goal::Platform(target), &name, &scratch);
        others.push(image.map_err(|source| BuildError::ForTarget { target, source: Box::new(source) })?);
    }
    let exact = options.cpu.as_ref().map(|cpu| {
        let image = Image::build(options, Goal::Cpu(cpu), &name, &scratch);
        image.map_err(|source| BuildError::ForCpu { cpu: cpu.to_string(), source: Box::new(source) })
    });
    let exact = exact.transpose()?;
    // The host's image is always built: the library has its code too. The library carries it if the options name its
    // target.
    let image_of = |target: &Platform| others.iter().find(|image| image.target == *target).unwrap_or(&host);
    let images: Vec<&Image> = targets.iter().map(image_of).chain(&exact).collect();
    for image in &images {
        host.check_agrees(image, &name)?;
    }

    let mut bitcodes: Vec<Bitcode> = Vec::new();
    for image in images.iter().filter(|_| options.bitcode) {
        if bitcodes.iter().all(|bitcode| bitcode.machine.machine != image.target.machine) {
            let bitcode = Bitcode::build(options, image, &name, &scratch);
            let target = Platform::baseline(image.target.machine);
            bitcodes.push(bitcode.map_err(|source| match target == own {
                true => source,
                false => BuildError::ForTarget { target, source: Box::new(source) },
            })?);
        }
    }
    let source =
        if options.carry_source { Some(carried_source(options, &host, &name, &scratch)?) } else { None };
    let carried = images.iter().map(|image| BundleImage { sizes: image.sizes(), bytes: image.bytes() });
    let compact =
        bitcodes.iter().map(|bitcode| BundleImage { sizes: Sizes::default(), bytes: &bitcode.bytes });
    let bundle = Bundle { name: &name, images: carried.chain(compact).collect() };
    let symbols = images.iter().map(|image| (image.id, &*image.linked)).collect();
    let carried = embed::Carried {
        bundle: &bundle,
        symbols,
        source,
        payload_is_args: host.payload_is_args(),
        has_signature: host.has_signature(),
    };
    let write = |compiled| embed::write_library(options, &host, compiled, &carried, &scratch);
    let mut messages = match write(&host.compiled) {
        // The library may have more constants and variables around its routines than the image has.
        Err(error @ BuildError::Link { .. }) => match host.compiled_for_far(options, &name, &scratch)? {
            Some(compiled) => write(&compiled)?,
            None => return Err(error),
        },
        written => written?,
    };
    let of_images = [&host].into_iter().chain(&others).chain(&exact).map(Image::messages);
    for said in of_images.chain(bitcodes.iter().map(|bitcode| &*bitcode.messages)) {
        if !messages.contains(said) {
            messages.push_str(said);
        }
    }
    Ok(BuildReport {
        library: options.output.clone(),
        payload_is_args: host.payload_is_args(),
        images: images.into_iter().map(Image::report).chain(bitcodes.iter().map(Bitcode::report)).collect(),
        messages,
        name,
    })
}

/// The options for the source of a library that is the only input; `None` if it is no ifunc library.
fn from_library(options: &Options, scratch: &Scratch) -> Result<Option<Options>, BuildError> {
    let [input] = &options.inputs[..] else { return Ok(None) };
    let is_library = |kind| matches!(kind, compile::Kind::Object(Some(_)));
    if !compile::kind(input).is_ok_and(is_library) {
        return Ok(None);
    }
    let bytes = std::fs::read(input).map_err(|source| BuildError::Read { path: input.clone(), source })?;
    let Ok(carrier) = Carrier::parse(&bytes) else { return Ok(None) };
    let bundle = carrier.stated_bundle().ok().flatten().and_then(|bundle| Bundle::parse(bundle).ok());
    let Some(bundle) = bundle else { return Ok(None) };
    let refused = |reason: String| BuildError::LibraryAsInput { path: input.clone(), reason };
    let none =
        || "carries no source to build from: build it with its source (Options::carry_source)".to_owned();
    let source = Source::of(carrier.elf()).and_then(|source| source.ok_or_else(none)).map_err(refused)?;
    let mut options = source.unpack(&scratch.folder("source")?, options)?;
    options.name.get_or_insert(bundle.name.to_owned());
    Ok(Some(options))
}

/// The source to carry, which builds by itself.
fn carried_source(
    options: &Options,
    host: &Image,
    name: &str,
    scratch: &Scratch,
) -> Result<Vec<u8>, BuildError> {
    let include = compile::own_headers(&scratch.folder("own")?)?;
    let source = Source::collect(options, &host.compiler, &include)?;
    let encoded = source.encode()?;
    let alone = Scratch::new()?;
    let again = source.unpack(&alone.folder("alone")?, &Options { cflags: Vec::new(), ..options.clone() })?;
    Image::build(&again, Goal::Platform(host.target), name, &alone)
        .map_err(|source| BuildError::SourceAlone { source: Box::new(source) })?;
    Ok(encoded)
}
