//! Dependencies obey `deny.toml`: their licences are compatible with "MIT OR Apache-2.0", they come from crates.io,
//! and no package has two versions without a reason.
//!
//! cargo-deny reads the same file. The check also runs it where it is installed. A user's machine need not have it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde::Deserialize;

use crate::process::{Failed, Interrupt, Run};
use crate::step::Verdict;
use crate::workspace::{Package, Workspace, root};

/// cargo's name of crates.io, whichever mirror serves it.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The part of `deny.toml` that this check reads without cargo-deny.
#[derive(Deserialize, Debug)]
struct Taken {
    licenses: Licences,
    bans: Bans,
}

#[derive(Deserialize, Debug)]
struct Licences {
    /// SPDX identifiers, some with `WITH` and an exception.
    allow: Vec<String>,
    exceptions: Vec<Exception>,
}

/// A package with a licence that no other may have.
#[derive(Deserialize, Debug)]
struct Exception {
    #[serde(rename = "crate")]
    name: String,
    allow: Vec<String>,
}

#[derive(Deserialize, Debug)]
struct Bans {
    skip: Vec<Skip>,
}

/// A package that may exist beside another version of it.
#[derive(Deserialize, Debug)]
struct Skip {
    /// `NAME@VERSION`.
    #[serde(rename = "crate")]
    spec: String,
    reason: String,
}

/// Checks that `Cargo.lock` needs no change.
pub(crate) fn locked(interrupt: &Interrupt) -> Verdict {
    Workspace::load(true, interrupt).map(|_| ())
}

/// Checks every package that the lock file names, and lists the licences.
pub(crate) fn check(interrupt: &Interrupt) -> Verdict {
    let workspace = Workspace::load(false, interrupt)?;
    let text = fs::read_to_string(root().join("deny.toml"))
        .map_err(|error| Failed::Because(format!("deny.toml cannot be read: {error}")))?;
    let taken: Taken =
        toml::from_str(&text).map_err(|error| Failed::Because(format!("deny.toml: {error}")))?;
    let packages: Vec<_> = workspace.packages().collect();
    let bad = [
        licences(&packages, &taken.licenses),
        sources(&packages),
        duplicates(packages.iter().map(|package| (package.name(), package.version())), &taken.bans.skip),
    ]
    .concat();
    if !bad.is_empty() {
        return Err(Failed::Because(format!("against deny.toml:\n    {}", bad.join("\n    "))));
    }
    cargo_deny(interrupt)
}

/// Runs the same checks with cargo-deny, where it is installed.
fn cargo_deny(interrupt: &Interrupt) -> Verdict {
    let version = Run::cargo(interrupt).args(["deny", "--version"]).directory(root()).quiet().run()?;
    if !version.status.success() {
        say!("cargo-deny is not installed: only licences, sources and duplicates were checked");
        return Ok(());
    }
    say!("{}", version.output.trim());
    // Advisories need a download: `cargo deny check advisories` checks them.
    let check = ["deny", "--offline", "check", "--hide-inclusion-graph", "licenses", "sources", "bans"];
    let ended = Run::cargo(interrupt).args(check).directory(root()).run()?;
    match ended.status.success() {
        true => Ok(()),
        false => Err(Failed::Because("cargo deny check failed".to_owned())),
    }
}

