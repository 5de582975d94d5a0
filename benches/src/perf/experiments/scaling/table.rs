//! The table of rows that differ by the number of sources.

use crate::perf::report::payload_size::show_size;
use crate::perf::report::row::{Row, right_aligned, show};

const HEADS: [&str; 15] = [
    "",
    "transport",
    "sources",
    "size",
    "median",
    "p99",
    "reference",
    "median",
    "ratio",
    "of rounds",
    "CPU target",
    "sources",
    "a source",
    "mailboxes",
    "state",
];

/// Formats all rows, with processor time of a message in nanoseconds, and memory of one more source in bytes.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut table = vec![HEADS.map(String::from)];
    table.extend(rows.iter().map(cells));
    right_aligned(&table, &[2, 3, 4, 5, 7, 8, 10, 11, 12, 13])
}

fn cells(row: &Row) -> [String; 15] {
    let figure = |figure: Option<f64>| figure.map(show).unwrap_or_default();
    let bytes = |bytes: Option<u64>| bytes.map(|bytes| show_size(bytes as usize)).unwrap_or_default();
    [
        row.metric.to_owned(),
        row.transport.clone().unwrap_or_default(),
        row.sources.map(|sources| sources.to_string()).unwrap_or_default(),
        show_size(row.size),
        figure(row.median),
        figure(row.p99),
        row.shown_reference(),
        figure(row.reference_median),
        row.shown_ratio(),
        row.spread(),
        figure(row.cpu_ns_target),
        figure(row.cpu_ns_source),
        bytes(row.peer_bytes),
        bytes(row.mailbox_bytes),
        row.state.map(|state| state.name().to_owned()).unwrap_or_default(),
    ]
}
