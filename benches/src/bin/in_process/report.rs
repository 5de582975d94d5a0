//! Rows of values.

/// Prints the machine's description.
pub(crate) fn machine() {
    let model = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        model.lines().find_map(|line| line.strip_prefix("model name\t: ")).unwrap_or("unknown processor");
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    println!("{model}, Linux {}", kernel.trim());
}

pub(crate) fn heads() {
    println!(
        "\n{:<44} {:>12} {:>12} {:>7}  {:>13}  bound",
        "medians of the rounds", "farjump", "reference", "ratio", "spread"
    );
}

/// Pairs of values, one for each round.
#[derive(Default)]
pub(crate) struct Series {
    pairs: Vec<(f64, f64)>,
}

impl Series {
    /// Adds a round: farjump's value and the baseline's.
    pub(crate) fn add(&mut self, farjump: f64, baseline: f64) {
        self.pairs.push((farjump, baseline));
    }

    /// Prints the row: medians, the median of the ratios and their quartiles.
    pub(crate) fn print(&self, what: &str, unit: &str, bound: &str) {
        let of = |pick: fn(&(f64, f64)) -> f64| sorted(self.pairs.iter().map(pick).collect());
        let (farjump, baseline) = (of(|pair| pair.0), of(|pair| pair.1));
        let ratios = of(|pair| pair.0 / pair.1);
        println!(
            "{what:<44} {:>12} {:>12} {:>6.3}x  {:>5.3}..{:<5.3}  {bound}",
            format!("{:.1} {unit}", at(&farjump, 0.5)),
            format!("{:.1} {unit}", at(&baseline, 0.5)),
            at(&ratios, 0.5),
            at(&ratios, 0.25),
            at(&ratios, 0.75),
        );
    }
}

pub(crate) fn median(values: Vec<f64>) -> f64 {
    at(&sorted(values), 0.5)
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

fn at(sorted: &[f64], part: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * part).round() as usize).copied().unwrap_or(f64::NAN)
}
