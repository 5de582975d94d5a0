//! The trial of each kind of tool: its input, and its run.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::folder::Folder;

/// Time limit for one trial. zig builds parts of the C library in its first one.
const LIMIT: Duration = Duration::from_secs(120);
/// Most characters of a tool's words in a reason.
const LONGEST: usize = 300;

/// The task of a tool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trial {
    C,
    Cxx,
    Fortran,
    Rust,
    Linker,
    Python,
    Gdb,
    Version,
}

impl Trial {
    /// The trial for a tool of this name.
    pub(crate) fn of(words: &[String]) -> Trial {
        let program = words.first().map_or("", |word| file_name(word));
        let is_zig = words.iter().any(|word| ["zig", "ziglang"].contains(&file_name(word)));
        let is_part = |word: &&str| ["cc", "c++", "ld.lld"].contains(word);
        let part = words.iter().map(String::as_str).find(is_part).unwrap_or("");
        let name = if is_zig { part } else { program };
        // `x86_64-linux-gnu-g++-12`, `flang-new-19`
        let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.').trim_end_matches('-');
        match name.rsplit('-').next().unwrap_or(name) {
            "cc" | "gcc" | "clang" => Trial::C,
            "c++" | "g++" | "clang++" | "mpicxx" => Trial::Cxx,
            "gfortran" => Trial::Fortran,
            // Debian has a compiler for each MPI: `mpicc.mpich`.
            _ if name.starts_with("mpicc") => Trial::C,
            _ if name.starts_with("flang") => Trial::Fortran,
            "rustc" => Trial::Rust,
            "ld" | "ld.bfd" | "ld.gold" | "ld.lld" | "lld" | "mold" => Trial::Linker,
            "python" => Trial::Python,
            _ if name.starts_with("gdb") => Trial::Gdb,
            _ => Trial::Version,
        }
    }

    /// Runs the trial on `line`, or on a line of its own if that is empty, with this `PATH` if there is one.
    ///
    /// # Errors
    /// If the tool is missing or fails.
    pub(crate) fn run(self, words: &[String], line: &str, path: Option<&OsStr>) -> Result<(), String> {
        let [program, arguments @ ..] = words else { return Err("a tool without a name".to_owned()) };
        let no_place = |error| format!("there is no place for temporary files: {error}");
        let folder = Folder::new().map_err(no_place)?;
        let source = folder.path().join(self.file());
        fs::write(&source, format!("{}\n", if line.is_empty() { self.line() } else { line }))
            .map_err(no_place)?;
        let mut command = Command::new(program);
        command.args(arguments).args(self.arguments(words)).current_dir(folder.path()).env("LC_ALL", "C");
        if let Some(path) = path {
            command.env("PATH", path);
        }
        let name = words.join(" ");
        match output(command, folder.path()) {
            Ok((Some(status), _)) if status.success() => Ok(()),
            Ok((status, said)) => Err(failure(&name, self.task(), status, &said)),
            Err(error) if error.kind() == ErrorKind::NotFound && !is_there(program, path) => {
                Err(format!("there is no {name}"))
            }
            Err(error) => Err(format!("{name} is there and does not run: {error}")),
        }
    }

    fn line(self) -> &'static str {
        match self {
            Trial::C => "#include <stdlib.h>",
            Trial::Cxx => "#include <cstdlib>",
            Trial::Fortran => "end",
            Trial::Rust => "#![no_std]",
            Trial::Python => "pass",
            Trial::Linker | Trial::Gdb | Trial::Version => "",
        }
    }

    /// The name of the file with the line, by which compilers know its language.
    fn file(self) -> &'static str {
        match self {
            Trial::C => "one.c",
            Trial::Cxx => "one.cc",
            Trial::Fortran => "one.f90",
            Trial::Rust => "one.rs",
            Trial::Python => "one.py",
            Trial::Linker | Trial::Gdb | Trial::Version => "one",
        }
    }

    fn arguments(self, words: &[String]) -> &'static [&'static str] {
        match (self, target(words)) {
            (Trial::C, None) => &["-fPIC", "-shared", "one.c", "-o", "one.so"],
            (Trial::C, Some(_)) => &["-fPIC", "-c", "one.c", "-o", "one.o"],
            (Trial::Cxx, None) => &["-fPIC", "-shared", "one.cc", "-o", "one.so"],
            (Trial::Cxx, Some(_)) => &["-fPIC", "-c", "one.cc", "-o", "one.o"],
            (Trial::Fortran, _) => &["-c", "one.f90", "-o", "one.o"],
            (Trial::Rust, _) => &["--crate-type=rlib", "one.rs"],
            (Trial::Linker, target) => linking(target.unwrap_or(env::consts::ARCH)),
            (Trial::Python, _) => &["one.py"],
            (Trial::Gdb, _) => &["-nx", "-batch", "-ex", "print 1"],
            (Trial::Version, _) => &["--version"],
        }
    }

    /// The failed task, as the end of a sentence.
    fn task(self) -> &'static str {
        match self {
            Trial::C | Trial::Cxx | Trial::Fortran | Trial::Rust => "does not compile a line",
            Trial::Linker => "does not link a line",
            Trial::Python => "does not run a line",
            Trial::Gdb | Trial::Version => "does not run",
        }
    }
}

