//! The conformance suite: the requirements for every transport.
//!
//! A [`Subject`] makes pairs of transports and names the arrival rule for their endpoints. [`run`] tests it
//! and returns an [`Outcome`], which displays as a table. Levels, each over the one below:
//!
//! * **channels**: frames between two endpoints in one process. Every byte of a frame is compared with its
//!   expected value the moment the frame counts as arrived.
//! * **links, one process**: a target in a thread, sources in others, in each [`Mode`]: the sample functions
//!   against results computed otherwise, order, flow, lost code, restarts, refusals, a million frames, and a
//!   seeded mix of all. Modes other than cached send a tenth of the frames; if the next level is possible,
//!   they are tested here by the checks that depend on the mode.
//! * **links, two processes**: the same, with the target in a process of its own
//!   ([`Subject::between_processes`]), or in an existing one ([`Subject::partnered_by`]).
//! * **links, two machines**: the same, with the target on another machine ([`Subject::served_at`]); nothing
//!   else is tried then.
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
//! let outcome = conformance::run(&subject.volume(2_000).without_wake_ups());
//! println!("{outcome}");
//! outcome.assert_conforms();
//! ```
//!
//! Building the injected functions requires a C compiler and GNU ld or lld. They can come from another machine, and
//! slow machines can do less: `settings.rs` has the variables.
//!
//! Payloads are as long as the subject's frames allow. The smallest maximum that the suite accepts is
//! [`SMALLEST_MAX_FRAME`].
//!
//! # Not tested
//! Speed; failures of machines; rights of other users. Of the faults that a backend claims to notice by itself, only
//! the death of the peer is tested.

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
#[cfg(test)]
mod unusual;

use std::any::Any;
use std::sync::mpsc;

#[cfg(doc)]
use farjump_core::transport::Capabilities;

pub use channels::{LastWords, Stream, last_words, stream};
pub use failure::Failure;
pub use farjump::Mode;
pub use host::{serve_targets, serve_threads};
pub use libraries::build_into;
pub use outcome::{Cell, Level, Matrix, Outcome, Verdict};
pub use subject::{Pair, Subject};
pub use subjects::{Candidate, candidate, names};

use failure::Counted;
use host::Fixture;

/// Smallest [`Capabilities::max_frame`] of a transport that the suite accepts, in bytes. The suite's functions travel
/// in frames beside their payload, and its channels have frames of this length. A check of a transport with less
/// fails with that reason.
pub const SMALLEST_MAX_FRAME: usize = 16 << 10;

/// Tests `subject`. Takes seconds to a minute; a check that hangs counts as failed after a minute.
///
/// In a process that the suite itself started ([`Subject::between_processes`]) this plays the target instead, and
/// ends the process. For subjects other than the process's own it then does nothing, and the outcome is empty.
pub fn run(subject: &Subject) -> Outcome {
    run_reporting(subject, |_| ())
}

/// Does the same as [`run`], and passes the result of each check to `report` as soon as it has ended.
pub fn run_reporting(subject: &Subject, mut report: impl FnMut(&Cell)) -> Outcome {
    let mut cells = Vec::new();
    let mut add = |cell: Cell| {
        report(&cell);
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
        Level::Processes(_) if !subject.is_between_processes() => {
            Some("its two ends have to be in one process")
        }
        _ => None,
    };
    // Some checks do not depend on the mode. One run of these is enough for links in one process and links between
    // processes.
    let of_modes_only =
        subject.is_between_processes() && matches!(level, Level::Threads(mode) if mode != Mode::Cached);
    let chosen = |check: &str| !of_modes_only || links::OF_MODES.contains(&check);
    for (check, try_it) in links::CHECKS.into_iter().filter(|(check, _)| chosen(check)) {
        let verdict = match skip {
            Some(why) => Verdict::Skipped(why.to_owned()),
            None => {
                let subject = subject.clone();
                timed(&subject.clone(), check, move || {
                    let fixture = Fixture::new(&subject, level)?;
                    let counted = try_it(&fixture)?;
                    fixture.end()?;
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

/// Runs one check on a thread of its own, which is abandoned if it hangs.
fn timed(subject: &Subject, check: &str, try_it: impl FnOnce() -> Counted + Send + 'static) -> Verdict {
    let (done, ended) = mpsc::channel();
    let limit = settings::limit();
    let name = format!("{}: {check}", subject.name());
    let started = std::thread::Builder::new().name(name).spawn(move || {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(try_it));
        // This fails if the check took too long and nothing receives the result any more.
        let _ = done.send(result);
    });
    match (started, ended.recv_timeout(limit)) {
        (Err(error), _) => Verdict::Failed(format!("no thread for it: {error}")),
        (Ok(thread), Ok(result)) => {
            // A child's parent thread must not end before the child is reaped.
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
