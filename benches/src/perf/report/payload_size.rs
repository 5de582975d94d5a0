//! Bytes of payload on the command line: numbers and ranges.

use crate::program::units::parse_bytes;

/// Longest payload, in bytes: a target's default.
pub(in crate::perf) const LONGEST_PAYLOAD: usize = 64 << 20;
/// Longest data that lie at a target.
const LONGEST: usize = 256 << 20;

/// Lengths of payloads in bytes, in the order of measuring. There is at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::perf) struct Sizes(pub(in crate::perf) Vec<usize>);

impl Sizes {
    pub(in crate::perf) fn longest(&self) -> usize {
        self.0.iter().copied().max().unwrap_or(0)
    }
}

/// Reads `8`, `8,64,4K`, `1..1M` and mixtures of these. In a range each number is twice the previous one.
///
/// # Errors
/// A sentence for the user.
pub(in crate::perf) fn parse_sizes(text: &str) -> Result<Sizes, String> {
    parse_list(text, "1..1M", parse_size).map(Sizes)
}

/// Reads a list of numbers and ranges, each number once. `example` is a range.
///
/// # Errors
/// A sentence for the user.
pub(in crate::perf) fn parse_list(
    text: &str,
    example: &str,
    parse: impl Fn(&str) -> Result<usize, String>,
) -> Result<Vec<usize>, String> {
    let mut numbers = Vec::new();
    for part in text.split(',') {
        match part.split_once("..") {
            Some((first, last)) => {
                let (first, last) = (parse(first)?, parse(last)?);
                if first == 0 || first > last {
                    return Err(format!(
                        "`{part}`: a range goes from 1 or more upwards, for example {example}"
                    ));
                }
                numbers.extend(
                    std::iter::successors(Some(first), |number| Some(number * 2))
                        .take_while(|number| *number <= last),
                );
            }
            None => numbers.push(parse(part)?),
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    numbers.retain(|number| seen.insert(*number));
    Ok(numbers)
}

fn parse_size(text: &str) -> Result<usize, String> {
    match parse_bytes(text)? {
        size if size > LONGEST => {
            Err(format!("`{text}`: a target takes payloads of 64M at most, and holds data of 256M at most"))
        }
        size => Ok(size),
    }
}

/// Formats a size: `8`, `4K`, `1M`.
pub(in crate::perf) fn show_size(bytes: usize) -> String {
    for (unit, shift) in [("M", 20), ("K", 10)] {
        if bytes != 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_range_doubles_to_its_end_and_lists_keep_order() {
        let read = |text| parse_sizes(text).map(|sizes| sizes.0);
        assert_eq!(read("1..16"), Ok(vec![1, 2, 4, 8, 16]));
        assert_eq!(read("512..1K"), Ok(vec![512, 1024]));
        assert_eq!(read("3..13"), Ok(vec![3, 6, 12]));
        assert_eq!(read("64,0,8,64"), Ok(vec![64, 0, 8]));
        assert_eq!(read("40,1M..4M,8"), Ok(vec![40, 1 << 20, 2 << 20, 4 << 20, 8]));
        assert_eq!(read("1..1M").map(|sizes| sizes.len()), Ok(21));
    }

    #[test]
    fn invalid_payload_sizes_and_ranges_are_refused() {
        for wrong in ["", ",", "8,", "x", "8..", "..8", "16..8", "0..8", "-1", "257M", "1..257M", "1...4"] {
            assert!(parse_sizes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_shown_as_they_are_read() {
        for text in ["0", "8", "1000", "4K", "1M", "64M", "1025"] {
            assert_eq!(parse_sizes(text).map(|sizes| show_size(sizes.0[0])), Ok(text.to_owned()));
        }
    }
}
