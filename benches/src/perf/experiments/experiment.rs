//! The one kind of experiment: in each step, rounds in which all contestants are measured one right after another.

use crate::perf::machine::{CoreDistance, Placement};
use crate::perf::report::key::Key;
use crate::perf::report::progress::{check_signals, progress};
use crate::perf::report::row::Row;
use crate::perf::report::statistics::{Round, Series, median};
use crate::perf::report::{Report, RoundState};
use crate::program::failure::Failure;
use indicatif::ProgressBar;

/// Contestants, and what is measured of them.
pub(in crate::perf) trait Experiment {
    /// One combination of parameters.
    type Step: Copy;

    /// Returns the number of contestants, the same in all steps.
    fn contestants(&self) -> usize;

    /// Prepares a step. Returns, for each contestant, the reason if it is missing.
    fn begin(&mut self, step: Self::Step) -> Result<Vec<Option<String>>, Failure>;

    /// Prepares a round, from 1. Returns the time of a line one way, in nanoseconds, if it can be measured.
    fn begin_round(&mut self, step: Self::Step, round: u32) -> Result<Option<f64>, Failure>;

    /// Measures a contestant in a round. The inner error is the reason why it is missing from now on.
    fn measure(&mut self, step: Self::Step, contestant: usize) -> Result<Result<Round, String>, Failure>;

    /// Returns the processors that were used in a round, if the system chose them.
    fn placement(&mut self) -> Option<Placement> {
        None
    }

    /// Returns the row of a contestant without figures: its metric, unit, name and parameters. That of the first one has
    /// all parameters of the step.
    fn described(&self, step: Self::Step, contestant: usize) -> Row;

    /// Returns the rows of a step.
    fn rows(&mut self, step: Self::Step, measured: &Measured) -> Result<Vec<Row>, Failure>;
}

/// The result of one contestant in one step.
pub(in crate::perf) struct Outcome {
    pub(in crate::perf) series: Series,
    /// The reason why it was not measured, or no longer.
    pub(in crate::perf) missing: Option<String>,
}

/// The results of one step.
pub(in crate::perf) struct Measured {
    pub(in crate::perf) outcomes: Vec<Outcome>,
    /// The contestants' rows without figures.
    pub(in crate::perf) described: Vec<Row>,
    /// The machine's state, in the median of the rounds.
    pub(in crate::perf) state: Option<CoreDistance>,
}

