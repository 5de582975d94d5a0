//! A folder in which ifunc libraries and programs are built, and processes under a watchdog: none outlives
//! its test.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use farjump::build::{BuildError, BuildReport};
use farjump_fixtures::process::{Process, finish};
use tempfile::TempDir;

use crate::common::{archive, filled, ifunc_library, package};

/// Time that a pair of processes may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// Libraries for linking programs. LD_LIBRARY_PATH may name another version of UCX for them to run with:
/// linkers look there too, for dependencies of UCX's libraries.
const LIBRARIES: [&str; 6] = ["-Wl,--allow-shlib-undefined", "-lucp", "-lucs", "-lpthread", "-ldl", "-lm"];

/// The interface of one of the two prototypes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Variant {
    TwoChains,
    ThreeChains,
}

/// The language a program is compiled as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Language {
    C,
    Cxx,
}

/// The transports that UCX may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lane {
    /// Memory that processes share: frames are stored.
    Posix,
    /// Emulated puts: frames are checked.
    Tcp,
    /// No transport to other processes.
    Own,
}

/// Returns the folder of a shared library of the archive. With the archive each program's link would take two seconds
/// of processor time.
pub(crate) fn library() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        filled("farjump-ucp", |folder| {
            let mut cc = Command::new("cc");
            cc.args(["-shared", "-Wl,--strip-debug", "-Wl,--whole-archive"]).arg(archive());
            cc.args(["-Wl,--no-whole-archive", "-lpthread", "-ldl", "-lm", "-o"]);
            finish(cc.arg(folder.join("libfarjump.so"))).worked();
        })
    })
}

impl Variant {
    pub(crate) const BOTH: [Variant; 2] = [Variant::TwoChains, Variant::ThreeChains];

    /// Returns the compiler flags that a program, or the source of an ifunc library, needs.
    pub(crate) fn flags(self) -> Vec<String> {
        let variant = match self {
            Variant::TwoChains => "-DIFUNC_API_TWO_CHAINS",
            Variant::ThreeChains => "-DIFUNC_API_THREE_CHAINS",
        };
        let folders = ["include", "tests/ucp_ifunc/programs", "benches"];
        let include = folders.map(|folder| format!("-I{}", package().join(folder).display()));
        [include.to_vec(), vec![variant.into(), "-includeucp_ifunc.h".into()]].concat()
    }
}

impl Lane {
    pub(crate) const BOTH: [Lane; 2] = [Lane::Posix, Lane::Tcp];
}

pub(crate) struct Fixture {
    folder: TempDir,
    /// Flags that make the compiler treat UCX's headers as the system's, whose warnings are no errors.
    quiet: Vec<String>,
}

/// Returns a folder to work in; `None`, with a message, where there is no compiler, or UCX's headers are missing. Any
/// other obstacle fails the test.
pub(crate) fn fixture() -> Option<Fixture> {
    let folder = tempfile::Builder::new().prefix("farjump-ucp-").tempdir().unwrap();
    for name in ["lib", "empty"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    let headers = folder.path().join("headers.c");
    fs::write(&headers, "#if __has_include(<ucp/api/ucp.h>)\n#include <ucp/api/ucp.h>\n#endif\n").unwrap();
    let preprocessed = match Command::new("cc").arg("-E").arg(&headers).output() {
        Ok(done) => done,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("skipped: no C compiler: cc: {error}");
            return None;
        }
        Err(error) => panic!("cc: {error}"),
    };
    assert!(preprocessed.status.success(), "{}", String::from_utf8_lossy(&preprocessed.stderr));
    let Some(quiet) = quiet(&String::from_utf8_lossy(&preprocessed.stdout)) else {
        println!("skipped: UCX's headers are not here (libucx-dev)");
        return None;
    };
    let probe = folder.path().join("probe.c");
    fs::write(&probe, "#include <ucp/api/ucp.h>\nint main(void) { return ucp_get_version_string() == 0; }\n")
        .unwrap();
    Some(Fixture { folder, quiet })
}

/// Returns flags that make the headers that the preprocessor found system headers, from its output:
/// `# LINE "FILE" FLAGS`, with a 3 among the flags of those that already are. `None` where it found none.
fn quiet(preprocessed: &str) -> Option<Vec<String>> {
    const HEADER: &str = "/ucp/api/ucp.h";
    let (path, flags) = preprocessed.lines().find_map(|line| {
        let (path, flags) = line.strip_prefix("# ")?.split_once('"')?.1.split_once('"')?;
        path.ends_with(HEADER).then_some((path, flags))
    })?;
    let folder = path.strip_suffix(HEADER)?;
    let is_systems = flags.split_whitespace().any(|flag| flag == "3");
    Some(if is_systems { Vec::new() } else { vec!["-isystem".to_owned(), folder.to_owned()] })
}

