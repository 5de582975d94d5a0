//! A target, an honest link beside the hostile source, and the assertions about them.

mod holdings;
mod honest;
mod outcome;

use std::fs;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use farjump::{Link, Mode, RefusalCause, Target, TargetThread};
use farjump_control::{Key, TcpOptions};
use tempfile::TempDir;

use crate::burst;
use crate::functions::{functions, honest};
use crate::hostile::Hostile;
use crate::step::{Ending, HandshakeKind, Route, Settings, Step};
use crate::transports::transport;
pub use holdings::Holdings;
pub use outcome::Outcome;

/// Timeouts of the rest of a frame, and of a handshake.
const LIMITS: (Duration, Duration) = (Duration::from_millis(15), Duration::from_millis(400));
/// Timeout of the rest of a frame if honest frames come in pieces, too. Their sender may wait for a processor.
const STALL: Duration = Duration::from_secs(10);
/// Most descriptors that a conversation has open at once, including those of the hostile peer and those that it
/// passed.
const MOST_OPEN: usize = 256;
/// Most bytes of shared memory mapped at once, by both processes.
const MOST_SHARED: u64 = 64 << 20;

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

/// All participants.
struct Conversation<'s> {
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
    /// The holdings before the conversation.
    before: Holdings,
    outcome: Outcome,
    _folder: TempDir,
}

/// Executes a conversation with a target.
///
/// # Panics
/// When a guarantee is broken.
pub fn talk_to_target(seed: u64, settings: &Settings, steps: &[Step]) -> Outcome {
    let mut conversation = Conversation::new(seed, settings);
    let address = conversation.address.parse().expect("an address");
    let further = (0..settings.further_keys.len()).map(|at| further_key(seed, at));
    let keys = further.map(Some).chain([conversation.key.clone()]);
    let tcps = keys.map(|key| TcpOptions::default().with_key(key)).collect();
    let mut hostile = Hostile::new(settings, address, tcps, transport(settings.route, seed ^ 1));
    conversation.connect_honest();
    for step in steps {
        conversation.carry_out(step, &mut hostile);
        if !matches!(step, Step::Frame(_)) {
            conversation.turn();
            conversation.holds_little(step);
        }
        hostile.listen();
    }
    conversation.turn();
    hostile.listen();
    // The hostile source stays during the honest link's last call, and then leaves.
    conversation.honest_call(64);
    hostile.part(Ending::Drop);
    let (links, replies) = (hostile.links, hostile.replies);
    drop(hostile);
    conversation.honest_call(3);
    let streams = if settings.route.is_stream() { links } else { 0 };
    Outcome { links, streams, replies, ..conversation.end() }
}

/// The key with further rights at this index in the file.
fn further_key(seed: u64, at: usize) -> Key {
    Key::from_bytes([(seed as u8).wrapping_add(at as u8 + 1); 32])
}

/// The line in the file of a key with 32 equal bytes.
fn line(byte: u8) -> String {
    format!("{byte:02x}").repeat(32)
}

impl<'s> Conversation<'s> {
    fn new(seed: u64, settings: &'s Settings) -> Conversation<'s> {
        let before = Holdings::now();
        let folder = TempDir::new().expect("a folder");
        let unix = |name: &str| format!("unix:{}", folder.path().join(name).display());
        let key = settings.has_key.then(|| Key::from_bytes([seed as u8; 32]));
        let listen = if settings.route.is_tcp() { "tcp:127.0.0.1:0".to_owned() } else { unix("t.sock") };
        let counted: &'static mut u64 = Box::leak(Box::new(0));
        let mut builder = Target::listen(&listen)
            .args(counted)
            .mailbox_size(settings.mailbox)
            .arena_size(settings.arena_size)
            .store_bytes(2 * settings.arena_size)
            .store_images(settings.images)
            .stall_timeout(if settings.route == Route::Shared { LIMITS.0 } else { STALL })
            .handshake_timeout(LIMITS.1)
            .control_interval(Duration::ZERO)
            .max_sources(settings.sources)
            .max_payload(settings.max_payload)
            .rights(settings.rights)
            .process_symbols(settings.offers.1)
            .on_refused(|_, refusal| assert!(!refusal.text.is_empty()))
            .on_peer_gone(|_, why| assert!(!why.is_empty()));
        let name = transport(settings.route, 0).name().to_owned();
        if settings.route != Route::Shared {
            builder = builder.transport(&name).with_transport(transport(settings.route, seed));
        }
        if settings.offers.0 {
            builder = builder
                .export("fuzz_twice", twice as extern "C" fn(_) -> _)
                .export_data("fuzz_version", &VERSION);
        }
        if settings.only_local {
            builder = builder.modes([Mode::Local]);
        } else if settings.in_place {
            builder = builder.modes(Mode::ALL);
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
            builder =
                builder.destination("next", &at).destination("gone", &unix("nobody.sock")).allow_making(true);
        }
        let target = builder.build().unwrap_or_else(|error| panic!("{settings:?}: {error}"));
        let address = target.address();
        let victim = match settings.by_thread {
            true => Victim::There(target.spawn().expect("a thread")),
            false => Victim::Here(Box::new(target)),
        };
        Conversation {
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
            hostile.connect(HandshakeKind::Proper, &mut || victim.turn());
        }
        match *step {
            Step::Connect(kind) => {
                let victim = self.victim.as_mut().expect("it is there until the end");
                hostile.connect(kind, &mut || victim.turn());
            }
            Step::Frame(ref frame) => hostile.frame(frame),
            Step::Rewrite(seed) => hostile.rewrite(seed, false),
            Step::RewriteWaiting(seed) => hostile.rewrite(seed, true),
            Step::Return(seed) => hostile.write_return_line(seed),
            Step::Say(saying) => hostile.say(saying),
            Step::SayWith(kind, seed) => hostile.say_with(kind, seed),
            Step::Admin(kind) => {
                let asked = &*hostile;
                let asked = asked.request(kind);
                match self.meanwhile(asked) {
                    Ok(replied) => self.outcome.responses += u64::from(replied),
                    Err(what) => panic!("{what}"),
                }
            }
            Step::OddAdmin(seed) => hostile.odd_admin_request(seed),
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
                // On a new link no frame of an older link is on its way.
                let victim = self.victim.as_mut().expect("it is there until the end");
                hostile.connect(HandshakeKind::Proper, &mut || victim.turn());
                if let Victim::Here(target) = victim {
                    let (taken, summed) = burst::bounded(target, hostile, seed);
                    self.outcome.taken += taken;
                    self.outcome.summed += summed;
                }
            }
            Step::Part(ending) => hostile.part(ending),
        }
    }

    /// Checks that the holdings of all participants stay bounded during the conversation, too.
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
            3 => {
                target.export("fuzz_twice", twice as extern "C" fn(_) -> _).expect("nobody else has the name")
            }
            4 => target.export_data("fuzz_version", &VERSION).expect("nobody else has the name"),
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
