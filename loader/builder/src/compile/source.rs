//! The source that a library carries: the author's files, and the flags of their compilation.
//!
//! It is JSON in a section that is not allocated, so a process that opens the library does not read it, and `strip -R
//! .farjump.source` removes it. The library carries the author's headers unchanged, because preprocessed text would fit
//! only one machine.

use std::fs;
use std::path::{Component, Path, PathBuf, absolute};

use farjump_loader::library::carried_source::section;
use object::LittleEndian;
use object::read::elf::ElfFile64;
use serde::{Deserialize, Serialize};

use crate::compile::compiler::Compiler;
use crate::compile::{self, Kind};
use crate::error::BuildError;
use crate::options::Options;
use crate::tools::run_tool;
use crate::tools::temp_folder;

/// Most bytes of the section.
const MAX_LEN: usize = 16 << 20;
/// Stands for the folder of the files, in a flag.
const FOLDER: &str = "{source}";
/// Flags that a path follows, in the same word or in the next.
const PATH_FLAGS: [&str; 5] = ["-include", "-iquote", "-isystem", "-idirafter", "-I"];

/// The source of a library.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Source {
    /// Version of this form.
    version: u32,
    /// The files to compile, as named in `files`.
    inputs: Vec<String>,
    cflags: Vec<String>,
    /// Inputs and headers.
    files: Vec<File>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Path from the common folder of all files: normal components, with slashes between.
    path: String,
    text: String,
}

impl Source {
    /// Collects the source of `options`, which `compiler` compiles. `include` has farjump's own headers, which the
    /// library does not carry.
    ///
    /// # Errors
    /// [`BuildError::NoSource`] for inputs that are no source files, and for files that cannot be carried.
    pub(crate) fn collect(
        options: &Options,
        compiler: &Compiler,
        include: &Path,
    ) -> Result<Source, BuildError> {
        let mut inputs = Vec::new();
        let mut paths = Vec::new();
        for input in &options.inputs {
            let refused = |reason: &str| no_source(input, reason);
            inputs.push(plain(input)?);
            match compile::kind(input)? {
                Kind::C { cxx } => paths.extend(headers(options, compiler, input, cxx, include)?),
                Kind::Rust => {}
                Kind::Crate => return Err(refused("is a crate: give a single Rust file")),
                Kind::Bitcode => return Err(refused("is bitcode: give its source")),
                Kind::Object(_) | Kind::Archive(_) => {
                    return Err(refused("is an object or archive: give its source"));
                }
            }
        }
        paths.extend(inputs.iter().cloned());
        paths.sort();
        paths.dedup();
        let root = common_folder(&paths);
        let named = |path: &Path| -> Result<String, BuildError> {
            let path = path.strip_prefix(&root).unwrap_or(path);
            let text = path.to_str().ok_or_else(|| no_source(path, "has a name that is not UTF-8"))?;
            Ok(text.to_owned())
        };
        let mut files = Vec::new();
        for path in &paths {
            let bytes = fs::read(path).map_err(|source| BuildError::Read { path: path.clone(), source })?;
            let text = String::from_utf8(bytes).map_err(|_| no_source(path, "is not UTF-8"))?;
            files.push(File { path: named(path)?, text });
        }
        let inputs = inputs.iter().map(|input| named(input)).collect::<Result<_, _>>()?;
        Ok(Source { version: 1, inputs, cflags: carried_flags(&options.cflags, &root)?, files })
    }

