//! The conformance suite: what every transport has to stand, whoever wrote it.
//!
//! A [`Subject`] says how to make a pair of transports and which arrival rule their ends should use; [`run`] puts it to
//! the test and returns an [`Outcome`], which displays as a table. Levels, each over the one below:
//!
//! * **channels**: frames between two ends in one process. Every byte of a frame is compared with what its place in the
//!   stream calls for, the moment the frame counts as arrived.
//! * **links, one process**: a target in a thread, sources in others, in each [`Mode`]: the sample functions against
//!   answers computed otherwise, order, flow, lost code, restarts, refusals, a million frames, and a seeded mix of all.
//! * **links, two processes**: the same, with the target in a process of its own
//!   ([`Subject::between_processes`]), or in another one that is there already ([`Subject::partnered_by`]).
//! * **links, two machines**: the same, with the target on another one ([`Subject::served_at`]); then nothing else is tried.
//!
//! ```
//! use farjump_core::transport::ArrivalRules;
//! use farjump_integration_tests::conformance::{self, Pair, Subject};
//! use farjump_integration_tests::fakes::FakeTwoSided;
//!
//! let subject = Subject::new("two-sided fake", ArrivalRules::DELIVERED, || {
//!     let (source, target) = (FakeTwoSided::new(1), FakeTwoSided::new(2));
//!     let handle = source.handle();
//!     Pair::new(Box::new(source), Box::new(target))
//!         .judged_by(move || handle.violations().iter().map(ToString::to_string).collect())
//! });
//! let outcome = conformance::run(&subject.volume(2_000));
//! println!("{outcome}");
//! outcome.assert_conforms();
//! ```
//!
//! Building the functions that are injected takes a C compiler and GNU ld or lld. Where there is none they can be brought along,
//! and where all is slow there can be less to do: `settings.rs` has the variables.
//!
//! # What is not tested
//! Speed; what happens when a machine fails; rights of other users. That a backend notices by itself what its
//! capabilities list is tested for the death of the peer alone.

mod channels;
mod failure;
mod host;
mod libraries;
mod links;
mod outcome;
mod pattern;
mod settings;
mod subject;
mod subjects;

use std::any::Any;
use std::sync::mpsc;

pub use channels::{LastWords, Stream, last_words, stream};
pub use failure::Failure;
pub use farjump::Mode;
pub use host::{serve_targets, serve_threads};
pub use libraries::build_into;
pub use outcome::{Cell, Level, Matrix, Outcome, Verdict};
pub use subject::{Pair, Subject};
pub use subjects::{Candidate, candidate, names};

use failure::Counted;
use host::Stage;

/// Puts `subject` to the test. Takes seconds to a minute; a check that hangs counts as failed after a minute.
///
/// In a process that the suite itself started ([`Subject::between_processes`]) it plays the target instead, and ends the
/// process. For other subjects than the one it was started for it then does nothing, and the outcome is empty.
pub fn run(subject: &Subject) -> Outcome {
    run_telling(subject, |_| ())
}

/// [`run`], and tells what each check found as soon as it has ended.
pub fn run_telling(subject: &Subject, mut tell: impl FnMut(&Cell)) -> Outcome {
    let mut cells = Vec::new();
    let mut add = |cell: Cell| {
        tell(&cell);
        cells.push(cell);
    };
    if !host::is_child() && subject.elsewhere().is_some() {
        for mode in Mode::ALL {
            link_level(subject, Level::Machines(mode), &mut add);
        }
    } else if !host::is_child() {
        channel_level(subject, &mut add);
        for mode in Mode::ALL {
            link_level(subject, Level::Threads(mode), &mut add);
            link_level(subject, Level::Processes(mode), &mut add);
        }
    } else if host::is_child_for(subject) {
        host::play(subject);
    }
    Outcome { subject: subject.name().to_owned(), rule: subject.rule().describe(), cells }
}

fn channel_level(subject: &Subject, add: &mut impl FnMut(Cell)) {
    for (check, try_it) in channels::CHECKS {
        let tried = subject.clone();
        let verdict = match settings::left_out(Level::Channels) {
            None => timed(subject, check, move || try_it(&tried)),
            Some(why) => Verdict::Skipped(why.to_owned()),
        };
        add(Cell { level: Level::Channels, check, verdict });
    }
}

fn link_level(subject: &Subject, level: Level, add: &mut impl FnMut(Cell)) {
    let left_out = settings::left_out(level);
    let skip = match level {
        _ if left_out.is_some() => left_out,
        _ if level.mode() == Some(Mode::InPlace) && !subject.in_place() => {
            Some("its mailbox cannot be executed")
        }
        Level::Processes(_) if subject.again().is_none() && subject.partner().is_none() => {
            Some("its two ends have to be in one process")
        }
        _ => None,
    };
    for (check, try_it) in links::CHECKS {
        let verdict = match skip {
            Some(why) => Verdict::Skipped(why.to_owned()),
            None => {
                let subject = subject.clone();
                timed(&subject.clone(), check, move || {
                    let stage = Stage::new(&subject, level)?;
                    let counted = try_it(&stage)?;
                    stage.end()?;
                    Ok(counted)
                })
            }
        };
        add(Cell { level, check, verdict });
    }
    if let (Level::Threads(_), Some(count)) = (level, subject.instruments())
        && settings::left_out(level).is_none()
    {
        let verdict = verdict(Ok(Ok(count)));
        add(Cell { level, check: "instrument", verdict });
    }
}

/// Runs one check on a thread of its own, which is given up if it hangs.
fn timed(subject: &Subject, check: &str, try_it: impl FnOnce() -> Counted + Send + 'static) -> Verdict {
    let (done, ended) = mpsc::channel();
    let limit = settings::limit();
    let name = format!("{}: {check}", subject.name());
    let started = std::thread::Builder::new().name(name).spawn(move || {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(try_it));
        // Nobody listens any more to one that took too long.
        let _ = done.send(result);
    });
    match (started, ended.recv_timeout(limit)) {
        (Err(error), _) => Verdict::Failed(format!("no thread for it: {error}")),
        (Ok(thread), Ok(result)) => {
            // So that a child's parent thread has not ended before the child is reaped.
            let _ = thread.join();
            verdict(result)
        }
        (Ok(_), Err(_)) => Verdict::Failed(format!("it hangs: no end in {} s", limit.as_secs())),
    }
}

fn verdict(result: Result<Counted, Box<dyn Any + Send>>) -> Verdict {
    match result {
        Ok(Ok(0)) => Verdict::Failed("it found nothing to look at".into()),
        Ok(Ok(counted)) => Verdict::Ok(counted),
        Ok(Err(failure)) => Verdict::Failed(failure.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(ToString::to_string);
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            Verdict::Failed(format!("panicked: {}", text.unwrap_or_else(|| "without a text".into())))
        }
    }
}
