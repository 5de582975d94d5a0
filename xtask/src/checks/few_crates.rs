//! The library with default features needs few crates.

use std::collections::BTreeSet;

use crate::process::{Failed, Interrupt, Run};
use crate::step::Verdict;
use crate::workspace::root;

/// Most lines of the tree, as `cargo tree -p farjump -e normal --prefix none | sort -u | wc -l` counts them.
/// A crate that occurs again with dependencies of its own is a second line.
const MOST: usize = 45;

/// Counts them.
pub(crate) fn check(interrupt: &Interrupt) -> Verdict {
    let tree = ["tree", "--package", "farjump", "--edges", "normal", "--prefix", "none"];
    let tree = Run::cargo(interrupt).args(tree).directory(root()).quiet().run()?;
    if !tree.status.success() {
        return Err(Failed::Because(format!("cargo tree does not show the crates:\n{}", tree.output)));
    }
    judge(&tree.output)
}

/// Whether the count is within the limit.
fn judge(tree: &str) -> Verdict {
    let crates: BTreeSet<_> = tree.lines().filter(|line| !line.is_empty()).collect();
    if !crates.iter().any(|line| line.starts_with("farjump-core ")) {
        return Err(Failed::Because(format!("cargo tree does not show the crates:\n{tree}")));
    }
    println!("{} crates, {MOST} at most", crates.len());
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
            let others = (1..crates).map(|number| format!("c{number} v1.0.0\n")).collect::<String>();
            format!("farjump-core v0.1.0\nfarjump-core v0.1.0\n{others}")
        };
        judge(&tree(MOST)).unwrap();
        let text = judge(&tree(MOST + 1)).unwrap_err().to_string();
        assert!(text.contains(&format!("needs {}", MOST + 1)) && text.contains("c1 v1.0.0"), "{text}");
        assert!(judge("error\n").is_err());
    }
}
