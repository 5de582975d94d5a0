//! Dependencies have licences that go with "MIT OR Apache-2.0".

use std::collections::BTreeMap;

use crate::child::{Failed, Interrupt};
use crate::ci::Verdict;
use crate::workspace::Workspace;

/// Licences that ask for no more than to be named.
const TAKEN: [&str; 11] = [
    "0BSD",
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "Zlib",
    "Unicode-3.0",
];

/// Packages with another licence that tests run and nothing of which is in what is built: that it asks for more than to be named,
/// for changes of its own files to be published, binds nobody who uses farjump.
const TOOLS: [(&str, &str); 1] = [("cbindgen", "MPL-2.0")];

/// Checks that `Cargo.lock` needs no change.
pub(crate) fn locked(interrupt: &Interrupt) -> Verdict {
    Workspace::load(true, interrupt).map(|_| ())
}

/// Checks every package that the lock file names, and lists the licences.
pub(crate) fn check(interrupt: &Interrupt) -> Verdict {
    let workspace = Workspace::load(false, interrupt)?;
    let mut packages = BTreeMap::<&str, usize>::new();
    let mut bad = Vec::new();
    for package in workspace.packages() {
        let license = package.license().unwrap_or("none stated");
        *packages.entry(license).or_default() += 1;
        if !is_taken(license) && !TOOLS.contains(&(package.name(), license)) {
            bad.push(format!("{} {}: {license}", package.name(), package.version()));
        }
    }
    for (license, count) in &packages {
        println!("{count:4}  {license}");
    }
    match bad.is_empty() {
        true => Ok(()),
        false => Err(Failed::Because(format!("licences that are not taken:\n{}", bad.join("\n")))),
    }
}

/// Whether an SPDX expression can be satisfied by licences that are taken. Before SPDX, `/` meant `OR`.
fn is_taken(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<_> = expression.split_whitespace().collect();
    let mut rest = &words[..];
    any(&mut rest) == Some(true) && rest.is_empty()
}

/// `AND` binds tighter than `OR` (SPDX specification 2.3, annex D). `None`: not an expression.
fn any(words: &mut &[&str]) -> Option<bool> {
    let mut taken = all(words)?;
    while let Some(rest) = words.strip_prefix(&["OR"]) {
        *words = rest;
        taken |= all(words)?;
    }
    Some(taken)
}

fn all(words: &mut &[&str]) -> Option<bool> {
    let mut taken = one(words)?;
    while let Some(rest) = words.strip_prefix(&["AND"]) {
        *words = rest;
        taken &= one(words)?;
    }
    Some(taken)
}

fn one(words: &mut &[&str]) -> Option<bool> {
    let (&first, rest) = words.split_first()?;
    *words = rest;
    if first == "(" {
        let taken = any(words)?;
        *words = words.strip_prefix(&[")"])?;
        return Some(taken);
    }
    if let ["WITH", exception, rest @ ..] = *words {
        *words = rest;
        return Some(TAKEN.contains(&format!("{first} WITH {exception}").as_str()));
    }
    Some(TAKEN.contains(&first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_taken_exactly_if_a_choice_of_taken_licences_satisfies_it() {
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0 OR MIT",
            "(MIT OR GPL-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
        ] {
            assert!(is_taken(good), "{good}");
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
            assert!(!is_taken(bad), "{bad}");
        }
    }
}
