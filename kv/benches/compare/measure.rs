//! Rounds over cases, and ratios between them.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An error states a remedy.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A measured thing.
pub(crate) struct Case<'a> {
    pub(crate) name: &'static str,
    /// Measures the case once. Returns nanoseconds.
    run: Box<dyn FnMut() -> Result<f64> + 'a>,
    /// The figure of each round.
    pub(crate) figures: Vec<f64>,
}

/// A requirement of a group's subject, compared with another case.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    /// The subject takes at most this many times as long.
    TimesAsLong(f64),
    /// The other case takes at least this many times as long.
    Sooner(f64),
    /// The subject takes at most this many nanoseconds more.
    Longer(f64),
}

/// A limit, and the case that the subject is compared with.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) reference: &'static str,
    pub(crate) limit: Limit,
}

/// The median of figures, and the tenth and the ninetieth percentile.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) p10: f64,
    pub(crate) p90: f64,
}

impl Spread {
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Spread {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        Spread { median: quantile(&sorted, 0.5), p10: quantile(&sorted, 0.1), p90: quantile(&sorted, 0.9) }
    }
}

/// Returns the value below which that share of sorted figures lies, or 0 without figures.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((share * last as f64).round() as usize).copied().unwrap_or_default()
}

/// Cases that are measured one right after another in each round. The others are compared with the subject.
pub(crate) struct Group<'a> {
    /// The measured thing, and the states.
    pub(crate) title: String,
    pub(crate) subject: usize,
    pub(crate) cases: Vec<Case<'a>>,
    pub(crate) bounds: Vec<Bound>,
    /// Notes that the reader needs, once the rounds are over.
    pub(crate) notes: Vec<Box<dyn Fn() -> String + 'a>>,
}

impl<'a> Group<'a> {
    pub(crate) fn new() -> Group<'a> {
        Group { title: String::new(), subject: 0, cases: Vec::new(), bounds: Vec::new(), notes: Vec::new() }
    }

    /// Adds a case.
    pub(crate) fn case(&mut self, name: &'static str, run: impl FnMut() -> Result<f64> + 'a) {
        self.cases.push(Case { name, run: Box::new(run), figures: Vec::new() });
    }

    /// Adds the case with which the others are compared.
    pub(crate) fn subject(&mut self, name: &'static str, run: impl FnMut() -> Result<f64> + 'a) {
        self.subject = self.cases.len();
        self.case(name, run);
    }

    /// Adds a requirement of the subject.
    pub(crate) fn bound(&mut self, reference: &'static str, limit: Limit) {
        self.bounds.push(Bound { reference, limit });
    }

    pub(crate) fn note(&mut self, note: impl Fn() -> String + 'a) {
        self.notes.push(Box::new(note));
    }

    /// Runs each case once in each round, and once before, which does not count.
    ///
    /// # Errors
    /// The failure of a case, or an error if `interrupted` is set.
    pub(crate) fn run(&mut self, rounds: usize, interrupted: &Arc<AtomicBool>) -> Result<()> {
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

    /// The ratios of a case to the subject, round by round.
    pub(crate) fn ratios(&self, case: &Case<'_>) -> Spread {
        let subject = &self.cases[self.subject].figures;
        Spread::of(case.figures.iter().zip(subject).map(|(figure, subject)| figure / subject))
    }

    /// Returns the figure to compare with the limit, round by round. `None` if the case was not measured.
    pub(crate) fn held(&self, bound: &Bound) -> Option<Spread> {
        let subject = &self.cases[self.subject].figures;
        let reference = &self.cases.iter().find(|case| case.name == bound.reference)?.figures;
        let pairs = subject.iter().zip(reference);
        Some(Spread::of(pairs.map(|(subject, reference)| match bound.limit {
            Limit::TimesAsLong(_) => subject / reference,
            Limit::Sooner(_) => reference / subject,
            Limit::Longer(_) => subject - reference,
        })))
    }
}

impl Limit {
    /// Returns whether a figure is within the limit.
    pub(crate) fn holds(self, figure: f64) -> bool {
        match self {
            Limit::TimesAsLong(most) | Limit::Longer(most) => figure <= most,
            Limit::Sooner(least) => figure >= least,
        }
    }
}
