//! Measurements inside one process or from one: groups of cases, each measured once in each round, and their ratios.

mod report;

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};

/// An error states a remedy.
pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A measured thing.
struct Case<'a> {
    /// Its name, different from those of the other cases.
    name: &'static str,
    /// Measures the case once. Returns nanoseconds.
    run: Box<dyn FnMut() -> Result<f64> + 'a>,
    /// The figure of each round.
    figures: Vec<f64>,
}

/// A requirement of a case, compared with another.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// The case takes at most this many times as long.
    TimesAsLong(f64),
    /// The other takes at least this many times as long.
    Sooner(f64),
    /// The case takes at most this many nanoseconds more.
    Longer(f64),
}

/// A limit of one case, and the case with which it is compared.
#[derive(Debug)]
struct Bound {
    /// `None` for the subject.
    case: Option<&'static str>,
    reference: &'static str,
    limit: Limit,
}

/// The median of figures, and the tenth and the ninetieth percentile.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The tenth percentile.
    pub p10: f64,
    /// The ninetieth percentile.
    pub p90: f64,
}

impl Spread {
    /// Returns that of some figures; of none it is 0.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Spread {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        Spread { median: quantile(&sorted, 0.5), p10: quantile(&sorted, 0.1), p90: quantile(&sorted, 0.9) }
    }
}

/// Returns the value below which that share of sorted figures lies, or 0 without figures.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((share * last as f64).round() as usize).copied().unwrap_or_default()
}

/// Cases that are measured one right after another in each round. All are compared with one of them, the subject.
#[derive(Default)]
pub struct Group<'a> {
    /// The measured thing, and the states.
    pub title: String,
    subject: usize,
    cases: Vec<Case<'a>>,
    bounds: Vec<Bound>,
    notes: Vec<Box<dyn Fn() -> String + 'a>>,
}

impl<'a> Group<'a> {
    /// Returns a group without cases.
    pub fn new() -> Group<'a> {
        Group::default()
    }

    /// Adds a case.
    pub fn case(&mut self, name: &'static str, run: impl FnMut() -> Result<f64> + 'a) {
        self.cases.push(Case { name, run: Box::new(run), figures: Vec::new() });
    }

    /// Adds the case with which the others are compared.
    pub fn subject(&mut self, name: &'static str, run: impl FnMut() -> Result<f64> + 'a) {
        self.subject = self.cases.len();
        self.case(name, run);
    }

    /// Adds a requirement of the subject.
    pub fn bound(&mut self, reference: &'static str, limit: Limit) {
        self.bounds.push(Bound { case: None, reference, limit });
    }

    /// Adds a requirement of a case.
    pub fn bound_of(&mut self, case: &'static str, reference: &'static str, limit: Limit) {
        self.bounds.push(Bound { case: Some(case), reference, limit });
    }

    /// Adds a note that the reader needs, once the rounds are over.
    pub fn note(&mut self, note: impl Fn() -> String + 'a) {
        self.notes.push(Box::new(note));
    }

    /// Runs each case once in each round, and once before, which does not count.
    ///
    /// # Errors
    /// The failure of a case, or an error if `interrupted` is set.
    pub fn run(&mut self, rounds: usize, interrupted: &AtomicBool) -> Result<()> {
        for round in 0..=rounds {
            for case in &mut self.cases {
                let figure = (case.run)().map_err(|error| format!("{}, {}: {error}", self.title, case.name));
                if interrupted.load(Ordering::Relaxed) {
                    return Err("it was interrupted".into());
                }
                let figure = figure?;
                if round > 0 {
                    case.figures.push(figure);
                }
            }
        }
        Ok(())
    }

    /// Returns the ratios of a case to the subject, round by round.
    fn ratios(&self, case: &Case<'_>) -> Spread {
        let subject = &self.cases[self.subject].figures;
        Spread::of(case.figures.iter().zip(subject).map(|(figure, subject)| figure / subject))
    }

    /// Returns the name of the case that a bound is on.
    fn bounded(&self, bound: &Bound) -> &'static str {
        bound.case.unwrap_or(self.cases[self.subject].name)
    }

    /// Returns the figure to compare with the limit, round by round. `None` if a case was not measured.
    fn held(&self, bound: &Bound) -> Option<Spread> {
        let figures = |name| self.cases.iter().find(|case| case.name == name).map(|case| &case.figures);
        let pairs = figures(self.bounded(bound))?.iter().zip(figures(bound.reference)?);
        Some(Spread::of(pairs.map(|(own, reference)| match bound.limit {
            Limit::TimesAsLong(_) => own / reference,
            Limit::Sooner(_) => reference / own,
            Limit::Longer(_) => own - reference,
        })))
    }
}

impl Limit {
    /// Returns whether a figure is within the limit.
    fn holds(self, figure: f64) -> bool {
        match self {
            Limit::TimesAsLong(most) | Limit::Longer(most) => figure <= most,
            Limit::Sooner(least) => figure >= least,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a group in which the subject takes 1 and then 2 ns in turn, and the other four times as long.
    fn measured(limit: Limit) -> Group<'static> {
        let times = || {
            let mut round = 0;
            move || {
                round += 1;
                Ok(if round % 2 == 0 { 2.0 } else { 1.0 })
            }
        };
        let (own, mut other) = (times(), times());
        let mut group = Group::new();
        group.bound("other", limit);
        group.subject("own", own);
        group.case("other", move || other().map(|time: f64| time * 4.0));
        group.run(4, &AtomicBool::new(false)).expect("no case fails");
        group
    }

    #[test]
    fn ratios_are_taken_within_rounds_and_the_first_round_does_not_count() {
        let group = measured(Limit::Sooner(4.0));
        assert_eq!(group.cases[0].figures, [2.0, 1.0, 2.0, 1.0]);
        assert_eq!(group.ratios(&group.cases[1]), Spread { median: 4.0, p10: 4.0, p90: 4.0 });
    }

    #[test]
    fn a_bound_of_the_subject_holds_up_to_its_limit() {
        for (limit, holds) in [
            (Limit::Sooner(4.0), "yes"),
            (Limit::Sooner(4.1), "NO"),
            (Limit::TimesAsLong(0.25), "yes"),
            (Limit::TimesAsLong(0.2), "NO"),
            (Limit::Longer(-4.0), "NO"),
        ] {
            let table = measured(limit).table();
            assert!(table.trim_end().ends_with(holds) && table.contains("own: "), "{table}");
        }
        let mut unmeasured = measured(Limit::Sooner(1.0));
        unmeasured.bound_of("third", "other", Limit::Sooner(1.0));
        assert!(unmeasured.table().contains("not measured"));
        assert_eq!(unmeasured.to_json()["bounds"][0]["holds"], true);
    }

    #[test]
    fn an_interrupted_group_ends_with_an_error() {
        let mut group = Group::new();
        group.subject("own", || Ok(1.0));
        assert!(group.run(1, &AtomicBool::new(true)).is_err());
    }
}
