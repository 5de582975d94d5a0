//! The rows of a step, and their table.

use super::contestants::Contestant;
use super::table::Table;
use super::{Measured, Step, message};
use crate::perf::metric::Against;
use crate::perf::row::{Row, right_aligned, show};

/// Returns a row for each contestant but gets, beside each baseline that comes after it. `bases` are the medians
/// without a wire.
pub(super) fn rows(
    contestants: &[Contestant],
    results: &[Option<Measured>],
    step: Step,
    bases: Option<&[Option<f64>]>,
    table: &Table,
) -> Vec<Row> {
    let cases: Vec<_> = contestants.iter().zip(results).enumerate().collect();
    // Each message adds a latency.
    let model = |index: usize, measured: &Option<Measured>| {
        if step.outstanding > 1 {
            return None;
        }
        let base = bases.and_then(|bases| bases[index])?;
        Some(base + measured.as_ref()?.messages()? * step.wire_us())
    };
    let mut rows = Vec::new();
    for &(index, (own, measured)) in &cases {
        if matches!(own.against, Some(Against::UcxGet | Against::Load)) {
            continue;
        }
        for &(at, (reference, beside)) in
            cases.iter().filter(|(at, (one, _))| *at > index && one.against.is_some())
        {
            let row = row([own, reference], [measured.as_ref(), beside.as_ref()], step, table);
            rows.push(Row { model_us: model(index, measured), reference_model_us: model(at, beside), ..row });
        }
    }
    rows
}

fn row(
    [own, reference]: [&Contestant; 2],
    [measured, beside]: [Option<&Measured>; 2],
    step: Step,
    table: &Table,
) -> Row {
    let lane = |one: &Contestant| one.player.as_ref().ok().and_then(|player| player.client.lane());
    let missing = [own, reference].into_iter().find_map(|one| one.player.as_ref().err());
    let figures = match measured {
        Some(measured) => Row::beside(&measured.series, beside.map(|beside| &beside.series)),
        None => Row { reference_median: beside.and_then(|beside| beside.series.median()), ..Row::default() },
    };
    Row {
        metric: "chase",
        unit: "us",
        subject: own.name,
        transport: own.transport.clone(),
        mode: own.mode,
        lane: lane(own),
        size: message::LEN,
        iterations: step.chases as u32,
        reference: Some(reference.name),
        reference_lane: lane(reference),
        missing: missing.cloned(),
        wire_us: Some(step.wire_us()),
        shards: Some(table.shards() as u32),
        table: Some(size_of_val(table.part(0))),
        depth: Some(step.depth),
        outstanding: Some(step.outstanding as u32),
        messages: measured.and_then(Measured::messages),
        reference_messages: beside.and_then(Measured::messages),
        ..figures
    }
}

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
