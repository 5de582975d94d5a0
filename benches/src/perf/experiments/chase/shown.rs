//! The table of chases.

use crate::perf::report::row::{Row, right_aligned, show};

const HEADS: [&str; 17] = [
    "",
    "transport",
    "mode",
    "shards",
    "in",
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
    right_aligned(&table, &[3, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15])
}

fn cells(row: &Row) -> [String; 17] {
    let figure = |figure: Option<f64>| figure.map(show).unwrap_or_default();
    let number = |number: Option<u32>| number.map(|number| number.to_string()).unwrap_or_default();
    [
        row.subject.to_owned(),
        row.transport.clone().unwrap_or_default(),
        row.mode.unwrap_or_default().to_owned(),
        number(row.shards),
        row.shards_in.unwrap_or_default().to_owned(),
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
