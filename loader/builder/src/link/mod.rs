//! The link that makes an image: GNU ld or lld, a short script, and `NAME_main` as the only root.

pub(crate) mod link_flags;
pub(crate) mod own;

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use crate::compile::compiler::Compiler;
use crate::error::BuildError;
use crate::objects::locate_symbol::{constructor_cause, locate};
use crate::objects::{Inputs, Linkable, Objects};
use crate::rules::Rules;
use crate::tools::run_tool::{self, Tool};
use crate::tools::supervisor::Supervisor;
use crate::tools::temp_folder::{self, Scratch};
use crate::tools::trial::{self, Task};

const SCRIPT: &str = include_str!("image.ld");
const VARIABLE: &str = "FARJUMP_LD";
/// The remedy if a linker does not start.
const ADVICE: &str = "Install binutils or lld, or name a linker in FARJUMP_LD";

/// The linkers to try if none is named, the best first.
pub const LINKERS: [&str; 3] = ["ld.bfd", "ld", "ld.lld"];

/// The word that selects farjump's own linker, instead of a program.
pub const OWN: &str = "own";

/// A linker that follows linker scripts, or farjump's own.
#[derive(Debug)]
pub(crate) struct Linker {
    /// The program; `None` for farjump's own.
    tool: Option<Tool>,
    /// The first line of its version text.
    pub(crate) version: String,
    /// Runs it.
    supervisor: Supervisor,
}

impl Linker {
    /// The linker named by `asked` or by `FARJUMP_LD`, if it links for the machine of `rules`, or if that is this
    /// machine. Otherwise the first of the compiler's own linker, GNU ld and lld that links a line; if none does,
    /// farjump's own.
    ///
    /// # Errors
    /// The named linker does not start, fails at a line, or does not follow linker scripts.
    pub(crate) fn find(
        asked: Option<&Path>,
        compiler: &Compiler,
        rules: &Rules,
    ) -> Result<Linker, BuildError> {
        let supervisor = &compiler.supervisor;
        let of = |tool, version| Linker { tool: Some(tool), version, supervisor: supervisor.clone() };
        let own = || Linker { tool: None, version: own::VERSION.to_owned(), supervisor: supervisor.clone() };
        let asked = asked.map(|path| path.as_os_str().to_owned());
        if let Some(program) = asked.or_else(|| env::var_os(VARIABLE)).filter(|program| !program.is_empty()) {
            if program == OWN {
                return Ok(own());
            }
            let tool = Tool::parse(&program);
            let version = version(&tool, supervisor)?;
            match links_for(&tool, rules, supervisor) {
                Ok(()) => return Ok(of(tool, version)),
                Err(error) if rules.is_native() => return Err(error),
                // The named linker is for this machine, and `rules` for another.
                Err(_) => {}
            }
        }
        let compilers = compiler.own_linker();
        let gnu = ["ld.bfd", "ld"].map(|program| format!("{}-{program}", rules.gnu_triple));
        let gnu = if rules.is_native() { &[][..] } else { &gnu };
        let candidates = compilers.into_iter().chain(gnu.iter().map(|program| Tool::from(&**program)));
        let found = candidates.chain(LINKERS.map(Tool::from)).find_map(|tool| {
            let version = version(&tool, supervisor).ok()?;
            links_for(&tool, rules, supervisor).is_ok().then(|| of(tool, version))
        });
        Ok(found.unwrap_or_else(own))
    }