/// Packages with a licence that is not accepted. Prints the number of packages for each licence.
fn licences(packages: &[Package<'_>], taken: &Licences) -> Vec<String> {
    let mut counts = BTreeMap::<&str, usize>::new();
    let mut bad = Vec::new();
    for package in packages {
        let licence = package.license().unwrap_or("none stated");
        *counts.entry(licence).or_default() += 1;
        let own = taken.exceptions.iter().filter(|exception| exception.name == package.name());
        let allowed: Vec<_> = own.flat_map(|exception| &exception.allow).chain(&taken.allow).collect();
        if !is_taken(licence, &allowed) {
            bad.push(format!(
                "{} {} has a licence that is not taken: {licence}",
                package.name(),
                package.version()
            ));
        }
    }
    for (licence, count) in &counts {
        say!("{count:4}  {licence}");
    }
    bad
}

/// Foreign packages that do not come from crates.io.
fn sources(packages: &[Package<'_>]) -> Vec<String> {
    let unknown =
        packages.iter().filter(|package| package.source().is_some_and(|source| source != CRATES_IO));
    let named = unknown.map(|package| {
        let source = package.source().unwrap_or_default();
        format!("{} {} comes from {source}, not from crates.io", package.name(), package.version())
    });
    named.collect()
}

/// Packages with several versions without a reason, and reasons for packages without.
fn duplicates<'p>(packages: impl Iterator<Item = (&'p str, &'p str)>, skipped: &[Skip]) -> Vec<String> {
    let mut versions = BTreeMap::<&str, BTreeSet<&str>>::new();
    for (name, version) in packages {
        versions.entry(name).or_default().insert(version);
    }
    let mut bad = Vec::new();
    let spec = |name: &str, version: &str| format!("{name}@{version}");
    for (name, all) in &versions {
        let is_skipped = |version: &&&str| skipped.iter().any(|skip| skip.spec == spec(name, version));
        let left: Vec<_> = all.iter().filter(|version| !is_skipped(version)).copied().collect();
        if left.len() > 1 {
            bad.push(format!(
                "{name} is there in versions {}: let one go, or give the reason for it in deny.toml (bans.skip)",
                left.join(", ")
            ));
        }
    }
    for skip in skipped {
        let is_double = versions
            .iter()
            .any(|(name, all)| all.len() > 1 && all.iter().any(|version| spec(name, version) == skip.spec));
        if !is_double {
            bad.push(format!("deny.toml skips {}, which is not there beside another version", skip.spec));
        }
        if skip.reason.trim().is_empty() {
            bad.push(format!("deny.toml skips {} without a reason", skip.spec));
        }
    }
    bad
}

/// Returns whether accepted licences satisfy an SPDX expression. Before SPDX, `/` meant `OR`.
fn is_taken(expression: &str, taken: &[&String]) -> bool {
    let expression = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<_> = expression.split_whitespace().collect();
    let mut rest = &words[..];
    any(&mut rest, taken) == Some(true) && rest.is_empty()
}

/// Parses an expression, in which `AND` binds tighter than `OR` (SPDX specification 2.3, annex D). Returns `None` if
/// it is not an expression.
fn any(words: &mut &[&str], allowed: &[&String]) -> Option<bool> {
    let mut taken = all(words, allowed)?;
    while let Some(rest) = words.strip_prefix(&["OR"]) {
        *words = rest;
        taken |= all(words, allowed)?;
    }
    Some(taken)
}

fn all(words: &mut &[&str], allowed: &[&String]) -> Option<bool> {
    let mut taken = one(words, allowed)?;
    while let Some(rest) = words.strip_prefix(&["AND"]) {
        *words = rest;
        taken &= one(words, allowed)?;
    }
    Some(taken)
}

fn one(words: &mut &[&str], allowed: &[&String]) -> Option<bool> {
    let (&first, rest) = words.split_first()?;
    *words = rest;
    if first == "(" {
        let taken = any(words, allowed)?;
        *words = words.strip_prefix(&[")"])?;
        return Some(taken);
    }
    if let ["WITH", exception, rest @ ..] = *words {
        *words = rest;
        return Some(allowed.contains(&&format!("{first} WITH {exception}")));
    }
    Some(allowed.iter().any(|licence| *licence == first))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skip(spec: &str) -> Skip {
        Skip { spec: spec.to_owned(), reason: "it asks for it".to_owned() }
    }

    #[test]
    fn a_second_version_needs_a_reason_and_a_reason_a_second_version() {
        let both = || [("a", "1.0.0"), ("b", "1.0.0"), ("a", "2.0.0")].into_iter();
        let bad = duplicates(both(), &[]);
        assert!(matches!(&bad[..], [one] if one.contains("a is there in versions 1.0.0, 2.0.0")), "{bad:?}");
        assert!(duplicates(both(), &[skip("a@1.0.0")]).is_empty());
        for wrong in ["b@1.0.0", "c@1.0.0", "a@3.0.0"] {
            let bad = duplicates(both(), &[skip("a@1.0.0"), skip(wrong)]);
            assert!(matches!(&bad[..], [one] if one.contains(wrong)), "{bad:?}");
        }
        let silent = Skip { reason: " ".to_owned(), ..skip("a@1.0.0") };
        assert!(matches!(&duplicates(both(), &[silent])[..], [one] if one.contains("without a reason")));
    }

    #[test]
    fn a_package_from_elsewhere_than_crates_io_is_named() {
        let from = |source| serde_json::json!({ "name": "a", "version": "1.0.0", "source": source });
        let own = serde_json::json!({ "name": "own", "version": "1.0.0", "source": null });
        let (good, git) = (from(CRATES_IO), from("git+https://example.org/a"));
        let bad = sources(&[&good, &git, &own].map(Package::of));
        assert!(matches!(&bad[..], [one] if one.contains("a 1.0.0 comes from git+https")), "{bad:?}");
    }

    #[test]
    fn a_licence_expression_passes_exactly_if_accepted_licences_satisfy_it() {
        let taken =
            ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "Zlib", "Unicode-3.0"].map(String::from);
        let taken: Vec<_> = taken.iter().collect();
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0 OR MIT",
            "(MIT OR GPL-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
        ] {
            assert!(is_taken(good, &taken), "{good}");
        }
        for bad in [
            "",
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "GPL-3.0 OR MIT AND AGPL-3.0",
            "(MIT OR Zlib) AND GPL-2.0",
            "MIT WITH something",
            "MIT OR",
            "(MIT",
            "MIT MIT",
        ] {
            assert!(!is_taken(bad, &taken), "{bad}");
        }
    }
}
