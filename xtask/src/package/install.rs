//! `cargo xtask install`: the C library, its headers, the files by which build systems find them, and the
//! programs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::artifacts::Artifacts;
use crate::emulated::{self, Cross, Tools};
use crate::package::debug_files::{Divider, Kept};
use crate::package::notices;
use crate::process::{Failed, Interrupt, Run};
use crate::step::Verdict;
use crate::workspace::{BUILDING, Workspace, built_as_for_tests, root};

/// System libraries that the archive needs, from `rustc --print native-static-libs`. From glibc 2.34 on all but the
/// first and `m` are empty.
const NATIVE: [&str; 6] = ["gcc_s", "util", "rt", "pthread", "m", "dl"];

/// The headers, by their folder. `ucp_ifunc.h` is the papers' API.
const HEADERS: [(&str, &str); 5] = [
    ("c/include", "farjump.h"),
    ("c/include", "ucp_ifunc.h"),
    ("ifuncs/include", "farjump_ifunc.h"),
    ("ifuncs/include", "farjump_code.h"),
    ("ifuncs/include", "farjump_kv.h"),
];

/// The licences of farjump, and of the font in the program that measures.
const LICENCES: [&str; 3] =
    ["LICENSE-MIT", "LICENSE-APACHE", "benches/src/perf/report/plot/roboto-LICENSE.txt"];
/// The program that compiles bitcode, and the folder where `bin/farjump` and `lib/libfarjump.so` look for it.
const COMPILER: &str = "farjump_compiler";
const COMPILER_FOLDER: &str = "libexec/farjump";
const PROGRAM: &str = "farjump";
/// The program behind `farjump perf`, which looks for it in its own folder.
const PERF: &str = "farjump-perf";
/// The programs, with their folders.
const PROGRAMS: [(&str, &str); 3] = [(PROGRAM, "bin"), (PERF, "bin"), (COMPILER, COMPILER_FOLDER)];
/// The folder for licences, and for those of dependencies.
const DOCUMENTS: &str = "share/doc/farjump";

/// Options of `cargo xtask install`.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// The folder to install into: bin, include, lib, lib/pkgconfig, lib/cmake, libexec/farjump and share/doc below it.
    /// It is made if it does not exist, and may be moved later.
    #[arg(long)]
    prefix: PathBuf,
    /// Builds with this profile of cargo's.
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
    /// Builds nothing: takes this archive, which cargo made of farjump-c, and leaves the programs out.
    #[arg(long, value_name = "FILE")]
    archive: Option<PathBuf>,
    /// Builds for this platform instead of this machine's: for a card, or a node of another kind, to which you copy the
    /// prefix. Compiler, linker and libraries are those that the tests for other architectures download
    /// (target/emulated).
    #[arg(long, value_name = "PLATFORM", conflicts_with = "archive",
        value_parser = clap::builder::PossibleValuesParser::new(emulated::platforms()))]
    target: Option<String>,
    /// Also builds the module for Redis and Valkey, which becomes lib/farjump-kv.so.
    #[arg(long, conflicts_with = "archive")]
    kv: bool,
}

impl Options {
    /// The options with which tests install.
    fn of_tests(prefix: &Path, kv: bool) -> Options {
        Options { prefix: prefix.to_owned(), profile: "dev".to_owned(), archive: None, target: None, kv }
    }
}

/// Runs the chore.
///
/// # Errors
/// When a build or a write fails.
pub(crate) fn run(options: &Options, interrupt: &Interrupt) -> Result<bool, Failed> {
    let Some(target) = &options.target else { return install(options, None, interrupt) };
    let folder = emulated::folder(&Workspace::load(false, interrupt)?);
    let nowhere = |why| Failed::Because(format!("nothing can be built for {target} here: {why}"));
    let tools = Tools::get(&folder, interrupt)?.here().map_err(nowhere)?;
    let cross = Cross::for_platform(target, &tools, &folder, interrupt)?.here().map_err(nowhere)?;
    install(options, Some(&cross), interrupt)
}