#[test]
fn headers_that_are_not_the_systems_are_taken_for_such() {
    let found = |flags| format!("# 0 \"x.c\"\n# 1 \"/opt/ucx/include/ucp/api/ucp.h\" {flags}\n");
    assert_eq!(quiet(&found("1 3")), Some(vec![]));
    assert_eq!(quiet(&found("1")), Some(vec!["-isystem".to_owned(), "/opt/ucx/include".to_owned()]));
    assert_eq!(quiet("# 0 \"x.c\"\n"), None);
}

impl Fixture {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the directory of ifunc libraries.
    pub(crate) fn libraries(&self) -> PathBuf {
        self.path("lib")
    }

    /// Returns a directory without libraries.
    pub(crate) fn no_libraries(&self) -> PathBuf {
        self.path("empty")
    }

    /// Builds an ifunc library of this file, as `FILE.so`.
    fn build(
        &self,
        source: PathBuf,
        file: &str,
        variant: Variant,
        more: &[String],
    ) -> Result<BuildReport, BuildError> {
        let output = self.libraries().join(format!("{file}.so"));
        ifunc_library(source, output, &[&variant.flags(), more].concat())
    }

    /// Returns the source `tests/ucp_ifunc/ifuncs/NAME.c`.
    pub(crate) fn source(name: &str) -> PathBuf {
        source("ifuncs", name)
    }

    /// Builds `tests/ucp_ifunc/ifuncs/NAME.c` with `farjump build`.
    pub(crate) fn ifunc(&self, name: &str, variant: Variant) {
        self.build(source("ifuncs", name), name, variant, &[]).unwrap();
    }

    /// Builds it under another name.
    pub(crate) fn ifunc_called(&self, name: &str, of: &str, variant: Variant) {
        let text = fs::read_to_string(source("ifuncs", of)).unwrap().replace(of, name);
        self.build(self.write(&format!("{name}.c"), &text), name, variant, &[]).unwrap();
    }

    /// Builds an ifunc of this text, whose functions have C's names.
    pub(crate) fn ifunc_of(
        &self,
        text: &str,
        name: &str,
        language: Language,
        variant: Variant,
    ) -> Result<BuildReport, BuildError> {
        let input = match language {
            Language::C => self.write(&format!("{name}.c"), text),
            Language::Cxx => self.write(&format!("{name}.cc"), &format!("extern \"C\" {{\n{text}\n}}\n")),
        };
        self.build(input, name, variant, &[])
    }

    /// Builds `tests/ucp_ifunc/ifuncs/NAME.c` with an ordinary library, made here, that stays in its place.
    pub(crate) fn ifunc_with_library(&self, name: &str, variant: Variant, text: &str) {
        let folder = self.path("besides");
        fs::create_dir_all(&folder).unwrap();
        let library = folder.join("libfarjump-besides.so");
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-Wl,-soname,libfarjump-besides.so", "-o"]).arg(&library);
        finish(command.arg(self.write("library.c", text))).worked();
        let mut cflags = ["-L", "-Wl,-rpath,"].map(|flag| format!("{flag}{}", folder.display())).to_vec();
        cflags.push("-lfarjump-besides".to_owned());
        let built = self.build(source("ifuncs", name), name, variant, &cflags).unwrap();
        assert_eq!(built.images[0].wanted, ["libfarjump-besides.so"]);
    }

