//! Names long files. The result is a warning: a file may have a reason, and a short file may still have two subjects.

use std::fs;
use std::path::Path;

use crate::process::Interrupt;
use crate::step::Verdict;
use crate::workspace::{root, tracked_files};

/// Lines that a file of code seldom exceeds.
const LONG: usize = 500;
/// Extensions of code.
const CODE: [&str; 5] = ["rs", "c", "h", "ld", "sh"];

/// Lists long files; never fails for a length.
pub(crate) fn check(interrupt: &Interrupt) -> Verdict {
    let mut files = 0;
    for name in &tracked_files(&[], interrupt)? {
        let is_code = Path::new(name).extension().is_some_and(|end| CODE.iter().any(|code| end == *code));
        let Some(text) = fs::read_to_string(root().join(name)).ok().filter(|_| is_code) else { continue };
        files += 1;
        let lines = text.lines().count();
        if lines > LONG {
            say!("warning: {name} has {lines} lines");
        }
    }
    say!("{files} files of code");
    Ok(())
}
