//! Numbers of sources on the command line.

use crate::perf::report::payload_size::parse_list;

/// Most sources of a run.
const MOST: usize = 4096;

/// Numbers of sources, in the order of measuring. There is at least one, and each is at least 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Counts(pub(crate) Vec<usize>);

/// The number of connected sources that send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Active {
    All,
    /// An upper limit, at least 1.
    Some(usize),
}

impl Active {
    /// Returns the number out of `sources`.
    pub(crate) fn of(self, sources: usize) -> usize {
        match self {
            Active::All => sources,
            Active::Some(most) => most.min(sources),
        }
    }
}

/// Reads `1,64`, `1..256` and mixtures of these. In a range each number is twice the previous one.
///
/// # Errors
/// A sentence for the user.
pub(crate) fn parse_counts(text: &str) -> Result<Counts, String> {
    parse_list(text, "1..256", parse_count).map(Counts)
}

/// Reads a number, or `all`.
///
/// # Errors
/// A sentence for the user.
pub(crate) fn parse_active(text: &str) -> Result<Active, String> {
    if text == "all" { Ok(Active::All) } else { parse_count(text).map(Active::Some) }
}

fn parse_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=MOST) => Ok(count),
        _ => Err(format!("`{text}` is no number of sources: write one from 1 to {MOST}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_counted_from_one() {
        let read = |text| parse_counts(text).map(|counts| counts.0);
        assert_eq!(read("1..8,3"), Ok(vec![1, 2, 4, 8, 3]));
        assert_eq!(read("4096"), Ok(vec![4096]));
        for wrong in ["", "0", "0..4", "4097", "1..4097", "8..1", "1K", "all", "-1"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn no_more_send_than_there_are() {
        assert_eq!(parse_active("all").map(|active| active.of(7)), Ok(7));
        assert_eq!(parse_active("3").map(|active| (active.of(7), active.of(2))), Ok((3, 2)));
        assert!(parse_active("0").is_err() && parse_active("some").is_err());
    }
}
