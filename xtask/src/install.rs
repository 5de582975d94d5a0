//! `cargo xtask install`: the C library, its headers, the files by which build systems find them, and the
//! programs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::artifacts::Artifacts;
use crate::notices;
use crate::process::{Failed, Interrupt, Run};
use crate::step::Verdict;
use crate::workspace::{BUILDING, Workspace, built_as_for_tests, root};

/// System libraries that the archive needs, from `rustc --print native-static-libs`. From glibc 2.34 on all
/// but the first and `m` are empty.
const NATIVE: [&str; 6] = ["gcc_s", "util", "rt", "pthread", "m", "dl"];

/// The headers, by their folder. `ucp_ifunc.h` is the papers' API.
const HEADERS: [(&str, &str); 5] = [
    ("c/include", "farjump.h"),
    ("c/include", "ucp_ifunc.h"),
    ("ifuncs/include", "farjump_ifunc.h"),
    ("ifuncs/include", "farjump_code.h"),
    ("kv/include", "farjump_kv.h"),
];

/// The licences of farjump, and of the font in its program.
const LICENCES: [&str; 3] = ["LICENSE-MIT", "LICENSE-APACHE", "benches/src/perf/plot/roboto-LICENSE.txt"];
/// The program that compiles bitcode, and the folder where `bin/farjump` and `lib/libfarjump.so` look for it.
const COMPILER: &str = "farjump_compiler";
const PROGRAM: &str = "farjump";
/// The programs, with their folders.
const PROGRAMS: [(&str, &str); 2] = [(PROGRAM, "bin"), (COMPILER, "libexec/farjump")];
/// The folder for licences, and for those of dependencies.
const DOCUMENTS: &str = "share/doc/farjump";

/// Options of `cargo xtask install`.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// Below this folder, in bin, include, lib, lib/pkgconfig, lib/cmake, libexec/farjump and share/doc. It is made if it
    /// is not there, and may be moved later.
    #[arg(long)]
    prefix: PathBuf,
    /// Builds with this profile of cargo's.
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
    /// Builds nothing: takes this archive, which cargo made of farjump-c, and leaves the programs out.
    #[arg(long, value_name = "FILE")]
    archive: Option<PathBuf>,
    /// Also builds the module for Redis and Valkey, which becomes lib/farjump-kv.so.
    #[arg(long, conflicts_with = "archive")]
    kv: bool,
}

