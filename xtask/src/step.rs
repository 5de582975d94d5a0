//! Steps of CI and of other chores.

use std::time::Duration;

use crate::process::{Failed, Interrupt, Run};
use crate::test::report::last;
use crate::workspace::root;

/// Limit for one command of cargo other than a suite of tests, with other steps beside it.
pub(crate) const LIMIT: Duration = Duration::from_secs(30 * 60);

/// Verdict of a step: success, or the failure.
pub(crate) type Verdict = Result<(), Failed>;

/// Runs cargo to its end.
///
/// # Errors
/// When cargo fails, and has printed the reason itself; or when it does not end in time.
pub(crate) fn cargo(interrupt: &Interrupt, args: &[&str], env: &[(&str, &str)]) -> Verdict {
    let run = Run::cargo(interrupt).args(args).directory(root()).limit(LIMIT);
    // cargo's lines for each crate would hide the useful output.
    let run = env.iter().fold(run.env("CARGO_TERM_QUIET", "true"), |run, (name, value)| run.env(name, value));
    let ended = run.run()?;
    match ended.status.success() {
        true => Ok(()),
        false => {
            let said = last(&ended.output).join("\n    ");
            Err(Failed::Because(format!("cargo {} failed\n    {said}", args.join(" "))))
        }
    }
}
