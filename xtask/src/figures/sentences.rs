//! Remarks on sections, in a sentence: computed from their rows.

use super::section_file::{Kept, Row};
use super::table::bytes;

/// The paper's loss: a put of 1 byte into its ring against an active message, in messages.
const PAPERS_LOSS: f64 = 0.81;

/// The remark below a section's table; empty for most.
pub(crate) fn remark(section: &str, runs: &[Kept]) -> Option<String> {
    match section {
        "image" => crossing(&rows(runs, "image")),
        "ring-1m" => ring(&rows(runs, "ring-1g"), &rows(runs, "ring-1m")),
        "perftest" | "perftest-rate" => Some(agreement(&rows(runs, section))),
        _ => None,
    }
    .filter(|said| !said.is_empty())
}

fn rows(runs: &[Kept], section: &str) -> Vec<Row> {
    let run = runs.iter().find(|run| run.section == section);
    run.and_then(|run| run.rows().ok()).unwrap_or_default()
}

/// Size at which running code in place becomes faster than sending it and running the stored copy.
fn crossing(rows: &[Row]) -> Option<String> {
    let medians = |mode: &str| -> Vec<(u64, f64)> {
        let own = rows.iter().filter(|row| row.mode.as_deref() == Some(mode));
        let mut medians: Vec<_> = own.filter_map(|row| Some((row.image?, row.median?))).collect();
        medians.sort_by_key(|(image, _)| *image);
        medians.dedup_by_key(|(image, _)| *image);
        medians
    };
    let (always, in_place) = (medians("always"), medians("in-place"));
    let pairs: Vec<_> = always
        .iter()
        .filter_map(|(image, always)| {
            let (_, in_place) = in_place.iter().find(|(other, _)| other == image)?;
            Some((*image, in_place < always))
        })
        .collect();
    let (last, quicker_at_last) = *pairs.last()?;
    if !quicker_at_last {
        return Some(format!("In place is not quicker than always at the longest code, {}.", bytes(last)));
    }
    let behind = pairs.iter().rposition(|(_, quicker)| !quicker);
    Some(match behind {
        None => "In place is quicker than always, whatever the length of the code.".to_owned(),
        Some(at) => format!("In place is quicker than always from {} of code on.", bytes(pairs[at + 1].0)),
    })
}

/// The part of the puts' loss against active messages that is due to their ring.
fn ring(large: &[Row], small: &[Row]) -> Option<String> {
    let reference = |rows: &[Row], name: &str| {
        rows.iter().find(|row| row.reference.as_deref() == Some(name)).and_then(|row| row.reference_median)
    };
    let lost = |rows: &[Row]| Some(1.0 - reference(rows, "ucx-put")? / reference(rows, "ucx-am")?);
    let (in_large, in_small) = (lost(large)?, lost(small)?);
    let change = |lost: f64| format!("{:+.0} %", -100.0 * lost);
    let paper = change(PAPERS_LOSS);
    let begun = format!(
        "A put of 1 byte into the paper's ring, against an active message: {} messages here, {paper} in the paper. Into the \
         ring that fits the cache: {}.",
        change(in_large),
        change(in_small)
    );
    Some(match in_large > 0.0 {
        true => {
            let share = ((in_large - in_small) / in_large).clamp(0.0, 1.0);
            format!("{begun} So {:.0} % of the loss is the ring.", share * 100.0)
        }
        false => format!("{begun} There is no loss here of which the ring could be a part."),
    })
}

/// States whether UCX's own tool agrees with the baseline.
pub(crate) fn agreement(rows: &[Row]) -> String {
    let of_tool: Vec<_> = rows.iter().filter(|row| row.reference.as_deref() == Some("perftest")).collect();
    let judged = of_tool.iter().filter_map(|row| Some((row, row.agrees?, row.ratio?)));
    let each: Vec<_> = judged
        .map(|(row, agrees, ratio)| {
            let verdict = if agrees { "within 15 %" } else { "not within 15 %" };
            format!("{}, {}: {ratio:.2}, {verdict}", row.metric, bytes(row.size.unwrap_or(0)))
        })
        .collect();
    match (each.is_empty(), of_tool.iter().find_map(|row| row.missing.as_deref())) {
        (false, _) => {
            format!("The reference `ucx-am` by `ucx_perftest`, in the same rounds: {}.", each.join("; "))
        }
        (true, Some(why)) => format!("Not compared with `ucx_perftest`: {why}."),
        (true, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::section_file::tests::kept;
    use super::*;

    fn images(figures: &[(u64, f64, f64)]) -> Kept {
        let both = figures.iter().flat_map(|(image, always, in_place)| {
            [("always", always), ("in-place", in_place)]
                .map(|(mode, median)| json!({ "image": image, "mode": mode, "median": median }))
        });
        kept("image", &both.collect::<Vec<_>>())
    }

    #[test]
    fn the_crossing_is_where_in_place_is_quicker_from_then_on() {
        let said = |figures: &[(u64, f64, f64)]| remark("image", &[images(figures)]).expect("it is said");
        let crossing =
            said(&[(32, 1.0, 2.0), (64, 1.0, 0.9), (128, 1.0, 2.0), (4096, 5.0, 4.0), (8192, 9.0, 4.0)]);
        assert_eq!(crossing, "In place is quicker than always from 4 KiB of code on.");
        assert!(said(&[(64, 1.0, 2.0), (128, 1.0, 2.0)]).contains("not quicker"));
        assert!(said(&[(64, 2.0, 1.0)]).contains("whatever the length"));
        assert_eq!(remark("image", &[]), None);
    }

    #[test]
    fn the_rings_cost_is_the_additional_loss_in_the_large_one() {
        let run = |section: &str, put: f64| {
            let rows = [("ucx-put", put), ("ucx-am", 10.0)]
                .map(|(name, median)| json!({ "reference": name, "reference_median": median }));
            kept(section, &rows)
        };
        let said = remark("ring-1m", &[run("ring-1g", 2.0), run("ring-1m", 6.0)]).expect("it is said");
        assert!(said.contains("-80 % messages here, -81 % in the paper"), "{said}");
        assert!(said.contains("fits the cache: -40 %") && said.contains("So 50 % of the loss"), "{said}");
        let faster = remark("ring-1m", &[run("ring-1g", 12.0), run("ring-1m", 20.0)]).expect("it is said");
        assert!(faster.contains("+20 % messages") && faster.contains("no loss"), "{faster}");
        assert_eq!(remark("ring-1m", &[run("ring-1m", 6.0)]), None);
    }

    #[test]
    fn comparisons_with_ucxs_tool_are_stated_or_why_they_are_missing() {
        let row = |size: u64, ratio: f64| {
            json!({
                "subject": "ucx-am", "transport": null, "mode": null, "reference": "perftest", "size": size,
                "ratio": ratio, "agrees": (0.85..=1.15).contains(&ratio),
            })
        };
        let said =
            remark("perftest", &[kept("perftest", &[row(8, 1.02), row(1024, 1.3)])]).expect("it is said");
        assert!(said.contains("8 B: 1.02, within") && said.contains("1 KiB: 1.30, not within"), "{said}");
        let missing =
            json!({ "reference": "perftest", "ratio": null, "missing": "ucx_perftest is not installed" });
        let said = remark("perftest", &[kept("perftest", &[missing])]).expect("it is said");
        assert!(said.contains("not installed"), "{said}");
    }
}
