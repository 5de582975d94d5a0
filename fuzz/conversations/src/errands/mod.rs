//! Calls that run later than they came: again, at a destination, behind a release, after their link.
//!
//! Sources, and the host itself, send errands ([`ErrandStep`]): calls of one function that forwards itself. Each
//! carries the tag of its principal. A function of the target compares the tag with the principal for which the call
//! runs. It records the errands that have begun and those that hold their reply. So each step can be judged. It runs
//! for the principal that sent it and for no other. It does not run when that principal has lost its right. Its reply
//! leaves after the last release that it waits for.

mod ledger;
mod requester;
mod step;

use std::fs;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use farjump::{Key, Link, Principal, Rights, Target};
use tempfile::TempDir;

use crate::alongside::{PATIENCE, alongside, until};
use crate::functions::{errand, functions};
use ledger::{FORWARDER, Ledger, Tag};
use requester::Requester;
pub use step::{Errand, ErrandStep, SOURCES, Script};

/// Turns in which no withdrawn call may run.
const QUIET: usize = 30;
/// Most turns for which a destination waits for a call: the call may have been dropped.
const MAX_CONNECT_TURNS: usize = 200;

/// The result of a conversation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Steps that errands did.
    pub done: u64,
    /// Replies.
    pub replies: u64,
    /// Errands that were refused, dropped or lost.
    pub failed: u64,
    /// The target's messages to a destination that requested code.
    pub responses: u64,
}

/// A source of errands.
#[derive(Default)]
struct Source {
    link: Option<Link>,
    /// The tags of its links. The last one is that of the present link or, without one, of the link before.
    tags: Vec<u32>,
    /// Errands without a reply, and the numbers of their calls.
    awaited: Vec<(u32, u32)>,
    /// The rights of its key, if the key is in the file.
    allowed: Option<Rights>,
}

struct Conversation {
    target: Target<'static>,
    next: Option<Target<'static>>,
    requester: Option<Requester>,
    sources: [Source; SOURCES],
    /// The last errand, and the errands that want a reply.
    last: u32,
    wanting: Vec<u32>,
    own: u32,
    outcome: Outcome,
    has_keys: bool,
    folder: TempDir,
}

/// Executes a conversation.
///
/// # Panics
/// When a guarantee is broken.
pub fn run_errands(script: &Script) -> Outcome {
    // All functions are built with the first conversation, also those that it does not call.
    let _built = (functions(), errand());
    ledger::with(|ledger| *ledger = Ledger::default());
    let mut conversation = Conversation::new(script);
    for step in &script.steps {
        conversation.carry_out(step);
        conversation.turn();
        ledger::with(|ledger| ledger.check());
    }
    conversation.end()
}

fn key(source: usize) -> Key {
    Key::from_bytes([source as u8 + 1; 32])
}

/// The name of a source's key.
fn name(source: usize) -> String {
    format!("source-{source}")
}

impl Conversation {
    fn new(script: &Script) -> Conversation {
        let folder = TempDir::new().expect("a folder");
        let unix = |name: &str| format!("unix:{}", folder.path().join(name).display());
        let small = |address: &str| Target::listen(address).arena_size(1 << 20).mailbox_size(1 << 14);
        let listen = if script.has_keys { "tcp:127.0.0.1:0".to_owned() } else { unix("t.sock") };
        let mut builder = small(&listen)
            .control_interval(Duration::ZERO)
            .export("fuzz_errand", ledger::here as extern "C" fn(_, _, _) -> _)
            .host_word(|_| ledger::with(Ledger::tag));
        if script.has_keys {
            let all = [Some(Rights::default()); SOURCES];
            builder = builder.key_file(Self::write_keys(&folder, all)).transport("tcp");
        }
        let (mut next, mut requester) = (None, None);
        if script.destinations {
            let there = small(&unix("next.sock"))
                .export("fuzz_errand", ledger::there as extern "C" fn(_, _, _) -> _)
                .host_word(|_| FORWARDER);
            next = Some(there.build().expect("a destination"));
            requester = Some(Requester::at(&folder.path().join("asks.sock")));
            builder = builder.destination("next", &unix("next.sock")).destination("asks", &unix("asks.sock"));
        }
        let target = builder.build().expect("a target");
        Conversation {
            target,
            next,
            requester,
            sources: std::array::from_fn(|_| Source {
                allowed: Some(Rights::default()),
                ..Source::default()
            }),
            last: 0,
            wanting: Vec::new(),
            own: FORWARDER.0,
            outcome: Outcome::default(),
            has_keys: script.has_keys,
            folder,
        }
    }

    /// Writes the file of the remaining keys, with these rights. Returns its path.
    fn write_keys(folder: &TempDir, allowed: [Option<Rights>; SOURCES]) -> std::path::PathBuf {
        let path = folder.path().join("keys");
        // The last key belongs to no source: a file without keys would be invalid.
        let keys = allowed.into_iter().chain([Some(Rights::default())]).enumerate();
        let line = |(source, rights): (usize, Option<Rights>)| {
            Some(format!("{} {} allow={}\n", key(source).digits().trim(), name(source), rights?))
        };
        fs::write(&path, keys.filter_map(line).collect::<String>()).expect("a file of keys");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("its owner's alone");
        path
    }

