//! A section's rows as a table: a line has the repeated measurements of one thing, and each thing has a column of its
//! own.

use serde_json::Value;

use super::section_file::Row;

/// Columns that are not shown, or that the command shows. Any other number gets a column with its key as the name.
const HIDDEN: [&str; 14] = [
    "arrival",
    "iterations",
    "p50",
    "p99",
    "p999",
    "max",
    "reference_p99",
    "ring",
    "slot",
    "target_sleeps",
    "warm",
    // Shown as the name of the network.
    "wire_us",
    "wire_gb_s",
    "reference_trips",
];

/// Subject of a table's line.
#[derive(Clone, PartialEq, Eq, Debug)]
struct At {
    function: Option<String>,
    /// The modelled network.
    wire: Option<String>,
    sources: Option<u64>,
    image: Option<u64>,
    size: Option<u64>,
}

impl At {
    fn of(row: &Row) -> At {
        let latency = row.others.get("wire_us").and_then(Value::as_f64);
        At {
            function: row.function.clone(),
            wire: latency.map(|latency| format!("{latency} us")),
            sources: row.sources,
            image: row.image,
            size: row.size,
        }
    }

    /// Its cells, with the columns' names.
    fn cells(&self) -> [(&'static str, Option<String>); 5] {
        [
            ("function", self.function.clone()),
            ("wire", self.wire.clone()),
            ("sources", self.sources.map(|sources| sources.to_string())),
            ("code", self.image.map(bytes)),
            ("payload", self.size.map(bytes)),
        ]
    }
}

/// The tables of a run, one for each metric in it, in Markdown.
pub(crate) fn tables(rows: &[Row]) -> String {
    let mut metrics: Vec<&str> = Vec::new();
    for row in rows {
        if !metrics.contains(&&*row.metric) {
            metrics.push(&row.metric);
        }
    }
    let table = |metric: &&str| {
        let of_metric: Vec<_> = rows.iter().filter(|row| row.metric == *metric).collect();
        let unit = of_metric.first().map(|row| &*row.unit).unwrap_or_default();
        format!("`{metric}` in {unit}\n\n{}", Table::of(&of_metric).to_markdown())
    };
    metrics.iter().map(table).collect::<Vec<_>>().join("\n")
}

/// Heads, and cells by line.
struct Table {
    heads: Vec<String>,
    lines: Vec<Vec<String>>,
}

impl Table {
    fn of(rows: &[&Row]) -> Table {
        let mut places: Vec<At> = Vec::new();
        for row in rows {
            if !places.contains(&At::of(row)) {
                places.push(At::of(row));
            }
        }
        // Each entry is a column's name, and its cells.
        let mut columns: Vec<(String, Vec<Option<String>>)> = Vec::new();
        let mut put = |head: String, row: &Row, cell: Option<String>| {
            let Some(cell) = cell else { return };
            let number = columns.iter().position(|(known, _)| *known == head).unwrap_or_else(|| {
                columns.push((head, vec![None; places.len()]));
                columns.len() - 1
            });
            let place = places.iter().position(|place| *place == At::of(row)).unwrap_or(0);
            columns[number].1[place].get_or_insert(cell);
        };
        for row in rows {
            put(subject(row), row, row.median.map(three_digits));
        }
        let compared: Vec<_> = rows.iter().filter_map(|row| Some((row, reference(row)?))).collect();
        for (row, reference) in &compared {
            put(reference.clone(), row, row.reference_median.map(three_digits));
        }
        for (row, reference) in &compared {
            put(format!("{} ÷ {reference}", subject(row)), row, ratio(row));
        }
        for row in rows {
            for (key, value) in row.others.iter().filter(|(key, _)| !HIDDEN.contains(&&***key)) {
                put(format!("`{key}`, {}", subject(row)), row, value.as_f64().map(three_digits));
            }
        }
        for row in rows {
            put("state".to_owned(), row, row.state.clone());
        }
        let mut heads = Vec::new();
        let mut lines = vec![Vec::new(); places.len()];
        for number in 0..5 {
            if places.iter().any(|place| place.cells()[number].1.is_some()) {
                heads.extend(places.first().map(|place| place.cells()[number].0.to_owned()));
                for (line, place) in lines.iter_mut().zip(&places) {
                    line.push(place.cells()[number].1.clone().unwrap_or_default());
                }
            }
        }
        for (head, cells) in columns {
            heads.push(head);
            for (line, cell) in lines.iter_mut().zip(cells) {
                line.push(cell.unwrap_or_default());
            }
        }
        Table { heads, lines }
    }

