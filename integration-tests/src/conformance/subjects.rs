//! What farjump itself puts to the test: its backends, its middleware and the fakes.

use std::ffi::OsString;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farjump_core::middleware::{Event, Fault, FaultHandle, FaultInjector, Faults, Hold, PerMille, Trace};
use farjump_core::transport::{ArrivalRules, Transport};

use super::subject::{Pair, Subject};
use crate::fakes::{FakeHandle, FakeOneSided, FakeTwoSided, Rule};

/// A subject, or the name of one that is not there.
#[derive(Debug)]
#[must_use]
pub enum Candidate {
    /// It can be run.
    Here(Subject),
    /// A backend that this machine or this build does not have.
    Missing {
        /// Its name.
        name: &'static str,
        /// Why, and what to do.
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

/// Frames for the fakes, of which a test moves each piece.
const FAKE_VOLUME: u64 = 20_000;

/// Frames for a backend.
fn volume(name: &str) -> u64 {
    // UCX takes ten times as long for one as a store does, and far longer over a socket.
    if name.starts_with("ucx-am") { 50_000 } else { 1_000_000 }
}

/// Every backend of farjump, middleware around one, and the fakes. `again` gives for a subject's name the arguments with
/// which this program runs it in another process ([`Subject::between_processes`]).
pub fn candidates(again: impl Fn(&str) -> Vec<OsString>) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    for backend in farjump::available() {
        let name = backend.name;
        candidates.push(match backend.usable {
            Err(why) => Candidate::Missing { name, why },
            Ok(capabilities) => match capabilities.arrival.agree(capabilities.arrival) {
                Some(rule) => {
                    Candidate::Here(plain(name, rule).volume(volume(name)).between_processes(again(name)))
                }
                None => Candidate::Missing { name, why: "it offers no arrival rule".into() },
            },
        });
    }
    candidates.extend(under_other_rules(&again));
    if farjump_transports::make("shm").is_ok() {
        candidates.push(Candidate::Here(traced().between_processes(again(TRACED))));
        candidates.push(Candidate::Here(delayed().between_processes(again(DELAYED))));
    }
    candidates.extend(Rule::ALL.into_iter().map(|rule| Candidate::Here(fake_one_sided(rule))));
    candidates.push(Candidate::Here(fake_two_sided()));
    candidates
}

fn backend(name: &str) -> Box<dyn Transport> {
    farjump_transports::make(name)
        .unwrap_or_else(|error| panic!("{name} could be used a moment ago: {error}"))
}

fn plain(name: &'static str, rule: ArrivalRules) -> Subject {
    Subject::new(name, rule, move || Pair::new(backend(name), backend(name)))
}

/// Backends under rules that they do not take by themselves: `ucx-put` where it may not store into the mapping, so that UCX itself
/// carries the bytes, and `verbs-write` where a frame and its signal are one write. Middleware offers the rule, and does not have
/// frames laid out in memory of the backend's.
fn under_other_rules(again: &impl Fn(&str) -> Vec<OsString>) -> Vec<Candidate> {
    let candidate = |(name, of, rule)| match farjump_transports::make(of) {
        Err(error) => Candidate::Missing { name, why: error.to_string() },
        Ok(_) => {
            let side =
                move || Box::new(FaultInjector::new(backend(of), 1, Faults::NONE).offering(rule)) as Box<_>;
            let subject = Subject::new(name, rule, move || Pair::new(side(), side()));
            Candidate::Here(subject.volume(volume(name)).between_processes(again(name)))
        }
    };
    OTHER_RULES.map(candidate).into()
}

/// A subject's name, its backend and its rule.
const OTHER_RULES: [(&str, &str, ArrivalRules); 4] = [
    ("ucx-put, fenced", "ucx-put", ArrivalRules::FENCED),
    ("ucx-put, checked", "ucx-put", ArrivalRules::CHECKED),
    ("verbs-write, write-imm", "verbs-write", ArrivalRules::WRITE_IMM),
    ("verbs-write, checked", "verbs-write", ArrivalRules::CHECKED),
];
const TRACED: &str = "shm, traced";
const DELAYED: &str = "shm, delayed";

/// Both sides through [`Trace`]: the mapping is hidden, puts carry the bytes.
fn traced() -> Subject {
    let events = Arc::new(AtomicU64::new(0));
    let told = events.clone();
    let side = move || {
        let events = events.clone();
        let sink = move |_: &Event<'_>| _ = events.fetch_add(1, Relaxed);
        Box::new(Trace::new(backend("shm"), sink))
    };
    Subject::new(TRACED, ArrivalRules::FENCED, move || Pair::new(side(), side()))
        .volume(300_000)
        .instrument(move || told.load(Relaxed))
}

/// Both sides through a [`FaultInjector`] that keeps the contract: it only delays.
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

/// The one-sided fake, as disorderly as `rule` allows.
fn fake_one_sided(rule: Rule) -> Subject {
    let (name, arrival) = match rule {
        Rule::Stores => ("fake one-sided, stores", ArrivalRules::STORES),
        Rule::InOrder => ("fake one-sided, in order", ArrivalRules::IN_ORDER),
        Rule::Fenced => ("fake one-sided, fenced", ArrivalRules::FENCED),
        Rule::WriteImm => ("fake one-sided, write-imm", ArrivalRules::WRITE_IMM),
        Rule::Checked => ("fake one-sided, checked", ArrivalRules::CHECKED),
    };
    let seed = AtomicU64::new(1);
    Subject::new(name, arrival, move || {
        let side = || FakeOneSided::new(rule, seed.fetch_add(1, Relaxed));
        let (source, target) = (side(), side());
        let handles = [source.handle(), target.handle()];
        Pair::new(Box::new(source), Box::new(target)).judged_by(move || violations(&handles))
    })
    .volume(FAKE_VOLUME)
}

/// The two-sided fake.
fn fake_two_sided() -> Subject {
    let seed = AtomicU64::new(1);
    Subject::new("fake two-sided", ArrivalRules::DELIVERED, move || {
        let side = || FakeTwoSided::new(seed.fetch_add(1, Relaxed));
        let (source, target) = (side(), side());
        let handles = [source.handle(), target.handle()];
        Pair::new(Box::new(source), Box::new(target)).judged_by(move || violations(&handles))
    })
    .volume(FAKE_VOLUME)
}

fn violations(handles: &[FakeHandle]) -> Vec<String> {
    handles.iter().flat_map(FakeHandle::violations).map(|violation| violation.to_string()).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