    fn turn(&mut self) {
        self.target.poll().expect("the target works");
        self.target.wait(Duration::ZERO).expect("the target waits");
        if let Some(next) = &mut self.next {
            next.poll().expect("the destination works");
            next.wait(Duration::ZERO).expect("the destination waits");
        }
        if let Some(requester) = &mut self.requester {
            requester.turn();
        }
        self.listen();
    }

    /// Takes turns until `is_so` returns true. Returns `false` if it never does.
    fn until(&mut self, mut is_so: impl FnMut(&mut Self) -> bool) -> bool {
        until(|| {
            self.turn();
            is_so(self)
        })
    }

    /// Takes the replies that have come.
    fn listen(&mut self) {
        for source in &mut self.sources {
            let Some(link) = &source.link else { continue };
            source.awaited.retain(|(errand, number)| {
                let Some(mut pending) = link.pending_from_raw(*number) else { return false };
                match pending.poll() {
                    Ok(None) => {
                        pending.into_raw();
                        return true;
                    }
                    Ok(Some(_)) => {
                        ledger::with(|ledger| ledger.replied(*errand));
                        self.outcome.replies += 1;
                    }
                    Err(error) => {
                        assert!(!error.to_string().is_empty());
                        self.outcome.failed += 1;
                    }
                }
                false
            });
        }
    }

    fn payload(&mut self, tag: u32, steps: &str) -> Vec<u8> {
        self.last += 1;
        [&tag.to_ne_bytes()[..], &self.last.to_ne_bytes(), steps.as_bytes()].concat()
    }

    fn carry_out(&mut self, step: &ErrandStep) {
        match step {
            ErrandStep::Connect(source) => self.connect(*source),
            ErrandStep::Send(source, errand) => self.send(*source, errand),
            ErrandStep::Own(steps) => self.send_own(steps),
            ErrandStep::Turns(count) => (0..*count).for_each(|_| self.turn()),
            ErrandStep::Release => {
                ledger::with(|ledger| ledger.releases += 1);
                self.target.release_replies();
            }
            ErrandStep::ReleaseThere => self.release_there(),
            ErrandStep::Withdraw(source) => {
                if let Some(tag) = self.sources[*source].tags.last().copied() {
                    self.withdraw(tag);
                }
            }
            ErrandStep::Leave(source) => self.leave(*source),
            ErrandStep::ChangeRights(source) => {
                let allowed = self.sources[*source].allowed;
                self.change_key(*source, allowed.map(|rights| rights ^ Rights::OBSERVE));
            }
            ErrandStep::TakeKey(source) => self.change_key(*source, None),
            ErrandStep::EndLinks => {
                self.target.end_links("the host ends its links");
                (0..SOURCES).for_each(|source| self.has_ended(source));
            }
            ErrandStep::Inject(source) => self.inject(*source),
            ErrandStep::RequestCode(which) => self.request_code(*which),
        }
    }

    fn connect(&mut self, source: usize) {
        let Source { link: None, allowed: Some(allowed), .. } = self.sources[source] else { return };
        let mut builder =
            Link::builder(&self.target.address()).connect_timeout(PATIENCE).send_timeout(PATIENCE);
        if self.has_keys {
            builder = builder.key(key(source)).transport("tcp");
        }
        let target = &mut self.target;
        let turn = || {
            target.poll().expect("the target works");
            target.wait(Duration::ZERO).expect("the target waits");
        };
        let link = alongside(turn, || builder.connect()).unwrap_or_else(|error| panic!("no link: {error}"));
        assert_eq!(link.rights(), allowed, "keys and targets give what the operator wrote");
        self.sources[source].tags.push(ledger::with(|ledger| {
            ledger.give((allowed, self.has_keys.then(|| name(source))));
            ledger.last_tag()
        }));
        self.sources[source].link = Some(link);
    }

    fn send(&mut self, source: usize, errand: &Errand) {
        let Some(tag) = self.sources[source].tags.last().copied() else { return };
        let payload = self.payload(tag, &errand.steps);
        let Source { link: Some(link), awaited, .. } = &mut self.sources[source] else { return };
        let library = &crate::functions::errand().library;
        // A mailbox may be full, and a link may have ended.
        if !errand.wants_reply {
            let _ = link.try_send(library, &payload);
        } else if let Ok(pending) = link.try_inject(library, &payload) {
            awaited.push((self.last, pending.into_raw()));
            self.wanting.push(self.last);
        }
    }

    fn send_own(&mut self, steps: &str) {
        self.own += 1;
        let (principal, payload) = (Principal::with_word(Tag(self.own)), self.payload(self.own, steps));
        // SAFETY: the function takes any payload.
        let done = unsafe { self.target.call_for(&principal, &errand().library, &payload) };
        if let Err(error) = done {
            assert!(!error.to_string().is_empty());
        }
    }