/// Installs a build for another platform, with the options of tests.
///
/// # Errors
/// As [`run`].
pub(crate) fn for_platform(
    prefix: &Path,
    cross: &Cross<'_, '_>,
    interrupt: &Interrupt,
) -> Result<(), Failed> {
    let options = Options::of_tests(prefix, false);
    install(&options, Some(cross), interrupt).map(drop)
}

/// Builds and installs, for this machine or for another platform. Debug information goes to files of its own.
fn install(options: &Options, cross: Option<&Cross<'_, '_>>, interrupt: &Interrupt) -> Result<bool, Failed> {
    let workspace = Workspace::load(false, interrupt)?;
    let mut module = None;
    let (archive, programs) = match &options.archive {
        Some(archive) => (archive.clone(), Vec::new()),
        None => {
            let kv: &[&str] = if options.kv { &["--package", "farjump-kv"] } else { &[] };
            let chosen = [kv, &["--lib", "--bin", PROGRAM, "--bin", PERF, "--bin", COMPILER]].concat();
            let built = match (options.profile.as_str(), cross) {
                // The tests' profile uses the tests' own build, so that nothing is built twice.
                ("dev", None) => built_as_for_tests(&chosen, interrupt)?,
                (profile, cross) => {
                    let cargo = match cross {
                        Some(cross) => cross.cargo(),
                        None => Run::cargo(interrupt).directory(root()),
                    };
                    let target = cross.map(|cross| ["--target", cross.rust()]);
                    let build =
                        cargo.args(["build", "--profile", profile]).args(target.into_iter().flatten());
                    let build = build.args(["--package", "farjump-c", "--package", "farjump-cli"]);
                    let build = build.args(["--package", "farjump-benches"]);
                    Artifacts::of(build.args(chosen).limit(BUILDING), "what is to be installed")?
                }
            };
            module = options.kv.then(|| built.library("libfarjump_kv.so")).transpose()?;
            let programs = PROGRAMS.map(|(name, folder)| Ok((built.program(name)?, folder)));
            (built.library("libfarjump_c.a")?, programs.into_iter().collect::<Result<Vec<_>, Failed>>()?)
        }
    };
    let package = workspace.packages().find(|package| package.name() == "farjump-c");
    let version = package.map_or("", |package| package.version()).to_owned();
    let prefix = Prefix::new(&options.prefix, version)?;
    let linker = cross.map_or(Path::new("cc"), |cross| cross.c_compiler());
    let divider = match cross {
        None => Divider::of_this_machine(interrupt),
        Some(_) => Divider::of_another(interrupt),
    };
    prefix.library(&archive, linker, &divider, interrupt)?;
    prefix.descriptions()?;
    for (folder, header) in HEADERS {
        let header = root().join(folder).join(header);
        if header.exists() {
            prefix.copy(&header, "include")?;
        }
    }
    for (program, folder) in &programs {
        let installed = prefix.copy(program, folder)?;
        divider.split(&installed, Kept::Program)?;
    }
    // Earlier versions put it there, where farjump would find it first.
    drop(fs::remove_file(prefix.folder.join("bin").join(COMPILER)));
    if let Some(module) = module {
        let installed = prefix.folder.join("lib/farjump-kv.so");
        replace(&module, &installed)?;
        divider.split(&installed, Kept::Library)?;
    }
    for licence in LICENCES {
        prefix.copy(&root().join(licence), DOCUMENTS)?;
    }
    let notices = notices::of_dependencies(&workspace, interrupt)?;
    let path = prefix.folder.join(DOCUMENTS).join("THIRD-PARTY.txt");
    fs::write(&path, notices).map_err(failed("writing", &path))?;
    if let Some(cross) = cross {
        say!("installed for {} in {1}: copy {1} there", cross.rust(), prefix.folder.display());
        return Ok(true);
    }
    say!(
        "installed in {}: pkg-config finds it with PKG_CONFIG_PATH={0}/lib/pkgconfig, cmake with -DCMAKE_PREFIX_PATH={0}",
        prefix.folder.display()
    );
    Ok(true)
}

