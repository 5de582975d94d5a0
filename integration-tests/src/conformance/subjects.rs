//! farjump's own subjects: its backends, its middleware and the fakes.

use std::ffi::OsString;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::middleware::{Event, Fault, FaultHandle, FaultInjector, Faults, Hold, PerMille, Trace};
use farjump_core::transport::{ArrivalRules, Transport};
use farjump_transports::{BackendOptions, make_with};

use super::subject::{Pair, Subject};
use crate::connect::Streams;
use crate::fakes::{FakeHandle, FakeOneSided, FakeTwoSided, Rule};

/// A subject, or the name of a missing one.
#[derive(Debug)]
#[must_use]
pub enum Candidate {
    /// It can run.
    Here(Subject),
    /// A backend that this machine or this build does not have.
    Missing {
        /// Its name.
        name: &'static str,
        /// The reason, and what to do.
        why: String,
    },
}

impl Candidate {
    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Candidate::Here(subject) => subject.name(),
            Candidate::Missing { name, .. } => name,
        }
    }
}

/// Frames for the fakes: a test moves each of their pieces.
const FAKE_VOLUME: u64 = 20_000;

/// Frames for a backend.
fn volume(name: &str) -> u64 {
    // UCX takes ten times as long for a frame as a store does, and a socket takes far longer.
    if name.starts_with("ucx-am") || name.starts_with("tcp") { 50_000 } else { 1_000_000 }
}

/// The names of all subjects: every backend of farjump, some under other rules, middleware around one, and
/// the fakes.
pub fn names() -> Vec<&'static str> {
    let other = OTHER_RULES.iter().map(|(name, ..)| *name);
    let fakes = Rule::ALL.into_iter().map(|rule| fake_of(rule).0);
    BACKENDS
        .into_iter()
        .chain(other)
        .chain([CLEAR, TRACED, DELAYED])
        .chain(fakes)
        .chain([TWO_SIDED])
        .collect()
}

/// The subject of this name, if there is one. `again` returns for its name the arguments with which this program runs
/// it in another process ([`Subject::between_processes`]). No other backend is loaded: some load libraries for
/// seconds.
pub fn candidate(name: &str, again: impl Fn(&str) -> Vec<OsString>) -> Option<Candidate> {
    if let Some(name) = BACKENDS.into_iter().find(|known| *known == name) {
        return Some(plain(name, &again));
    }
    if let Some(other) = OTHER_RULES.iter().find(|(known, ..)| *known == name) {
        return Some(under_other_rule(*other, &again));
    }
    if name == CLEAR {
        return Some(clear(&again));
    }
    if let Some((name, make)) = AROUND_SHM.into_iter().find(|(known, _)| *known == name) {
        return Some(match farjump_transports::make("shm") {
            Ok(_) => Candidate::Here(make().between_processes(again(name))),
            Err(error) => Candidate::Missing { name, why: error.to_string() },
        });
    }
    let rule = Rule::ALL.into_iter().find(|rule| fake_of(*rule).0 == name);
    rule.map(fake_one_sided).or_else(|| (name == TWO_SIDED).then(fake_two_sided)).map(Candidate::Here)
}

/// The options of backends. UCX's TCP is on if [`UCX_TCP`] is set.
fn options() -> BackendOptions {
    BackendOptions::new().with_ucx_tcp(std::env::var_os(UCX_TCP).is_some())
}

fn backend(name: &str) -> Box<dyn Transport> {
    make_with(name, options()).unwrap_or_else(|error| panic!("{name} could be used a moment ago: {error}"))
}

/// A backend under its preferred rule.
fn plain(name: &'static str, again: &impl Fn(&str) -> Vec<OsString>) -> Candidate {
    let rule = match make_with(name, options()) {
        Err(error) => return Candidate::Missing { name, why: error.to_string() },
        Ok(transport) => {
            let offered = transport.capabilities().arrival;
            offered.agree(offered)
        }
    };
    match rule {
        Some(rule) => {
            let subject = Subject::new(name, rule, move || Pair::new(backend(name), backend(name)));
            let subject = subject.volume(volume(name)).between_processes(again(name));
            // Over TCP there is a key, and a stream of the backend's own is encrypted.
            Candidate::Here(if name == TCP { subject.over_tcp() } else { subject })
        }
        None => Candidate::Missing { name, why: "it offers no arrival rule".into() },
    }
}

/// A backend under another rule. `ucx-put` is without stores into the mapping, so that UCX itself carries the bytes.
/// `verbs-write` is under each of its rules. Middleware offers the rule, and does not lay frames out in the backend's
/// memory.
fn under_other_rule(
    (name, of, rule): (&'static str, &'static str, ArrivalRules),
    again: &impl Fn(&str) -> Vec<OsString>,
) -> Candidate {
    match farjump_transports::make(of) {
        Err(error) => Candidate::Missing { name, why: error.to_string() },
        Ok(_) => {
            let side =
                move || Box::new(FaultInjector::new(backend(of), 1, Faults::NONE).offering(rule)) as Box<_>;
            let subject = Subject::new(name, rule, move || Pair::new(side(), side()));
            Candidate::Here(subject.volume(volume(name)).between_processes(again(name)))
        }
    }
}

