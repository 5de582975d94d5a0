//! Names of functions that ran, for SLOWLOG, MONITOR, LATENCY and the log.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use farjump::{LastCall, Target};

use crate::api;

/// The calls of a run: the server shows it as one command, FJ._RUN.
#[derive(Default)]
pub(crate) struct LastRun {
    calls: usize,
    /// The longest poll, and the last call in it. A poll takes one call of a link if they take long.
    longest: Duration,
    call: Option<LastCall>,
}

impl LastRun {
    /// Forgets the run before.
    pub(crate) fn begin(&mut self) {
        (self.calls, self.longest) = (0, Duration::ZERO);
    }

    /// Notes that a poll has run `calls` calls.
    pub(crate) fn add(&mut self, target: &Target<'_>, calls: usize, took: Duration) {
        if self.calls == 0 || took > self.longest {
            (self.longest, self.call) = (took, target.last_call());
        }
        self.calls += calls;
    }

    /// Returns the function that took longest, and the number of the others. A run without calls is for links that
    /// begin or end.
    pub(crate) fn shown(&self) -> String {
        match (self.calls, self.function()) {
            (0, _) => "no call".to_owned(),
            (1, name) => name.to_owned(),
            (calls, name) => format!("{name} and {} more", calls - 1),
        }
    }

    /// As [`LastRun::shown`], with the process that called the function.
    pub(crate) fn shown_with_caller(&self) -> String {
        let caller = self.call.as_ref().and_then(|call| call.caller.as_ref());
        let of = caller.map_or_else(String::new, |caller| format!(" of {caller}"));
        format!("{}{of}", self.shown())
    }

    /// The name of the function that took longest.
    pub(crate) fn function(&self) -> &str {
        self.call.as_ref().filter(|_| self.calls != 0).map_or("", |call| &call.function)
    }
}

/// Maximum number of functions that LATENCY shows by name, because the server keeps every name.
const MOST_EVENTS: usize = 64;

thread_local! {
    static EVENTS: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
}

/// Makes LATENCY show a function that took this time. The server leaves out times below its
/// `latency-monitor-threshold`.
pub(crate) fn note_latency(function: &str, took: Duration) {
    let Ok(milliseconds @ 1..) = i64::try_from(took.as_millis()) else { return };
    if function.is_empty() {
        return;
    }
    let is_known = EVENTS.with_borrow_mut(|events| {
        if events.len() < MOST_EVENTS && !events.contains(function) {
            events.insert(function.to_owned());
        }
        events.contains(function)
    });
    let event = if is_known { format!("farjump:{function}") } else { "farjump:others".to_owned() };
    api::add_latency(&event, milliseconds);
}