impl Measured {
    /// Returns the row of one contestant, beside another by this name if there is one.
    pub(in crate::perf) fn row(&self, own: usize, reference: Option<(&'static str, usize)>) -> Row {
        let outcome = |at: usize| &self.outcomes[at];
        let beside = reference.map(|(_, at)| outcome(at));
        let lane =
            reference.map(|(_, at)| self.described[at].text(Key::Lane)).filter(|lane| !lane.is_empty());
        let missing = outcome(own).missing.as_ref().or_else(|| beside?.missing.as_ref());
        let row = self.described[own].clone();
        Row {
            reference: reference.map(|(name, _)| name),
            state: self.state,
            missing: missing.cloned(),
            ..row
        }
        .with(Key::ReferenceLane, lane)
        .beside(&outcome(own).series, beside.map(|beside| &beside.series))
    }
}

/// Measures all steps, and adds their rows to the report, also those before a failure.
///
/// # Errors
/// A measurement failed, or a signal has interrupted it.
pub(in crate::perf) fn run<E: Experiment>(
    experiment: &mut E,
    steps: &[E::Step],
    rounds: u32,
    report: &mut Report,
) -> Result<(), Failure> {
    let bar = progress(measurements(experiment, steps, rounds));
    let measured = run_beside(experiment, steps, rounds, &bar, report);
    bar.finish_and_clear();
    measured
}

/// Returns the number of measurements of [`run`].
pub(in crate::perf) fn measurements<E: Experiment>(experiment: &E, steps: &[E::Step], rounds: u32) -> usize {
    steps.len() * rounds as usize * experiment.contestants()
}

/// Measures like [`run`], as a part of what a bar shows.
pub(in crate::perf) fn run_beside<E: Experiment>(
    experiment: &mut E,
    steps: &[E::Step],
    rounds: u32,
    bar: &ProgressBar,
    report: &mut Report,
) -> Result<(), Failure> {
    steps.iter().try_for_each(|step| {
        let missing = experiment.begin(*step)?;
        let outcome = |missing| Ok(Outcome { series: Series::new()?, missing });
        let outcomes = missing.into_iter().map(outcome).collect::<Result<_, Failure>>()?;
        let described = described(experiment, *step);
        let mut measured = Measured { outcomes, described, state: None };
        let first = report.rounds.len();
        let ended = run_step(experiment, *step, rounds, bar, &mut measured, &mut report.rounds);
        let lines: Vec<f64> = report.rounds[first..].iter().filter_map(|round| round.line_ns).collect();
        measured.state = median(&lines).map(CoreDistance::of);
        // Carriers may be known only now.
        measured.described = self::described(experiment, *step);
        report.rows.extend(experiment.rows(*step, &measured)?);
        ended
    })
}

fn described<E: Experiment>(experiment: &E, step: E::Step) -> Vec<Row> {
    (0..experiment.contestants()).map(|contestant| experiment.described(step, contestant)).collect()
}

fn run_step<E: Experiment>(
    experiment: &mut E,
    step: E::Step,
    rounds: u32,
    bar: &ProgressBar,
    Measured { outcomes, described, .. }: &mut Measured,
    states: &mut Vec<RoundState>,
) -> Result<(), Failure> {
    if outcomes.iter().all(|outcome| outcome.missing.is_some()) {
        bar.inc(u64::from(rounds) * outcomes.len() as u64);
        return Ok(());
    }
    let (shown, size) = described.first().map_or((String::new(), 0), |row| (shown(row), row.size()));
    for round in 1..=rounds {
        let shown = format!("{shown}, round {round}");
        bar.set_message(shown.clone());
        // Targets elsewhere, and those of this process, do not end by themselves.
        check_signals()?;
        let line_ns = experiment.begin_round(step, round)?;
        states.push(RoundState::of(size as usize, round, line_ns));
        for (contestant, outcome) in outcomes.iter_mut().enumerate() {
            bar.set_message(format!("{shown}: {}", described[contestant].what()));
            if outcome.missing.is_none() {
                check_signals()?;
                match experiment.measure(step, contestant)? {
                    Ok(round) => outcome.series.add(round),
                    Err(why) => outcome.missing = Some(why),
                }
            }
            bar.inc(1);
        }
        if let Some(state) = states.last_mut() {
            state.placement = experiment.placement();
        }
    }
    Ok(())
}

/// Describes a step by the parameters in which steps differ.
fn shown(row: &Row) -> String {
    let mut parts = vec![row.text(Key::Function).to_owned(), row.shown_wire()];
    for (key, unit) in [(Key::Sources, "sources"), (Key::Depth, "words"), (Key::Outstanding, "at a time")] {
        parts.extend(row.number(key).map(|number| format!("{number} {unit}")));
    }
    parts.push(format!("{} B", row.size()));
    parts.retain(|part| !part.is_empty());
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::machine::Machine;

    /// Notes its measurements. In step 1 contestant 1 cannot be measured from its second round on; step 2 has no
    /// contestants; the second round of step 3 fails.
    #[derive(Default)]
    struct Notes {
        round: u32,
        measured: Vec<(u32, u32, usize)>,
    }

    impl Experiment for Notes {
        type Step = u32;

        fn contestants(&self) -> usize {
            2
        }

        fn begin(&mut self, step: u32) -> Result<Vec<Option<String>>, Failure> {
            Ok(vec![(step == 2).then(|| "none".to_owned()); 2])
        }

        fn begin_round(&mut self, step: u32, round: u32) -> Result<Option<f64>, Failure> {
            self.round = round;
            match (step, round) {
                (3, 2) => Err(Failure::new("it is gone")),
                _ => Ok(Some(25.0)),
            }
        }

        fn measure(&mut self, step: u32, contestant: usize) -> Result<Result<Round, String>, Failure> {
            self.measured.push((step, self.round, contestant));
            match (step, self.round, contestant) {
                (1, 2, 1) => Ok(Err("no longer".to_owned())),
                _ => Ok(Ok(Round::of(f64::from(self.round) * (contestant + 1) as f64))),
            }
        }

        fn described(&self, step: u32, contestant: usize) -> Row {
            let lane = (contestant == 1).then_some("posix");
            Row { subject: "farjump", ..Row::default() }.with(Key::Size, step).with(Key::Lane, lane)
        }

        fn rows(&mut self, _step: u32, measured: &Measured) -> Result<Vec<Row>, Failure> {
            Ok(vec![measured.row(0, Some(("other", 1)))])
        }
    }

    fn report() -> Report {
        let machine = Machine {
            processor: String::new(),
            processors: 2,
            kernel: String::new(),
            farjump: "",
            ucx: None,
            ucx_tls: None,
            source_cpu: None,
            target_cpu: None,
            peer: None,
        };
        Report { machine, rounds: Vec::new(), rows: Vec::new() }
    }

    #[test]
    fn contestants_alternate_in_each_round_until_one_is_missing() {
        let (mut notes, mut report) = (Notes::default(), report());
        run_beside(&mut notes, &[1, 2], 3, &ProgressBar::hidden(), &mut report).expect("no step fails");
        assert_eq!(notes.measured, [(1, 1, 0), (1, 1, 1), (1, 2, 0), (1, 2, 1), (1, 3, 0)]);
        let [one, none] = &report.rows[..] else { panic!("{:?}", report.rows) };
        assert_eq!((one.median, one.reference_median, one.ratio), (Some(2.0), Some(2.0), Some(0.5)));
        assert_eq!((one.missing.as_deref(), one.state), (Some("no longer"), Some(CoreDistance::Near)));
        assert_eq!((one.reference, one.text(Key::ReferenceLane)), (Some("other"), "posix"));
        assert_eq!((none.median, none.missing.as_deref(), none.state), (None, Some("none"), None));
        assert_eq!(report.rounds.len(), 3);
    }

    #[test]
    fn a_failed_round_ends_the_run_but_keeps_the_rows_before() {
        let (mut notes, mut report) = (Notes::default(), report());
        let failed = run_beside(&mut notes, &[3, 1], 3, &ProgressBar::hidden(), &mut report);
        assert_eq!(failed.map_err(|failure| failure.to_string()), Err("it is gone".to_owned()));
        assert_eq!(notes.measured, [(3, 1, 0), (3, 1, 1)]);
        assert_eq!((report.rows.len(), report.rows[0].median, report.rounds.len()), (1, Some(1.0), 1));
    }
}
