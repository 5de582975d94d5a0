//! The code-size sweep: the lengths of the images of `counter`, and the crossings of the modes' curves.
//!
//! The bytes sent grow with the image. The code that runs stays the same two instructions, as the padding
//! lies behind them and never runs.

use std::collections::BTreeMap;

use farjump::Mode;

use crate::perf::report::key::Key;
use crate::perf::report::metric::{Against, Metric};
use crate::perf::report::payload_size::{Sizes, parse_sizes, show_size};
use crate::perf::report::row::Row;

/// Shortest and longest image, in bytes: `counter` alone is shorter than the first, and a target's code store
/// holds some dozens of the second.
const SHORTEST: usize = 64;
const LONGEST: usize = 1 << 20;

/// Reads lengths of images as [`parse_sizes`] reads those of payloads.
///
/// # Errors
/// A sentence for the user.
pub(in crate::perf) fn parse_images(text: &str) -> Result<Sizes, String> {
    let images = parse_sizes(text)?;
    match images.0.iter().find(|image| !(SHORTEST..=LONGEST).contains(*image)) {
        Some(wrong) => Err(format!("`{wrong}`: images have from 64 bytes to 1M")),
        None => Ok(images),
    }
}

/// Describes, for each transport and payload size, the lengths at which one mode beats another. Empty with
/// fewer than two lengths.
pub(in crate::perf) fn crossings(rows: &[Row]) -> Vec<String> {
    // By transport and payload: for each mode the median by length.
    type Curves<'a> = BTreeMap<&'a str, BTreeMap<u64, f64>>;
    let mut places: BTreeMap<(&str, u64), (&Row, Curves<'_>)> = BTreeMap::new();
    for row in rows {
        let Some(image) = row.number(Key::Image) else { continue };
        let place = (row.text(Key::Transport), row.size());
        let (_, curves) = places.entry(place).or_insert_with(|| (row, Curves::new()));
        // Mode cached has no rows of its own where it is the only baseline.
        let cached = (row.reference == Some(Against::Cached.name())).then_some(Mode::Cached.name());
        for (mode, median) in [(Some(row.text(Key::Mode)), row.median), (cached, row.reference_median)] {
            if let (Some(mode), Some(median)) = (mode, median) {
                curves.entry(mode).or_default().insert(image, median);
            }
        }
    }
    let mut sentences = Vec::new();
    for ((transport, size), (row, curves)) in places {
        for (own, other) in [(Mode::InPlace, Mode::Always), (Mode::Always, Mode::Cached)] {
            let (Some(curve), Some(reference)) = (curves.get(own.name()), curves.get(other.name())) else {
                continue;
            };
            let rates = row.metric != Metric::Latency.name();
            let beats = |(image, figure): (&u64, &f64)| {
                let reference = reference.get(image)?;
                Some((*image, if rates { figure > reference } else { figure < reference }))
            };
            let beaten: Vec<(u64, bool)> = curve.iter().filter_map(beats).collect();
            if beaten.len() > 1 {
                let more = if rates { "does more than" } else { "is quicker than" };
                let place = format!("{transport}, {}: mode {own} {more} {other}", in_words(size));
                sentences.push(format!("{place} {}", where_it_does(&beaten)));
            }
        }
    }
    sentences
}

/// Formats a length for sentences: `8 B`, `4 KiB`.
fn in_words(bytes: u64) -> String {
    let short = show_size(bytes as usize);
    match short.strip_suffix(['K', 'M']) {
        Some(number) => format!("{number} {}iB", &short[number.len()..]),
        None => format!("{short} B"),
    }
}

/// Describes the lengths of images, in ascending order, for which the flag is set.
fn where_it_does(beaten: &[(u64, bool)]) -> String {
    let changes = beaten.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
    let first = beaten.first().is_some_and(|(_, so)| *so);
    let mut those = beaten.iter().filter(|(_, so)| *so).map(|(image, _)| in_words(*image));
    match (changes, first) {
        (0, false) => "at no length of the image".to_owned(),
        (0, true) => "at every length of the image".to_owned(),
        (1, false) => format!("from images of {} on", those.next().unwrap_or_default()),
        (1, true) => format!("up to images of {}", those.next_back().unwrap_or_default()),
        _ => format!("with images of {}", those.collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(so: &str) -> String {
        let beaten: Vec<_> = so.bytes().enumerate().map(|(at, so)| (256 << at, so == b'y')).collect();
        where_it_does(&beaten)
    }

    /// Returns a row of mode `mode` beside mode cached, which takes 1.
    fn row(metric: &'static str, mode: Mode, image: usize, median: f64) -> Row {
        let (median, reference, reference_median) = (Some(median), Some("cached"), Some(1.0));
        Row { metric, median, reference, reference_median, ..Row::default() }
            .with(Key::Transport, "shm")
            .with(Key::Mode, mode.name())
            .with(Key::Size, 8)
            .with(Key::Image, image)
    }

    #[test]
    fn curves_are_of_medians_and_what_is_better_is_the_metrics_matter() {
        let rows = |metric| {
            let medians = [(Mode::Always, 64, 2.0), (Mode::Always, 8192, 9.0), (Mode::InPlace, 64, 3.0)];
            let mut rows: Vec<_> =
                medians.map(|(mode, image, median)| row(metric, mode, image, median)).into();
            rows.push(row(metric, Mode::InPlace, 8192, 4.0));
            rows
        };
        let latency = [
            "shm, 8 B: mode in-place is quicker than always from images of 8 KiB on",
            "shm, 8 B: mode always is quicker than cached at no length of the image",
        ];
        assert_eq!(crossings(&rows("latency")), latency);
        let rate = [
            "shm, 8 B: mode in-place does more than always up to images of 64 B",
            "shm, 8 B: mode always does more than cached at every length of the image",
        ];
        assert_eq!(crossings(&rows("rate")), rate);
        assert_eq!(crossings(&rows("latency")[..1]), [""; 0], "one length makes no curve");
    }

    #[test]
    fn the_sentence_says_where_curves_cross_if_they_do() {
        assert_eq!(said("nnnn"), "at no length of the image");
        assert_eq!(said("yyyy"), "at every length of the image");
        assert_eq!(said("nnyy"), "from images of 1 KiB on");
        assert_eq!(said("yynn"), "up to images of 512 B");
        assert_eq!(said("nyny"), "with images of 512 B, 2 KiB");
    }

    #[test]
    fn images_have_lengths_that_counter_can_have_and_a_target_takes() {
        assert_eq!(parse_images("64..256").map(|images| images.0), Ok(vec![64, 128, 256]));
        for wrong in ["0", "63", "32..128", "2M", "64..2M", "few"] {
            assert!(parse_images(wrong).is_err(), "{wrong}");
        }
    }
}
