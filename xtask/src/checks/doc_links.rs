//! Links in documents lead to existing files and headings.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::process::{Failed, Interrupt};
use crate::step::Verdict;
use crate::workspace::{root, tracked_files};

/// The repository's address.
pub(crate) const REPOSITORY: &str = "https://github.com/farjump/farjump";

/// Checks every Markdown document in the repository.
pub(crate) fn check(interrupt: &Interrupt) -> Verdict {
    let names = tracked_files(&["*.md"], interrupt)?;
    let documents: Vec<PathBuf> = names.iter().map(|name| root().join(name)).collect();
    let mut broken = Vec::new();
    let mut links = 0;
    for path in &documents {
        let text = read(path)?;
        for link in links_of(&text) {
            let Some(to) = file_of(link, path) else { continue };
            links += 1;
            let (_, heading) = link.split_once('#').unwrap_or((link, ""));
            let there = to.exists() && (heading.is_empty() || headings(&read(&to)?).contains(heading));
            if !there {
                broken.push(format!("{}: {link}", path.strip_prefix(root()).unwrap_or(path).display()));
            }
        }
    }
    say!("{links} links in {} documents", documents.len());
    match broken.is_empty() {
        true => Ok(()),
        false => Err(Failed::Because(format!("links that lead nowhere:\n{}", broken.join("\n")))),
    }
}

/// The file of this repository to which a link in the document `from` leads. Registries show READMEs of crates, too;
/// these links name files by the repository's address.
pub(crate) fn file_of(link: &str, from: &Path) -> Option<PathBuf> {
    let (file, _) = link.split_once('#').unwrap_or((link, ""));
    if let Some(within) = file.strip_prefix(REPOSITORY) {
        return match within.strip_prefix("/blob/main/").or_else(|| within.strip_prefix("/tree/main/")) {
            Some(path) => Some(root().join(path)),
            None if within.is_empty() => Some(root().join("README.md")).filter(|_| link.contains('#')),
            None => None,
        };
    }
    let folder = from.parent().unwrap_or(root());
    match file.contains("://") {
        true => None,
        false if file.is_empty() => Some(from.to_owned()),
        false => Some(folder.join(file)),
    }
}

/// Reads a file as text.
///
/// # Errors
/// Names the file.
pub(crate) fn read(path: &Path) -> Result<String, Failed> {
    fs::read_to_string(path).map_err(|error| Failed::Because(format!("{}: {error}", path.display())))
}

/// Targets of a document's inline links; none in fenced code.
pub(crate) fn links_of(text: &str) -> impl Iterator<Item = &str> {
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
    fn a_link_to_the_repository_is_one_to_its_file() {
        let from = &root().join("core/README.md");
        let file = |link: &str| file_of(link, from);
        assert_eq!(file(&format!("{REPOSITORY}/blob/main/docs/a.md#part")), Some(root().join("docs/a.md")));
        assert_eq!(file(&format!("{REPOSITORY}#part")), Some(root().join("README.md")));
        assert_eq!(file(&format!("{REPOSITORY}/issues")), None);
        assert_eq!(file("https://other.example/docs/a.md"), None);
        assert_eq!(file("../docs/a.md"), Some(root().join("core/../docs/a.md")));
        assert_eq!(file("#part"), Some(from.clone()));
    }

    #[test]
    fn headings_are_named_as_the_usual_viewers_name_them() {
        assert!(headings(TEXT).contains("a-title-quoted"));
    }
}
