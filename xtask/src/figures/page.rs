//! The page of results, in Markdown: made from the stored runs alone.

use std::path::Path;

use serde_json::Value;

use super::goals::Verdict;
use super::kept_as;
use super::section_file::Kept;
use super::sections::{bounds, sections};

/// The page. Pictures are searched for in `folder`, where the page will be.
pub(crate) fn markdown(runs: &[Kept], folder: &Path) -> String {
    let usual = Usual::of(runs);
    [head(runs, &usual), pictures(folder), reached(runs), commands(runs, &usual)].concat()
}

/// A section's picture, from the folder of the results.
pub(crate) fn picture(section: &str) -> String {
    format!("figures/{section}.svg")
}

/// The build and the machine of most runs, empty if there are no runs.
struct Usual<'a> {
    built: &'a str,
    machine: &'a Value,
}

impl Usual<'_> {
    fn of(runs: &[Kept]) -> Usual<'_> {
        let built = most_common(runs, |run| run.built.clone());
        let machine = most_common(runs, |run| machine(&run.machine));
        Usual {
            built: built.map_or("", |run| &run.built),
            machine: machine.map_or(&Value::Null, |run| &run.machine),
        }
    }

    /// The differences of a run's build and machine from the usual ones, in a word or two each. Another kernel stands
    /// for another machine. `UCX_TLS` is in the command.
    fn differences(&self, run: &Kept) -> Vec<String> {
        let mut found = Vec::new();
        let ((commit, compiler), (usual_commit, usual_compiler)) = (build(&run.built), build(self.built));
        if commit != usual_commit {
            found.push(commit.replace(" with changes", "-dirty"));
        } else if compiler != usual_compiler {
            found.push(compiler.to_owned());
        }
        if run.machine.is_null() {
            return found;
        }
        let differs = |key: &str| run.machine[key] != self.machine[key];
        let text = |key: &str| run.machine[key].as_str();
        if differs("kernel") {
            found.push(format!("Linux {}", text("kernel").unwrap_or("of unknown version")));
        } else if differs("processor") {
            found.push(text("processor").unwrap_or("unknown processor").to_owned());
        }
        if differs("ucx") {
            found.push(text("ucx").map_or_else(|| "no UCX".to_owned(), |version| format!("UCX {version}")));
        }
        found
    }
}

/// The first run with the most common text; `None` if all texts are empty.
fn most_common(runs: &[Kept], text: impl Fn(&Kept) -> String) -> Option<&Kept> {
    let texts: Vec<String> = runs.iter().map(text).collect();
    let count = |at: usize| texts.iter().filter(|other| **other == texts[at]).count();
    // Of several that are as common, the first is taken.
    let known = (0..runs.len()).rev().filter(|at| !texts[*at].is_empty());
    known.max_by_key(|at| count(*at)).map(|at| &runs[at])
}

/// The commit and the compiler of a build.
fn build(built: &str) -> (&str, &str) {
    let (farjump, compiler) = built.split_once(", built by ").unwrap_or((built, ""));
    (farjump.rsplit_once(" at ").map_or(farjump, |(_, commit)| commit), compiler)
}

/// The machine of a run; empty if it is unknown.
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

fn head(runs: &[Kept], usual: &Usual<'_>) -> String {
    let mut text =
        "# Results\n\n`cargo xtask figures` makes this page from the files in [`results/`](results) \
                    ([how](README.md#results)).\n\n"
            .to_owned();
    for line in [machine(usual.machine), usual.built.to_owned(), measured(runs)] {
        if !line.is_empty() {
            text += &format!("- {line}\n");
        }
    }
    text + "\nA ratio is farjump's figure by the baseline's: the median of the rounds, with the smallest and the \
            largest. In the state near, a line of memory crosses from one processor to the other in less than 40 ns; \
            in far, in more than 150; middle is between. [`farjump perf`](../docs/reference/perf.md) has the \
            definitions.\n\n"
}

/// The dates of the runs.
fn measured(runs: &[Kept]) -> String {
    let dates = || runs.iter().map(|run| &*run.date);
    match (dates().min(), dates().max()) {
        (Some(first), Some(last)) if first == last => format!("measured {first}"),
        (Some(first), Some(last)) => format!("measured {first} to {last}"),
        _ => String::new(),
    }
}

