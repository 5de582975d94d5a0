//! Names long files, and folders of many. For files the result is a warning: one may have a reason, and a short file may
//! still have two subjects.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::process::{Failed, Interrupt};
use crate::step::Verdict;
use crate::workspace::{root, tracked_files};

/// Lines that a file of code seldom exceeds.
const LONG: usize = 500;
/// Extensions of code.
const CODE: [&str; 5] = ["rs", "c", "h", "ld", "sh"];
/// Most files of code in a folder of the product or of its tools. Tests, samples and headers are not among them.
const MANY: usize = 16;

/// Lists long files; never fails for a length. Fails for a folder of many files.
pub(crate) fn check(interrupt: &Interrupt) -> Verdict {
    let mut files = 0;
    let mut folders: BTreeMap<String, usize> = BTreeMap::new();
    for name in &tracked_files(&[], interrupt)? {
        let path = Path::new(name);
        let is_code = path.extension().is_some_and(|end| CODE.iter().any(|code| end == *code));
        let Some(text) = fs::read_to_string(root().join(name)).ok().filter(|_| is_code) else { continue };
        files += 1;
        let lines = text.lines().count();
        if lines > LONG {
            say!("warning: {name} has {lines} lines");
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        if folder.iter().any(|part| part == "src") && folder.iter().all(|part| part != "tests") {
            *folders.entry(folder.display().to_string()).or_default() += 1;
        }
    }
    say!("{files} files of code in {} folders of sources", folders.len());
    let faults = faults(&folders);
    match faults.is_empty() {
        true => Ok(()),
        false => Err(Failed::Because(faults.join("\n"))),
    }
}

/// The folders with more files than they may have.
fn faults(folders: &BTreeMap<String, usize>) -> Vec<String> {
    let over = folders.iter().filter(|(_, files)| **files > MANY);
    over.map(|(folder, files)| format!("{folder} has {files} files: {MANY} are enough")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_over_the_number_are_faults() {
        let folders = [("a/src", 16), ("b/src", 17)].map(|(name, files)| (name.to_owned(), files)).into();
        assert_eq!(faults(&folders), ["b/src has 17 files: 16 are enough"]);
    }
}