    /// The contents of the section.
    ///
    /// # Errors
    /// [`BuildError::NoSource`] for sources that are too long.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, BuildError> {
        let first = self.inputs.first().map_or("", String::as_str);
        let encoded =
            serde_json::to_vec(self).map_err(|_| no_source(Path::new(first), "cannot be encoded"))?;
        if encoded.len() > MAX_LEN {
            return Err(no_source(Path::new(first), "is with its headers longer than 16 MiB"));
        }
        Ok(encoded)
    }

    /// Reads the source in the ELF file `elf`; `None` if it has none.
    ///
    /// # Errors
    /// The fault in the source.
    pub(crate) fn of(elf: &ElfFile64<'_, LittleEndian>) -> Result<Option<Source>, String> {
        section(elf)?.map(Source::decode).transpose()
    }

    /// Reads the contents of the section.
    ///
    /// # Errors
    /// The fault in the contents.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Source, String> {
        if bytes.len() > MAX_LEN {
            return Err("its source is longer than 16 MiB".to_owned());
        }
        let source: Source =
            serde_json::from_slice(bytes).map_err(|error| format!("its source cannot be read: {error}"))?;
        if source.version != 1 {
            return Err(format!("its source has version {}, this farjump reads version 1", source.version));
        }
        // `Source::unpack` writes files by these names: none may lead out of the folder.
        let leads_out = |path: &str| {
            let normal = |part: Component<'_>| matches!(part, Component::Normal(_));
            path.is_empty() || path.contains('\0') || !Path::new(path).components().all(normal)
        };
        let paths = source.files.iter().map(|file| &file.path).chain(&source.inputs);
        match paths.clone().find(|path| leads_out(path)) {
            Some(path) => {
                return Err(format!("its source has a file named {path:?}, which is no plain path"));
            }
            None if source.inputs.is_empty() => return Err("its source has no files".to_owned()),
            None => {}
        }
        Ok(source)
    }

    /// Names of the files.
    pub(crate) fn names(&self) -> Vec<String> {
        self.files.iter().map(|file| file.path.clone()).collect()
    }

    /// Writes the files into `folder`, and returns `options` with them as inputs, and with the carried flags
    /// before its own.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub(crate) fn unpack(&self, folder: &Path, options: &Options) -> Result<Options, BuildError> {
        for file in &self.files {
            let path = folder.join(&file.path);
            if let Some(parent) = path.parent() {
                temp_folder::folder(parent.to_owned())?;
            }
            temp_folder::write(path, file.text.as_bytes())?;
        }
        let place = folder.to_string_lossy();
        let mut cflags: Vec<String> = self.cflags.iter().map(|flag| flag.replace(FOLDER, &place)).collect();
        cflags.extend_from_slice(&options.cflags);
        let inputs = self.inputs.iter().map(|input| folder.join(input)).collect();
        Ok(Options { inputs, cflags, ..options.clone() })
    }
}

fn no_source(path: &Path, reason: &str) -> BuildError {
    BuildError::NoSource { path: path.to_owned(), reason: reason.to_owned() }
}

/// The absolute path without `.` and `..`. Symbolic links stay, because compilers find includes beside them by that
/// name.
fn plain(path: &Path) -> Result<PathBuf, BuildError> {
    let whole = absolute(path).map_err(|source| BuildError::Read { path: path.to_owned(), source })?;
    let mut plain = PathBuf::new();
    for part in whole.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    Ok(plain)
}

/// The longest folder that contains all paths.
fn common_folder(paths: &[PathBuf]) -> PathBuf {
    let mut folders = paths.iter().map(|path| path.parent().unwrap_or(Path::new("/")));
    let Some(first) = folders.next() else { return PathBuf::from("/") };
    folders.fold(first.to_owned(), |common, folder| {
        let same = common.components().zip(folder.components()).take_while(|(one, other)| one == other);
        same.map(|(part, _)| part).collect()
    })
}

/// The author's headers that a C or C++ source includes, as the compiler names them (`-MM`).
fn headers(
    options: &Options,
    compiler: &Compiler,
    input: &Path,
    cxx: bool,
    include: &Path,
) -> Result<Vec<PathBuf>, BuildError> {
    // The compiler does not preprocess assembly of this kind.
    if input.extension().is_some_and(|extension| extension == "s") {
        return Ok(Vec::new());
    }
    let mut command = compiler.command(cxx);
    command.arg("-I").arg(include).args(&options.cflags).arg("-MM").arg(input);
    let said = compiler.run(&mut command)?;
    if !said.status.success() {
        let (tool, messages) = (run_tool::program(&command), run_tool::messages(&said));
        return Err(BuildError::Compile { tool, path: input.to_owned(), messages });
    }
    let rule = String::from_utf8_lossy(&said.stdout);
    let files = prerequisites(&rule).into_iter().map(|name| plain(Path::new(&name)));
    let own = plain(include)?;
    Ok(files.collect::<Result<Vec<_>, _>>()?.into_iter().filter(|path| !path.starts_with(&own)).collect())
}