/// The pictures with captions, as far as they exist.
fn pictures(folder: &Path) -> String {
    let shown = sections().iter().filter_map(|section| {
        let (caption, picture) = (section.caption.as_ref()?, picture(&section.name));
        folder.join(&picture).exists().then(|| format!("![{caption}]({picture})\n\n"))
    });
    shown.collect()
}

/// The table of bounds.
fn reached(runs: &[Kept]) -> String {
    let mut table = "| rows | bound | worst | reached |\n|---|---|---|---|\n".to_owned();
    let mut count = 0;
    for bound in bounds() {
        let (worst, verdict) = match bound.judge(runs) {
            Verdict::Reached(worst) => {
                count += 1;
                (worst, "yes".to_owned())
            }
            Verdict::NotReached { worst, of: 1, .. } => (worst, "**no**".to_owned()),
            Verdict::NotReached { worst, within, of } => (worst, format!("**{within}/{of}**")),
            Verdict::NotMeasured(why) => (in_cell(&why), "not measured".to_owned()),
        };
        table += &format!("| {} | {} | {worst} | {verdict} |\n", bound.rows(), bound.limit());
    }
    format!(
        "## Figures to reach\n\nReached: {count} of {}. Each line bounds rows of a section: those of one transport, \
         baseline and range of payloads. It shows the worst row; 2/7 means that two of seven rows are within the \
         bound. After `far` comes the limit for that state.\n\n{table}",
        bounds().len()
    )
}

/// The table of sections.
fn commands(runs: &[Kept], usual: &Usual<'_>) -> String {
    // Sections with the same command share a line.
    let mut lines: Vec<(String, String)> = Vec::new();
    for section in sections() {
        let (name, command) = match runs.iter().find(|run| run.section == section.name) {
            None => {
                let how = format!("not measured: run `cargo xtask figures --only {}`", section.name);
                (section.name.clone(), how)
            }
            Some(run) => {
                let link = format!("[{}]({})", section.name, kept_as(section));
                let differences = usual.differences(run).join(", ");
                let name = if differences.is_empty() { link } else { format!("{link} ({differences})") };
                (name, format!("`{}`{}", short(&run.command), failure(run)))
            }
        };
        match lines.last_mut() {
            Some((names, last)) if *last == command => *names += &format!(", {name}"),
            _ => lines.push((name, command)),
        }
    }
    let lines: String = lines.iter().map(|(names, command)| format!("| {names} | {command} |\n")).collect();
    format!(
        "\n## Sections\n\nA name leads to the rows and the whole command. Sections of another commit or machine name \
         it. Those of `verbs` ran in emulated machines, where only ratios are meaningful. Packets of `tcp-delay-N` \
         take N ms.\n\n| section | `farjump perf` |\n|---|---|\n{lines}"
    )
}

/// A command without the words that all have, and without the number of rounds.
fn short(command: &str) -> &str {
    let command = command.rsplit_once(" --rounds ").map_or(command, |(command, _)| command);
    command.strip_prefix("farjump perf ").unwrap_or(command)
}

/// The reason why a run failed; empty if it did not.
fn failure(run: &Kept) -> String {
    let how = if run.rows.is_empty() { "it failed" } else { "it ended early" };
    run.failed.as_ref().map(|why| format!("; {how}: {}", in_cell(why))).unwrap_or_default()
}