    fn release_there(&mut self) {
        if let Some(next) = &mut self.next {
            ledger::with(|ledger| ledger.releases_there += 1);
            next.release_replies();
        }
    }

    /// Withdraws the right of all links with this tag. Nothing that has begun runs any more.
    fn withdraw(&mut self, tag: u32) {
        let reason = |principal: &Principal| {
            (principal.word() == Some(&Tag(tag))).then(|| "its right was taken away".to_owned())
        };
        self.target.withdraw(reason);
        ledger::with(|ledger| ledger.end(tag, |_| true));
    }

    /// Makes a source leave.
    fn leave(&mut self, source: usize) {
        let before = self.target.sources();
        if self.sources[source].link.take().is_some() {
            assert!(self.until(|all| all.target.sources() < before), "a link does not end");
            self.has_ended(source);
        }
    }

    /// Records that the link of a source has ended at the target. Errands that have begun and want a reply do not run
    /// any more.
    fn has_ended(&mut self, source: usize) {
        let Source { link, tags, awaited, .. } = &mut self.sources[source];
        *link = None;
        self.outcome.failed += awaited.drain(..).len() as u64;
        let (tag, wanting) = (tags.last().copied(), &self.wanting);
        if let Some(tag) = tag {
            ledger::with(|ledger| ledger.end(tag, |errand| wanting.contains(&errand)));
        }
    }

    /// Removes a source's key from the file, or gives it other rights. Errands from any of its links do not run any
    /// more, also those that have not begun.
    fn change_key(&mut self, source: usize, allowed: Option<Rights>) {
        if !self.has_keys || self.sources[source].link.is_none() {
            return;
        }
        self.sources[source].allowed = allowed;
        Self::write_keys(&self.folder, std::array::from_fn(|source| self.sources[source].allowed));
        let before = self.target.sources();
        assert!(self.until(|all| all.target.sources() < before), "a key that has changed keeps its link");
        self.has_ended(source);
        ledger::with(|ledger| ledger.revoke(&self.sources[source].tags));
    }

    /// Makes a source bring code that no call takes to a destination.
    fn inject(&mut self, source: usize) {
        if let Some(link) = &self.sources[source].link {
            let _ = link.try_send(&functions()[0].library, &[7; 16]);
        }
    }

    /// Makes a destination request an image. It gets only code that calls sent to it have named.
    fn request_code(&mut self, which: u8) {
        if self.requester.is_none() {
            return;
        }
        let own = errand().id();
        let wanted = if which.is_multiple_of(4) { own } else { functions()[0].id() };
        // A call is sent to the destination, and other code is only brought to the target.
        self.connect(0);
        self.send(0, &Errand { wants_reply: false, steps: "n?w".to_owned() });
        self.inject(0);
        let mut turns = 0;
        self.until(|all| {
            turns += 1;
            turns == MAX_CONNECT_TURNS || all.requester.as_ref().is_some_and(Requester::is_connected)
        });
        let Some(requester) = self.requester.as_mut().filter(|requester| requester.is_connected()) else {
            return;
        };
        requester.request(wanted);
        let mut response = None;
        self.until(|all| {
            response = all.requester.as_mut().and_then(|requester| requester.response(wanted));
            response.is_some()
        });
        let response = response.expect("the target answers");
        assert!(response != Ok(true) || wanted == own, "a destination got code that no call to it has named");
        self.outcome.responses += u64::from(response.is_ok());
    }

    /// Ends everything. All calls have an outcome, and nothing continues to run.
    fn end(mut self) -> Outcome {
        self.requester = None;
        let tags: Vec<u32> = self.sources.iter().flat_map(|source| source.tags.iter().copied()).collect();
        // Calls that have come and not run yet run first.
        (0..QUIET).for_each(|_| self.turn());
        let own = FORWARDER.0 + 1..=self.own;
        tags.into_iter().chain(own).for_each(|tag| self.withdraw(tag));
        let begun = Instant::now();
        let has_ended = self.until(|all| {
            if let Some(next) = &mut all.next {
                next.withdraw(|_| Some("the conversation is over".to_owned()));
            }
            all.target.withdraw(|_| Some("the conversation is over".to_owned()));
            ledger::with(|ledger| ledger.releases += 1);
            all.target.release_replies();
            all.release_there();
            all.sources.iter().all(|source| source.awaited.is_empty())
        });
        let awaited: Vec<_> = self.sources.iter().map(|source| source.awaited.clone()).collect();
        assert!(has_ended, "after {:?} these calls have no outcome: {awaited:?}", begun.elapsed());
        let done = ledger::with(|ledger| ledger.done);
        (0..QUIET).for_each(|_| self.turn());
        ledger::with(|ledger| {
            ledger.check();
            assert_eq!(ledger.done, done, "something runs on");
        });
        (0..SOURCES).for_each(|source| self.leave(source));
        Outcome { done, ..self.outcome }
    }
}
