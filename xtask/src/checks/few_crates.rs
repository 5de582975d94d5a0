//! The library with default features needs few crates.

use std::collections::BTreeSet;

use crate::process::{Failed, Interrupt};
use crate::step::Verdict;
use crate::workspace::crate_tree;

/// Most lines of the tree, as `cargo tree -p farjump -e normal --prefix none | sort -u | wc -l` counts them.
/// A crate that occurs again with dependencies of its own is a second line.
const MOST: usize = 45;

/// Counts the lines of the tree.
pub(crate) fn check(interrupt: &Interrupt) -> Verdict {
    judge(&crate_tree(&["--package", "farjump", "--edges", "normal"], "farjump-core", interrupt)?)
}

/// Checks that the count is within the limit.
fn judge(tree: &[String]) -> Verdict {
    let crates: BTreeSet<_> = tree.iter().map(String::as_str).collect();
    say!("{} crates, {MOST} at most", crates.len());
    if crates.len() <= MOST {
        return Ok(());
    }
    let all: Vec<_> = crates.into_iter().collect();
    Err(Failed::Because(format!(
        "farjump with default features needs {} crates, {MOST} at most: put what is new behind a feature\n    {}",
        all.len(),
        all.join("\n    ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_count_once_and_one_too_many_is_named() {
        let tree = |crates: usize| {
            let others = (1..crates).map(|number| format!("c{number} v1.0.0"));
            ["farjump-core v0.1.0"; 2].map(String::from).into_iter().chain(others).collect::<Vec<_>>()
        };
        judge(&tree(MOST)).unwrap();
        let text = judge(&tree(MOST + 1)).unwrap_err().to_string();
        assert!(text.contains(&format!("needs {}", MOST + 1)) && text.contains("c1 v1.0.0"), "{text}");
    }
}
