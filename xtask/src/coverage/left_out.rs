//! The list of code that the fuzzers need not reach, each entry with its reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::process::Failed;
use crate::workspace::root;

/// Lines that do not count, by file.
#[derive(Debug, Default)]
pub(super) struct LeftOut(BTreeMap<String, BTreeSet<usize>>);

impl LeftOut {
    /// Reads the list: `FILE | WHAT | REASON` in each line that is neither empty nor a comment. WHAT is `*` for the
    /// whole file, or text in a line where an item, a block or a statement begins. That item, block or statement is
    /// left out up to its end.
    ///
    /// # Errors
    /// When an entry has no reason, or matches nothing.
    pub(super) fn read(list: &Path) -> Result<LeftOut, Failed> {
        let text = fs::read_to_string(root().join(list))
            .map_err(|error| Failed::Because(format!("{}: {error}", list.display())))?;
        let mut left_out = LeftOut::default();
        for (number, entry) in text.lines().enumerate() {
            if entry.trim().is_empty() || entry.starts_with('#') {
                continue;
            }
            let wrong = |what: &str| {
                Err(Failed::Because(format!("{}:{}: {what}: {entry}", list.display(), number + 1)))
            };
            let fields: Vec<_> = entry.splitn(3, " | ").map(str::trim).collect();
            let [file, what, reason] = fields[..] else { return wrong("it is not FILE | WHAT | REASON") };
            if reason.is_empty() {
                return wrong("it gives no reason");
            }
            let Ok(source) = fs::read_to_string(root().join(file)) else {
                return wrong("there is no such file");
            };
            let lines = matching(&source, what);
            if lines.is_empty() {
                return wrong("it matches nothing: take it out of the list");
            }
            left_out.0.entry(file.to_owned()).or_default().extend(lines);
        }
        Ok(left_out)
    }

    /// The lines of `file` that do not count.
    pub(super) fn of(&self, file: &str) -> &BTreeSet<usize> {
        static NONE: BTreeSet<usize> = BTreeSet::new();
        self.0.get(file).unwrap_or(&NONE)
    }
}

/// The lines of the items whose first line contains `what`, counted from 1.
fn matching(source: &str, what: &str) -> BTreeSet<usize> {
    let lines: Vec<_> = source.lines().collect();
    if what == "*" {
        return (1..=lines.len()).collect();
    }
    let mut found = BTreeSet::new();
    for (start, line) in lines.iter().enumerate().filter(|(_, line)| line.contains(what)) {
        let indent = |line: &str| line.len() - line.trim_start().len();
        let is_whole = line.ends_with([';', ',', '}']);
        // rustfmt indents the end like the beginning.
        let ends = |other: &str| indent(other) == indent(line) && other.trim_start().starts_with('}');
        let end = match is_whole {
            true => start,
            false => start + lines[start..].iter().position(|line| ends(line)).unwrap_or(0),
        };
        found.extend(start + 1..=end + 1);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_leaves_out_what_begins_there_up_to_its_end() {
        let source = "fn one(\n    a: u8,\n) {\n    if a {\n        b();\n    }\n    c();\n}\nfn two() {}\n";
        let lines = |what| matching(source, what).into_iter().collect::<Vec<_>>();
        assert_eq!(lines("fn one("), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(lines("if a {"), [4, 5, 6]);
        assert_eq!(lines("c();"), [7]);
        assert_eq!(lines("fn two"), [9]);
        assert_eq!(lines("*").len(), 9);
        assert!(lines("fn three").is_empty());
    }
}
