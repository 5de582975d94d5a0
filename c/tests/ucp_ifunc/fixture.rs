//! A folder in which ifunc libraries and programs are built, and processes under a watchdog: none outlives
//! its test.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use farjump_loader::builder::{BuildError, Options, build};
use tempfile::TempDir;

/// Time after which a process counts as hanging.
const WATCHDOG: Duration = Duration::from_secs(600);

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

impl Variant {
    pub(crate) const BOTH: [Variant; 2] = [Variant::TwoChains, Variant::ThreeChains];

    /// Further lines that a program, or the source of an ifunc library, needs.
    fn flags(self) -> [String; 4] {
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
        let variant = match self {
            Variant::TwoChains => "-DIFUNC_API_TWO_CHAINS",
            Variant::ThreeChains => "-DIFUNC_API_THREE_CHAINS",
        };
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ucp_ifunc/programs");
        [
            format!("-I{}", include.display()),
            format!("-I{}", own.display()),
            variant.into(),
            "-includeucp_ifunc.h".into(),
        ]
    }
}

impl Lane {
    pub(crate) const BOTH: [Lane; 2] = [Lane::Posix, Lane::Tcp];
}

pub(crate) struct Fixture {
    folder: TempDir,
    /// Flags that have the compiler treat UCX's headers as the system's, whose warnings are no errors.
    quiet: Vec<String>,
}

/// A folder to work in; `None`, with a message, where there is no compiler, or UCX's headers are missing. Any
/// other obstacle fails the test that meets it.
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

