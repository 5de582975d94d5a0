//! The library and the program, each with default features, need few crates.

use std::collections::BTreeSet;

use crate::process::{Failed, Interrupt};
use crate::step::Verdict;
use crate::workspace::crate_tree;

/// Packages, and most crates that are compiled for each, itself included: `cargo tree -p NAME -e normal,build --prefix none`
/// names them.
const MOST: [(&str, usize); 2] = [("farjump", 39), ("farjump-cli", 115)];

/// Counts the crates of each.
pub(crate) fn check(interrupt: &Interrupt) -> Verdict {
    for (package, most) in MOST {
        let args = ["--package", package, "--edges", "normal,build"];
        judge(package, most, &crate_tree(&args, "farjump-core", interrupt)?)?;
    }
    Ok(())
}

/// Checks that the count is within the limit.
fn judge(package: &str, most: usize, tree: &[String]) -> Verdict {
    // A crate that occurs again is marked.
    let crates: BTreeSet<_> = tree.iter().map(|line| line.trim_end_matches(" (*)")).collect();
    say!("{} crates in {package}, {most} at most", crates.len());
    if crates.len() <= most {
        return Ok(());
    }
    let all: Vec<_> = crates.into_iter().collect();
    Err(Failed::Because(format!(
        "{package} with default features needs {} crates, {most} at most: put what is new behind a feature\n    {}",
        all.len(),
        all.join("\n    ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_count_once_and_one_too_many_is_named() {
        let tree = |crates: usize| {
            let others = (1..crates).map(|number| format!("c{number} v1.0.0"));
            ["farjump-core v0.1.0", "farjump-core v0.1.0 (*)"]
                .map(String::from)
                .into_iter()
                .chain(others)
                .collect::<Vec<_>>()
        };
        judge("a", 4, &tree(4)).unwrap();
        let text = judge("a", 4, &tree(5)).unwrap_err().to_string();
        assert!(text.contains("a with default features needs 5") && text.contains("c1 v1.0.0"), "{text}");
    }
}
