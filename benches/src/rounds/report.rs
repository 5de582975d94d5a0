//! Tables and JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Group, Limit, Spread};

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

impl Group<'_> {
    /// Returns the tables of cases and bounds, and the notes.
    pub fn table(&self) -> String {
        let subject = self.cases[self.subject].name;
        let mut text = format!("\n{}\n", self.title);
        let mut rows =
            vec![["case".to_owned(), "median (p10 to p90)".to_owned(), format!("times {subject}")]];
        for (index, case) in self.cases.iter().enumerate() {
            let times = match index == self.subject {
                true => "1".to_owned(),
                false => spread(self.ratios(case), ratio),
            };
            rows.push([case.name.to_owned(), spread(Spread::of(case.figures.iter().copied()), time), times]);
        }
        columns(&mut text, &rows);
        if !self.bounds.is_empty() {
            let mut rows = vec![["bound", "median (p10 to p90)", "holds"].map(str::to_owned)];
            for bound in &self.bounds {
                let held = self.held(bound);
                let show = |figure| match bound.limit {
                    Limit::Longer(_) => time(figure),
                    _ => ratio(figure),
                };
                rows.push([
                    format!("{}: {} {}", self.bounded(bound), limit(bound.limit), bound.reference),
                    held.map_or(String::new(), |held| spread(held, show)),
                    verdict(held.map(|held| bound.limit.holds(held.median))).to_owned(),
                ]);
            }
            columns(&mut text, &rows);
        }
        for note in &self.notes {
            let _ = writeln!(text, "  {}", note());
        }
        text
    }

    /// Returns the group as JSON. Times are nanoseconds.
    pub fn to_json(&self) -> Value {
        let cases = self.cases.iter().map(|case| {
            json!({
                "name": case.name,
                "ns": spread_json(Spread::of(case.figures.iter().copied())),
                "times_subject": spread_json(self.ratios(case)),
                "rounds_ns": case.figures,
            })
        });
        let bounds = self.bounds.iter().map(|bound| {
            let held = self.held(bound);
            json!({
                "case": self.bounded(bound),
                "bound": limit(bound.limit),
                "reference": bound.reference,
                "figure": held.map(spread_json),
                "holds": held.map(|held| bound.limit.holds(held.median)),
            })
        });
        json!({
            "title": self.title,
            "subject": self.cases[self.subject].name,
            "cases": cases.collect::<Vec<_>>(),
            "bounds": bounds.collect::<Vec<_>>(),
            "notes": self.notes.iter().map(|note| note()).collect::<Vec<_>>(),
        })
    }
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
