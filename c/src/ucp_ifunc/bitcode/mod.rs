//! Registration of code from a program's memory, or of bitcode from its directory of libraries. The code is bitcode for
//! one or more machines, which the compile process makes into images, or it is images or libraries.
//!
//! Frames carry the images for all machines. The payload routines in the bitcode for this machine become an image too,
//! which is placed here (`routines`).

#[cfg(feature = "bitcode")]
mod compile;
mod directory;
#[cfg(feature = "bitcode")]
mod process;
#[cfg(feature = "bitcode")]
mod routines;

use farjump_core::bitcode::is_llvm_module;
use farjump_core::image::{MAX_WANTED, Machine, Platform, is_soname};
use farjump_loader::{Error, Exports, Library};
use farjump_ucx_sys::{
    UCS_ERR_IO_ERROR, UCS_ERR_NO_ELEM, UCS_ERR_OUT_OF_RANGE, UCS_ERR_REJECTED, UCS_ERR_UNREACHABLE,
};

use super::Refused;

pub(super) use directory::read;

/// Stands for a path in messages.
#[cfg(feature = "bitcode")]
const MEMORY: &str = "<memory>";

/// The code to register for one machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given<'a> {
    pub(super) triple: &'a str,
    /// Bitcode, an image, or the contents of a library's file.
    pub(super) bytes: &'a [u8],
}

/// Code for a machine that farjump knows.
#[derive(Clone, Copy, Debug)]
struct ForMachine<'a> {
    machine: Machine,
    given: Given<'a>,
}

/// The libraries of one registered ifunc.
#[derive(Debug)]
pub(super) struct Libraries {
    /// The library whose routines make the payloads.
    pub(super) payloads: Library,
    /// All libraries, with code for different machines.
    pub(super) all: Vec<Library>,
}

/// Makes libraries of the ifunc `name`. Its bitcode wants the libraries `deps` at a target, and its payload routines may call
/// `exports`. A library's constructors run.
///
/// # Errors
/// [`UCS_ERR_OUT_OF_RANGE`] for two of one machine; [`UCS_ERR_UNREACHABLE`] for libraries that no target can open;
/// [`UCS_ERR_REJECTED`] for bytes that are damaged, or for another machine; [`UCS_ERR_NO_ELEM`] without code for this machine,
/// `NAME_main` or payload routines; `UCS_ERR_UNSUPPORTED` where bitcode cannot be compiled.
pub(super) fn libraries(
    name: &str,
    given: &[Given<'_>],
    deps: &[&str],
    exports: Exports,
) -> Result<Libraries, Refused> {
    let wanted = wanted(deps)?;
    let known = known(given)?;
    let is_bitcode = |one: &&ForMachine<'_>| is_llvm_module(one.given.bytes);
    let (bitcode, other): (Vec<_>, Vec<_>) = known.iter().partition(is_bitcode);
    let native = Machine::native();
    let has_own = known.iter().any(|one| Some(one.machine) == native);
    if !has_own && (!bitcode.is_empty() || known.is_empty()) {
        return Err(nothing_for_this_machine(name, given));
    }
    let mut all = Vec::new();
    for one in other {
        all.push(library(name, one)?);
    }
    all.extend(compiled(name, &bitcode, &wanted, exports)?);
    let is_own =
        |library: &&Library| library.images().iter().any(|image| Some(image.kind().machine()) == native);
    let payloads = all.iter().find(is_own).or(all.first()).cloned();
    let payloads = payloads.ok_or_else(|| nothing_for_this_machine(name, given))?;
    Ok(Libraries { payloads, all })
}

#[cold]
fn nothing_for_this_machine(name: &str, given: &[Given<'_>]) -> Refused {
    let triples: Vec<_> = given.iter().map(|given| given.triple).collect();
    let own = Machine::native().map_or("a machine that farjump does not know", Machine::triple);
    let text = format!(
        "`{name}` has code for {}, and none for this machine ({own}), where its payload routines run: register that too",
        if triples.is_empty() { "no machine".to_owned() } else { triples.join(" and ") }
    );
    Refused::new(UCS_ERR_NO_ELEM, text)
}

/// Returns the sonames, ascending and each once.
fn wanted<'a>(deps: &[&'a str]) -> Result<Vec<&'a str>, Refused> {
    let mut wanted = deps.to_vec();
    wanted.sort_unstable();
    wanted.dedup();
    if let Some(dep) = wanted.iter().find(|dep| !is_soname(dep)) {
        let text = format!(
            "a target does not look for the dependency {dep:?}: give the name of a library, as libz.so.1, without a path"
        );
        return Err(Refused::new(UCS_ERR_UNREACHABLE, text));
    }
    if wanted.len() > MAX_WANTED {
        let text = format!("{} dependencies: code wants at most {MAX_WANTED} libraries", wanted.len());
        return Err(Refused::new(UCS_ERR_UNREACHABLE, text));
    }
    Ok(wanted)
}

