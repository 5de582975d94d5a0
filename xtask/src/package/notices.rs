//! The licences of the parts of the programs and of the C library, in one text. Their authors require that the
//! licences are distributed with them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::process::{Failed, Interrupt};
use crate::workspace::{Package, Workspace, crate_tree};

/// The first letters of files with licences and notices.
const NAMES: [&str; 4] = ["LICEN", "COPYING", "COPYRIGHT", "NOTICE"];

/// A text with each dependency's name, version and licence, and the texts of all licences, each once.
///
/// # Errors
/// When cargo fails, or the files of a dependency cannot be read.
pub(crate) fn of_dependencies(workspace: &Workspace, interrupt: &Interrupt) -> Result<String, Failed> {
    let programs = ["--package", "farjump-cli", "--package", "farjump-benches", "--package", "farjump-c"];
    let args = [&programs[..], &["--edges", "normal"]].concat();
    let tree = crate_tree(&args, "farjump-core", interrupt)?;
    let used: BTreeSet<_> = tree.iter().filter_map(|line| name_and_version(line)).collect();
    let is_used = |package: &Package<'_>| {
        package.source().is_some() && used.contains(&(package.name(), package.version()))
    };
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut list = String::new();
    for package in workspace.packages().filter(is_used) {
        let name = format!("{} {}", package.name(), package.version());
        let address = package.text("repository").unwrap_or("https://crates.io");
        list += &format!("{name}: {} ({address})\n", package.license().unwrap_or("its own licence"));
        for text in licences(package.folder())? {
            texts.entry(text).or_default().push(name.clone());
        }
    }
    let texts = texts.iter().map(|(text, of)| format!("\n{}\n{}\n\n{text}\n", "=".repeat(78), of.join(", ")));
    Ok(format!("farjump contains parts of these libraries.\n\n{list}{}", texts.collect::<String>()))
}

/// Name and version in a line of `cargo tree`.
pub(crate) fn name_and_version(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split_whitespace();
    Some((words.next()?, words.next()?.strip_prefix('v')?))
}

/// The texts of the licences in a folder.
fn licences(folder: &Path) -> Result<Vec<String>, Failed> {
    let unreadable = |error| Failed::Because(format!("{}: {error}", folder.display()));
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        if NAMES.iter().any(|start| name.starts_with(start)) && entry.path().is_file() {
            let text = fs::read(entry.path()).map_err(unreadable)?;
            texts.push(String::from_utf8_lossy(&text).trim().replace("\r\n", "\n"));
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_tree_has_name_and_version() {
        assert_eq!(name_and_version("libc v0.2.1 (proc-macro)"), Some(("libc", "0.2.1")));
        assert_eq!(name_and_version("[dev-dependencies]"), None);
    }

    #[test]
    fn only_licence_files_are_collected_from_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["LICENSE-MIT", "licence.txt", "README.md"] {
            fs::write(folder.path().join(name), format!("{name}\r\nfor all\n")).unwrap();
        }
        let mut found = licences(folder.path()).unwrap();
        found.sort();
        assert_eq!(found, ["LICENSE-MIT\nfor all", "licence.txt\nfor all"]);
    }
}
