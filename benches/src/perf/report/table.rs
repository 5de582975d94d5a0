//! Rows as a table, and as CSV.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::key::Key;
use super::payload_size::show_size;
use super::row::{Row, show};
use crate::perf::machine::CoreDistance;
use crate::program::output;

/// The head of a column, whether its cells end in one column, and the cell of a row.
type Column = (&'static str, bool, fn(&Row) -> String);

/// The columns. The first is of rows of several metrics, the second of others.
const COLUMNS: [Column; 31] = [
    ("", false, |row| row.metric.to_owned()),
    ("", false, |row| row.subject.to_owned()),
    ("function", false, |row| row.text(Key::Function).to_owned()),
    ("form", false, |row| row.text(Key::Form).to_owned()),
    ("transport", false, |row| row.text(Key::Transport).to_owned()),
    ("mode", false, |row| row.text(Key::Mode).to_owned()),
    ("image", true, |row| bytes(row, Key::Image)),
    ("arrival", false, |row| row.text(Key::Arrival).to_owned()),
    ("shards", true, |row| number(row, Key::Shards)),
    ("in", false, |row| row.text(Key::ShardsIn).to_owned()),
    ("depth", true, |row| number(row, Key::Depth)),
    ("at a time", true, |row| number(row, Key::Outstanding)),
    ("sources", true, |row| number(row, Key::Sources)),
    ("size", true, |row| bytes(row, Key::Size)),
    ("frame", true, |row| number(row, Key::FrameBytes)),
    ("wire", true, Row::shown_wire),
    ("median", true, |row| figure(row.median)),
    ("p99", true, |row| figure(row.p99)),
    ("formula", true, |row| figure(row.figure(Key::ModelUs))),
    ("messages", true, |row| figure(row.figure(Key::Messages))),
    ("reference", false, Row::shown_reference),
    ("median", true, |row| figure(row.reference_median)),
    ("formula", true, |row| figure(row.figure(Key::ReferenceModelUs))),
    ("messages", true, |row| figure(row.figure(Key::ReferenceMessages))),
    ("ratio", true, |row| row.ratio.map(|ratio| format!("{ratio:.3}")).unwrap_or_default()),
    ("of rounds", false, spread),
    ("CPU target", true, |row| figure(row.figure(Key::CpuNsTarget))),
    ("sources", true, |row| figure(row.figure(Key::CpuNsSource))),
    ("a source", true, |row| bytes(row, Key::PeerBytes)),
    ("mailboxes", true, |row| bytes(row, Key::MailboxBytes)),
    ("state", false, |row| row.state.map_or("", CoreDistance::name).to_owned()),
];

/// Formats rows as a table, without columns that are empty below their head.
pub(in crate::perf) fn table(rows: &[Row]) -> String {
    let metrics: BTreeSet<_> = rows.iter().map(|row| row.metric).collect();
    let unused = usize::from(metrics.len() > 1);
    let columns = COLUMNS.iter().enumerate().filter(|(at, _)| *at != unused);
    let columns: Vec<Vec<String>> = columns
        .filter_map(|(_, (head, is_right, cell))| {
            let cells: Vec<String> = rows.iter().map(cell).collect();
            let width = cells.iter().map(|cell| cell.chars().count()).max().filter(|width| *width > 0)?;
            let width = width.max(head.chars().count());
            let aligned = |cell: &str| if *is_right { format!("{cell:>width$}") } else { cell.to_owned() };
            Some([*head].into_iter().chain(cells.iter().map(String::as_str)).map(aligned).collect())
        })
        .collect();
    let lines = (0..=rows.len()).map(|line| columns.iter().map(|column| column[line].clone()).collect());
    output::table(&lines.collect::<Vec<Vec<_>>>())
}

fn number(row: &Row, key: Key) -> String {
    row.number(key).map(|number| number.to_string()).unwrap_or_default()
}

fn bytes(row: &Row, key: Key) -> String {
    row.number(key).map(|bytes| show_size(bytes as usize)).unwrap_or_default()
}

fn figure(figure: Option<f64>) -> String {
    figure.map(show).unwrap_or_default()
}

/// Formats the smallest and the largest ratio.
fn spread(row: &Row) -> String {
    match (row.ratio_min, row.ratio_max) {
        (Some(min), Some(max)) => format!("{min:.2}..{max:.2}"),
        _ => String::new(),
    }
}

/// Formats rows as CSV. A column that does not apply to any row is left out.
///
/// # Errors
/// A row cannot be written.
pub(in crate::perf) fn csv(rows: &[Row]) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let cells = |row: &Row| serde_json::from_value::<Map<String, Value>>(serde_json::to_value(row)?);
    // The keys of all rows have one order.
    let any = rows.iter().fold(Row::default(), |any, row| any.with_all(row.more.clone()));
    let heads: Vec<String> = cells(&any)?.into_iter().map(|(head, _)| head).collect();
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(&heads)?;
    for row in rows {
        let row = cells(row)?;
        writer.write_record(heads.iter().map(|head| match row.get(head) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
        }))?;
    }
    Ok(writer.into_inner()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_and_words_begin_in_one_column() {
        let row = |subject, transport: &str, size: u64| {
            Row { metric: "latency", subject, ..Row::default() }
                .with(Key::Transport, transport)
                .with(Key::Size, size)
        };
        let shown = table(&[row("a", "shm", 1), row("long", "tcp", 100)]);
        assert_eq!(shown, "      transport  size\na     shm           1\nlong  tcp         100\n");
        let several = table(&[Row { metric: "rate", ..row("a", "shm", 1) }, row("a", "shm", 1)]);
        assert!(several.contains("\nrate     shm"), "{several}");
    }

    #[test]
    fn csv_has_the_keys_of_all_rows_in_their_order() {
        let one = Row::default().with(Key::Size, 8).with(Key::WireUs, 0.5);
        let other = Row::default().with(Key::Transport, "a,b").with(Key::Size, 16);
        let text = String::from_utf8(csv(&[one, other]).expect("they are rows")).expect("it is text");
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("metric,unit,subject,transport,size,wire_us,median,"), "{text}");
        assert!(lines[1].starts_with(",,,,8,0.5,,") && lines[2].starts_with(",,,\"a,b\",16,,,"), "{text}");
    }
}
