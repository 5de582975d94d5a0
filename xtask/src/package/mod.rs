//! `cargo xtask package`: the crates as they are published, built from their packages alone.
//!
//! cargo packs each crate, and the chore unpacks it again. All of them form a workspace of their own, in which they
//! find each other as they would in a registry. Dependencies are not compiled again: the build uses the folder of the
//! tests, and their lock file. The program from that build then has to work away from the repository.

pub(crate) mod debug_files;
pub(crate) mod install;
pub(crate) mod notices;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::artifacts::Artifacts;
use crate::process::{Failed, Interrupt, Run};
use crate::step::Verdict;
use crate::workspace::{Package, Workspace, root};

/// Limit for the build on a busy machine.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// Packs the crates, builds them, and tries the program.
///
/// # Errors
/// A crate cannot be packed, or does not build or work from its package.
pub(crate) fn check(interrupt: &Interrupt) -> Verdict {
    let workspace = Workspace::load(false, interrupt)?;
    let published: Vec<_> = workspace.published().collect();
    let folder = workspace.target().join("packages");
    // Sources of an earlier run, and packages of crates that are not published any more.
    remove(&folder.join("package"))?;
    remove(&folder.join("unpacked"))?;
    pack(&published, &folder, interrupt)?;
    let unpacked = folder.join("unpacked");
    unpack(&published, &folder.join("package"), &unpacked, interrupt)?;
    let program = build(&workspace, &unpacked, &folder.join("built"), interrupt)?;
    say!("{} crates build from their packages", published.len());
    try_program(&program, &unpacked, &published, interrupt)
}

fn remove(folder: &Path) -> Verdict {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(at(folder)(error)),
        _ => Ok(()),
    }
}

fn at(path: &Path) -> impl FnOnce(std::io::Error) -> Failed {
    let path = path.display().to_string();
    move |error| Failed::Because(format!("{path}: {error}"))
}

/// Fails with the last lines of a program's output unless the program succeeded.
fn succeed(what: &str, run: Run<'_>) -> Verdict {
    let ended = run.quiet().run()?;
    match ended.status.success() {
        true => Ok(()),
        false => Err(Failed::Because(format!("{what}:\n{}", ended.output))),
    }
}

/// Makes the packages. They include changes that are not committed.
fn pack(published: &[Package<'_>], folder: &Path, interrupt: &Interrupt) -> Verdict {
    let chosen = published.iter().flat_map(|package| ["--package", package.name()]);
    let run = Run::cargo(interrupt).args(["package", "--no-verify", "--allow-dirty"]).args(chosen);
    succeed("cargo package failed", run.directory(root()).env("CARGO_TARGET_DIR", folder))
}

/// Unpacks the packages as the members of a workspace in `into`.
fn unpack(published: &[Package<'_>], packages: &Path, into: &Path, interrupt: &Interrupt) -> Verdict {
    fs::create_dir_all(into).map_err(at(into))?;
    for package in published {
        let file = packages.join(format!("{}.crate", package.file_stem()));
        // Packed files all have the same time. Cargo would take them for those of the run before: `-m` sets the
        // current time.
        let run = Run::new("tar", interrupt).args(["-x", "-m", "-z", "-f"]).args([&file]).directory(into);
        succeed(&format!("{} cannot be unpacked", file.display()), run)?;
    }
    let text = fs::read_to_string(root().join("Cargo.toml")).map_err(at(root()))?;
    let own: toml::Table =
        toml::from_str(&text).map_err(|error| Failed::Because(format!("Cargo.toml: {error}")))?;
    let path = into.join("Cargo.toml");
    fs::write(&path, manifest(published, &own)).map_err(at(&path))?;
    let lock = into.join("Cargo.lock");
    fs::copy(root().join("Cargo.lock"), &lock).map_err(at(&lock))?;
    Ok(())
}

/// A workspace of these crates, whose dependencies are compiled as those of the tests are.
fn manifest(published: &[Package<'_>], own: &toml::Table) -> String {
    let members: Vec<_> = published.iter().map(|package| package.file_stem()).collect();
    let mut text = format!("[workspace]\nresolver = \"3\"\nmembers = {members:?}\n\n[patch.crates-io]\n");
    for package in published {
        text += &format!("{} = {{ path = {:?} }}\n", package.name(), package.file_stem());
    }
    let dev = own.get("profile").and_then(|profiles| profiles.get("dev")).and_then(toml::Value::as_table);
    let (levels, settings) = dev.into_iter().flatten().partition::<Vec<_>, _>(|(_, value)| value.is_table());
    text += &format!("\n[profile.dev]\n{}", lines(settings));
    let is_here = |name: &str| name == "xtask" || published.iter().any(|package| package.name() == name);
    let levels = levels.into_iter().filter_map(|(_, levels)| levels.as_table()).flatten();
    for (name, settings) in levels.filter(|(name, _)| !is_here(name)) {
        text +=
            &format!("[profile.dev.package.{name}]\n{}", lines(settings.as_table().into_iter().flatten()));
    }
    // Nothing is measured here.
    for package in published {
        text += &format!("[profile.dev.package.{}]\nopt-level = 0\n", package.name());
    }
    text
}

/// Settings as lines of a manifest. Numbers, texts and booleans are written as in JSON.
fn lines<'s>(settings: impl IntoIterator<Item = (&'s String, &'s toml::Value)>) -> String {
    settings.into_iter().map(|(key, value)| format!("{key} = {}\n", serde_json::json!(value))).collect()
}

/// Builds all crates, with their default features, and returns the program farjump. Another check builds other
/// combinations.
fn build(
    workspace: &Workspace,
    unpacked: &Path,
    built: &Path,
    interrupt: &Interrupt,
) -> Result<PathBuf, Failed> {
    let run = Run::cargo(interrupt).args(["build", "--workspace"]).directory(unpacked).limit(LIMIT);
    // Dependencies come from the tests' build; libraries and programs of the same names must not go there.
    let run = run.env("CARGO_BUILD_BUILD_DIR", workspace.target()).env("CARGO_TARGET_DIR", built);
    Artifacts::of(run, "the packages")?.program("farjump")
}

/// Runs the program to build functions in C and in Rust, from the sources that its package embeds, and to inject
/// them.
fn try_program(program: &Path, unpacked: &Path, published: &[Package<'_>], interrupt: &Interrupt) -> Verdict {
    let away =
        tempfile::tempdir().map_err(|error| Failed::Because(format!("a folder for files: {error}")))?;
    let author = published.iter().find(|package| package.name() == "farjump-ifunc");
    let author = author.ok_or_else(|| Failed::Because("farjump-ifunc is not published".to_owned()))?;
    let readme = unpacked.join(author.file_stem()).join("README.md");
    let text = fs::read_to_string(&readme).map_err(at(&readme))?;
    let example = text.split_once("```rust\n").and_then(|(_, rest)| rest.split_once("```"));
    let (example, _) =
        example.ok_or_else(|| Failed::Because(format!("{} has no example", readme.display())))?;
    let source = away.path().join("zeroes.rs");
    fs::write(&source, example).map_err(at(&source))?;
    let run = |args: &[&str]| {
        let run = Run::new(program, interrupt).args(args).directory(away.path());
        succeed(&format!("farjump {} failed, built from its package", args.join(" ")), run)
    };
    run(&["build", "zeroes.rs", "-o", "libzeroes.so"])?;
    run(&["inspect", "libzeroes.so"])?;
    run(&["demo"])?;
    run(&["perf", "--help"])?;
    say!("the program from its package builds functions in C and Rust, and injects them");
    Ok(())
}
