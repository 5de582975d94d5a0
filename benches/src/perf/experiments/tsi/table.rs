//! The tables of `tsi`.

use crate::perf::report::payload_size::show_size;
use crate::perf::report::row::{Row, right_aligned, show};

const HEADS: [&str; 11] =
    ["", "form", "transport", "mode", "size", "frame", "median", "reference", "median", "ratio", "of rounds"];

/// Formats all rows: those of calls, and the parts of a first call.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut table = vec![HEADS.map(String::from)];
    table.extend(rows.iter().map(cells));
    right_aligned(&table, &[4, 5, 6, 8, 9])
}

fn cells(row: &Row) -> [String; 11] {
    let figure = |figure: Option<f64>| figure.map(show).unwrap_or_default();
    [
        row.metric.to_owned(),
        row.form.unwrap_or_default().to_owned(),
        row.transport.clone().unwrap_or_default(),
        row.mode.unwrap_or_default().to_owned(),
        row.frame_bytes.map(|_| show_size(row.size)).unwrap_or_default(),
        row.frame_bytes.map(|bytes| bytes.to_string()).unwrap_or_default(),
        figure(row.median),
        row.shown_reference(),
        figure(row.reference_median),
        row.shown_ratio(),
        row.spread(),
    ]
}
