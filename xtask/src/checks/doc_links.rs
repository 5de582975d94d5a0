//! Links in documents lead to existing files and headings.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::process::{Failed, Interrupt};
use crate::step::Verdict;
use crate::workspace::{root, tracked_files};

/// Checks every Markdown document in the repository.
pub(crate) fn check(interrupt: &Interrupt) -> Verdict {
    let names = tracked_files(&["*.md"], interrupt)?;
    let documents: Vec<PathBuf> = names.iter().map(|name| root().join(name)).collect();
    let mut broken = Vec::new();
    let mut links = 0;
    for path in &documents {
        let text = read(path)?;
        for link in links_of(&text).filter(|link| !link.contains("://")) {
            links += 1;
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let folder = path.parent().unwrap_or(root());
            let to = if file.is_empty() { path.clone() } else { folder.join(file) };
            let there = to.exists() && (heading.is_empty() || headings(&read(&to)?).contains(heading));
            if !there {
                broken.push(format!("{}: {link}", path.strip_prefix(root()).unwrap_or(path).display()));
            }
        }
    }
    println!("{links} links in {} documents", documents.len());
    match broken.is_empty() {
        true => Ok(()),
        false => Err(Failed::Because(format!("links that lead nowhere:\n{}", broken.join("\n")))),
    }
}

fn read(path: &Path) -> Result<String, Failed> {
    fs::read_to_string(path).map_err(|error| Failed::Because(format!("{}: {error}", path.display())))
}

/// Targets of a document's inline links; none in fenced code.
fn links_of(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    let prose = text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    });
    prose.flat_map(|line| {
        line.match_indices("](").filter_map(move |(at, opening)| {
            let rest = &line[at + opening.len()..];
            rest.split_once(')').map(|(link, _)| link)
        })
    })
}

/// Anchors of headings: lower case, spaces as hyphens, punctuation left out.
fn headings(text: &str) -> HashSet<String> {
    let lines = text.lines().filter(|line| line.starts_with('#'));
    let name = |line: &str| {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    lines.map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "# A Title, `quoted`\nSee [one](a.md) and [two](b.md#part).\n```\n[not](this)\n```\n[3](c)\n";

    #[test]
    fn links_are_found_in_prose_and_not_in_code() {
        assert_eq!(links_of(TEXT).collect::<Vec<_>>(), ["a.md", "b.md#part", "c"]);
    }

    #[test]
    fn headings_are_named_as_the_usual_viewers_name_them() {
        assert!(headings(TEXT).contains("a-title-quoted"));
    }
}
