//! What is put to the test: a way to make transports, and what they promise.

use std::any::Any;
use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use farjump_core::transport::{ArrivalRules, Transport};

use super::settings;
use crate::pair::Streams;

/// Two transports, one for each side of a link.
#[must_use]
pub struct Pair {
    pub(super) source: Box<dyn Transport>,
    pub(super) target: Box<dyn Transport>,
    pub(super) keep: Keep,
    pub(super) streams: Streams,
}

/// What is to live as long as the ends of a pair, and judges them in the end.
#[derive(Default)]
pub(super) struct Keep {
    judge: Option<Box<dyn Fn() -> Vec<String> + Send>>,
    _alive: Vec<Box<dyn Any + Send>>,
}

impl Pair {
    /// The transport of the source, and that of the target. The source of one pair must be able to reach the target of
    /// another, as two processes do that know nothing of each other.
    pub fn new(source: Box<dyn Transport>, target: Box<dyn Transport>) -> Pair {
        Pair { source, target, keep: Keep::default(), streams: Streams::default() }
    }

    /// Gives the ends such streams, if they ask for some, where there is no control connection.
    pub fn over(mut self, streams: Streams) -> Pair {
        self.streams = streams;
        self
    }

    /// Keeps a value as long as the links that are made of the pair: a thread that lets a backend work, for instance.
    pub fn keeping(mut self, value: impl Any + Send) -> Pair {
        self.keep._alive.push(Box::new(value));
        self
    }

    /// Asks `judge` at the end of each check what core did wrong, as the transports saw it; nothing, if all is well. Not
    /// asked after checks that break the contract themselves to see how a transport takes it.
    pub fn judged_by(mut self, judge: impl Fn() -> Vec<String> + Send + 'static) -> Pair {
        self.keep.judge = Some(Box::new(judge));
        self
    }
}

impl Keep {
    /// What was done wrong.
    pub(super) fn verdict(&self) -> Vec<String> {
        self.judge.as_ref().map_or_else(Vec::new, |judge| judge())
    }
}

/// What the suite runs over. Clones are the same subject.
#[derive(Clone)]
#[must_use]
pub struct Subject {
    inner: Arc<Inner>,
}

#[derive(Clone)]
struct Inner {
    name: String,
    rule: ArrivalRules,
    make: Arc<dyn Fn() -> Pair + Send + Sync>,
    volume: u64,
    again: Option<Vec<OsString>>,
    launcher: Vec<OsString>,
    elsewhere: Option<SocketAddr>,
    partner: Option<SocketAddr>,
    instrument: Option<Arc<dyn Fn() -> u64 + Send + Sync>>,
    tcp: bool,
}

impl fmt::Debug for Subject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Subject").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl Subject {
    /// Transports that `make` makes, as often as it is called, and on whose ends two sides have to agree to use the
    /// arrival rule `rule`. `name` is shown in the matrix.
    pub fn new(name: &str, rule: ArrivalRules, make: impl Fn() -> Pair + Send + Sync + 'static) -> Subject {
        let inner = Inner {
            name: name.to_owned(),
            rule,
            make: Arc::new(make),
            volume: 1_000_000,
            again: None,
            launcher: Vec::new(),
            elsewhere: None,
            partner: None,
            instrument: None,
            tcp: false,
        };
        Subject { inner: Arc::new(inner) }
    }

    /// How many frames the longest check sends; the others send in proportion, but never fewer than they need. A million
    /// unless set: right for what moves a million frames in some seconds.
    pub fn volume(self, frames: u64) -> Subject {
        self.with(|inner| inner.volume = frames)
    }

    /// The two ends can be in different processes. The suite starts this program again with `arguments`, with which it
    /// has to come to [`run`](super::run) the same subject again: there that call plays the target, and does not return.
    pub fn between_processes(self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Subject {
        let arguments = arguments.into_iter().map(Into::into).collect();
        self.with(|inner| inner.again = Some(arguments))
    }

    /// Puts `words` before the program and its arguments when it is started again, such as `ip netns exec NAME`. They have to
    /// end in that program, as the same process or as one that ends with it.
    pub fn launched_by(self, words: impl IntoIterator<Item = impl Into<OsString>>) -> Subject {
        let words = words.into_iter().map(Into::into).collect();
        self.with(|inner| inner.launcher = words)
    }

    /// The targets are started by the program that serves them at `address`, on another machine
    /// ([`serve_targets`](super::serve_targets)), and nothing else is tried.
    pub fn served_at(self, address: SocketAddr) -> Subject {
        self.with(|inner| inner.elsewhere = Some(address))
    }

    /// The two ends can be in different processes, but none can be started for it: the targets of other processes are threads of
    /// one that is there already, and serves them at `address` ([`serve_threads`](super::serve_threads)). A target that is to
    /// die there ends as one in a thread does.
    pub fn partnered_by(self, address: SocketAddr) -> Subject {
        self.with(|inner| inner.partner = Some(address))
    }

    /// Has targets listen on TCP, at loopback, with a key; otherwise they do so on Unix sockets, without one.
    pub fn over_tcp(self) -> Subject {
        self.with(|inner| inner.tcp = true)
    }

    /// Asks `count` in the end how much an instrument of the subject's has seen or done (events traced, faults injected);
    /// nothing at all is a failure.
    pub fn instrument(self, count: impl Fn() -> u64 + Send + Sync + 'static) -> Subject {
        self.with(|inner| inner.instrument = Some(Arc::new(count)))
    }

    fn with(mut self, change: impl FnOnce(&mut Inner)) -> Subject {
        change(Arc::make_mut(&mut self.inner));
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The arrival rule that its ends use.
    pub fn rule(&self) -> ArrivalRules {
        self.inner.rule
    }

    /// Whether code can run in the mailbox of its target.
    pub(super) fn in_place(&self) -> bool {
        self.make().target.capabilities().in_place
    }

    pub(super) fn make(&self) -> Pair {
        (self.inner.make)()
    }

    /// Frames for a check that is content with `share` of a thousand of the volume, and needs at least `least`.
    pub(super) fn frames(&self, share: u64, least: u64) -> u64 {
        let volume = self.inner.volume.min(settings::volume());
        (volume.saturating_mul(share) / 1000).max(least)
    }

    /// Arguments that make this program run the subject in another process.
    pub(super) fn again(&self) -> Option<&[OsString]> {
        self.inner.again.as_deref()
    }

    /// Words before the program in another process.
    pub(super) fn launcher(&self) -> &[OsString] {
        &self.inner.launcher
    }

    /// Where targets are started on another machine.
    pub(super) fn elsewhere(&self) -> Option<SocketAddr> {
        self.inner.elsewhere
    }

    /// Whether targets on this machine listen on TCP.
    pub(super) fn is_over_tcp(&self) -> bool {
        self.inner.tcp
    }

    /// Where a process is that has targets in threads.
    pub(super) fn partner(&self) -> Option<SocketAddr> {
        self.inner.partner
    }

    pub(super) fn instruments(&self) -> Option<u64> {
        self.inner.instrument.as_ref().map(|count| count())
    }
}
