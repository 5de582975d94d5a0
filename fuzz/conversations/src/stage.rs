//! A target, an honest link beside the hostile source, and the assertions about them.

use std::fs;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use farjump::{Error, Link, LinkBuilder, Mode, RefusalCause, Target, TargetThread, WaitPolicy};
use farjump_control::{Key, TcpOptions};
use tempfile::TempDir;

use crate::burst;
use crate::functions::{functions, honest};
use crate::hostile::Hostile;
use crate::step::{Meeting, Parting, Settings, Step, Way};
use crate::ways::transport;

/// Timeout of an honest source: much longer than anything takes on an idle machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Timeouts of the rest of a frame, and of a handshake.
const LIMITS: (Duration, Duration) = (Duration::from_millis(15), Duration::from_millis(400));
/// Timeout of the rest of a frame where honest frames come in pieces too, and their sender may wait for a
/// processor.
const STALL: Duration = Duration::from_secs(10);
/// Most descriptors that a conversation has open at once, including those of the hostile end and those that
/// it passed.
const MOST_OPEN: usize = 256;
/// Most bytes of shared memory mapped at once, at both ends.
const MOST_SHARED: u64 = 64 << 20;
/// Words of a target that has its maximum of sources.
const FULL: &str = "has as many";

extern "C" fn twice(value: u64) -> u64 {
    2 * value
}

static VERSION: u64 = 7;

/// The target under test.
enum Victim {
    /// In this thread: it runs when polled.
    Here(Box<Target<'static>>),
    /// On a thread of its own.
    There(TargetThread),
}

impl Victim {
    fn turn(&mut self) {
        match self {
            Victim::Here(target) => {
                target.poll().expect("the target works");
                target.wait(Duration::ZERO).expect("the target waits");
                target.poll().expect("the target works");
            }
            Victim::There(_) => std::thread::sleep(Duration::from_micros(200)),
        }
    }
}

/// The open descriptors and mappings of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holdings {
    /// Descriptors.
    pub descriptors: usize,
    /// Bytes of mapped shared memory.
    pub shared: u64,
}

impl Holdings {
    /// The kinds of the descriptors, to find one that is left.
    pub fn open() -> Vec<String> {
        let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        entries.filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.display().to_string())).collect()
    }

    /// Whether nothing exceeds `before`.
    pub fn is_within(self, before: Holdings) -> bool {
        self.descriptors <= before.descriptors && self.shared <= before.shared
    }

    /// The present numbers of the system.
    pub fn now() -> Holdings {
        // The file of an exported library stays open, as the library stays loaded.
        let descriptors = Holdings::open().iter().filter(|open| !open.contains("farjump-export")).count();
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let shared = maps.lines().filter_map(|line| {
            let mut fields = line.split(' ');
            let (start, end) = fields.next()?.split_once('-')?;
            // Exported libraries are mapped privately, and stay.
            fields.next().filter(|rights| rights.ends_with('s'))?;
            Some(u64::from_str_radix(end, 16).ok()? - u64::from_str_radix(start, 16).ok()?)
        });
        Holdings { descriptors, shared: shared.sum() }
    }
}

/// All participants.
struct Stage<'s> {
    settings: &'s Settings,
    victim: Option<Victim>,
    peer: Option<TargetThread>,
    address: String,
    key: Option<Key>,
    link: Option<Link>,
    seed: u64,
    /// Calls of the honest function that were sent, and must run.
    sent: u64,
    /// Calls that may be lost with a link that ended for a reason of its own.
    unsure: u64,
    /// The holdings before it.
    before: Holdings,
    outcome: Outcome,
    _folder: TempDir,
}

/// The result of a conversation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Links that the hostile source made.
    pub links: u64,
    /// Those with a stream.
    pub streams: u64,
    /// Replies that it got.
    pub replies: u64,
    /// Calls that the target ran.
    pub calls: u64,
    /// Frames that it refused.
    pub refused: u64,
    /// Calls of the honest link.
    pub honest: u64,
    /// Images that the target placed.
    pub placed: u64,
    /// Admin requests that it responded to.
    pub answers: u64,
    /// Messages of bursts that it took.
    pub taken: u64,
    /// Bytes of bursts that it checksummed.
    pub summed: u64,
    /// Refusals by cause: each is a bit.
    pub causes: u64,
    /// Most open descriptors after a step, and most bytes of shared memory, beyond those before the
    /// conversation.
    pub most: (usize, u64),
}