    /// Links the code that `NAME_main` reaches. Returns the bytes of the linked ELF file, and the linker's
    /// warnings. With `relocations` the file also keeps the relocations of its debugging information.
    ///
    /// # Errors
    /// The linker's error, explained if its cause is known.
    pub(crate) fn link_image(
        &self,
        inputs: &Inputs<'_>,
        relocations: bool,
    ) -> Result<(Vec<u8>, String), BuildError> {
        let &Inputs { files, objects, name, runtime, rules, folder } = inputs;
        let Some(tool) = &self.tool else {
            let linked = own::link(inputs, relocations).map_err(|error| locate(error, objects, name))?;
            return Ok((linked, String::new()));
        };
        let script = temp_folder::write(folder.join("image.ld"), SCRIPT.as_bytes())?;
        let versions = format!("{{ global: {name}_main; local: *; }};\n");
        let versions = temp_folder::write(folder.join("image.map"), versions.as_bytes())?;
        let image = folder.join("image.elf");
        let mut command = tool.command();
        command
            .args(["-m", rules.emulation, "-shared", "-Bsymbolic", "--gc-sections"])
            // Addresses in instructions are patched like all others. `extract` refuses the image if they are imports.
            .args([
                "-z",
                "now",
                "-z",
                "norelro",
                "-z",
                "notext",
                "--hash-style=gnu",
                "--build-id=none",
                "--no-eh-frame-hdr",
                // The linked file is for debuggers, and nothing maps it: without padding it is a tenth as long.
                "-z",
                "max-page-size=64",
                "-z",
                "common-page-size=64",
            ])
            .args(relocations.then_some("--emit-relocs"))
            .args(["-u", &format!("{name}_main"), "-e", &format!("{name}_main")])
            .arg(run_tool::option("--version-script=", &versions))
            .arg("-T")
            .arg(&script)
            .arg("-o")
            .arg(&image)
            .args(files.iter().filter(|file| !file.archive).map(|file| &file.path))
            .arg("--start-group")
            .args(files.iter().filter(|file| file.archive).map(|file| &file.path))
            .args(runtime)
            .arg("--end-group");
        let output = self.supervisor.run(&mut command, ADVICE)?;
        let messages = relabel(run_tool::messages(&output), files);
        if !output.status.success() {
            return Err(explain(tool.name(), messages, objects, name));
        }
        let bytes = fs::read(&image).map_err(|source| BuildError::Read { path: image, source })?;
        Ok((bytes, messages))
    }
}

/// The first line of the version text of a linker that can make images.
///
/// # Errors
/// It does not start, fails, or does not follow linker scripts.
fn version(tool: &Tool, supervisor: &Supervisor) -> Result<String, BuildError> {
    let version = trial::version(tool, supervisor, ADVICE)?;
    match follows_scripts(&version) {
        true => Ok(version),
        false => Err(BuildError::WrongLinker { linker: tool.name(), version }),
    }
}

/// Checks that a linker links for this machine: lld links for all, GNU ld for those that it was built with.
fn links_for(tool: &Tool, rules: &Rules, supervisor: &Supervisor) -> Result<(), BuildError> {
    trial::try_on_a_line(tool, Task::Link(rules), supervisor, ADVICE)
}

/// Returns whether a linker can make images, by the first line of its version text (`--version`). GNU ld and lld can;
/// mold ignores scripts, and gold (`GNU gold`) does not follow their section layout.
pub fn follows_scripts(version: &str) -> bool {
    version.starts_with("GNU ld") || version.contains("LLD")
}

/// Translates a linker's error into a [`BuildError`]. Linkers refuse some things before this crate can,
/// in terms for linker experts: lld refuses thread-local variables without naming them, GNU ld the handle
/// by which destructors are registered.
fn explain(linker: String, messages: String, objects: &Objects, name: &str) -> BuildError {
    let root = format!("{name}_main");
    let uses = objects.uses(&root);
    if let Some(found) = uses.iter().find(|found| found.thread_local) {
        return BuildError::ThreadLocal { site: Some(found.site.clone()), symbol: found.symbol.clone() };
    }
    if let Some((site, symbol)) = objects.initialisers(&root).into_iter().next() {
        let cause = constructor_cause(objects, &site, &symbol);
        return BuildError::Constructor { site: Some(site), symbol, cause };
    }
    if let Some(found) = uses.iter().find(|found| found.symbol == "__cxa_atexit") {
        return BuildError::Unwinding { site: Some(found.site.clone()), symbol: found.symbol.clone() };
    }
    let fixed = ["-fPIC", "can not be used when making a shared object", "cannot be used against"];
    if fixed.iter().any(|sign| messages.contains(sign)) {
        return BuildError::NotPositionIndependent { linker, messages };
    }
    BuildError::Link { linker, messages }
}

/// Replaces the paths of intermediate files in messages by the labels of their objects.
fn relabel(messages: String, files: &[Linkable]) -> String {
    files.iter().fold(messages, |text, file| text.replace(&*file.path.to_string_lossy(), &file.label))
}

/// Tries a linker, named as in [`Options::linker`](crate::options::Options::linker), on one line, if it can link images.
/// Returns the first line of its version text.
///
/// # Errors
/// The linker does not start, fails, does not follow linker scripts, or takes longer than `supervisor` permits.
pub fn try_linker(linker: &OsStr, supervisor: &Supervisor) -> Result<String, BuildError> {
    let scratch = Scratch::new()?;
    let _guarded = supervisor.begin(&scratch)?;
    let tool = Tool::parse(linker);
    let version = version(&tool, supervisor)?;
    trial::try_on_a_line(&tool, Task::Link(Rules::native()?), supervisor, ADVICE)?;
    Ok(version)
}
