//! A published crate has all that registries and readers need. That is its description, keywords and categories, a
//! README, both licences, and a table of its features that names exactly those of its `Cargo.toml`.
//!
//! All documents state the same minimum Rust version, and no dependency needs a newer one. clippy's
//! `incompatible_msrv`, among the lints, checks that the code itself needs none.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::package::notices::name_and_version;
use crate::process::{Failed, Interrupt};
use crate::step::Verdict;
use crate::workspace::{Package, Workspace, crate_tree, root};

/// Documents that state the minimum Rust version, as `Rust 1.2 or later`.
const STATING: [&str; 3] = ["README.md", "farjump/README.md", "CONTRIBUTING.md"];
/// A registry's limits.
const MOST_KEYWORDS: usize = 5;
const MOST_CATEGORIES: usize = 5;

/// Checks every crate that is published.
pub(crate) fn check(interrupt: &Interrupt) -> Verdict {
    let workspace = Workspace::load(false, interrupt)?;
    let published: Vec<_> = workspace.published().collect();
    let mut wrong = Vec::new();
    for package in &published {
        let found = papers(*package).into_iter().chain(documented_features(*package));
        wrong.extend(found.map(|fault| format!("{}: {fault}", package.name())));
    }
    wrong.extend(rust_versions(&workspace, &published, interrupt)?);
    say!("{} crates are published", published.len());
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(Failed::Because(wrong.join("\n    "))),
    }
}

/// The faults of a crate's description and files.
fn papers(package: Package<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    for field in ["description", "license", "repository", "readme", "rust_version"] {
        if package.text(field).is_none_or(str::is_empty) {
            wrong.push(format!("Cargo.toml has no {field}"));
        }
    }
    for (field, most) in [("keywords", MOST_KEYWORDS), ("categories", MOST_CATEGORIES)] {
        let count = package.list(field).count();
        if !(1..=most).contains(&count) {
            wrong.push(format!("Cargo.toml has {count} {field}; a registry takes 1 to {most}"));
        }
    }
    for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        if fs::read_to_string(package.folder().join(file)).is_ok_and(|text| !text.is_empty()) {
            continue;
        }
        wrong.push(format!("{file} is missing; licences are symbolic links to those of the repository"));
    }
    wrong
}