/// Returns the code for machines that farjump knows. No target could take the rest.
fn known<'a>(given: &[Given<'a>]) -> Result<Vec<ForMachine<'a>>, Refused> {
    let mut known: Vec<ForMachine<'a>> = Vec::new();
    for (index, &given_one) in given.iter().enumerate() {
        let machine = machine_of(given_one.triple);
        let same = known.iter().find(|one| Some(one.machine) == machine).map(|one| one.given.triple);
        let twice =
            given[..index].iter().find(|other| other.triple == given_one.triple).map(|other| other.triple);
        if let Some(other) = twice.or(same) {
            let text = format!("`{other}` and `{}` are one machine: give one of them", given_one.triple);
            return Err(Refused::new(UCS_ERR_OUT_OF_RANGE, text));
        }
        known.extend(machine.map(|machine| ForMachine { machine, given: given_one }));
    }
    Ok(known)
}

/// Returns the machine of a triple such as `x86_64-linux-gnu` or `aarch64-unknown-linux-gnu`; `None` for other systems
/// than Linux.
fn machine_of(triple: &str) -> Option<Machine> {
    let mut parts = triple.split('-');
    let arch = parts.next()?;
    let is_linux = parts.any(|part| part == "linux");
    let machine = match arch {
        "x86_64" | "amd64" => Machine::X86_64,
        "aarch64" | "arm64" => Machine::AARCH64,
        _ if arch.starts_with("riscv64") => Machine::RISCV,
        _ => return None,
    };
    is_linux.then_some(machine)
}

/// Makes a library of an image or a library's file. Loads a library for this machine.
fn library(name: &str, one: &ForMachine<'_>) -> Result<Library, Refused> {
    let ForMachine { machine, given: Given { triple, bytes } } = *one;
    let library = if Some(machine) == Machine::native() {
        // SAFETY: registering loads, as the papers' interface says; the program gives the library.
        unsafe { Library::load_bytes(Some(name), bytes) }
    } else {
        Library::from_bytes(Some(name), bytes)
    };
    let library = library.map_err(|error| {
        let status = match error {
            Error::MissingRoutine { .. } => UCS_ERR_NO_ELEM,
            Error::Load { .. } => UCS_ERR_IO_ERROR,
            _ => UCS_ERR_REJECTED,
        };
        let hint = match error {
            Error::NotALibrary { .. } => "; and it is no bitcode, which begins with `BC`",
            _ => "",
        };
        Refused::new(status, format!("what `{name}` has for {triple} cannot be registered: {error}{hint}"))
    })?;
    if library.image_for(Platform::baseline(machine)).is_err() {
        let found: Vec<_> = library.images().iter().map(|image| image.kind().to_string()).collect();
        let found = if found.is_empty() { "no code that travels".to_owned() } else { found.join(" and ") };
        let text = format!(
            "what `{name}` has for {triple} is {found}, and no image for any CPU of {machine}: give that, and each with its own triple"
        );
        return Err(Refused::new(UCS_ERR_REJECTED, text));
    }
    Ok(library)
}

