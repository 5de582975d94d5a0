//! The bitcode for one machine: sources compiled to LLVM's intermediate code, and bitcode files as they are.

use std::path::Path;

use farjump_core::bitcode::BitcodeParts;
use farjump_core::code::CodeError;
use farjump_core::image::{CodeId, Platform};
use farjump_loader::code_id;
use farjump_loader::library::bundle::Sizes;

use crate::compile::compiler::Compiler;
use crate::compile::llvm_version;
use crate::compile::reduce::reduce;
use crate::compile::rust;
use crate::compile::{self, Kind};
use crate::error::BuildError;
use crate::image::Image;
use crate::objects::read;
use crate::options::{BuiltImage, Options};
use crate::tools::temp_folder::{self, Scratch};

/// Flags for C and C++, besides those of images. The passes of thin LTO leave to the target what depends on its CPU:
/// vectors and unrolled loops. Full LTO and plain bitcode have them for the author's CPU.
const FLAGS: [&str; 1] = ["-flto=thin"];

/// Bitcode for one machine.
pub(crate) struct Bitcode {
    pub(crate) machine: Platform,
    llvm: u16,
    pub(crate) bytes: Vec<u8>,
    pub(crate) id: CodeId,
    pub(crate) messages: String,
    wanted: Vec<String>,
}

impl Bitcode {
    /// Makes the bitcode for the machine of `image`, which was built from the same inputs.
    ///
    /// # Errors
    /// No compiler that writes bitcode, inputs without bitcode, and a compiler's error.
    pub(crate) fn build(
        options: &Options,
        image: &Image,
        name: &str,
        scratch: &Scratch,
    ) -> Result<Bitcode, BuildError> {
        let machine = Platform::baseline(image.target.machine);
        let folder = scratch.folder(&format!("{machine}-bitcode"))?;
        let include = compile::own_headers(&folder)?;
        let compiler = || Compiler::for_bitcode(options, image.rules);
        let mut messages = String::new();
        let mut files = Vec::new();
        let has_both = compile::has_both_forms(&options.inputs)?;
        for (index, input) in options.inputs.iter().enumerate() {
            let has_none = |reason| BuildError::NoBitcode { path: input.clone(), reason };
            match compile::kind(input)? {
                Kind::C { .. } if is_assembly(input) => return Err(has_none("is assembly")),
                Kind::C { cxx } => {
                    let output = folder.join(format!("{index}.bc"));
                    let compiler = compiler()?;
                    let command = compile::command_for((&compiler, image.rules), &[], options, cxx, &include);
                    messages.push_str(&compiler.compile(command, &FLAGS, input, &output)?);
                    files.push(read(&output)?);
                }
                Kind::Bitcode => files.push(read(input)?),
                Kind::Rust => {
                    let folder = temp_folder::folder(folder.join(index.to_string()))?;
                    let whole = folder.join("whole.bc");
                    let built = rust::compile_source(
                        input,
                        &folder,
                        &rust::Settings {
                            target: machine,
                            native: image.rules.is_native(),
                            model: &[],
                            cpu: &[],
                            debug: options.debug,
                            bitcode: Some(&whole),
                            scratch,
                            supervisor: &options.supervisor,
                        },
                    )?;
                    messages.push_str(&built.messages);
                    files.push(reduce(&read(&whole)?, &format!("{name}_main"))?);
                }
                Kind::Crate => return Err(has_none("is a crate of Rust")),
                Kind::Object(_) | Kind::Archive(_) if has_both => {}
                Kind::Object(_) | Kind::Archive(_) => return Err(has_none("is machine code")),
            }
        }
        let modules: Vec<&[u8]> = files.iter().filter_map(|file| llvm_version::unwrapped(file)).collect();
        if modules.len() != files.len() {
            return Err(BuildError::NoBitcodeWritten { compiler: compiler()?.name() });
        }
        // A reader has to be as new as the newest writer. A module without a version counts as old.
        let llvm = modules.iter().filter_map(|module| llvm_version::major(module)).max().unwrap_or(0);
        let wanted = image.wanted().to_vec();
        let parts = BitcodeParts {
            machine: machine.machine,
            payload_align_log2: image.payload_align_log2(),
            llvm,
            name,
            wanted: wanted.iter().map(String::as_str).collect(),
            modules,
        };
        let bytes = parts.encode().map_err(CodeError::from)?;
        Ok(Bitcode { machine, llvm, id: code_id(&bytes), bytes, messages, wanted })
    }

    pub(crate) fn report(&self) -> BuiltImage {
        BuiltImage {
            target: self.machine,
            features: Vec::new(),
            bytes: self.bytes.clone(),
            sizes: Sizes::default(),
            id: self.id,
            wanted: self.wanted.clone(),
            linker: String::new(),
            llvm: Some(self.llvm),
        }
    }
}

fn is_assembly(input: &Path) -> bool {
    input.extension().is_some_and(|extension| extension == "s" || extension == "S")
}