    fn to_markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = vec!["---:".to_owned(); self.heads.len()];
        let lines = self.lines.iter().map(|cells| line(cells));
        [line(&self.heads), line(&rule)].into_iter().chain(lines).collect()
    }
}

/// A row's subject and its path.
fn subject(row: &Row) -> String {
    match (&row.transport, &row.mode) {
        (Some(transport), Some(mode)) => format!("{transport}, {mode}"),
        (Some(transport), None) => transport.clone(),
        _ => over(&row.subject, row.lane.as_deref()),
    }
}

fn reference(row: &Row) -> Option<String> {
    let name = row.reference.as_deref().filter(|name| !name.is_empty())?;
    Some(over(name, row.reference_lane.as_deref()))
}

fn over(name: &str, lane: Option<&str>) -> String {
    lane.map_or_else(|| name.to_owned(), |lane| format!("{name} ({lane})"))
}

/// A row's ratio with the smallest and the largest of the rounds.
pub(crate) fn ratio(row: &Row) -> Option<String> {
    let ratio = row.ratio?;
    Some(match (row.ratio_min, row.ratio_max) {
        (Some(min), Some(max)) => format!("{ratio:.2} ({min:.2} to {max:.2})"),
        _ => format!("{ratio:.2}"),
    })
}

/// A number of bytes in the form that `farjump perf` takes.
pub(crate) fn bytes(bytes: u64) -> String {
    match bytes {
        0 => "0 B".to_owned(),
        bytes if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        bytes if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} B"),
    }
}

/// Three digits of a number or, of a longer one, those before the point.
fn three_digits(number: f64) -> String {
    let before = if number == 0.0 { 0 } else { number.abs().log10().floor() as i32 };
    let digits = usize::try_from(2 - before).unwrap_or(0);
    format!("{number:.digits$}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::section_file::Kept;
    use super::super::section_file::tests::kept;
    use super::*;

    fn tables(run: &Kept) -> String {
        super::tables(&run.rows().expect("they are rows"))
    }

    #[test]
    fn each_thing_has_a_column_and_each_size_a_line() {
        let rows = [8, 1024].map(|size| {
            let am = json!({ "size": size, "reference": "ucx-am", "reference_lane": "posix", "reference_median": 0.25 });
            [json!({ "size": size }), am]
        });
        let table = tables(&kept("latency", rows.as_flattened()));
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(
            lines[2],
            "| payload | shm, cached | raw | ucx-am (posix) | shm, cached ÷ raw | shm, cached ÷ ucx-am (posix) | state |"
        );
        assert_eq!(
            lines[5],
            "| 1 KiB | 0.100 | 0.200 | 0.250 | 0.50 (0.40 to 0.60) | 0.50 (0.40 to 0.60) | near |"
        );
        assert_eq!((lines[0], lines.len()), ("`latency` in us", 6));
    }

    #[test]
    fn metrics_have_a_table_each_and_unknown_numbers_a_column() {
        let rate = json!({ "metric": "scaling-rate", "unit": "million/s", "sources": 4, "cpu_ns_target": 21.5, "ring": 4096 });
        let table = tables(&kept("scaling", &[json!({ "sources": 4 }), rate]));
        assert!(table.contains("`scaling-rate` in million/s\n\n| sources | payload |"), "{table}");
        assert!(table.contains("`cpu_ns_target`, shm, cached |") && table.contains(" 21.5 |"), "{table}");
        assert!(!table.contains("ring"), "{table}");
    }

    #[test]
    fn figures_with_a_modelled_network_have_a_line_of_their_own() {
        let wires =
            [json!({ "function": "list" }), json!({ "function": "list", "wire_us": 1.0, "median": 2.1 })];
        let table = tables(&kept("resident", &wires));
        assert!(table.contains("| function | wire | payload |"), "{table}");
        assert!(table.contains("| list |  | 8 B | 0.100 |"), "{table}");
        assert!(table.contains("| list | 1 us | 8 B | 2.10 |"), "{table}");
    }

    #[test]
    fn figures_have_three_digits_that_say_something() {
        let shown = [0.0, 0.00126, 0.0721, 0.1, 1.5, 42.25, 123.4, 54321.0].map(three_digits);
        assert_eq!(shown, ["0.00", "0.00126", "0.0721", "0.100", "1.50", "42.2", "123", "54321"]);
    }

    #[test]
    fn rows_without_figures_leave_their_cells_empty() {
        let missing = json!({ "size": 16, "median": null, "ratio": null, "reference_median": null });
        let table = tables(&kept("latency", &[json!({}), missing]));
        assert!(table.ends_with("| 16 B |  |  |  | near |\n"), "{table}");
    }
}