/// The machine for which a tool works, if its command names one that is not this one.
fn target(words: &[String]) -> Option<&str> {
    let is_linux = |word: &&str| word.contains("-linux-");
    let word = words.iter().map(|word| file_name(word)).find(is_linux)?;
    let machine = word.split('-').find(|part| !part.is_empty() && !part.contains("target"));
    let of_option = word.split_once('=').and_then(|(_, triple)| triple.split('-').next());
    of_option.or(machine).filter(|machine| !machine.starts_with(env::consts::ARCH))
}

/// The arguments with which a linker makes a library of any file.
fn linking(machine: &str) -> &'static [&'static str] {
    match machine {
        "aarch64" => &["-m", "aarch64linux", "-shared", "-b", "binary", "one", "-o", "one.so"],
        "x86_64" => &["-m", "elf_x86_64", "-shared", "-b", "binary", "one", "-o", "one.so"],
        _ => &["-m", "elf64lriscv", "-shared", "-b", "binary", "one", "-o", "one.so"],
    }
}

fn file_name(word: &str) -> &str {
    Path::new(word).file_name().and_then(OsStr::to_str).unwrap_or(word)
}

/// Returns whether there is a file of this name. A program that does not start may lack its interpreter.
fn is_there(program: &str, path: Option<&OsStr>) -> bool {
    if program.contains('/') {
        return Path::new(program).is_file();
    }
    let path = path.map(OsStr::to_owned).or_else(|| env::var_os("PATH")).unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Runs a command to its end, with its output in a file of `folder`. Returns its status and its output. There is no
/// status if the command was killed at the limit.
fn output(mut command: Command, folder: &Path) -> io::Result<(Option<ExitStatus>, String)> {
    let said = folder.join("said");
    let file = File::create(&said)?;
    // Compilers start other programs, which are killed with them.
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).process_group(0);
    let mut child = command.spawn()?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if begun.elapsed() > LIMIT {
            let group = format!("-{}", child.id());
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
            let _ = child.kill();
            child.wait()?;
            break None;
        }
        thread::sleep(Duration::from_millis(5));
    };
    Ok((status, String::from_utf8_lossy(&fs::read(said)?).into_owned()))
}

