//! The rows of a step, and their table.

use super::contestants::Contestant;
use super::table::Table;
use super::{Measured, Step, message};
use crate::perf::report::metric::Against;
use crate::perf::report::row::Row;

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
        shards_in: Some(own.shards_in.name()),
        table: Some(size_of_val(table.part(0))),
        depth: Some(step.depth),
        outstanding: Some(step.outstanding as u32),
        messages: measured.and_then(Measured::messages),
        reference_messages: beside.and_then(Measured::messages),
        ..figures
    }
}
