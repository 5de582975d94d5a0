//! Files of /proc and /sys: reading them, and their common formats.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Longer than any file read here; of /proc/cpuinfo the first processor is enough.
const LONGEST: u64 = 64 * 1024;
/// More processors than Linux supports.
const MOST_PROCESSORS: u32 = 1 << 16;

/// Returns the text of a file, trimmed; `None` if it cannot be read.
pub fn read(path: impl AsRef<Path>) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(LONGEST).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// Reads a list of processors or nodes, such as `0-3,8,10-11`. `None` if malformed; empty for an empty list.
pub fn numbers(list: &str) -> Option<BTreeSet<u32>> {
    let mut numbers = BTreeSet::new();
    for part in list.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= MOST_PROCESSORS {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

/// Returns the value behind `NAME:` in a file of such lines, as /proc/self/status, /proc/meminfo,
/// /proc/cpuinfo.
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

/// Returns the choice in brackets: `madvise` of `always [madvise] never`.
pub fn chosen(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(choice, _)| choice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read_and_nonsense_is_not() {
        let read = |list| numbers(list).map(|set| set.into_iter().collect::<Vec<_>>());
        assert_eq!(read("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(read("5"), Some(vec![5]));
        assert_eq!(read(""), Some(vec![]));
        for wrong in ["3-1", "a", "1-", "-1", "0-4000000000", "1;2", "99999999999"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "Name:\tx\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1\nmodel name\t: A: B\nodd line";
        assert_eq!(field(text, "Cpus_allowed_list"), Some("0-1"));
        assert_eq!(field(text, "model name"), Some("A: B"));
        assert_eq!(field(text, "allowed"), None);
        assert_eq!(field("", "Name"), None);
    }

    #[test]
    fn the_choice_is_what_stands_in_brackets() {
        assert_eq!(chosen("always [madvise] never"), Some("madvise"));
        assert_eq!([chosen("always"), chosen("[never"), chosen("")], [None; 3]);
    }

    #[test]
    fn a_file_that_is_not_there_or_never_ends_does_no_harm() {
        assert_eq!(read("/proc/no-such-file"), None);
        assert_eq!(read("/proc"), None);
        assert_eq!(read("/dev/zero").map(|text| text.len() as u64), Some(LONGEST));
    }
}
