//! The contents of a picture: for each metric a panel, with a curve for each measured case and their ratios.

use std::collections::BTreeSet;

use crate::perf::report::Report;
use crate::perf::report::key::Key;
use crate::perf::report::row::{Row, named};
use crate::program::failure::Failure;

pub(super) struct Picture {
    /// The machine, and the conditions of the measurement.
    pub(super) notes: Vec<String>,
    pub(super) panels: Vec<Panel>,
}

/// Curves with figures of one unit.
#[derive(Debug)]
pub(super) struct Panel {
    /// The metric.
    pub(super) title: String,
    /// Unit of the figures.
    pub(super) unit: &'static str,
    /// True if figures are times, of which less is better.
    pub(super) is_time: bool,
    /// The horizontal axis.
    pub(super) across: Across,
    pub(super) curves: Vec<Curve>,
    pub(super) relations: Vec<Relation>,
}

/// The horizontal axis of a picture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Across {
    Payload,
    /// Data at the target.
    Resident,
    Image,
    Sources,
}

/// The figures of one case.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Curve {
    pub(super) label: String,
    /// True if it is farjump's, and no baseline's.
    pub(super) is_own: bool,
    /// Sorted by the horizontal axis.
    pub(super) points: Vec<(u64, f64)>,
}

/// Ratios of one case's figures to another's, both given by index among the curves.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Relation {
    pub(super) own: usize,
    pub(super) reference: usize,
    /// Sorted by the horizontal axis.
    pub(super) points: Vec<Ratio>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Ratio {
    pub(super) at: u64,
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Picture {
    /// Returns the picture of a report.
    ///
    /// # Errors
    /// No row has figures.
    pub(super) fn of(report: &Report, rounds: u32) -> Result<Picture, Failure> {
        let panels = panels(&report.rows);
        if panels.is_empty() {
            return Err(Failure::new("there is nothing to draw: no row has figures"));
        }
        Ok(Picture { notes: notes(report, rounds), panels })
    }
}

/// Describes the machine and its state.
fn notes(report: &Report, rounds: u32) -> Vec<String> {
    let machine = &report.machine;
    let mut parts = vec![machine.processor.clone(), format!("Linux {}", machine.kernel)];
    parts.extend(machine.ucx.as_ref().map(|version| format!("UCX {version}")));
    let mut how = format!("medians of {rounds} {}", if rounds == 1 { "round" } else { "rounds" });
    let mut lines: Vec<f64> = report.rounds.iter().filter_map(|round| round.line_ns).collect();
    lines.sort_by(f64::total_cmp);
    if let [least, .., most] = lines[..] {
        let median = lines[lines.len() / 2];
        how += &format!(
            "; a line takes {median:.0} ns ({least:.0} to {most:.0}) from one processor to the other"
        );
    }
    vec![parts.join(", "), how]
}

/// Returns a panel for each metric, and for each function, modelled network, and length that the horizontal
/// axis does not cover.
fn panels(rows: &[Row]) -> Vec<Panel> {
    let across = Across::of(rows);
    let is_over_sizes = matches!(across, Across::Payload | Across::Resident);
    fn key(row: &Row, has_size: bool) -> (&str, &str, String, Option<u64>) {
        (row.metric, row.text(Key::Function), row.shown_wire(), Some(row.size()).filter(|_| has_size))
    }
    let key = |row| key(row, !is_over_sizes);
    let mut keys: Vec<_> = Vec::new();
    for row in rows {
        if !keys.contains(&key(row)) {
            keys.push(key(row));
        }
    }
    let several_sizes = keys.iter().map(|key| key.3).collect::<BTreeSet<_>>().len() > 1;
    let panel = |of_panel: &_| {
        let rows: Vec<_> = rows.iter().filter(|row| key(*row) == *of_panel).collect();
        let (metric, function, wire, size) = of_panel;
        let mut title = title(metric);
        if !function.is_empty() {
            title += &format!(": {function}");
        }
        title += &match &**wire {
            "" => String::new(),
            "plain" => ", plain".to_owned(),
            latency => format!(", wire of {latency}"),
        };
        if let (true, Some(size)) = (several_sizes, size) {
            title += &format!(", payload {size} B");
        }
        Panel::of(title, across, &rows)
    };
    keys.iter().filter_map(panel).collect()
}

fn title(metric: &str) -> String {
    match metric {
        "latency" => "one-way latency".to_owned(),
        "rate" => "message rate".to_owned(),
        other => other.replace('-', " "),
    }
}

impl Across {
    /// Chooses the property with several values; the payload's length if none has.
    fn of(rows: &[Row]) -> Across {
        let several =
            |value: fn(&Row) -> Option<u64>| rows.iter().filter_map(value).collect::<BTreeSet<_>>().len() > 1;
        match (several(|row| Across::Sources.value(row)), several(|row| Across::Image.value(row))) {
            (true, _) => Across::Sources,
            (_, true) => Across::Image,
            _ if rows.iter().any(Row::is_resident) => Across::Resident,
            _ => Across::Payload,
        }
    }

    fn value(self, row: &Row) -> Option<u64> {
        match self {
            Across::Payload | Across::Resident => Some(row.size()),
            Across::Image => row.number(Key::Image),
            Across::Sources => row.number(Key::Sources),
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Across::Payload => "bytes of payload",
            Across::Resident => "bytes of data at the target",
            Across::Image => "bytes of code",
            Across::Sources => "sources",
        }
    }
}

impl Panel {
    /// Returns `None` if no row has figures.
    fn of(title: String, across: Across, rows: &[&Row]) -> Option<Panel> {
        let unit = rows.first()?.unit;
        let mut panel = Panel {
            title,
            is_time: matches!(unit, "us" | "ms/s"),
            unit: if unit == "us" { "\u{b5}s" } else { unit },
            across,
            curves: Vec::new(),
            relations: Vec::new(),
        };
        // farjump's curves come before the baselines', whatever the order of the rows.
        for row in rows {
            panel.add_curve(row.subject_curve(), across.value(row), row.median);
        }
        for row in rows {
            panel.add_curve(row.reference_curve(), across.value(row), row.reference_median);
        }
        panel.curves.sort_by_key(|curve| !curve.is_own);
        for row in rows {
            panel.add_ratio(row, across);
        }
        panel.curves.iter_mut().for_each(|curve| curve.points.sort_by_key(|point| point.0));
        panel.relations.iter_mut().for_each(|relation| relation.points.sort_by_key(|point| point.at));
        (!panel.curves.is_empty()).then_some(panel)
    }

    fn add_curve(&mut self, named: Option<(String, bool)>, at: Option<u64>, figure: Option<f64>) {
        let (Some((label, is_own)), Some(at), Some(figure)) = (named, at, figure) else { return };
        let number = self.curves.iter().position(|curve| curve.label == label).unwrap_or_else(|| {
            self.curves.push(Curve { label, is_own, points: Vec::new() });
            self.curves.len() - 1
        });
        let points = &mut self.curves[number].points;
        // A case measured once appears in a row for each baseline.
        if !points.iter().any(|(known, _)| *known == at) {
            points.push((at, figure));
        }
    }

    fn add_ratio(&mut self, row: &Row, across: Across) {
        let place = |named: Option<(String, bool)>| {
            let (label, _) = named?;
            self.curves.iter().position(|curve| curve.label == label)
        };
        let (Some(own), Some(reference), Some(at), Some(median)) =
            (place(row.subject_curve()), place(row.reference_curve()), across.value(row), row.ratio)
        else {
            return;
        };
        let point =
            Ratio { at, median, min: row.ratio_min.unwrap_or(median), max: row.ratio_max.unwrap_or(median) };
        let same = |relation: &&mut Relation| (relation.own, relation.reference) == (own, reference);
        match self.relations.iter_mut().find(same) {
            Some(relation) => relation.points.push(point),
            None => self.relations.push(Relation { own, reference, points: vec![point] }),
        }
    }
}

impl Row {
    /// Returns the label of the measured case, and whether it is farjump's.
    fn subject_curve(&self) -> Option<(String, bool)> {
        if self.subject != "farjump" {
            return Some((named(self.subject, self.text(Key::Lane)), false));
        }
        let mut parts = vec![self.text(Key::Transport), self.text(Key::Mode)];
        parts.retain(|part| !part.is_empty());
        Some((parts.join(", "), true))
    }

    fn reference_curve(&self) -> Option<(String, bool)> {
        Some((named(self.reference?, self.text(Key::ReferenceLane)), false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a row of farjump's in mode cached beside `raw`.
    fn usual() -> Row {
        Row {
            metric: "latency",
            unit: "us",
            subject: "farjump",
            median: Some(0.1),
            reference: Some("raw"),
            reference_median: Some(0.2),
            ratio: Some(0.5),
            ratio_min: Some(0.4),
            ratio_max: Some(0.6),
            ..Row::default()
        }
        .with(Key::Transport, "shm")
        .with(Key::Mode, "cached")
        .with(Key::Size, 8)
    }

    /// Returns such a row beside `ucx-am`.
    fn beside_ucx() -> Row {
        Row { reference: Some("ucx-am"), reference_median: Some(0.3), ..usual() }
            .with(Key::ReferenceLane, "posix")
    }

    fn labels(panel: &Panel) -> Vec<&str> {
        panel.curves.iter().map(|curve| &*curve.label).collect()
    }

    #[test]
    fn each_transport_mode_and_reference_has_a_curve_and_pairs_have_ratios() {
        let mut rows = Vec::new();
        for size in [64, 8] {
            for mode in ["cached", "always"] {
                for row in [usual(), beside_ucx()] {
                    rows.push(row.with(Key::Size, size).with(Key::Mode, mode));
                }
            }
        }
        let panels = panels(&rows);
        let [panel] = &panels[..] else { panic!("{panels:?}") };
        assert_eq!(labels(panel), ["shm, cached", "shm, always", "raw", "ucx-am (posix)"]);
        assert_eq!(panel.curves[3].points, [(8, 0.3), (64, 0.3)]);
        let pairs: Vec<_> =
            panel.relations.iter().map(|relation| (relation.own, relation.reference)).collect();
        assert_eq!(pairs, [(0, 2), (0, 3), (1, 2), (1, 3)]);
        let points = &panel.relations[0].points;
        assert_eq!(points.len(), 2);
        assert_eq!(points[0], Ratio { at: 8, median: 0.5, min: 0.4, max: 0.6 });
        assert_eq!((panel.unit, panel.is_time, panel.across), ("\u{b5}s", true, Across::Payload));
    }

    #[test]
    fn rows_without_figures_have_neither_curve_nor_panel() {
        let missing = Row { median: None, ratio: None, ..usual().with(Key::Mode, "in-place") };
        assert_eq!(labels(&panels(&[usual(), missing])[0]), ["shm, cached", "raw"]);
        let none = Row { median: None, reference_median: None, ratio: None, ..usual() };
        assert!(panels(&[none]).is_empty() && panels(&[]).is_empty());
    }

    #[test]
    fn curves_run_over_image_length_or_source_count_where_these_vary() {
        let images = panels(&[64, 128].map(|image| usual().with(Key::Image, image)));
        assert_eq!((images.len(), images[0].across), (1, Across::Image));
        assert_eq!(images[0].curves[0].points, [(64, 0.1), (128, 0.1)]);
        let both = |size: u64, sources: u64| {
            usual().with(Key::Size, size).with(Key::Sources, sources).with(Key::Image, 64)
        };
        assert_eq!(panels(&[both(8, 1), both(8, 2)])[0].across, Across::Sources);
        assert_eq!(panels(&[both(8, 1), both(16, 1)])[0].across, Across::Payload);
    }

    #[test]
    fn each_function_and_each_metric_has_a_panel_of_its_own() {
        let rows = ["sum", "codec"].map(|name| Row { metric: "work", ..usual() }.with(Key::Function, name));
        let titles: Vec<_> = panels(&rows).into_iter().map(|panel| panel.title).collect();
        assert_eq!(titles, ["work: sum", "work: codec"]);
        let both = panels(&[usual(), Row { metric: "scaling-rate", unit: "million/s", ..usual() }]);
        assert_eq!((&*both[1].title, both[1].is_time), ("scaling rate", false));
    }

    #[test]
    fn each_modelled_network_has_a_panel_over_the_length_of_the_data() {
        let row = |size: u64, wire_us: Option<f64>| {
            let row = Row { metric: "work", ..usual() }.with(Key::Function, "list");
            row.with(Key::Size, size).with(Key::WireUs, wire_us)
        };
        let wires = [None, Some(0.0), Some(5.0)];
        let rows: Vec<_> = wires.iter().flat_map(|wire| [4096, 8192].map(|size| row(size, *wire))).collect();
        let panels = panels(&rows);
        let titles: Vec<_> = panels.iter().map(|panel| &*panel.title).collect();
        assert_eq!(titles, ["work: list, plain", "work: list, wire of 0 us", "work: list, wire of 5 us"]);
        assert!(panels.iter().all(|panel| panel.across == Across::Resident));
        assert_eq!(panels[2].curves[0].points, [(4096, 0.1), (8192, 0.1)]);
    }

    #[test]
    fn ucx_beside_its_own_tool_is_a_reference_with_a_ratio() {
        let tool = Row { subject: "ucx-am", reference: Some("perftest"), ..usual() }.with(Key::Lane, "posix");
        let both = panels(&[beside_ucx(), tool]);
        assert_eq!(labels(&both[0]), ["shm, cached", "ucx-am (posix)", "perftest"]);
        assert_eq!((both[0].relations[1].own, both[0].relations[1].reference), (1, 2));
    }
}