/// Flags that make the headers that the preprocessor found system headers, from its output:
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

    /// The directory of ifunc libraries.
    pub(crate) fn libraries(&self) -> PathBuf {
        self.path("lib")
    }

    /// A directory without libraries.
    pub(crate) fn no_libraries(&self) -> PathBuf {
        self.path("empty")
    }

    /// Builds `tests/ucp_ifunc/ifuncs/NAME.c` with `farjump build`.
    pub(crate) fn ifunc(&self, name: &str, variant: Variant) -> PathBuf {
        let output = self.libraries().join(format!("{name}.so"));
        let options = Options {
            inputs: vec![source("ifuncs", name)],
            output: output.clone(),
            cflags: variant.flags().into(),
            ..Options::default()
        };
        build(&options).unwrap_or_else(|error| panic!("{name}: {error}"));
        output
    }

    /// Builds it under another name.
    pub(crate) fn ifunc_called(&self, name: &str, of: &str, variant: Variant) {
        let text = fs::read_to_string(source("ifuncs", of)).unwrap().replace(of, name);
        let input = self.path(&format!("{name}.c"));
        fs::write(&input, text).unwrap();
        let output = self.libraries().join(format!("{name}.so"));
        let options =
            Options { inputs: vec![input], output, cflags: variant.flags().into(), ..Options::default() };
        build(&options).unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    /// Builds an ifunc of this text, whose functions have C's names.
    pub(crate) fn ifunc_of(
        &self,
        text: &str,
        name: &str,
        language: Language,
        variant: Variant,
    ) -> Result<(), BuildError> {
        let (ending, text) = match language {
            Language::C => ("c", text.to_owned()),
            Language::Cxx => ("cc", format!("extern \"C\" {{\n{text}\n}}\n")),
        };
        let input = self.path(&format!("{name}.{ending}"));
        fs::write(&input, text).unwrap();
        let output = self.libraries().join(format!("{name}.so"));
        let options =
            Options { inputs: vec![input], output, cflags: variant.flags().into(), ..Options::default() };
        build(&options).map(drop)
    }

    /// Builds `tests/ucp_ifunc/ifuncs/NAME.c` into this directory with `farjump build`, with an ordinary
    /// library, made here, that stays in its place.
    pub(crate) fn ifunc_with_library(&self, name: &str, variant: Variant, directory: &Path, text: &str) {
        let source = self.path("library.c");
        fs::write(&source, text).unwrap();
        let folder = self.path("besides");
        fs::create_dir_all(&folder).unwrap();
        let library = folder.join("libfarjump-besides.so");
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-Wl,-soname,libfarjump-besides.so", "-o"]).arg(&library);
        finish(command.arg(&source));
        let mut cflags = variant.flags().to_vec();
        cflags.extend(["-L", "-Wl,-rpath,"].map(|flag| format!("{flag}{}", folder.display())));
        cflags.push("-lfarjump-besides".to_owned());
        let output = directory.join(format!("{name}.so"));
        let options =
            Options { inputs: vec![self::source("ifuncs", name)], output, cflags, ..Options::default() };
        let built = build(&options).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(built.wanted, ["libfarjump-besides.so"]);
    }

    /// Builds `benches/NAME.c`, an ifunc, as `FILE.so`.
    pub(crate) fn measured_ifunc(&self, name: &str, file: &str) {
        let mut cflags = Variant::TwoChains.flags().to_vec();
        cflags.push(format!("-I{}", benches().display()));
        let options = Options {
            inputs: vec![benches().join(format!("{name}.c"))],
            output: self.libraries().join(format!("{file}.so")),
            name: Some(name.to_owned()),
            cflags,
            ..Options::default()
        };
        build(&options).unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    /// Compiles `benches/ucp_ifunc.c`.
    pub(crate) fn measuring_program(&self) -> PathBuf {
        let program = self.path("measuring");
        let mut command = Command::new("cc");
        command
            .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-rdynamic"])
            .args(Variant::TwoChains.flags())
            .args(&self.quiet);
        command.arg(benches().join("ucp_ifunc.c")).arg(archive());
        finish(command.args(LIBRARIES).arg("-o").arg(&program));
        program
    }

    /// Builds it with the plain compiler, into this directory.
    pub(crate) fn plain_ifunc(&self, name: &str, variant: Variant, directory: &Path) {
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror"]).args(variant.flags()).args(&self.quiet);
        command.arg(source("ifuncs", name)).arg("-o").arg(directory.join(format!("{name}.so")));
        finish(&mut command);
    }

    /// Compiles `tests/ucp_ifunc/programs/NAME.c`.
    pub(crate) fn program(&self, name: &str, variant: Variant, language: Language) -> PathBuf {
        let program = self.path(&format!("{name}-{variant:?}-{language:?}"));
        finish(self.compiler(name, variant, language).arg(&program));
        program
    }

    /// Its compiler command, except the output path.
    fn compiler(&self, name: &str, variant: Variant, language: Language) -> Command {
        let (driver, kind) = if language == Language::C { ("cc", "c") } else { ("c++", "c++") };
        let mut command = Command::new(driver);
        command.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-rdynamic"]).args(variant.flags());
        command.args(&self.quiet);
        command.args(["-x", kind]).arg(source("programs", name)).args(["-x", "none"]).arg(archive());
        command.args(LIBRARIES).arg("-o");
        command
    }

    /// The same with AddressSanitizer; `None`, with a message, where the compiler has none.
    pub(crate) fn sanitized_program(&self, name: &str, variant: Variant) -> Option<PathBuf> {
        let program = self.path(&format!("{name}-{variant:?}-sanitized"));
        let probe = self.path("probe.c");
        let sanitize = "-fsanitize=address";
        let probed =
            Command::new("cc").arg(sanitize).arg(&probe).args(LIBRARIES).arg("-o").arg(&program).output();
        if !probed.unwrap().status.success() {
            println!("skipped: the C compiler has no AddressSanitizer");
            return None;
        }
        finish(self.compiler(name, variant, Language::C).arg(&program).arg(sanitize));
        Some(program)
    }

    /// A process with UCX's lanes and the directory of ifunc libraries set. It is not started yet.
    pub(crate) fn command(&self, program: &Path, lane: Lane, libraries: &Path) -> Command {
        let mut command = Command::new(program);
        command
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
        self.run_pair_on(program, lane, folders, arguments, None)
    }

    /// As [`Fixture::run_pair`], each on a processor of its own.
    pub(crate) fn run_pair_on(
        &self,
        program: &Path,
        lane: Lane,
        [target_libraries, source_libraries]: [&Path; 2],
        arguments: &[&str],
        processors: Option<[&str; 2]>,
    ) -> [String; 2] {
        let socket = self.path("socket");
        let _ = fs::remove_file(&socket);
        let start = |role, libraries| {
            let mut command = self.command(program, lane, libraries);
            if let Some([target, source]) = processors {
                let own = if role == "target" { target } else { source };
                command = pinned(&command, own);
            }
            Watched::start(command.arg(role).arg(&socket).args(arguments))
        };
        let target = start("target", target_libraries);
        let source = start("source", source_libraries);
        // If one fails, the other may wait for it for ever.
        let mut both = [target, source];
        while !both.iter_mut().all(Watched::is_over) && !both.iter_mut().any(Watched::has_failed) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let failed = both.iter_mut().any(Watched::has_failed);
        let ended = both.map(|mut watched| {
            if failed {
                watched.stop();
            }
            watched.end()
        });
        let said = format!("{}{}", ended[0].2, ended[1].2);
        let worked = ended.iter().all(|(worked, ..)| *worked) && !said.contains("ERROR");
        assert!(worked, "{program:?} {lane:?} {arguments:?}: {said}");
        ended.map(|(_, out, _)| out)
    }
}

fn benches() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches")
}