/// Runs the chore.
///
/// # Errors
/// A build or a write that failed.
pub(crate) fn run(options: &Options, interrupt: &Interrupt) -> Result<bool, Failed> {
    let workspace = Workspace::load(false, interrupt)?;
    let mut module = None;
    let (archive, programs) = match &options.archive {
        Some(archive) => (archive.clone(), Vec::new()),
        None => {
            let kv: &[&str] = if options.kv { &["--package", "farjump-kv"] } else { &[] };
            let chosen = [kv, &["--lib", "--bin", PROGRAM, "--bin", COMPILER]].concat();
            let built = match options.profile.as_str() {
                // The tests' profile uses the tests' own build, so that nothing is built twice.
                "dev" => built_as_for_tests(&chosen, interrupt)?,
                profile => {
                    let build = Run::cargo(interrupt).args(["build", "--profile", profile]).directory(root());
                    let build = build.args(["--package", "farjump-c", "--package", "farjump-cli"]);
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
    prefix.library(&archive, interrupt)?;
    prefix.descriptions()?;
    for (folder, header) in HEADERS {
        let header = root().join(folder).join(header);
        if header.exists() {
            prefix.copy(&header, "include")?;
        }
    }
    for (program, folder) in &programs {
        prefix.copy(program, folder)?;
    }
    // Earlier versions put it there, where farjump would find it first.
    drop(fs::remove_file(prefix.folder.join("bin").join(COMPILER)));
    if let Some(module) = module {
        replace(&module, &prefix.folder.join("lib/farjump-kv.so"))?;
    }
    for licence in LICENCES {
        prefix.copy(&root().join(licence), DOCUMENTS)?;
    }
    let notices = notices::of_dependencies(&workspace, interrupt)?;
    let path = prefix.folder.join(DOCUMENTS).join("THIRD-PARTY.txt");
    fs::write(&path, notices).map_err(failed("writing", &path))?;
    say!(
        "installed in {}: pkg-config finds it with PKG_CONFIG_PATH={0}/lib/pkgconfig, cmake with -DCMAKE_PREFIX_PATH={0}",
        prefix.folder.display()
    );
    Ok(true)
}

/// Installs into a folder of cargo's, and has the installed programs print their versions.
pub(crate) fn check(interrupt: &Interrupt) -> Verdict {
    let prefix = Workspace::load(false, interrupt)?.target().join("prefix");
    // Files of an earlier version must not be found.
    drop(fs::remove_dir_all(&prefix));
    let options = Options { prefix: prefix.clone(), profile: "dev".to_owned(), archive: None, kv: true };
    run(&options, interrupt)?;
    let notices = prefix.join(DOCUMENTS).join("THIRD-PARTY.txt");
    let text = fs::read_to_string(&notices).map_err(failed("reading", &notices))?;
    if !text.contains("libc 0.") || text.lines().count() < 1000 {
        return Err(Failed::Because(format!("{} lacks licences", notices.display())));
    }
    for (program, folder) in PROGRAMS {
        let run = Run::new(prefix.join(folder).join(program), interrupt);
        if !run.args(["--version"]).run()?.status.success() {
            return Err(Failed::Because(format!("{program} was installed and does not run")));
        }
    }
    finds_compiler(&prefix, interrupt)
}

/// Has a program that uses the installed library make a target that takes bitcode.
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
    // A program that is found may lack an LLVM here.
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

    /// The version numbers within which versions are compatible: before 1.0 the first two.
    fn series(&self) -> String {
        self.version.split('.').take(2).collect::<Vec<_>>().join(".")
    }

    fn soname(&self) -> String {
        format!("libfarjump.so.{}", self.series())
    }

    fn shared(&self) -> String {
        format!("libfarjump.so.{}", self.version)
    }

    /// Installs the archive, and links the shared library from it. cargo's own linking allows neither the
    /// name that programs look for nor versions of symbols.
    fn library(&self, archive: &Path, interrupt: &Interrupt) -> Result<(), Failed> {
        let lib = self.folder.join("lib");
        let own = lib.join("libfarjump.a");
        replace(archive, &own)?;
        let word = |option: &str, value: &dyn std::fmt::Display| format!("-Wl,{option}{value}");
        let map = root().join("c/packaging/farjump.map");
        // Linked beside it and then moved there: a running program keeps the old one.
        let made = lib.join(format!("{}.new", self.shared()));
        let linked = Run::new("cc", interrupt)
            .args(["-shared", "-o"])
            .args([&made])
            .args([word("-soname,", &self.soname()), word("--version-script=", &map.display())])
            .args(["-Wl,--gc-sections", "-Wl,-z,defs", "-Wl,-z,relro", "-Wl,-z,now", "-Wl,--strip-debug"])
            .args([word("--whole-archive,", &own.display()), "-Wl,--no-whole-archive".to_owned()])
            .args(NATIVE.map(|library| format!("-l{library}")))
            .run()?;
        if !linked.status.success() {
            return Err(Failed::Because(format!("linking {} failed", self.shared())));
        }
        let shared = lib.join(self.shared());
        fs::rename(&made, &shared).map_err(failed("writing", &shared))?;
        for name in [self.soname(), "libfarjump.so".to_owned()] {
            let link = lib.join(name);
            // A missing link need not be removed.
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

    fn copy(&self, file: &Path, folder: &str) -> Result<(), Failed> {
        let name = file.file_name().unwrap_or_default();
        replace(file, &self.folder.join(folder).join(name))
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