/// A text in one cell of a table.
fn in_cell(text: &str) -> String {
    text.replace('|', "/").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::command;
    use super::super::goals::tests::out_of_bounds;
    use super::super::section_file::tests::kept;
    use super::*;

    fn of(runs: &[Kept]) -> String {
        markdown(runs, Path::new("/nonexistent"))
    }

    #[test]
    fn the_page_names_the_machine_and_has_each_section_and_each_bound() {
        let page = of(&[kept("floor", &[json!({ "ratio": 1.2 })])]);
        assert!(page.contains("- one, Linux 6; source on processor 0, target on 1\n"), "{page}");
        assert!(page.contains("- farjump 0.1.0 at a98c5f20, built by rustc 1.95.0"), "{page}");
        assert!(page.contains("- measured 2026-11-22\n"), "{page}");
        assert!(page.contains("\n| [floor](results/floor.json) | `latency` |\n"), "{page}");
        for section in sections().iter().filter(|section| section.name != "floor") {
            let line =
                format!("\n| {0} | not measured: run `cargo xtask figures --only {0}` |\n", section.name);
            assert!(page.contains(&line), "{line}");
        }
        assert_eq!(page.matches("| not measured |").count(), bounds().len() - 1);
        assert!(
            page.contains("| `floor`, `shm`, to 40 B | ≤ 1.05 `raw` | 1.20 (0.40..0.60), near | **no** |")
        );
        assert!(page.contains(&format!("Reached: 0 of {}.", bounds().len())), "{page}");
    }

    #[test]
    fn the_page_of_all_sections_has_at_most_1500_words() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        std::fs::create_dir(folder.path().join("figures")).expect("a folder can be made");
        let runs = sections().iter().map(|section| {
            if section.caption.is_some() {
                let picture = folder.path().join(picture(&section.name));
                std::fs::write(picture, "<svg/>").expect("it can be written");
            }
            let mut run = kept(&section.name, &out_of_bounds(&section.name));
            run.command = command(section, 9).join(" ");
            if let Some(kernel) = &section.kernel {
                run.machine["kernel"] = json!(kernel);
            }
            run
        });
        let page = markdown(&runs.collect::<Vec<_>>(), folder.path());
        assert!(page.contains(&format!("Reached: 0 of {}.", bounds().len())), "{page}");
        assert!(!page.contains("not measured"), "{page}");
        let words = page.split_whitespace().count();
        assert!((1000..=1500).contains(&words), "{words}: {page}");
    }

    #[test]
    fn sections_of_another_commit_or_machine_name_it() {
        let mut runs =
            ["latency", "rate", "floor", "image", "work", "idle"].map(|section| kept(section, &[]));
        runs[2].machine["ucx"] = json!("1.22.0");
        runs[3].built = "farjump 0.1.0 at cb71a5a with changes, built by rustc 1.95.0".to_owned();
        runs[4].machine["kernel"] = json!("6.1");
        runs[4].machine["processor"] = json!("two");
        runs[5].machine["processor"] = json!("two");
        let page = of(&runs);
        for line in [
            "| [latency](results/latency.json), [rate](results/rate.json) | `latency` |",
            "| [floor](results/floor.json) (UCX 1.22.0) | `latency` |",
            "| [image](results/image.json) (cb71a5a-dirty) | `latency` |",
            "| [work](results/work.json) (Linux 6.1) | `latency` |",
            "| [idle](results/idle.json) (two) | `latency` |",
        ] {
            assert!(page.contains(line), "{line}: {page}");
        }
    }

    #[test]
    fn the_page_distinguishes_a_refused_command_from_a_broken_one() {
        let mut refused = kept("idle", &[]);
        refused.failed = Some("invalid value 'idle'".to_owned());
        let mut broken = kept("work", &[json!({ "metric": "work" })]);
        broken.failed = Some("the other process ended".to_owned());
        let page = of(&[refused, broken]);
        assert!(page.contains("`; it failed: invalid value 'idle' |"), "{page}");
        assert!(page.contains("`; it ended early: the other process ended |"), "{page}");
    }

    #[test]
    fn existing_pictures_with_a_caption_are_shown() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let page = || markdown(&[], folder.path());
        assert!(!page().contains("!["));
        std::fs::create_dir(folder.path().join("figures")).expect("a folder can be made");
        for section in ["latency", "image"] {
            std::fs::write(folder.path().join(picture(section)), "<svg/>").expect("it can be written");
        }
        assert!(page().contains("(figures/latency.svg)"), "{}", page());
        assert_eq!(page().matches("![").count(), 1);
        assert!(sections().iter().all(|section| section.caption.is_none() || section.picture));
    }

    #[test]
    fn a_shown_command_has_what_differs_between_sections() {
        assert_eq!(short("farjump perf rate --sizes 1 --rounds 9"), "rate --sizes 1");
        assert_eq!(short("UCX_TLS=^cma farjump perf rate --rounds 9"), "UCX_TLS=^cma farjump perf rate");
    }
}