/// Compiles bitcode to images, the one for this machine with its payload routines.
#[cfg(feature = "bitcode")]
fn compiled(
    name: &str,
    bitcode: &[&ForMachine<'_>],
    wanted: &[&str],
    exports: Exports,
) -> Result<Option<Library>, Refused> {
    if bitcode.is_empty() {
        return Ok(None);
    }
    let made = compile::images(name, bitcode, wanted)?;
    let routines = match &made.routines {
        Some(image) => Some(routines::place(name, image, exports, made.used)?),
        None => None,
    };
    let codes: Vec<_> = made.images.iter().map(|image| &image[..]).collect();
    let library = Library::of_codes(name, MEMORY.into(), &codes, routines);
    library.map(Some).map_err(|error| Refused::new(UCS_ERR_REJECTED, error.to_string()))
}

#[cfg(not(feature = "bitcode"))]
fn compiled(
    _: &str,
    bitcode: &[&ForMachine<'_>],
    _: &[&str],
    _: Exports,
) -> Result<Option<Library>, Refused> {
    if bitcode.is_empty() {
        return Ok(None);
    }
    let text = "this libfarjump compiles no bitcode: build it with the feature `bitcode`";
    Err(Refused::new(farjump_ucx_sys::UCS_ERR_UNSUPPORTED, text))
}

#[cfg(test)]
mod tests {
    use farjump_core::bitcode::LLVM_MAGIC;

    use super::*;

    fn given<'a>(triples: &[&'a str]) -> Vec<Given<'a>> {
        triples.iter().map(|triple| Given { triple, bytes: &LLVM_MAGIC }).collect()
    }

    #[test]
    fn triples_of_any_vendor_are_machines_of_linux() {
        for (triple, machine) in [
            ("x86_64-linux-gnu", Some(Machine::X86_64)),
            ("x86_64-unknown-linux-gnu", Some(Machine::X86_64)),
            ("aarch64-redhat-linux-gnu", Some(Machine::AARCH64)),
            ("arm64-pc-linux-musl", Some(Machine::AARCH64)),
            ("riscv64gc-unknown-linux-gnu", Some(Machine::RISCV)),
            ("riscv64-linux-gnu", Some(Machine::RISCV)),
            ("aarch64_be-linux-gnu", None),
            ("x86_64-apple-darwin", None),
            ("nvptx64-nvidia-cuda", None),
            ("", None),
        ] {
            assert_eq!(machine_of(triple), machine, "{triple}");
        }
    }

    #[test]
    fn two_of_one_machine_are_refused_and_unknown_machines_are_left_out() {
        let all = given(&["nvptx64-nvidia-cuda", "x86_64-linux-gnu", "aarch64-linux-gnu"]);
        let machines: Vec<_> = known(&all).unwrap().iter().map(|one| one.machine).collect();
        assert_eq!(machines, [Machine::X86_64, Machine::AARCH64]);
        for twice in [["x86_64-linux-gnu", "x86_64-unknown-linux-gnu"], ["nvptx64-nvidia-cuda"; 2]] {
            let refused = known(&given(&twice)).unwrap_err();
            assert_eq!(refused.status, UCS_ERR_OUT_OF_RANGE);
            assert!(refused.text.contains(twice[1]), "{}", refused.text);
        }
    }

    #[test]
    fn dependencies_are_sonames() {
        assert_eq!(wanted(&["libz.so.1", "libm.so.6", "libz.so.1"]).unwrap(), ["libm.so.6", "libz.so.1"]);
        let many: Vec<String> = (0..=MAX_WANTED).map(|number| format!("lib{number}.so")).collect();
        let many: Vec<&str> = many.iter().map(|name| &**name).collect();
        for (deps, words) in
            [(vec!["/usr/lib/libz.so"], "without a path"), (vec![""], "\"\""), (many, "at most 16")]
        {
            let refused = wanted(&deps).unwrap_err();
            assert_eq!(refused.status, UCS_ERR_UNREACHABLE);
            assert!(refused.text.contains(words), "{}", refused.text);
        }
    }
}
