//! cargo's description of this workspace.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::artifacts::Artifacts;
use crate::fetch::packages;
use crate::process::{Failed, Interrupt, Run};

/// Limit for a build on a slow or busy machine.
pub(crate) const BUILDING: Duration = Duration::from_secs(60 * 60);

/// The output of `cargo metadata`.
#[derive(Debug)]
pub(crate) struct Workspace {
    metadata: Value,
}

impl Workspace {
    /// Runs `cargo metadata`. With `locked` an outdated `Cargo.lock` is an error instead of being updated.
    ///
    /// # Errors
    /// cargo's error.
    pub(crate) fn load(locked: bool, interrupt: &Interrupt) -> Result<Workspace, Failed> {
        // The lock file also has packages of features that are off.
        let metadata = ["metadata", "--format-version=1", "--all-features"];
        let run = Run::cargo(interrupt).args(metadata).directory(root()).quiet();
        let run = if locked { run.args(["--locked"]) } else { run };
        let ended = run.run()?;
        if !ended.status.success() {
            return Err(Failed::Because(format!("cargo metadata failed:\n{}", ended.output)));
        }
        let json = ended.output.lines().find(|line| line.starts_with('{')).unwrap_or("");
        let metadata = serde_json::from_str(json).map_err(|error| {
            Failed::Because(format!("cargo metadata gave something else than JSON: {error}"))
        })?;
        Ok(Workspace { metadata })
    }

    /// The folder in which cargo builds.
    pub(crate) fn target(&self) -> PathBuf {
        self.metadata["target_directory"].as_str().map_or_else(|| root().join("target"), PathBuf::from)
    }

    /// Every package that the lock file names for this workspace, its own included.
    pub(crate) fn packages(&self) -> impl Iterator<Item = Package<'_>> {
        self.metadata["packages"].as_array().into_iter().flatten().map(Package)
    }

    /// The folder of the package of this name.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn folder_of(&self, name: &str) -> Result<&Path, Failed> {
        let found = self.packages().find(|package| package.name() == name);
        found.map(Package::folder).ok_or_else(|| Failed::Because(format!("there is no package {name}")))
    }

    /// The packages of this workspace that are published.
    pub(crate) fn published(&self) -> impl Iterator<Item = Package<'_>> {
        // cargo represents `publish = false` by an empty list of registries.
        self.packages().filter(|package| package.source().is_none() && package.0["publish"].is_null())
    }
}

/// A package, as `cargo metadata` describes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Package<'w>(&'w Value);

impl<'w> Package<'w> {
    /// Its name.
    pub(crate) fn name(self) -> &'w str {
        self.0["name"].as_str().unwrap_or("")
    }

    /// Its version.
    pub(crate) fn version(self) -> &'w str {
        self.0["version"].as_str().unwrap_or("")
    }

    /// Its source; `None` for one of the workspace.
    pub(crate) fn source(self) -> Option<&'w str> {
        self.0["source"].as_str()
    }

    /// Its licence, an SPDX expression.
    pub(crate) fn license(self) -> Option<&'w str> {
        self.0["license"].as_str()
    }

    /// Its folder.
    pub(crate) fn folder(self) -> &'w Path {
        Path::new(self.text("manifest_path").unwrap_or("")).parent().unwrap_or(Path::new(""))
    }

    /// `NAME-VERSION`, the name of its package file.
    pub(crate) fn file_stem(self) -> String {
        format!("{}-{}", self.name(), self.version())
    }

    /// A text field of its description.
    pub(crate) fn text(self, field: &str) -> Option<&'w str> {
        self.0[field].as_str()
    }

    /// A field of its description that is a list of texts.
    pub(crate) fn list(self, field: &str) -> impl Iterator<Item = &'w str> + use<'w> {
        self.0[field].as_array().into_iter().flatten().filter_map(|item| item.as_str())
    }

    /// Its features, each with those that it turns on.
    pub(crate) fn features(self) -> impl Iterator<Item = (&'w str, Vec<&'w str>)> {
        let features = self.0["features"].as_object().into_iter().flatten();
        features.map(|(name, on)| {
            (name.as_str(), on.as_array().into_iter().flatten().filter_map(|one| one.as_str()).collect())
        })
    }

    /// The native library that its build script links, if declared.
    pub(crate) fn links(self) -> Option<&'w str> {
        self.0["links"].as_str()
    }
}

/// Builds parts of the workspace, by cargo's options `chosen`, from the crates that the tests are built from. The
/// choice of packages decides the features of dependencies, and so does the kind of the chosen targets. cargo counts
/// the features that tests request only if it builds an example or a test. Without them it builds nearly all crates a
/// second time. The tests build this example, too.
///
/// # Errors
/// When they do not build.
pub(crate) fn built_as_for_tests(chosen: &[&str], interrupt: &Interrupt) -> Result<Artifacts, Failed> {
    let run =
        Run::cargo(interrupt).args(["build", "--workspace", "--example", "store"]).args(packages::features());
    Artifacts::of(run.args(chosen).directory(root()).limit(BUILDING), "the program farjump")
}

/// Sets cargo's profile and folder for programs that an emulator runs. Code that is not optimised takes several times
/// as long there. Debug information would be a tenth of the build.
pub(crate) fn for_emulator<'i>(cargo: Run<'i>, folder: &Path) -> Run<'i> {
    let cargo = cargo.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1").env("CARGO_PROFILE_DEV_DEBUG", "0");
    cargo.env("CARGO_TARGET_DIR", folder)
}

/// The names of the files that git tracks. With `patterns`, only those that they match.
///
/// # Errors
/// When git fails, or names none.
pub(crate) fn tracked_files(patterns: &[&str], interrupt: &Interrupt) -> Result<Vec<String>, Failed> {
    let ended =
        Run::new("git", interrupt).args(["ls-files"]).args(patterns).directory(root()).quiet().run()?;
    match ended.status.success() && !ended.output.is_empty() {
        true => Ok(ended.output.lines().map(str::to_owned).collect()),
        false => Err(Failed::Because(format!("git ls-files names no files: {}", ended.output))),
    }
}

/// The lines of `cargo tree` with these arguments, a crate in each, `crate_of` among them.
///
/// # Errors
/// When cargo fails, or does not name that crate.
pub(crate) fn crate_tree(
    args: &[&str],
    crate_of: &str,
    interrupt: &Interrupt,
) -> Result<Vec<String>, Failed> {
    let tree = Run::cargo(interrupt).args(["tree", "--prefix", "none"]).args(args).directory(root());
    let tree = tree.quiet().run()?;
    tree_with(&tree.output, crate_of)
        .filter(|_| tree.status.success())
        .ok_or_else(|| Failed::Because(format!("cargo tree does not show the crates:\n{}", tree.output)))
}

/// The lines of a tree that has this crate.
fn tree_with(tree: &str, crate_of: &str) -> Option<Vec<String>> {
    let lines: Vec<_> = tree.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
    lines.iter().any(|line| line.split(' ').next() == Some(crate_of)).then_some(lines)
}

/// The folder of the workspace.
pub(crate) fn root() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_output_that_lacks_the_crate_is_not_a_tree() {
        assert_eq!(tree_with("a v1.0.0\n\nb v1.0.0\n", "b").map(|lines| lines.len()), Some(2));
        assert_eq!(tree_with("error\n", "b"), None);
    }
}
