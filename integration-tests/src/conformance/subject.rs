//! The subject of the tests: its transports, and their claims.

use std::any::Any;
use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use farjump_core::transport::{ArrivalRules, Transport};

use super::failure::{Failure, ensure};
use super::{SMALLEST_MAX_FRAME, settings};
use crate::connect::Streams;

/// Two transports, one for each endpoint of a link.
#[must_use]
pub struct Pair {
    pub(super) source: Box<dyn Transport>,
    pub(super) target: Box<dyn Transport>,
    pub(super) keep: Keep,
    pub(super) streams: Streams,
}

/// The values that live as long as a pair's endpoints, and judge them at the end.
#[derive(Default)]
pub(super) struct Keep {
    judge: Option<Box<dyn Fn() -> Vec<String> + Send>>,
    _alive: Vec<Box<dyn Any + Send>>,
}

impl Pair {
    /// Makes a pair of the source's transport and the target's. The source of one pair must be able to reach the
    /// target of another, like two processes without shared state.
    pub fn new(source: Box<dyn Transport>, target: Box<dyn Transport>) -> Pair {
        Pair { source, target, keep: Keep::default(), streams: Streams::default() }
    }

    /// Gives the endpoints such streams if they request some and there is no control connection.
    pub fn over(mut self, streams: Streams) -> Pair {
        self.streams = streams;
        self
    }

    /// Keeps a value as long as the links made of the pair: a thread that drives a backend, for example.
    pub fn keeping(mut self, value: impl Any + Send) -> Pair {
        self.keep._alive.push(Box::new(value));
        self
    }

    /// Calls `judge` at the end of each check for core's violations as the transports saw them; it returns none if
    /// all is well. It is not called after checks that break the contract themselves to test a transport's reaction.
    pub fn judged_by(mut self, judge: impl Fn() -> Vec<String> + Send + 'static) -> Pair {
        self.keep.judge = Some(Box::new(judge));
        self
    }
}

impl Keep {
    /// The violations.
    pub(super) fn verdict(&self) -> Vec<String> {
        self.judge.as_ref().map_or_else(Vec::new, |judge| judge())
    }
}

/// The subject that the suite tests. Clones are the same subject.
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
    naps: bool,
}

impl fmt::Debug for Subject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Subject").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl Subject {
    /// Makes a subject of the transports that `make` returns at each call. Their peers must agree on the arrival rule
    /// `rule`. The matrix shows `name`.
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
            naps: false,
        };
        Subject { inner: Arc::new(inner) }
    }

    /// Sets the number of frames of the longest check. The others send in proportion, but never fewer than they need.
    /// The default of a million suits transports that move a million frames in some seconds.
    pub fn volume(self, frames: u64) -> Subject {
        self.with(|inner| inner.volume = frames)
    }

    /// States that nothing wakes a sleeping receiver: the endpoints have no descriptor to sleep on.
    pub fn without_wake_ups(self) -> Subject {
        self.with(|inner| inner.naps = true)
    }

    /// Allows the two endpoints in different processes. The suite starts this program again with `arguments`, which
    /// must lead to a call of [`run`](super::run) with the same subject. There that call plays the target, and does
    /// not return.
    pub fn between_processes(self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Subject {
        let arguments = arguments.into_iter().map(Into::into).collect();
        self.with(|inner| inner.again = Some(arguments))
    }

    /// Puts `words`, such as `ip netns exec NAME`, before the program and its arguments when it is started again.
    /// They must end in that program, as the same process or as one that ends with it.
    pub fn launched_by(self, words: impl IntoIterator<Item = impl Into<OsString>>) -> Subject {
        let words = words.into_iter().map(Into::into).collect();
        self.with(|inner| inner.launcher = words)
    }

    /// Gets all targets from the program that serves them at `address`, on another machine
    /// ([`serve_targets`](super::serve_targets)). No other checks run then.
    pub fn served_at(self, address: SocketAddr) -> Subject {
        self.with(|inner| inner.elsewhere = Some(address))
    }

    /// Allows the two endpoints in different processes if no process can be started. The targets of other processes
    /// are threads of an existing one, which serves them at `address` ([`serve_threads`](super::serve_threads)). A
    /// target that must die there ends like one in a thread.
    pub fn partnered_by(self, address: SocketAddr) -> Subject {
        self.with(|inner| inner.partner = Some(address))
    }

    /// Makes targets listen on TCP, at loopback, with a key. The default is Unix sockets, without one.
    pub fn over_tcp(self) -> Subject {
        self.with(|inner| inner.tcp = true)
    }

    /// Calls `count` at the end for the activity of the subject's instrument (events traced, faults
    /// injected); 0 is a failure.
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

    /// The arrival rule of its endpoints.
    pub fn rule(&self) -> ArrivalRules {
        self.inner.rule
    }

    /// Returns whether code can run in its target's mailbox.
    pub(super) fn in_place(&self) -> bool {
        self.make().target.capabilities().in_place
    }

    /// Longest frame of its path in bytes.
    ///
    /// # Errors
    /// If it is less than the suite accepts.
    pub(super) fn max_frame(&self) -> Result<usize, Failure> {
        let pair = self.make();
        let path = pair.source.capabilities().max_frame.min(pair.target.capabilities().max_frame);
        ensure!(
            path >= SMALLEST_MAX_FRAME,
            "its longest frame is {path} bytes, and the suite takes transports of at least {SMALLEST_MAX_FRAME}"
        );
        Ok(path)
    }

    /// Returns whether a descriptor wakes a sleeping receiver.
    pub(super) fn wakes(&self) -> bool {
        !self.inner.naps
    }

    pub(super) fn make(&self) -> Pair {
        (self.inner.make)()
    }

    /// Number of frames for a check: `share` thousandths of the volume, at least `least`.
    pub(super) fn frames(&self, share: u64, least: u64) -> u64 {
        let volume = self.inner.volume.min(settings::volume());
        (volume.saturating_mul(share) / 1000).max(least)
    }

    /// Arguments that make this program run the subject in another process.
    pub(super) fn again(&self) -> Option<&[OsString]> {
        self.inner.again.as_deref()
    }

    /// Returns whether its two endpoints can be in two processes.
    pub(super) fn is_between_processes(&self) -> bool {
        self.inner.again.is_some() || self.inner.partner.is_some()
    }

    /// Words before the program in another process.
    pub(super) fn launcher(&self) -> &[OsString] {
        &self.inner.launcher
    }

    /// The address for targets on another machine.
    pub(super) fn elsewhere(&self) -> Option<SocketAddr> {
        self.inner.elsewhere
    }

    /// Returns whether targets on this machine listen on TCP.
    pub(super) fn is_over_tcp(&self) -> bool {
        self.inner.tcp
    }

    /// The address of a process that has targets in threads.
    pub(super) fn partner(&self) -> Option<SocketAddr> {
        self.inner.partner
    }

    pub(super) fn instruments(&self) -> Option<u64> {
        self.inner.instrument.as_ref().map(|count| count())
    }
}
