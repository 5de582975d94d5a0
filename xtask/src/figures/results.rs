//! The page of results, in Markdown: made from the stored runs alone.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::goals::Verdict;
use super::section_file::Kept;
use super::sections::{Section, bounds, sections};
use super::sentences::remark;
use super::table::tables;

/// Number of lines from which a table is folded.
const LONG: usize = 16;

/// The page. Pictures are searched for in `folder`, where the page will be.
pub(crate) fn page(runs: &[Kept], folder: &Path) -> String {
    let shown = sections().iter().map(|section| {
        let run = runs.iter().find(|run| run.section == section.name);
        of_section(section, run, runs, folder)
    });
    format!("{}\n{}\n{}", head(runs), reached(runs), shown.collect::<Vec<_>>().join("\n"))
}

fn head(runs: &[Kept]) -> String {
    let mut text =
        "# Results\n\n`cargo xtask figures` made this page ([how](README.md)), and no part of it is \
                    written by hand. The output of each run is in [`results/`](results), in the form that \
                    [docs/reference/perf.md](../docs/reference/perf.md#for-programs) describes.\n\n"
            .to_owned();
    for kind in distinct(runs.iter().map(|run| machine(&run.machine))) {
        text += &format!("- {kind}\n");
    }
    for built in distinct(runs.iter().map(|run| run.built.clone())) {
        text += &format!("- {built}\n");
    }
    let dates = distinct(runs.iter().map(|run| run.date.clone()));
    text += &format!("- measured {}\n", dates.join(", "));
    text + "\nFigures are medians of rounds. A ratio is the median of the rounds' ratios, with the smallest and the largest. \
            In the state near, a line of memory crosses from one processor to the other in less than 40 ns; in far, \
            in more than 150; middle is between. A bound that differs by state has the same value for middle as for \
            near.\n"
}

fn distinct(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    texts.filter(|text| !text.is_empty() && seen.insert(text.clone())).collect()
}

/// The machine of the runs; empty if there were none.
fn machine(machine: &Value) -> String {
    let text = |key: &str| machine[key].as_str();
    let Some(processor) = text("processor") else { return String::new() };
    let mut said = format!("{processor}, Linux {}", text("kernel").unwrap_or("of unknown version"));
    said += &text("ucx").map(|version| format!(", UCX {version}")).unwrap_or_default();
    said += &text("ucx_tls").map(|tls| format!(" (UCX_TLS={tls})")).unwrap_or_default();
    if let (Some(source), Some(target)) = (machine["source_cpu"].as_u64(), machine["target_cpu"].as_u64()) {
        said += &format!("; source on processor {source}, target on {target}");
    }
    said
}

/// The table of bounds.
fn reached(runs: &[Kept]) -> String {
    let mut table = "| | against | bound | measured | |\n|---|---|---|---|---|\n".to_owned();
    let mut count = 0;
    for bound in bounds() {
        let (measured, verdict) = match bound.judge(runs) {
            Verdict::Reached(measured) => {
                count += 1;
                (measured, "reached")
            }
            Verdict::NotReached(measured) => (measured, "**not reached**"),
            Verdict::NotMeasured(why) => (in_cell(&why), "not measured"),
        };
        let (what, against, limit) = (&bound.what, &bound.against, bound.limit());
        table += &format!("| {what} | {against} | {limit} | {measured} | {verdict} |\n");
    }
    format!("## Figures to reach\n\nReached: {count} of {}.\n\n{table}", bounds().len())
}

/// A text in one cell of a table.
fn in_cell(text: &str) -> String {
    text.replace('|', "/").replace('\n', " ")
}