impl Outcome {
    /// The sum of two results.
    #[must_use]
    pub fn and(self, other: Outcome) -> Outcome {
        Outcome {
            links: self.links + other.links,
            streams: self.streams + other.streams,
            replies: self.replies + other.replies,
            calls: self.calls + other.calls,
            refused: self.refused + other.refused,
            honest: self.honest + other.honest,
            placed: self.placed + other.placed,
            answers: self.answers + other.answers,
            taken: self.taken + other.taken,
            summed: self.summed + other.summed,
            causes: self.causes | other.causes,
            most: (self.most.0.max(other.most.0), self.most.1.max(other.most.1)),
        }
    }
}

/// Executes a conversation with a target.
///
/// # Panics
/// When a guarantee is broken.
pub fn talk_to_target(seed: u64, settings: &Settings, steps: &[Step]) -> Outcome {
    let mut stage = Stage::new(seed, settings);
    let address = stage.address.parse().expect("an address");
    let further = (0..settings.further_keys.len()).map(|at| further_key(seed, at));
    let keys = further.map(Some).chain([stage.key.clone()]);
    let tcps = keys.map(|key| TcpOptions::default().with_key(key)).collect();
    let mut hostile = Hostile::new(settings, address, tcps, transport(settings.way, seed ^ 1));
    stage.connect_honest();
    for step in steps {
        stage.carry_out(step, &mut hostile);
        if !matches!(step, Step::Frame(_)) {
            stage.turn();
            stage.holds_little(step);
        }
        hostile.listen();
    }
    stage.turn();
    hostile.listen();
    // It stays during the honest link's last call, and then leaves.
    stage.honest_call(64);
    hostile.part(Parting::Drop);
    let (links, replies) = (hostile.links, hostile.replies);
    drop(hostile);
    stage.honest_call(3);
    let streams = if settings.way.is_stream() { links } else { 0 };
    Outcome { links, streams, replies, ..stage.end() }
}

/// The key with further rights at this index in the file.
fn further_key(seed: u64, at: usize) -> Key {
    Key::from_bytes([(seed as u8).wrapping_add(at as u8 + 1); 32])
}

/// The line in the file of a key with 32 equal bytes.
fn line(byte: u8) -> String {
    format!("{byte:02x}").repeat(32)
}