/// The reason why a tool cannot be used, in its own words.
fn failure(name: &str, task: &str, status: Option<ExitStatus>, said: &str) -> String {
    let Some(status) = status else { return format!("{name} is there and does not end within {LIMIT:?}") };
    // The shell and the dynamic loader have codes of their own. With these, or with a signal, the tool has not
    // reached its task.
    let task = match status.code() {
        Some(126 | 127) | None => "does not run",
        Some(_) => task,
    };
    let mut lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.clone().next();
    let words = lines.find(|line| line.contains("rror")).or(first);
    let words: Option<String> = words.map(|words| words.chars().take(LONGEST).collect());
    let words = match (words, status.signal()) {
        (Some(words), None) => words,
        (Some(words), Some(_)) => format!("{words} ({status})"),
        (None, _) => status.to_string(),
    };
    format!("{name} is there and {task}: {words}")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::fakes::{Fakes, words_of};
    use crate::{Tool, all_work};

    fn words(command: &str) -> Vec<String> {
        command.split(' ').map(str::to_owned).collect()
    }

    /// Returns the reason against a tool, with fakes before the real programs.
    fn refused(fakes: &Fakes, command: &str) -> String {
        let words = words(command);
        Trial::of(&words).run(&words, "", Some(&fakes.path())).expect_err(command)
    }

    #[test]
    fn a_tool_that_does_not_start_is_refused_with_its_message() {
        let names =
            ["clang", "g++", "gfortran", "ld.lld", "python3", "pkg-config", "git", "gdb", "rustc", "cc"];
        let fakes = Fakes::new().broken(&names);
        for name in names {
            // `Command::output` returns `Ok` for each of them.
            let there = Command::new(name).arg("--version").env("PATH", fakes.path()).output();
            assert!(there.is_ok_and(|output| output.status.code() == Some(127)));
            let expected = format!("{name} is there and does not run: {}", words_of(name));
            assert_eq!(refused(&fakes, name), expected);
        }
        let zig = refused(&fakes, "python3 -m ziglang cc");
        assert!(zig.starts_with("python3 -m ziglang cc is there and does not run: "), "{zig}");
    }

    #[test]
    fn a_tool_with_a_version_that_fails_its_task_is_refused() {
        let liar = "case $1 in --version) echo liar 1.0; exit;; esac\n\
            echo 'In file included from one.c:1:' >&2\necho \"one.c:1:10: fatal error: 'x.h' file not found\" >&2\nexit 1";
        let mute = "[ \"$1\" = --version ] && exit\nexit 3";
        let killed = "[ \"$1\" = --version ] && exit\nkill -SEGV $$";
        let fakes = Fakes::new().script("cc", liar).script("ld.bfd", mute).script("g++", killed);
        let expected =
            "cc is there and does not compile a line: one.c:1:10: fatal error: 'x.h' file not found";
        assert_eq!(refused(&fakes, "cc"), expected);
        assert_eq!(refused(&fakes, "ld.bfd"), "ld.bfd is there and does not link a line: exit status: 3");
        let killed = refused(&fakes, "g++");
        assert!(killed.starts_with("g++ is there and does not run: signal: 11"), "{killed}");
    }

    #[test]
    fn a_missing_tool_is_missing_and_one_without_its_interpreter_is_there() {
        let fakes = Fakes::new();
        assert_eq!(refused(&fakes, "farjump-no-such-tool"), "there is no farjump-no-such-tool");
        assert_eq!(Tool::tried("/nowhere/cc"), Err("there is no /nowhere/cc".to_owned()));
        // If a later folder of `PATH` has the program, too, the system takes that one.
        let path = fakes.program("farjump-no-sh");
        let write = format!("printf '#!/nowhere/sh\\n' >{0} && chmod 755 {0}", path.display());
        assert!(Command::new("sh").args(["-c", &write]).status().is_ok_and(|status| status.success()));
        let refused = refused(&fakes, "farjump-no-sh");
        assert!(refused.starts_with("farjump-no-sh is there and does not run: No such file"), "{refused}");
        assert!(!all_work(&["farjump-no-such-tool"]));
    }

    #[test]
    fn tools_that_work_are_usable() {
        // Cargo links these very tests with it.
        let cc = Tool::tried("cc").expect("a C compiler");
        assert_eq!((cc.name().as_str(), cc.command().get_program()), ("cc", OsStr::new("cc")));
        assert!(Tool::tried("rustc").is_ok());
        assert!(Tool::tried_on("cc", "#include <farjump_no_such_header.h>").is_err_and(|why| {
            why.starts_with("cc is there and does not compile a line: ")
                && why.contains("farjump_no_such_header.h")
        }));
        for linker in ["ld.bfd", "ld", "ld.gold", "ld.lld", "python3", "gfortran", "gdb"] {
            if let Err(why) = Tool::tried(linker) {
                println!("not tried: {why}");
                assert!(why.starts_with("there is no ") || why.contains(" is there and does not "), "{why}");
            }
        }
    }

    #[test]
    fn the_kind_of_a_tool_follows_from_its_name() {
        for (command, trial, machine) in [
            ("cc", Trial::C, None),
            ("/usr/bin/gcc-12", Trial::C, None),
            ("m68k-linux-gnu-gcc-12", Trial::C, Some("m68k")),
            ("clang --target=m68k-linux-gnu", Trial::C, Some("m68k")),
            ("clang++-19", Trial::Cxx, None),
            ("python3 -m ziglang c++", Trial::Cxx, None),
            ("zig cc -target m68k-linux-gnu", Trial::C, Some("m68k")),
            ("m68k-linux-gnu-ld.bfd", Trial::Linker, Some("m68k")),
            ("ld.lld-19", Trial::Linker, None),
            ("flang-new-19", Trial::Fortran, None),
            ("python3.11", Trial::Python, None),
            ("gdb-multiarch", Trial::Gdb, None),
            ("pkg-config", Trial::Version, None),
        ] {
            let words = words(command);
            assert_eq!((Trial::of(&words), target(&words)), (trial, machine), "{command}");
        }
    }
}