/// Installs into one of cargo's folders, and runs the installed programs, which have to print their versions.
pub(crate) fn check(interrupt: &Interrupt) -> Verdict {
    let prefix = Workspace::load(false, interrupt)?.target().join("prefix");
    // Files of an earlier version must not be found.
    drop(fs::remove_dir_all(&prefix));
    let options = Options::of_tests(&prefix, true);
    run(&options, interrupt)?;
    let notices = prefix.join(DOCUMENTS).join("THIRD-PARTY.txt");
    let text = fs::read_to_string(&notices).map_err(failed("reading", &notices))?;
    if !text.contains("libc 0.") || text.lines().count() < 1000 {
        return Err(Failed::Because(format!("{} lacks licences", notices.display())));
    }
    let versions = PROGRAMS.map(|(program, folder)| (program, folder, &["--version"][..]));
    // The program finds the one behind `perf`.
    let all = versions.into_iter().chain([(PROGRAM, "bin", &["perf", "--version"][..])]);
    for (program, folder, args) in all {
        let run = Run::new(prefix.join(folder).join(program), interrupt);
        if !run.args(args).run()?.status.success() {
            return Err(Failed::Because(format!(
                "{program} {} failed where it was installed",
                args.join(" ")
            )));
        }
    }
    finds_compiler(&prefix, interrupt)
}

/// Checks that a program that uses the installed library makes a target that takes bitcode.
fn finds_compiler(prefix: &Path, interrupt: &Interrupt) -> Verdict {
    let [source, program] = ["takes_bitcode.c", "takes_bitcode"].map(|name| prefix.join(name));
    fs::write(&source, include_str!("takes_bitcode.c")).map_err(failed("writing", &source))?;
    let lib = prefix.join("lib");
    let option = |option: &str, path: &Path| format!("{option}{}", path.display());
    let built = Run::new("cc", interrupt)
        .args([&source, Path::new("-o"), &program])
        .args([option("-I", &prefix.join("include")), option("-L", &lib), option("-Wl,-rpath,", &lib)])
        .args(["-lfarjump"])
        .run()?;
    let ran = match built.status.success() {
        true => Run::new(&program, interrupt).directory(prefix).env("RUSTC", "rustc").run()?,
        false => built,
    };
    // The compile process may be found and lack an LLVM here.
    if !ran.status.success() && !ran.output.contains("there is no LLVM") {
        let text = format!("the installed library makes no target that takes bitcode: {}", ran.output.trim());
        return Err(Failed::Because(text));
    }
    Ok(())
}

/// Destination of the installation.
struct Prefix {
    folder: PathBuf,
    version: String,
}

impl Prefix {
    fn new(folder: &Path, version: String) -> Result<Prefix, Failed> {
        let own = PROGRAMS.map(|(_, folder)| folder);
        for part in [&own[..], &["include", "lib/pkgconfig", "lib/cmake/farjump", DOCUMENTS]].concat() {
            fs::create_dir_all(folder.join(part)).map_err(failed("making", &folder.join(part)))?;
        }
        let folder = folder.canonicalize().map_err(failed("finding", folder))?;
        Ok(Prefix { folder, version })
    }

    /// The version numbers that compatible versions share: before 1.0 the first two.
    fn series(&self) -> String {
        self.version.split('.').take(2).collect::<Vec<_>>().join(".")
    }

    fn soname(&self) -> String {
        format!("libfarjump.so.{}", self.series())
    }

    fn shared(&self) -> String {
        format!("libfarjump.so.{}", self.version)
    }