impl<'s> Stage<'s> {
    fn new(seed: u64, settings: &'s Settings) -> Stage<'s> {
        let before = Holdings::now();
        let folder = TempDir::new().expect("a folder");
        let unix = |name: &str| format!("unix:{}", folder.path().join(name).display());
        let key = settings.has_key.then(|| Key::from_bytes([seed as u8; 32]));
        let listen = if settings.way.is_tcp() { "tcp:127.0.0.1:0".to_owned() } else { unix("t.sock") };
        let counted: &'static mut u64 = Box::leak(Box::new(0));
        let mut builder = Target::listen(&listen)
            .args(counted)
            .mailbox_size(settings.mailbox)
            .arena_size(settings.arena_size)
            .store_capacity(2 * settings.arena_size, settings.images)
            .stall_timeout(if settings.way == Way::Shared { LIMITS.0 } else { STALL })
            .handshake_timeout(LIMITS.1)
            .control_interval(Duration::ZERO)
            .max_sources(settings.sources)
            .max_payload(settings.max_payload)
            .rights(settings.rights)
            .process_symbols(settings.offers.1)
            .on_refused(|_, refusal| assert!(!refusal.text.is_empty()))
            .on_peer_gone(|_, why| assert!(!why.is_empty()));
        let name = transport(settings.way, 0).name().to_owned();
        if settings.way != Way::Shared {
            builder = builder.transport(&name).with_transport(transport(settings.way, seed));
        }
        if settings.offers.0 {
            builder = builder
                .export("fuzz_twice", twice as extern "C" fn(_) -> _)
                .export_data("fuzz_version", &VERSION);
        }
        if settings.only_local {
            builder = builder.modes(&[Mode::Local]);
        } else if settings.in_place {
            builder = builder.modes(&Mode::ALL);
        }
        if settings.has_local {
            builder = builder.local(&functions()[0].library).local(&functions()[2].library);
        }
        if settings.only_local || settings.has_local {
            builder = builder.local(&honest().library);
        }
        if let Some(allowed) = &settings.allowed {
            builder = builder.allow_code(allowed.iter().map(|&function| functions()[function].id()));
            builder = builder.allow_code([honest().id()]);
        }
        if let Some(bytes) = settings.max_image {
            builder = builder.max_image(bytes);
        }
        if let Some(bytes) = settings.max_frame {
            builder = builder.max_frame(bytes);
        }
        if let Some(bytes) = settings.memory {
            builder = builder.max_source_memory(bytes);
        }
        if !settings.further_keys.is_empty() {
            let further = settings.further_keys.iter().zip(1..).map(|(rights, at)| {
                format!("{} further-{at} allow={rights}\n", line((seed as u8).wrapping_add(at)))
            });
            let file = folder.path().join("keys");
            let lines: String = [line(seed as u8) + "\n"].into_iter().chain(further).collect();
            fs::write(&file, lines).expect("a file of keys");
            fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("its owner's alone");
            builder = builder.key_file(&file);
        } else if let Some(key) = &key {
            builder = builder.key(key.clone());
        }
        let mut peer = None;
        if settings.has_peer {
            let at = unix("peer.sock");
            let other =
                Target::listen(&at).arena_size(1 << 20).mailbox_size(1 << 14).build().expect("a peer");
            peer = Some(other.spawn().expect("a thread"));
            builder = builder.destination("next", &at).destination("gone", &unix("nobody.sock"));
        }
        let target = builder.build().unwrap_or_else(|error| panic!("{settings:?}: {error}"));
        let address = target.address();
        let victim = match settings.by_thread {
            true => Victim::There(target.spawn().expect("a thread")),
            false => Victim::Here(Box::new(target)),
        };
        Stage {
            settings,
            victim: Some(victim),
            peer,
            address,
            key,
            link: None,
            seed,
            sent: 0,
            unsure: 0,
            before,
            outcome: Outcome::default(),
            _folder: folder,
        }
    }

    fn turn(&mut self) {
        self.victim.as_mut().expect("it is there until the end").turn();
    }

    /// Gives the target turns while another thread waits for it.
    fn meanwhile<T: Send>(&mut self, act: impl FnOnce() -> T + Send) -> T {
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let other = scope.spawn(act);
            while !other.is_finished() {
                self.victim.as_mut().expect("it is there until the end").turn();
                assert!(begun.elapsed() < 2 * PATIENCE, "an honest source waits for longer than it said");
            }
            other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn honest_link(&self) -> LinkBuilder {
        let mut builder =
            Link::builder(&self.address).connect_timeout(PATIENCE).send_timeout(PATIENCE).program("honest");
        if self.settings.way != Way::Shared {
            let name = transport(self.settings.way, 0).name().to_owned();
            builder = builder.transport(&name).with_transport(transport(self.settings.way, self.seed ^ 2));
        }
        if let Some(key) = &self.key {
            builder = builder.key(key.clone());
        }
        let has_it = self.settings.only_local || (self.settings.has_local && self.seed.is_multiple_of(2));
        builder = builder.mode(match () {
            () if has_it => Mode::Local,
            () if self.settings.in_place && self.seed.is_multiple_of(3) => Mode::InPlace,
            () if self.seed.is_multiple_of(5) => Mode::Always,
            () => Mode::Cached,
        });
        match self.seed % 3 {
            0 => builder.wait_policy(WaitPolicy::sleep_only()).reply_mailbox_size(1 << 18),
            1 => builder.wait_policy(WaitPolicy::spin_only()),
            _ => builder,
        }
    }

    fn connect_honest(&mut self) {
        let builder = self.honest_link();
        match self.meanwhile(|| builder.connect()) {
            Ok(link) => self.link = Some(link),
            Err(error) => {
                // The hostile source may have taken every place.
                let text = error.to_string();
                assert!(
                    self.settings.sources == 2 || text.contains(FULL),
                    "the honest link is not made: {text}"
                );
            }
        }
    }

    /// Calls, and compares the reply.
    fn honest_call(&mut self, len: usize) {
        let Some(link) = self.link.take() else { return };
        let args = vec![0x2a; len];
        let library = &honest().library;
        let (link, reply) = self.meanwhile(move || {
            let reply = link
                .inject(library, &args)
                .and_then(|pending| pending.wait(PATIENCE))
                .map(|reply| reply.into_vec());
            (link, reply)
        });
        match reply {
            Ok(reply) => assert_eq!(reply, vec![0x2a; len], "the honest link got something else"),
            Err(error) => self.refused(&error),
        }
        self.sent += 1;
        self.link = Some(link);
    }

    fn refused(&mut self, error: &Error) {
        // Code that runs in place needs no writable statics, and an executable mailbox.
        panic!("a call of the honest link failed: {error}");
    }

    fn honest_works(&mut self, how: u8) {
        if self.link.is_none() {
            self.connect_honest();
        }
        let library = &honest().library;
        let Some(link) = self.link.take() else { return };
        let large = self.settings.memory.is_none()
            && self.settings.max_frame.is_none()
            && self.settings.max_payload > 200_000;
        let in_place = self.settings.in_place && self.seed.is_multiple_of(3);
        let count = u64::from(how / 8 % 16) + 1;
        match how % 8 {
            0 | 1 => {
                self.link = Some(link);
                self.honest_call(usize::from(how));
            }
            2 if large && !in_place => {
                self.link = Some(link);
                self.honest_call(20_000 * (usize::from(how) % 9 + 1));
            }
            3 => {
                let (link, done) = self.meanwhile(move || {
                    let mut batch = link.batch();
                    let sent = (0..count).try_for_each(|_| batch.send(library, &[7; 24]));
                    let done = sent.and_then(|()| batch.finish()).and_then(|()| link.flush(PATIENCE));
                    (link, done)
                });
                done.unwrap_or_else(|error| self.refused(&error));
                (self.link, self.sent) = (Some(link), self.sent + count);
            }
            4 => {
                let (link, done) = self.meanwhile(move || {
                    let calls: Vec<_> = (0..count).map(|_| link.inject(library, &[9; 40])).collect();
                    let done = calls.into_iter().try_for_each(|call| call?.wait(PATIENCE).map(drop));
                    (link, done)
                });
                done.unwrap_or_else(|error| self.refused(&error));
                (self.link, self.sent) = (Some(link), self.sent + count);
            }
            5 => {
                let (link, done) = self.meanwhile(move || {
                    let done = (0..count)
                        .try_for_each(|_| link.send(library, &[1; 100]))
                        .and_then(|()| link.flush(PATIENCE));
                    (link, done)
                });
                done.unwrap_or_else(|error| self.refused(&error));
                (self.link, self.sent) = (Some(link), self.sent + count);
            }
            6 => {
                let (link, done) = self.meanwhile(move || {
                    let mut into = Vec::new();
                    let done = link.call_into(library, &[3; 8], PATIENCE, &mut into);
                    (link, done.map(|_| into))
                });
                match done {
                    Ok(into) => assert_eq!(into, [3; 8]),
                    Err(error) => self.refused(&error),
                }
                (self.link, self.sent) = (Some(link), self.sent + 1);
            }
            _ => {
                assert!(link.progress().is_ok(), "the honest link has ended");
                let _ = (link.stats(), link.path(), link.arrival_rule(), link.max_frame(), link.is_busy());
                if link.arm().is_ok() {
                    link.disarm();
                }
                self.link = Some(link);
            }
        }
    }

    fn carry_out(&mut self, step: &Step, hostile: &mut Hostile<'_>) {
        let needs_link = matches!(
            step,
            Step::Frame(_)
                | Step::Rewrite(_)
                | Step::RewriteWaiting(_)
                | Step::Return(_)
                | Step::Say(_)
                | Step::SayWith(..)
        );
        if needs_link && !hostile.is_linked() {
            let victim = self.victim.as_mut().expect("it is there until the end");
            hostile.connect(Meeting::Proper, &mut || victim.turn());
        }
        match *step {
            Step::Connect(meeting) => {
                let victim = self.victim.as_mut().expect("it is there until the end");
                hostile.connect(meeting, &mut || victim.turn());
            }
            Step::Frame(ref frame) => hostile.frame(frame),
            Step::Rewrite(seed) => hostile.rewrite(seed, false),
            Step::RewriteWaiting(seed) => hostile.rewrite(seed, true),
            Step::Return(seed) => hostile.write_return_line(seed),
            Step::Say(saying) => hostile.say(saying),
            Step::SayWith(kind, seed) => hostile.say_with(kind, seed),
            Step::Ask(kind) => {
                let asked = &*hostile;
                let asked = asked.request(kind);
                match self.meanwhile(asked) {
                    Ok(answered) => self.outcome.answers += u64::from(answered),
                    Err(what) => panic!("{what}"),
                }
            }
            Step::OddAsk(seed) => hostile.odd_ask(seed),
            Step::Honest(how) => self.honest_works(how),
            Step::HonestAgain => {
                self.link = None;
                self.connect_honest();
            }
            Step::Turns(count) => {
                for _ in 0..count {
                    self.turn();
                    hostile.listen();
                }
            }
            Step::Pause(time) => {
                let until = Instant::now() + Duration::from_millis(time.into());
                while Instant::now() < until {
                    self.turn();
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            Step::Descriptor(seed) => hostile.tamper(seed),
            Step::Stray(seed) => hostile.stray(seed),
            Step::Owner(what) => self.owner(what),
            Step::Burst(seed) => {
                // No frame of an older link is under way on a new one.
                let victim = self.victim.as_mut().expect("it is there until the end");
                hostile.connect(Meeting::Proper, &mut || victim.turn());
                if let Victim::Here(target) = victim {
                    let (taken, summed) = burst::bounded(target, hostile, seed);
                    self.outcome.taken += taken;
                    self.outcome.summed += summed;
                }
            }
            Step::Part(parting) => hostile.part(parting),
        }
    }

    /// Checks that the holdings of all sides stay bounded during the conversation too.
    fn holds_little(&mut self, step: &Step) {
        let now = Holdings::now();
        let descriptors = now.descriptors.saturating_sub(self.before.descriptors);
        let shared = now.shared.saturating_sub(self.before.shared);
        assert!(
            descriptors <= MOST_OPEN && shared <= MOST_SHARED,
            "after {step:?} there are {descriptors} descriptors and {shared} bytes of shared memory more than before: {:?}",
            Holdings::open()
        );
        let (open, mapped) = self.outcome.most;
        self.outcome.most = (open.max(descriptors), mapped.max(shared));
    }

    /// An action of the target's owner while it runs.
    fn owner(&mut self, what: u8) {
        let function = &functions()[usize::from(what / 8) % functions().len()];
        let Some(Victim::Here(target)) = &mut self.victim else { return };
        match what % 6 {
            0 => drop(target.drop_code(&function.id())),
            1 if function.name != "lookup" && function.name != "system" => {
                // The store may be full.
                let _ = target.set_local(&function.library);
            }
            2 if function.name != "honest" => drop(target.remove_local(function.name)),
            3 => target.export("fuzz_twice", twice as extern "C" fn(_) -> _),
            4 => target.export_data("fuzz_version", &VERSION),
            _ => {
                let stats = target.stats();
                assert!(
                    target.sources() <= self.settings.sources && target.images().len() == stats.store.images
                );
                assert!(stats.store.images <= self.settings.images.max(1) + functions().len());
            }
        }
    }

    /// Ends everything, and checks the target's counters.
    fn end(mut self) -> Outcome {
        self.link = None;
        let mut target = match self.victim.take() {
            Some(Victim::Here(mut target)) => {
                target.end_links("the conversation is over");
                *target
            }
            Some(Victim::There(thread)) => thread.stop().expect("the target worked"),
            None => unreachable!("it ends once"),
        };
        let ran = *target.args_mut::<u64>().expect("its argument is a number");
        assert!(
            ran >= self.sent && ran <= self.sent + self.unsure,
            "of {} calls of the honest link {ran} ran",
            self.sent
        );
        let stats = target.stats();
        drop(target);
        drop(self.peer.take());
        let causes = RefusalCause::ALL.iter().enumerate();
        Outcome {
            calls: stats.calls,
            refused: stats.refusals(),
            honest: self.sent,
            placed: stats.images_linked,
            causes: causes.map(|(at, &cause)| u64::from(stats.refused(cause) != 0) << at).sum(),
            ..self.outcome
        }
    }
}
