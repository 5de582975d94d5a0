//! Tables and JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::measure::{Group, Limit, Spread};

/// Returns nanoseconds as text, in a suitable unit.
fn time(nanoseconds: f64) -> String {
    match nanoseconds.abs() {
        small if small < 1e4 => format!("{nanoseconds:.0} ns"),
        some if some < 1e7 => format!("{:.1} us", nanoseconds / 1e3),
        _ => format!("{:.1} ms", nanoseconds / 1e6),
    }
}

/// Returns a ratio as text, with its significant digits.
fn ratio(number: f64) -> String {
    match number {
        small if small < 10.0 => format!("{small:.3}"),
        some if some < 100.0 => format!("{some:.1}"),
        large => format!("{large:.0}"),
    }
}

fn spread(figures: Spread, show: impl Fn(f64) -> String) -> String {
    format!("{} ({} to {})", show(figures.median), show(figures.p10), show(figures.p90))
}

/// Returns the requirement of a limit as text.
fn limit(limit: Limit) -> String {
    match limit {
        Limit::TimesAsLong(most) => format!("<= {most} x"),
        Limit::Sooner(least) => format!(">= {least} x sooner than"),
        Limit::Longer(most) => format!("<= {} more than", time(most)),
    }
}

fn verdict(holds: Option<bool>) -> &'static str {
    match holds {
        Some(true) => "yes",
        Some(false) => "NO",
        None => "not measured",
    }
}

/// A group's tables.
pub(crate) fn table(group: &Group<'_>) -> String {
    let subject = group.cases[group.subject].name;
    let mut text = format!("\n{}\n", group.title);
    let mut rows = vec![["case".to_owned(), "median (p10 to p90)".to_owned(), format!("times {subject}")]];
    for (index, case) in group.cases.iter().enumerate() {
        let times = match index == group.subject {
            true => "1".to_owned(),
            false => spread(group.ratios(case), ratio),
        };
        rows.push([case.name.to_owned(), spread(Spread::of(case.figures.iter().copied()), time), times]);
    }
    columns(&mut text, &rows);
    if !group.bounds.is_empty() {
        let mut rows =
            vec![[format!("bound of {subject}"), "median (p10 to p90)".to_owned(), "holds".to_owned()]];
        for bound in &group.bounds {
            let held = group.held(bound);
            let show = |figure| match bound.limit {
                Limit::Longer(_) => time(figure),
                _ => ratio(figure),
            };
            rows.push([
                format!("{} {}", limit(bound.limit), bound.reference),
                held.map_or(String::new(), |held| spread(held, show)),
                verdict(held.map(|held| bound.limit.holds(held.median))).to_owned(),
            ]);
        }
        columns(&mut text, &rows);
    }
    for note in &group.notes {
        let _ = writeln!(text, "  {}", note());
    }
    text
}

fn columns(text: &mut String, rows: &[[String; 3]]) {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let (first, second) = (width(0), width(1));
    for row in rows {
        let line = format!("  {:first$}  {:second$}  {}", row[0], row[1], row[2]);
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

fn spread_json(figures: Spread) -> Value {
    json!({"median": figures.median, "p10": figures.p10, "p90": figures.p90})
}

/// A group as JSON. Times are nanoseconds.
pub(crate) fn to_json(group: &Group<'_>) -> Value {
    let cases = group.cases.iter().map(|case| {
        json!({
            "name": case.name,
            "ns": spread_json(Spread::of(case.figures.iter().copied())),
            "times_subject": spread_json(group.ratios(case)),
            "rounds_ns": case.figures,
        })
    });
    let bounds = group.bounds.iter().map(|bound| {
        let held = group.held(bound);
        json!({
            "bound": limit(bound.limit),
            "reference": bound.reference,
            "figure": held.map(spread_json),
            "holds": held.map(|held| bound.limit.holds(held.median)),
        })
    });
    json!({
        "title": group.title,
        "subject": group.cases[group.subject].name,
        "cases": cases.collect::<Vec<_>>(),
        "bounds": bounds.collect::<Vec<_>>(),
        "notes": group.notes.iter().map(|note| note()).collect::<Vec<_>>(),
    })
}
