//! The table of chases.

use crate::perf::row::{Row, right_aligned, show};

const HEADS: [&str; 16] = [
    "",
    "transport",
    "mode",
    "shards",
    "depth",
    "at a time",
    "wire",
    "median",
    "formula",
    "messages",
    "reference",
    "median",
    "formula",
    "messages",
    "ratio",
    "of rounds",
];

/// Formats all rows of chases.
pub(in crate::perf) fn table(rows: &[Row]) -> String {
    let mut table = vec![HEADS.map(String::from)];
    table.extend(rows.iter().map(cells));
    right_aligned(&table, &[3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14])
}

fn cells(row: &Row) -> [String; 16] {
    let figure = |figure: Option<f64>| figure.map(show).unwrap_or_default();
    let number = |number: Option<u32>| number.map(|number| number.to_string()).unwrap_or_default();
    [
        row.subject.to_owned(),
        row.transport.clone().unwrap_or_default(),
        row.mode.unwrap_or_default().to_owned(),
        number(row.shards),
        number(row.depth),
        number(row.outstanding),
        row.shown_wire(),
        figure(row.median),
        figure(row.model_us),
        figure(row.messages),
        row.shown_reference(),
        figure(row.reference_median),
        figure(row.reference_model_us),
        figure(row.reference_messages),
        row.shown_ratio(),
        row.spread(),
    ]
}
