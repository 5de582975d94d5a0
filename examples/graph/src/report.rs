//! The text of a comparison.

use std::fmt::{self, Display, Formatter, Write};

use crate::compare::{Algorithm, Comparison, Measured, RunResult};
use crate::queries::bfs::UNREACHED;
use crate::queries::work::Strategy;

/// Widths of columns.
const WIDTHS: [usize; 6] = [8, 12, 12, 12, 22, 12];

impl Display for Comparison {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        match (self.algorithm, &self.result) {
            (Algorithm::Search(root), RunResult::Levels(levels)) => {
                let reached = levels.iter().filter(|level| **level != UNREACHED);
                let last = reached.clone().max().unwrap_or(&0);
                writeln!(
                    to,
                    "breadth-first search from {root}: {} vertices, the last ones in level {last}",
                    reached.count()
                )?;
            }
            (_, RunResult::Triangles(triangles)) => writeln!(to, "triangle counting: {triangles} triangles")?,
            _ => {}
        }
        let of_unit = |cost: f64| cost * 1e3;
        writeln!(
            to,
            "{} hops; estimated {:.2} ns here and {:.2} ns at the data for each neighbour, {:.0} ns for a hop's call",
            self.hops,
            of_unit(self.costs.here.unit_us),
            of_unit(self.costs.there.unit_us),
            self.costs.call_us * 1e3
        )?;
        row(to, ["wire", "fetch", "call", "choose", "sooner than better", "at data"].map(str::to_owned))?;
        for one in &self.wires {
            let [fetch, call, choose] = Strategy::ALL.map(|strategy| show_time(one.median(strategy)));
            let [gain, least, most] = one.gain();
            let gain = format!("{gain:.2}x ({least:.2} to {most:.2})");
            let at_data = format!("{:.0} %", one.at_data * 100.0);
            row(to, [format!("{} us", one.wire), fetch, call, choose, gain, at_data])?;
        }
        to.write_str(&self.crossed())
    }
}

impl Comparison {
    fn crossed(&self) -> String {
        let crossings = self.crossings();
        let mut text = String::new();
        if crossings.is_empty() {
            let all = |is_ahead: fn(f64, f64) -> bool| {
                let ahead =
                    |one: &Measured| is_ahead(one.median(Strategy::Fetch), one.median(Strategy::Call));
                self.wires.iter().all(ahead)
            };
            let first = if all(|fetch, call| fetch < call) { "fetch" } else { "call" };
            text.push_str("no crossing: ");
            text.push_str(first);
            text.push_str(" is sooner on all these wires\n");
            return text;
        }
        for at in crossings {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "fetch and call cross at {at:.2} us");
        }
        text
    }
}

fn row(to: &mut Formatter<'_>, cells: [String; 6]) -> fmt::Result {
    for (cell, width) in cells.iter().zip(WIDTHS) {
        write!(to, "{cell:>width$}")?;
    }
    writeln!(to)
}

fn show_time(us: f64) -> String {
    if us < 100.0 { format!("{us:.1} us") } else { format!("{:.2} ms", us / 1e3) }
}
