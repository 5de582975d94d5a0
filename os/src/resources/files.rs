//! The files of /proc and /sys that list the resources of a process.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Longer than any file read here.
const LONGEST: u64 = 1 << 20;

/// The files below a folder: `/`, but for tests.
pub(super) struct Files<'a>(pub(super) &'a Path);

impl Files<'_> {
    /// Returns the text of a file, by its absolute path, trimmed; `None` if it cannot be read.
    pub(super) fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        let path: PathBuf = self.0.join(path.as_ref().strip_prefix("/").ok()?);
        let mut bytes = Vec::new();
        File::open(path).ok()?.take(LONGEST).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// Returns the word behind `name`, and a colon if there is one, in a file of such lines.
    pub(super) fn field(&self, path: impl AsRef<Path>, name: &str) -> Option<String> {
        self.read(path)?.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            let key = words.next()?;
            (key.strip_suffix(':').unwrap_or(key) == name).then(|| words.next().map(str::to_owned))?
        })
    }
}

/// Count of numbers in a list such as `0-3,8` (cpuset(7), list format).
pub(super) fn count_list(list: &str) -> Option<usize> {
    list.split(',').try_fold(0_usize, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        sum.checked_add(last.checked_sub(first)?)?.checked_add(1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_counted() {
        assert_eq!(
            ["0", "0-1", "0-3,8", "0-3,8-11,15"].map(count_list),
            [Some(1), Some(2), Some(5), Some(9)]
        );
        assert_eq!(["", "a", "3-1", "0-18446744073709551615"].map(count_list), [None; 4]);
    }
}