    /// Builds `benches/NAME.c`, an ifunc, as `FILE.so`.
    pub(crate) fn measured_ifunc(&self, name: &str, file: &str) {
        let source = package().join("benches").join(format!("{name}.c"));
        self.build(source, file, Variant::TwoChains, &[]).unwrap();
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Compiles `benches/ucp_ifunc.c`.
    pub(crate) fn measuring_program(&self) -> PathBuf {
        let program = self.path("measuring");
        let mut command = Command::new("cc");
        command
            .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-rdynamic"])
            .args(Variant::TwoChains.flags())
            .args(&self.quiet);
        command.arg(package().join("benches/ucp_ifunc.c")).arg(archive());
        finish(command.args(LIBRARIES).arg("-o").arg(&program)).worked();
        program
    }

    /// Builds `tests/ucp_ifunc/ifuncs/NAME.c` with the plain compiler.
    pub(crate) fn plain_ifunc(&self, name: &str, variant: Variant) {
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror"]).args(variant.flags()).args(&self.quiet);
        command.arg(source("ifuncs", name)).arg("-o").arg(self.libraries().join(format!("{name}.so")));
        finish(&mut command).worked();
    }

    /// Compiles `tests/ucp_ifunc/programs/NAME.c`.
    pub(crate) fn program(&self, name: &str, variant: Variant, language: Language) -> PathBuf {
        let program = self.path(&format!("{name}-{variant:?}-{language:?}"));
        finish(self.compiler(name, variant, language).arg(&program)).worked();
        program
    }

    /// Returns its compiler command, except the output path.
    fn compiler(&self, name: &str, variant: Variant, language: Language) -> Command {
        let (driver, kind) = if language == Language::C { ("cc", "c") } else { ("c++", "c++") };
        let mut command = Command::new(driver);
        command.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-rdynamic"]).args(variant.flags());
        command.args(&self.quiet);
        command.args(["-x", kind]).arg(source("programs", name)).args(["-x", "none"]);
        let folder = library().display();
        command.args([format!("-L{folder}"), "-lfarjump".to_owned(), format!("-Wl,-rpath,{folder}")]);
        command.args(LIBRARIES).arg("-o");
        command
    }

    /// Compiles the program with AddressSanitizer; `None`, with a message, where the compiler has none.
    pub(crate) fn sanitized_program(&self, name: &str, variant: Variant) -> Option<PathBuf> {
        let program = self.path(&format!("{name}-{variant:?}-sanitized"));
        let sanitize = "-fsanitize=address";
        let mut cc = Command::new("cc");
        cc.arg(sanitize).arg(self.path("probe.c")).args(LIBRARIES).arg("-o").arg(&program);
        if finish(&mut cc).code != 0 {
            println!("skipped: the C compiler has no AddressSanitizer");
            return None;
        }
        finish(self.compiler(name, variant, Language::C).arg(&program).arg(sanitize)).worked();
        Some(program)
    }

    /// Returns a process with UCX's lanes and the directory of ifunc libraries set. It is not started yet.
    pub(crate) fn command(&self, program: &Path, lane: Lane, libraries: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .stdin(Stdio::null())
            .env("UCX_IFUNC_LIB_DIR", libraries)
            .env("UCX_WARN_UNUSED_ENV_VARS", "n")
            .env("UCX_LOG_LEVEL", "error");
        match lane {
            Lane::Posix => command.env("UCX_TLS", "posix,self"),
            Lane::Own => command.env("UCX_TLS", "self"),
            Lane::Tcp => command.env("UCX_TLS", "tcp,self").env("UCX_NET_DEVICES", "lo"),
        };
        command
    }

    /// Runs a program as target and source, the latter with the libraries, and returns their output.
    pub(crate) fn run_pair(
        &self,
        program: &Path,
        lane: Lane,
        folders: [&Path; 2],
        arguments: &[&str],
    ) -> [String; 2] {
        self.run_pair_with(program, lane, folders, arguments, |_, command| command)
    }

    /// As [`Fixture::run_pair`]; `change` gets the role of each process, `target` or `source`, and its command.
    pub(crate) fn run_pair_with(
        &self,
        program: &Path,
        lane: Lane,
        [target_libraries, source_libraries]: [&Path; 2],
        arguments: &[&str],
        change: impl Fn(&str, Command) -> Command,
    ) -> [String; 2] {
        let socket = self.path("socket");
        let _ = fs::remove_file(&socket);
        let start = |role, libraries| {
            let mut command = change(role, self.command(program, lane, libraries));
            Process::start(command.arg(role).arg(&socket).args(arguments))
        };
        let mut both = [start("target", target_libraries), start("source", source_libraries)];
        // If one fails, the other may wait for it for ever.
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let ended = both.each_mut().map(Process::ended);
            if ended.iter().flatten().any(|status| !status.success()) || ended.iter().all(Option::is_some) {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        let ended = both.map(Process::kill);
        let said = ended.each_ref().map(|done| &*done.err).concat();
        let worked = ended.iter().all(|done| done.code == 0) && !said.contains("ERROR");
        assert!(worked, "{program:?} {lane:?} {arguments:?}: {said}");
        ended.map(|done| done.text().to_owned())
    }
}

fn source(folder: &str, name: &str) -> PathBuf {
    package().join(format!("tests/ucp_ifunc/{folder}/{name}.c"))
}

/// Returns the same command, on this processor alone.
pub(crate) fn pinned(command: &Command, processor: &str) -> Command {
    let mut pinned = Command::new("taskset");
    pinned.args(["-c", processor]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            pinned.env(name, value);
        }
    }
    pinned
}