fn of_section(section: &Section, run: Option<&Kept>, runs: &[Kept], folder: &Path) -> String {
    let mut text = format!("## {}\n\n{}\n", section.title, section.about);
    let Some(run) = run else {
        return text + &format!("\nNot measured: run `cargo xtask figures --only {}`.\n", section.name);
    };
    let picture = picture(&section.name);
    if section.picture && folder.join(&picture).exists() {
        text += &format!("\n![{}]({picture})\n", section.title);
    }
    text += &format!("\n```\n{}\n```\n", run.command);
    if let Some(failed) = &run.failed {
        let how = if run.rows.is_empty() { "Missing" } else { "It ended early" };
        text += &format!("\n{how}: {}\n", in_cell(failed));
    }
    let rows = run.rows().unwrap_or_default();
    for why in distinct(rows.iter().filter_map(|row| row.missing.clone())) {
        text += &format!("\nWithout figures: {}\n", in_cell(&why));
    }
    if let Some(said) = remark(&section.name, runs) {
        text += &format!("\n{said}\n");
    }
    text += &state(run);
    if !rows.is_empty() {
        let tables = tables(&rows);
        text += &match tables.lines().count() > LONG {
            true => format!("\n<details><summary>Figures</summary>\n\n{tables}\n</details>\n"),
            false => format!("\n{tables}"),
        };
    }
    text
}

/// A section's picture, from the folder of the results.
pub(crate) fn picture(section: &str) -> String {
    format!("figures/{section}.svg")
}

/// The distance of the processors during the run.
fn state(run: &Kept) -> String {
    let rounds = run.rounds();
    let mut lines: Vec<f64> = rounds.iter().filter_map(|round| round.line_ns).collect();
    lines.sort_by(f64::total_cmp);
    let (Some(least), Some(most)) = (lines.first(), lines.last()) else { return String::new() };
    let median = lines[lines.len() / 2];
    let states: Vec<_> = ["near", "middle", "far"]
        .into_iter()
        .filter_map(|state| {
            let count = rounds.iter().filter(|round| round.state.as_deref() == Some(state)).count();
            (count > 0).then(|| format!("{state} in {count}"))
        })
        .collect();
    format!(
        "\nThe machine: a line took {median:.0} ns ({least:.0} to {most:.0}); {} of {} rounds.\n",
        states.join(", "),
        rounds.len()
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::section_file::tests::kept;
    use super::*;

    fn of(runs: &[Kept]) -> String {
        page(runs, Path::new("/nonexistent"))
    }

    #[test]
    fn the_page_names_the_machine_and_has_each_section_and_each_bound() {
        let page = of(&[kept("floor", &[json!({ "ratio": 1.2 })])]);
        assert!(page.contains("- one, Linux 6; source on processor 0, target on 1\n"), "{page}");
        assert!(page.contains("- measured 2026-11-22\n"), "{page}");
        for section in sections() {
            assert!(page.contains(&format!("\n## {}\n", section.title)), "{}", section.name);
        }
        assert_eq!(page.matches("not measured |").count(), bounds().len() - 1);
        assert!(page.contains("| 1.20 (0.40 to 0.60) at 8 B, near | **not reached** |"), "{page}");
        assert!(page.contains(&format!("Reached: 0 of {}.", bounds().len())), "{page}");
        assert!(page.contains("a line took 25 ns (25 to 25); near in 1 of 1 rounds"), "{page}");
    }

    #[test]
    fn the_page_distinguishes_a_refused_command_from_a_broken_one() {
        let mut refused = kept("idle", &[]);
        refused.failed = Some("invalid value 'idle'".to_owned());
        let mut broken = kept("work", &[json!({ "metric": "work" })]);
        broken.failed = Some("the other process ended".to_owned());
        let page = of(&[refused, broken]);
        assert!(page.contains("\nMissing: invalid value 'idle'\n"), "{page}");
        assert!(page.contains("\nIt ended early: the other process ended\n"), "{page}");
        assert!(page.contains("run `cargo xtask figures --only latency`"), "{page}");
    }

    #[test]
    fn existing_pictures_are_shown_and_long_tables_are_folded() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let rows: Vec<_> = (0..20).map(|size| json!({ "size": size })).collect();
        let run = [kept("latency", &rows)];
        let page_of = || page(&run, folder.path());
        assert!(!page_of().contains("!["));
        std::fs::create_dir(folder.path().join("figures")).expect("a folder can be made");
        std::fs::write(folder.path().join(picture("latency")), "<svg/>").expect("it can be written");
        assert!(page_of().contains("(figures/latency.svg)"), "{}", page_of());
        assert_eq!(page_of().matches("<details>").count(), 1);
    }
}