    /// Installs the archive. Then lets `linker`, a C compiler, link the shared library from it. cargo's own linking
    /// allows neither the name that programs look for nor versions of symbols.
    fn library(
        &self,
        archive: &Path,
        linker: &Path,
        divider: &Divider<'_>,
        interrupt: &Interrupt,
    ) -> Result<(), Failed> {
        let lib = self.folder.join("lib");
        let own = lib.join("libfarjump.a");
        replace(archive, &own)?;
        let word = |option: &str, value: &dyn std::fmt::Display| format!("-Wl,{option}{value}");
        let map = root().join("c/packaging/farjump.map");
        // Linked in the same folder and then renamed: a running program keeps the old one.
        let made = lib.join(format!("{}.new", self.shared()));
        let linked = Run::new(linker, interrupt)
            .args(["-shared", "-o"])
            .args([&made])
            .args([word("-soname,", &self.soname()), word("--version-script=", &map.display())])
            .args(["-Wl,--gc-sections", "-Wl,-z,defs", "-Wl,-z,relro", "-Wl,-z,now"])
            .args([word("--whole-archive,", &own.display()), "-Wl,--no-whole-archive".to_owned()])
            .args((!divider.is_there()).then_some("-Wl,--strip-debug"))
            .args(NATIVE.map(|library| format!("-l{library}")))
            .run()?;
        if !linked.status.success() {
            return Err(Failed::Because(format!("linking {} failed", self.shared())));
        }
        divider.strip_archive(&own)?;
        let shared = lib.join(self.shared());
        fs::rename(&made, &shared).map_err(failed("writing", &shared))?;
        divider.split(&shared, Kept::Library)?;
        for name in [self.soname(), "libfarjump.so".to_owned()] {
            let link = lib.join(name);
            // There may be no link to remove.
            drop(fs::remove_file(&link));
            symlink(self.shared(), &link).map_err(failed("linking", &link))?;
        }
        Ok(())
    }

    /// Writes the files for pkg-config and CMake.
    fn descriptions(&self) -> Result<(), Failed> {
        let flags = NATIVE.map(|library| format!("-l{library}")).join(" ");
        let pkg_config =
            [("@URL@", env!("CARGO_PKG_REPOSITORY")), ("@VERSION@", &self.version), ("@NATIVE@", &flags)];
        self.fill("farjump.pc", "lib/pkgconfig", &pkg_config)?;
        let (shared, soname, libraries) = (self.shared(), self.soname(), NATIVE.join(";"));
        let config = [("@SHARED@", shared.as_str()), ("@SONAME@", &soname), ("@NATIVE@", &libraries)];
        self.fill("farjump-config.cmake", "lib/cmake/farjump", &config)?;
        let version = [("@VERSION@", self.version.as_str()), ("@SERIES@", &self.series())];
        self.fill("farjump-config-version.cmake", "lib/cmake/farjump", &version)
    }

    /// Writes the template of this name, with its placeholders replaced, to a file of this folder.
    fn fill(&self, name: &str, folder: &str, words: &[(&str, &str)]) -> Result<(), Failed> {
        let template = root().join("c/packaging").join(format!("{name}.in"));
        let text = fs::read_to_string(&template).map_err(failed("reading", &template))?;
        let text = words.iter().fold(text, |text, (word, meant)| text.replace(word, meant));
        let path = self.folder.join(folder).join(name);
        fs::write(&path, text).map_err(failed("writing", &path))
    }

    /// Copies a file into this folder, and returns its new path.
    fn copy(&self, file: &Path, folder: &str) -> Result<PathBuf, Failed> {
        let path = self.folder.join(folder).join(file.file_name().unwrap_or_default());
        replace(file, &path).map(|()| path)
    }
}

/// Replaces `to` by a copy of `from`. A running or mapped program keeps the old file.
fn replace(from: &Path, to: &Path) -> Result<(), Failed> {
    drop(fs::remove_file(to));
    fs::copy(from, to).map(drop).map_err(failed("copying", from))
}

/// The failed operation and its path, as an error.
fn failed(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Failed + use<> {
    let path = path.display().to_string();
    move |error| Failed::Because(format!("{doing} {path}: {error}"))
}