/// The files behind the colon of a rule for make.
fn prerequisites(rule: &str) -> Vec<String> {
    let Some((_, list)) = rule.split_once(": ") else { return Vec::new() };
    let (mut names, mut name) = (Vec::new(), String::new());
    let mut letters = list.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, letters.peek()) {
            ('\\', Some('\n')) => {}
            ('\\', Some(' ' | '#' | '\\')) | ('$', Some('$')) => name.extend(letters.next()),
            (blank, _) if blank.is_whitespace() => names.push(std::mem::take(&mut name)),
            (letter, _) => name.push(letter),
        }
    }
    names.push(name);
    names.retain(|name| !name.is_empty());
    names
}

/// The flags with paths below `root` relative to [`FOLDER`].
fn carried_flags(cflags: &[String], root: &Path) -> Result<Vec<String>, BuildError> {
    let moved = |path: &str| -> Result<String, BuildError> {
        let whole = plain(Path::new(path))?;
        Ok(match whole.strip_prefix(root) {
            Ok(below) => Path::new(FOLDER).join(below).to_string_lossy().into_owned(),
            Err(_) => path.to_owned(),
        })
    };
    let mut flags = Vec::new();
    let mut is_path = false;
    for flag in cflags {
        let attached = PATH_FLAGS.iter().find_map(|name| Some((name, flag.strip_prefix(name)?)));
        flags.push(match attached {
            _ if is_path => moved(flag)?,
            Some((_, "")) | None => flag.clone(),
            Some((name, path)) => format!("{name}{}", moved(path)?),
        });
        is_path = !is_path && PATH_FLAGS.contains(&flag.as_str());
    }
    Ok(flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_for_make_names_files() {
        let rule = "sum.o: src/sum.c src/../a\\ b.h \\\n  /x/c$$.h\n";
        assert_eq!(prerequisites(rule), ["src/sum.c", "src/../a b.h", "/x/c$.h"]);
        assert!(prerequisites("").is_empty());
    }

    #[test]
    fn paths_in_flags_move_with_the_files() {
        let flags =
            ["-O2", "-I/a/inc", "-I", "/a/b", "-include", "/z/h.h", "-DX=/a/b", "-I/a"].map(String::from);
        let moved = carried_flags(&flags, Path::new("/a")).unwrap();
        let expected =
            ["-O2", "-I{source}/inc", "-I", "{source}/b", "-include", "/z/h.h", "-DX=/a/b", "-I{source}/"];
        assert_eq!(moved, expected);
    }

    #[test]
    fn a_malformed_source_or_one_outside_its_folder_is_refused() {
        let good = r#"{"version":1,"inputs":["a/b.c"],"cflags":[],"files":[{"path":"a/b.c","text":""}]}"#;
        assert_eq!(Source::decode(good.as_bytes()).unwrap().names(), ["a/b.c"]);
        for (from, to, part) in [
            ("a/b.c", "../b.c", "no plain path"),
            ("a/b.c", "/b.c", "no plain path"),
            ("a/b.c", "a/../../b.c", "no plain path"),
            ("a/b.c", "", "no plain path"),
            ("\"version\":1", "\"version\":2", "version 2"),
            ("[\"a/b.c\"]", "[]", "no files"),
            ("\"cflags\":[],", "", "cannot be read"),
            ("{\"version\"", "", "cannot be read"),
        ] {
            let error = Source::decode(good.replace(from, to).as_bytes()).unwrap_err();
            assert!(error.contains(part), "{to}: {error}");
        }
    }
}
