//! `cargo xtask install`: the C library, its headers, what finds them, and the program.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::child::{Failed, Interrupt, Run};
use crate::ci::Verdict;
use crate::packages;
use crate::workspace::{Workspace, root};

/// How long building for release may take, on a machine that is slow or has other things to do.
const LIMIT: Duration = Duration::from_secs(60 * 60);

/// What the archive needs of the system, as `rustc --print native-static-libs` has it. From glibc 2.34 on all but the first and
/// `m` are empty.
const NATIVE: [&str; 6] = ["gcc_s", "util", "rt", "pthread", "m", "dl"];

/// The headers, by the folder that they lie in. `ucp_ifunc.h` is the papers' API.
const HEADERS: [(&str, &str); 3] =
    [("c/include", "farjump.h"), ("c/include", "ucp_ifunc.h"), ("ifuncs/include", "farjump_ifunc.h")];

/// What to install, and where.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// Below this folder, in bin, include, lib, lib/pkgconfig and lib/cmake. It is made if it is not there, and may be moved later.
    #[arg(long)]
    prefix: PathBuf,
    /// Builds with this profile of cargo's.
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
    /// Builds nothing: takes this archive, which cargo made of farjump-c, and leaves the program out.
    #[arg(long, value_name = "FILE")]
    archive: Option<PathBuf>,
}

/// Runs the chore.
///
/// # Errors
/// What could not be built or written.
pub(crate) fn run(options: &Options, interrupt: &Interrupt) -> Result<bool, Failed> {
    let workspace = Workspace::load(false, interrupt)?;
    let (archive, program) = match &options.archive {
        Some(archive) => (archive.clone(), None),
        None => {
            let profile = options.profile.as_str();
            let build = Run::cargo(interrupt).args(["build", "--profile", profile]).directory(root());
            // With the tests' profile as the tests are built, for nothing is built twice then.
            let build = match profile {
                "dev" => build.args(["--workspace"]).args(packages::features()),
                _ => build.args(["--package", "farjump-c", "--package", "farjump-cli"]),
            };
            let build = build.args(["--lib", "--bin", "farjump"]);
            if !build.limit(LIMIT).run()?.status.success() {
                return Err(Failed::Because("what was to be installed cannot be built".to_owned()));
            }
            let built = workspace.target().join(if profile == "dev" { "debug" } else { profile });
            (built.join("libfarjump_c.a"), Some(built.join("farjump")))
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
    if let Some(program) = program {
        prefix.copy(&program, "bin")?;
    }
    println!(
        "installed in {}: pkg-config finds it with PKG_CONFIG_PATH={0}/lib/pkgconfig, cmake with -DCMAKE_PREFIX_PATH={0}",
        prefix.folder.display()
    );
    Ok(true)
}

/// Installs into a folder of cargo's, and has what was installed say its version.
pub(crate) fn check(interrupt: &Interrupt) -> Verdict {
    let prefix = Workspace::load(false, interrupt)?.target().join("prefix");
    // What an earlier version put there must not be found.
    drop(fs::remove_dir_all(&prefix));
    run(&Options { prefix: prefix.clone(), profile: "dev".to_owned(), archive: None }, interrupt)?;
    match Run::new(prefix.join("bin/farjump"), interrupt).args(["--version"]).run()?.status.success() {
        true => Ok(()),
        false => Err(Failed::Because("the program that was installed does not run".to_owned())),
    }
}

/// Where it goes.
struct Prefix {
    folder: PathBuf,
    version: String,
}

impl Prefix {
    fn new(folder: &Path, version: String) -> Result<Prefix, Failed> {
        for part in ["bin", "include", "lib/pkgconfig", "lib/cmake/farjump"] {
            fs::create_dir_all(folder.join(part)).map_err(failed("making", &folder.join(part)))?;
        }
        let folder = folder.canonicalize().map_err(failed("finding", folder))?;
        Ok(Prefix { folder, version })
    }

    /// The numbers that say what goes with what: before 1.0 the first two.
    fn series(&self) -> String {
        self.version.split('.').take(2).collect::<Vec<_>>().join(".")
    }

    fn soname(&self) -> String {
        format!("libfarjump.so.{}", self.series())
    }

    fn shared(&self) -> String {
        format!("libfarjump.so.{}", self.version)
    }

    /// Puts the archive in its place, and links the shared library from it. Of what cargo would link itself neither the name that
    /// programs look for nor the versions of its symbols could be said.
    fn library(&self, archive: &Path, interrupt: &Interrupt) -> Result<(), Failed> {
        let lib = self.folder.join("lib");
        let own = lib.join("libfarjump.a");
        replace(archive, &own)?;
        let word = |option: &str, value: &dyn std::fmt::Display| format!("-Wl,{option}{value}");
        let map = root().join("c/packaging/farjump.map");
        // Linked beside it and then moved there: a program that runs keeps the old one.
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
            // What is not there need not be removed.
            drop(fs::remove_file(&link));
            symlink(self.shared(), &link).map_err(failed("linking", &link))?;
        }
        Ok(())
    }

    /// Writes what pkg-config and CMake read.
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

    /// Writes the template of this name, with these words for its own, to a file of this folder.
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

/// Has `to` be a copy of `from`. A program that runs, or was mapped, keeps what was there.
fn replace(from: &Path, to: &Path) -> Result<(), Failed> {
    drop(fs::remove_file(to));
    fs::copy(from, to).map(drop).map_err(failed("copying", from))
}

/// What failed, at what, for people.
fn failed(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Failed + use<> {
    let path = path.display().to_string();
    move |error| Failed::Because(format!("{doing} {path}: {error}"))
}