fn source(folder: &str, name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/ucp_ifunc/{folder}/{name}.c"))
}

/// The library for C, which cargo made along with this test: the newest of those beside it.
fn archive() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let beside = fs::read_dir(test.parent().unwrap()).unwrap().map(|entry| entry.unwrap());
    let archives = beside.filter(|entry| {
        let name = entry.file_name().into_string().unwrap_or_default();
        name.starts_with("libfarjump_c") && name.ends_with(".a")
    });
    let newest = archives.max_by_key(|entry| entry.metadata().unwrap().modified().unwrap());
    newest.expect("cargo makes the archive before it tests it").path()
}

/// The same command, on this processor alone.
fn pinned(command: &Command, processor: &str) -> Command {
    let mut pinned = Command::new("taskset");
    pinned.args(["-c", processor]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            pinned.env(name, value);
        }
    }
    pinned
}

/// Runs a tool; it has to succeed.
fn finish(command: &mut Command) {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A process that is ended with this value, or after a while.
pub(crate) struct Watched {
    child: Child,
    out: fs::File,
    err: fs::File,
    started: Instant,
}

impl Watched {
    pub(crate) fn start<C: std::borrow::BorrowMut<Command>>(mut command: C) -> Watched {
        let command = command.borrow_mut();
        let file = || tempfile::tempfile().unwrap();
        let (out, err) = (file(), file());
        command.stdin(Stdio::null());
        command.stdout(out.try_clone().unwrap()).stderr(err.try_clone().unwrap());
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Watched { child, out, err, started: Instant::now() }
    }

    /// Whether it has ended, or has used up its time.
    fn is_over(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some() || self.started.elapsed() > WATCHDOG
    }

    /// Whether it has ended with a failure.
    fn has_failed(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some_and(|status| !status.success())
    }

    fn stop(&mut self) {
        let _ = self.child.kill();
    }

    /// Whether it succeeded, and its output.
    pub(crate) fn end(mut self) -> (bool, String, String) {
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status.success(), text(&mut self.out), text(&mut self.err) + &how(status));
            }
            if self.started.elapsed() > WATCHDOG {
                let (out, err) = (text(&mut self.out), text(&mut self.err));
                return (false, out, err + "it hangs\n");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn how(status: std::process::ExitStatus) -> String {
    if status.success() { String::new() } else { format!("{status}\n") }
}

fn text(file: &mut fs::File) -> String {
    use std::io::{Read, Seek};
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Runs a program without a peer.
pub(crate) fn run_alone(command: &mut Command, arguments: &[impl AsRef<OsStr>]) -> String {
    let (worked, out, err) = Watched::start(command.args(arguments)).end();
    assert!(worked, "{command:?}: {err}{out}");
    out
}