/// The faults of the table of features in a crate's documentation.
fn documented_features(package: Package<'_>) -> Vec<String> {
    let read = |file: &str| fs::read_to_string(package.folder().join(file)).unwrap_or_default();
    let library = read("src/lib.rs");
    let own: String = library
        .lines()
        .filter_map(|line| line.strip_prefix("//!"))
        .fold(String::new(), |text, line| text + line.trim_start() + "\n");
    // A program's only documentation is its README.
    let includes = library.is_empty() || library.contains(r#"#![doc = include_str!("../README.md")]"#);
    let text = if includes { read("README.md") + &own } else { own };
    let defaults: BTreeSet<_> =
        package.features().filter(|(name, _)| *name == "default").flat_map(|(_, on)| on).collect();
    let expected = package.features().map(|(name, _)| name).filter(|name| *name != "default");
    let expected = expected.map(|name| (name.to_owned(), defaults.contains(name))).collect();
    compare(&table(&text), &expected, &text)
}

/// Features, each with whether it is a default.
type Features = BTreeSet<(String, bool)>;

fn compare(stated: &Features, expected: &Features, text: &str) -> Vec<String> {
    let show =
        |(name, default): &(String, bool)| format!("`{name}`{}", if *default { " (default)" } else { "" });
    let missing = expected.difference(stated).map(|one| format!("the table of features lacks {}", show(one)));
    let extra = stated.difference(expected).map(|one| format!("Cargo.toml has no feature {}", show(one)));
    let silent = (expected.is_empty() && !text.contains("The crate has no features."))
        .then(|| "the documentation does not say: The crate has no features.".to_owned());
    missing.chain(extra).chain(silent).collect()
}

/// The features in tables whose first heading is `feature`: names in backquotes, and `(default)`.
fn table(text: &str) -> Features {
    let mut features = Features::new();
    let mut inside = false;
    for line in text.lines() {
        let Some(cell) = line.strip_prefix('|').and_then(|rest| rest.split('|').next()) else {
            inside = false;
            continue;
        };
        inside |= cell.trim() == "feature";
        if inside
            && let Some((name, rest)) = cell.trim().strip_prefix('`').and_then(|rest| rest.split_once('`'))
        {
            features.insert((name.to_owned(), rest.trim() == "(default)"));
        }
    }
    features
}

/// The faults of the minimum Rust version: a document that states another one, or a dependency that needs a newer
/// one.
fn rust_versions(
    workspace: &Workspace,
    published: &[Package<'_>],
    interrupt: &Interrupt,
) -> Result<Vec<String>, Failed> {
    let least = published.iter().filter_map(|package| package.text("rust_version")).next().unwrap_or("");
    let mut wrong: Vec<_> = STATING.iter().filter_map(|document| stated(document, least)).collect();
    let chosen = published.iter().flat_map(|package| ["--package", package.name()]);
    let args: Vec<_> = chosen.chain(["--edges", "normal,build"]).collect();
    let tree = crate_tree(&args, "farjump-core", interrupt)?;
    let used: BTreeSet<_> = tree.iter().filter_map(|line| name_and_version(line)).collect();
    for package in workspace.packages().filter(|package| used.contains(&(package.name(), package.version())))
    {
        if let Some(needed) = package.text("rust_version").filter(|needed| numbers(needed) > numbers(least)) {
            wrong.push(format!(
                "{} {} needs Rust {needed}, and farjump says {least}",
                package.name(),
                package.version()
            ));
        }
    }
    Ok(wrong)
}

/// A version's numbers; missing ones are 0.
fn numbers(version: &str) -> [u32; 3] {
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    [(); 3].map(|()| numbers.next().unwrap_or(0))
}

/// The fault of a document that does not state this version, or also states another one.
fn stated(document: &str, least: &str) -> Option<String> {
    let text = fs::read_to_string(root().join(Path::new(document))).unwrap_or_default();
    let found: Vec<_> = text
        .split("Rust ")
        .skip(1)
        .filter_map(|rest| rest.split_once(" or later"))
        .map(|(version, _)| version)
        .filter(|version| version.starts_with(|first: char| first.is_ascii_digit()) && version.len() < 9)
        .collect();
    (found.is_empty() || found.iter().any(|version| *version != least))
        .then(|| format!("{document} says Rust {found:?} or later, and Cargo.toml {least}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(of: &[(&str, bool)]) -> Features {
        of.iter().map(|(name, default)| ((*name).to_owned(), *default)).collect()
    }

    #[test]
    fn the_feature_table_and_cargo_toml_are_compared_in_both_directions() {
        let text = "| feature | adds |\n|---|---|\n| `shm` (default) | memory |\n| `tcp` | streams |\n\n| `no` | x |\n";
        let stated = table(text);
        assert_eq!(stated, features(&[("shm", true), ("tcp", false)]));
        assert_eq!(compare(&stated, &stated, text), [""; 0]);
        let faults = compare(&stated, &features(&[("shm", false), ("tcp", false)]), text);
        assert_eq!(
            faults,
            ["the table of features lacks `shm`", "Cargo.toml has no feature `shm` (default)"]
        );
    }

    #[test]
    fn a_crate_without_features_says_so() {
        assert_eq!(compare(&features(&[]), &features(&[]), "nothing").len(), 1);
        assert_eq!(compare(&features(&[]), &features(&[]), "The crate has no features."), [""; 0]);
    }

    #[test]
    fn versions_compare_by_number() {
        assert!(numbers("1.9") < numbers("1.88.1") && numbers("1.88") == numbers("1.88.0"));
    }
}
