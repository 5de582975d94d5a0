//! Runs one suite of tests, and reports the results of all.

use std::time::{Duration, Instant};

use crate::fetch::packages::{self, Lacking};
use crate::process::{Failed, Run};
use crate::test::report::{Tally, announced, shown_lines};

/// Limit for running one suite. It counts from the first test program on; tests have limits of their own, far below
/// this.
pub(crate) const LIMIT: Duration = Duration::from_secs(40 * 60);

/// Number of the longest test programs that are named at the end.
const SLOWEST: usize = 12;

/// Runs one suite. If tests `must` exist, finding none is a failure.
pub(crate) fn suite(name: &str, run: Run<'_>, must: bool) -> Result<Tally, Failed> {
    say!("\n== {name}");
    let begun = Instant::now();
    let run = run.limit(LIMIT).limit_from(|line| announced(line).is_some());
    let ended = match run.showing(shown_lines(!packages::in_ci())).run() {
        Ok(ended) => ended,
        Err(error) => return counted(name, Err(error)),
    };
    let mut tally = Tally::read(&ended.output);
    tally.took(name, begun.elapsed());
    if !ended.status.success() && tally.failed.is_empty() {
        let why = format!("{name}: cargo test failed ({}) without naming a test", ended.status);
        tally.fail_with(why, ended.output);
    } else if must && tally.is_empty() {
        tally.fail(format!("{name}: there are none"));
    }
    Ok(tally)
}

/// The results of the suite `name`. If it could not begin or continue, that is one failure of it: other suites still
/// run, and the sums are printed.
///
/// # Errors
/// When interrupted.
pub(crate) fn counted(name: &str, ran: Result<Tally, Failed>) -> Result<Tally, Failed> {
    match ran {
        Err(error) if !error.is_interrupt() => {
            let mut tally = Tally::default();
            let why = error.to_string();
            let (why, said) = why.split_once('\n').unwrap_or((&why, ""));
            tally.fail_with(format!("{name}: {why}"), said);
            Ok(tally)
        }
        ran => ran,
    }
}

/// Counts missing packages that CI requires as failures.
pub(crate) fn charge(tally: &mut Tally, lacking: &Lacking) {
    for needed in lacking.unexcused(packages::in_ci()) {
        let (file, package) = (needed.file, needed.package);
        tally.fail(format!("{file}, which {}, could not be installed (package {package})", needed.used));
    }
}

/// Prints the skipped tests by reason, the failed ones, and the sums in a last line. Programs that read CI's output
/// expect the number of failed tests there, also if it is 0.
pub(crate) fn summarise(tally: &Tally, lacking: &Lacking) {
    say!("\n{}", tally.names());
    if !tally.seconds.is_empty() {
        say!("Running took:\n{}", tally.slowest(SLOWEST));
    }
    if !tally.suites.is_empty() {
        say!("Suites took:\n{}", tally.by_suite());
    }
    let lacking = &lacking.needed;
    if !lacking.is_empty() {
        for needed in lacking {
            say!("missing  {} ({})", needed.file, needed.used);
        }
        say!("To have these tested: {}.\n", packages::advice(lacking));
    }
    // The names appear once more: some readers show only the end of a long output.
    for failure in &tally.failed {
        say!("failed: {}", failure.name);
    }
    match tally.failed.is_empty() && !packages::in_ci() {
        true => say!("{} passed, {} skipped", tally.passed, tally.skipped.len()),
        false => say!("{tally}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_that_cannot_run_fails_and_an_interrupt_propagates() {
        let error = Failed::Because("pages cannot be built\n    error: no such folder".to_owned());
        let tally = counted("pages", Err(error)).unwrap();
        assert_eq!(tally.failed[0].name, "pages: pages cannot be built");
        assert_eq!(tally.failed[0].output, "    error: no such folder");
        assert!(counted("pages", Err(Failed::Interrupted)).is_err_and(|error| error.is_interrupt()));
    }
}