/// `tcp` without encryption, over Unix sockets.
fn clear(again: &impl Fn(&str) -> Vec<OsString>) -> Candidate {
    match farjump_transports::make(TCP) {
        Err(error) => Candidate::Missing { name: CLEAR, why: error.to_string() },
        Ok(_) => {
            let pair = || Pair::new(backend(TCP), backend(TCP)).over(Streams::Clear);
            let subject = Subject::new(CLEAR, ArrivalRules::DELIVERED, pair);
            Candidate::Here(subject.volume(volume(CLEAR)).between_processes(again(CLEAR)))
        }
    }
}

/// The variable that, if set, lets `ucx-am` use UCX's TCP.
const UCX_TCP: &str = "CONFORMANCE_UCX_TCP";
/// farjump's backends.
const BACKENDS: [&str; 6] = ["shm", "ucx-put", "ucx-am", "verbs-write", "verbs-send", TCP];
const TCP: &str = "tcp";
const CLEAR: &str = "tcp, clear";
/// A subject's name, its backend and its rule.
const OTHER_RULES: [(&str, &str, ArrivalRules); 5] = [
    ("ucx-put, fenced", "ucx-put", ArrivalRules::FENCED),
    ("ucx-put, checked", "ucx-put", ArrivalRules::CHECKED),
    ("verbs-write, fenced", "verbs-write", ArrivalRules::FENCED),
    ("verbs-write, write-imm", "verbs-write", ArrivalRules::WRITE_IMM),
    ("verbs-write, checked", "verbs-write", ArrivalRules::CHECKED),
];
const TRACED: &str = "shm, traced";
const DELAYED: &str = "shm, delayed";
const TWO_SIDED: &str = "fake two-sided";
/// A subject's name, and the function that makes it.
type Named = (&'static str, fn() -> Subject);
/// Middleware around shared memory.
const AROUND_SHM: [Named; 2] = [(TRACED, traced), (DELAYED, delayed)];

/// Both endpoints through [`Trace`]: the mapping is hidden, puts carry the bytes.
fn traced() -> Subject {
    let events = Arc::new(AtomicU64::new(0));
    let reported = events.clone();
    let side = move || {
        let events = events.clone();
        let sink = move |_: &Event<'_>| _ = events.fetch_add(1, Relaxed);
        Box::new(Trace::new(backend("shm"), sink))
    };
    Subject::new(TRACED, ArrivalRules::FENCED, move || Pair::new(side(), side()))
        .volume(300_000)
        .instrument(move || reported.load(Relaxed))
}

/// Both endpoints through a [`FaultInjector`] that keeps the contract: it only delays.
fn delayed() -> Subject {
    let faults = Faults { delay: PerMille(100), hold: Hold::Turns(5), ..Faults::NONE };
    let handles: Arc<Mutex<Vec<FaultHandle>>> = Arc::default();
    let asked = handles.clone();
    let seed = AtomicU64::new(1);
    let side = move || {
        let injector = FaultInjector::new(backend("shm"), seed.fetch_add(1, Relaxed), faults);
        lock(&handles).push(injector.handle());
        Box::new(injector)
    };
    Subject::new(DELAYED, ArrivalRules::FENCED, move || Pair::new(side(), side()))
        .volume(50_000)
        .instrument(move || lock(&asked).iter().map(|handle| handle.count(Fault::Delay)).sum())
}

/// The name of the one-sided fake that honours only this rule, and the rule.
fn fake_of(rule: Rule) -> (&'static str, ArrivalRules) {
    match rule {
        Rule::Stores => ("fake one-sided, stores", ArrivalRules::STORES),
        Rule::InOrder => ("fake one-sided, in order", ArrivalRules::IN_ORDER),
        Rule::Fenced => ("fake one-sided, fenced", ArrivalRules::FENCED),
        Rule::WriteImm => ("fake one-sided, write-imm", ArrivalRules::WRITE_IMM),
        Rule::Checked => ("fake one-sided, checked", ArrivalRules::CHECKED),
    }
}

/// The one-sided fake, as disorderly as `rule` allows.
fn fake_one_sided(rule: Rule) -> Subject {
    let (name, arrival) = fake_of(rule);
    let seed = AtomicU64::new(1);
    Subject::new(name, arrival, move || {
        let side = || FakeOneSided::new(rule, seed.fetch_add(1, Relaxed));
        let (source, target) = (side(), side());
        let handles = [source.handle(), target.handle()];
        Pair::new(Box::new(source), Box::new(target)).judged_by(move || violations(&handles))
    })
    .volume(FAKE_VOLUME)
    .without_wake_ups()
}

/// The two-sided fake.
fn fake_two_sided() -> Subject {
    let seed = AtomicU64::new(1);
    Subject::new(TWO_SIDED, ArrivalRules::DELIVERED, move || {
        let side = || FakeTwoSided::new(seed.fetch_add(1, Relaxed));
        let (source, target) = (side(), side());
        let handles = [source.handle(), target.handle()];
        Pair::new(Box::new(source), Box::new(target)).judged_by(move || violations(&handles))
    })
    .volume(FAKE_VOLUME)
    .without_wake_ups()
}

fn violations(handles: &[FakeHandle]) -> Vec<String> {
    handles.iter().flat_map(FakeHandle::violations).map(|violation| violation.to_string()).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_backend_is_a_subject_named_like_its_candidate() {
        let backends: Vec<_> =
            farjump::transports::available().into_iter().map(|backend| backend.name).collect();
        assert_eq!(backends, BACKENDS);
        for name in names() {
            assert_eq!(candidate(name, |_| Vec::new()).expect(name).name(), name);
        }
        assert!(candidate("carrier pigeon", |_| Vec::new()).is_none());
    }
}
