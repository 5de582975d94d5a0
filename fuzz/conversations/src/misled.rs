//! A hostile target, and a source that uses it: every wait of the source ends in time.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use farjump::admin::Admin;
use farjump::{Error, Link, LinkBuilder, Mode, WaitError, WaitPolicy};
use farjump_control::{
    AdminResponse, Control, DeferredFd, Dropped, EndpointInfo, Key, Listener, Message, PeerAddress,
    RefusalCause, SecondEndpoint, TcpOptions,
};
use farjump_core::frame::{Kind, Plan};
use farjump_core::image::Machine;
use farjump_core::mailbox::region_len;
use farjump_core::transport::{OpenRequest, Transport};
use fastrand::Rng;
use tempfile::TempDir;

use crate::descriptors::Odd;
use crate::functions::functions;
use crate::hostile::changed;
use crate::spoken;
use crate::step::{Meeting, Signal, Way, any_meeting};
use crate::ways::transport;
use crate::wire::Wire;

/// Timeout of each wait of the source.
const PATIENCE: Duration = Duration::from_millis(20);
/// Timeout of connecting.
const CONNECTING: Duration = Duration::from_millis(300);
/// Time beyond its timeout that a source may take on a busy machine.
const SLACK: Duration = Duration::from_secs(10);

/// The next action of the hostile target.
#[derive(Clone, Copy, Debug)]
pub enum Turn {
    /// Replies to everything properly.
    Answers,
    /// Replies to the last call, or another, with something.
    Replies(u64),
    /// Sends a frame of a kind that targets do not send.
    Frame(u64),
    /// Refuses the last call, or another.
    Refuses(u64),
    /// Requests code that the source has, or other code.
    Needs(u64),
    /// Sends a message.
    Says(u8),
    /// Sends a changed message.
    Spoilt(u8, u64),
    /// Sends a message with descriptors.
    SaysWith(u8, u64),
    /// Sends bytes.
    Bytes(u64),
    /// Offers a large mailbox, or something like it, and sends `Go` when an endpoint address comes.
    Offers(u64),
    /// Writes over the source's mailbox.
    Rewrites(u64),
    /// Writes a credit line.
    Returns(u64),
    /// Waits.
    Pauses(u8),
    /// Ends the link. The next source is accepted.
    Parts,
    /// Announces that it closes.
    Closes,
}

/// A conversation with a source.
#[derive(Clone, Debug)]
pub struct Scene {
    /// The path between both.
    pub way: Way,
    /// The handshakes with sources, one after the other.
    pub meetings: Vec<Meeting>,
    /// The actions of the hostile target.
    pub turns: Vec<Turn>,
    /// The actions of the source.
    pub acts: Vec<u8>,
}

impl Scene {
    /// Makes a conversation by the seed.
    pub fn new(rng: &mut Rng) -> Scene {
        let meeting = |rng: &mut Rng| if rng.u8(..3) == 0 { any_meeting(rng) } else { Meeting::Proper };
        Scene {
            // A hostile target has no streams.
            way: match Way::any(rng) {
                Way::Stream(_) => Way::Messages,
                way => way,
            },
            meetings: (0..4).map(|_| meeting(rng)).collect(),
            turns: (0..rng.usize(10..60)).map(|_| turn(rng)).collect(),
            acts: (0..rng.usize(4..20)).map(|_| rng.u8(..)).collect(),
        }
    }
}

fn turn(rng: &mut Rng) -> Turn {
    match rng.u8(..40) {
        0..14 => Turn::Answers,
        14..18 => Turn::Replies(rng.u64(..)),
        18 | 19 => Turn::Frame(rng.u64(..)),
        20..23 => Turn::Refuses(rng.u64(..)),
        23 | 24 => Turn::Needs(rng.u64(..)),
        25 => Turn::Says(rng.u8(..)),
        26 => Turn::Spoilt(rng.u8(..), rng.u64(..)),
        27 => Turn::SaysWith(rng.u8(..), rng.u64(..)),
        28 => Turn::Bytes(rng.u64(..)),
        29..33 => Turn::Offers(rng.u64(..)),
        33 => Turn::Rewrites(rng.u64(..)),
        34 => Turn::Returns(rng.u64(..)),
        35..38 => Turn::Pauses(rng.u8(..8)),
        38 => Turn::Parts,
        _ => Turn::Closes,
    }
}

/// Executes it. Returns how many actions of the source succeeded, and how many failed.
///
/// # Panics
/// When a guarantee is broken.
pub fn talk_to_source(seed: u64, scene: &Scene) -> (u64, u64) {
    let folder = TempDir::new().expect("a folder");
    let key = (scene.way.is_tcp() && !seed.is_multiple_of(3)).then(|| Key::from_bytes([seed as u8; 32]));
    let tcp = TcpOptions::default().with_key(key.clone());
    let listen = match scene.way.is_tcp() {
        true => "tcp:127.0.0.1:0".to_owned(),
        false => format!("unix:{}", folder.path().join("t.sock").display()),
    };
    let listen: PeerAddress = listen.parse().expect("an address");
    let listener = Listener::bind_with(&listen, tcp).expect("it listens");
    let address = listener.address().to_string();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let source = scope.spawn(|| {
            // Ends the other side also when this one panics.
            let _over = Over(&over);
            Source { address, key, scene, seed, link: None, well: 0, ill: 0 }.acts()
        });
        Liar::new(&listener, scene, seed).lies(&over);
        source.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The source.
struct Source<'s> {
    address: String,
    key: Option<Key>,
    scene: &'s Scene,
    seed: u64,
    link: Option<Link>,
    well: u64,
    ill: u64,
}

impl Source<'_> {
    fn acts(mut self) -> (u64, u64) {
        for &act in &self.scene.acts {
            if self.link.is_none() {
                let builder = self.builder();
                self.link = self.timed("connecting", 2 * CONNECTING, |_| builder.connect());
            }
            self.act(act);
        }
        (self.well, self.ill)
    }

    fn builder(&self) -> LinkBuilder {
        let mut builder = Link::builder(&self.address)
            .connect_timeout(CONNECTING)
            .send_timeout(PATIENCE)
            .reply_mailbox_size(1 << (12 + self.seed % 4))
            .mode([Mode::Cached, Mode::Always, Mode::Local][(self.seed % 3) as usize])
            .on_refused(|refusal| assert!(!refusal.text.chars().any(char::is_control)))
            .on_peer_gone(|why| assert!(!why.is_empty()))
            .on_code_missing(|name| assert!(!name.is_empty()));
        if self.scene.way != Way::Shared {
            let transport = transport(self.scene.way, self.seed);
            builder = builder.transport(transport.name()).with_transport(transport);
        }
        if let Some(key) = &self.key {
            builder = builder.key(key.clone());
        }
        match self.seed % 4 {
            0 => builder.wait_policy(WaitPolicy::sleep_only()),
            1 => builder.wait_policy(WaitPolicy::spin_only()).control_interval(Duration::ZERO),
            _ => builder,
        }
    }

    /// Runs an action that may take at most `most`.
    fn timed<T>(
        &mut self,
        what: &str,
        most: Duration,
        act: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Option<T> {
        let begun = Instant::now();
        let done = act(self);
        let took = begun.elapsed();
        assert!(took < most + SLACK, "{what} took {took:?}, and {most:?} is its deadline");
        match done {
            Ok(done) => {
                self.well += 1;
                Some(done)
            }
            Err(error) => {
                let words = error.to_string();
                assert!(
                    !words.trim().is_empty() && !words.chars().any(char::is_control),
                    "{what}: {words:?}"
                );
                self.ill += 1;
                if matches!(error, Error::Wait(WaitError::PeerGone { .. })) {
                    self.link = None;
                }
                None
            }
        }
    }

    fn act(&mut self, act: u8) {
        let function = &functions()[usize::from(act / 16) % functions().len()];
        let library = &function.library;
        let link = self.link.take();
        let Some(mut link) = link else { return self.request(act) };
        let args = vec![0x41; usize::from(act)];
        let most = 4 * PATIENCE;
        match act % 12 {
            0..3 => drop(self.timed("a call", most, |_| link.inject(library, &args)?.wait(PATIENCE))),
            3 => drop(self.timed("a message", most, |_| link.send(library, &args))),
            4 => drop(self.timed("a batch", 16 * most, |_| {
                let mut batch = link.batch();
                for _ in 0..16 {
                    batch.send(library, &args)?;
                }
                batch.finish()
            })),
            5 => drop(self.timed("a flush", most, |_| link.flush(PATIENCE))),
            6 => drop(self.timed("a long call", most + SLACK / 2, |_| {
                link.inject(library, &vec![0x42; 40_000 + 997 * usize::from(act)])?.wait(PATIENCE)
            })),
            7 => drop(self.timed("a call into a buffer", most, |_| {
                link.call_into(library, &args, PATIENCE, &mut Vec::new()).map(drop)
            })),
            8 => drop(self.timed("progress", most, |_| {
                let _ = (link.stats(), link.path(), link.peer(), link.max_frame());
                if link.arm()?.is_some() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                link.disarm();
                link.progress()
            })),
            9 => drop(self.timed("connecting again", 2 * CONNECTING, |_| link.reconnect())),
            10 => drop(self.timed("several calls", 10 * most, |_| {
                let calls: Vec<_> = (0..8).map(|_| link.inject(library, &args)).collect();
                calls.into_iter().try_for_each(|call| call?.wait(PATIENCE).map(drop))
            })),
            _ => drop(self.timed("a linking time", most, |_| link.link_time(library, PATIENCE))),
        }
        if self.ill == 0 || !act.is_multiple_of(3) {
            self.link = Some(link);
        }
    }

    fn request(&mut self, act: u8) {
        self.timed("an admin request", 2 * CONNECTING, |own| {
            let mut admin = Admin::new(&own.address)?.timeout(CONNECTING);
            if let Some(key) = &own.key {
                admin = admin.key(key.clone());
            }
            match act % 3 {
                0 => admin.store().map(drop),
                1 => admin.stats().map(drop),
                _ => admin.drop_all().map(drop),
            }
        });
    }
}

/// The target.
struct Liar<'s> {
    listener: &'s Listener,
    scene: &'s Scene,
    transport: Box<dyn Transport>,
    control: Option<Control>,
    wire: Option<Wire>,
    bigger: Option<Wire>,
    offered: Option<SecondEndpoint>,
    /// Calls that wait for a reply: token and payload.
    due: Vec<(u32, Vec<u8>)>,
    last: u32,
    kept: Vec<OwnedFd>,
    met: usize,
}

impl<'s> Liar<'s> {
    fn new(listener: &'s Listener, scene: &'s Scene, seed: u64) -> Liar<'s> {
        Liar {
            listener,
            scene,
            transport: transport(scene.way, seed ^ 3),
            control: None,
            wire: None,
            bigger: None,
            offered: None,
            due: Vec::new(),
            last: 0,
            kept: Vec::new(),
            met: 0,
        }
    }

    fn lies(mut self, over: &AtomicBool) {
        let mut turns = self.scene.turns.iter().cycle();
        while !over.load(Ordering::Acquire) {
            if self.control.is_none() && !self.meets() {
                std::thread::sleep(Duration::from_micros(500));
                continue;
            }
            self.listens();
            if let Some(&turn) = turns.next() {
                self.takes(turn);
            }
            std::thread::sleep(Duration::from_micros(300));
        }
    }

    /// Performs the handshake with a connected source. `false` if there is none.
    fn meets(&mut self) -> bool {
        let Ok(Some(control)) = self.listener.accept() else { return false };
        (self.wire, self.bigger, self.offered) = (None, None, None);
        self.due.clear();
        self.kept.clear();
        self.control = Some(control);
        let meeting = self.scene.meetings[self.met % self.scene.meetings.len()];
        self.met += 1;
        if self.meet(meeting).is_none() {
            self.control = None;
        }
        true
    }

    fn meet(&mut self, meeting: Meeting) -> Option<()> {
        let control = self.control.as_mut()?;
        let hello = await_message(control)?.0;
        let Message::Hello { .. } = hello else {
            let bytes = match self.met % 4 {
                0 => Vec::new(),
                1 => vec![1, 3, 4],
                2 => vec![0xff; 100],
                _ => vec![2; 3],
            };
            let _ = control.send(&Message::AdminResponse { bytes }, &[]);
            let _ = AdminResponse::Dropped(Dropped::default());
            return None;
        };
        if let Meeting::Stops(0) = meeting {
            return None;
        }
        if let Meeting::Bytes(seed) = meeting {
            let mut rng = Rng::with_seed(seed);
            let bytes: Vec<u8> = (0..rng.usize(1..500)).map(|_| rng.u8(..)).collect();
            spoken::write(control, &bytes, &[]);
        }
        if let Meeting::Undue(_, kind) = meeting {
            let _ = control.send(&spoken::any(kind, functions()[0].id(), &[1; 40]), &[]);
        }
        let request = OpenRequest::new(region_len(1 << 14), 1 << 14);
        let own = SecondEndpoint::open(self.transport.as_mut(), &request).ok()?;
        let machine = Machine::native().map_or(62, |machine| machine.0);
        let welcome = |end: EndpointInfo| Message::Welcome {
            epoch: 5,
            machine,
            pid: 1,
            program: "hostile".into(),
            end,
            stream: None,
        };
        let kept = &mut self.kept;
        own.tell(|end, borrowed| match meeting {
            Meeting::OddEnd(seed) => drop(control.send(&welcome(changed(end, seed)), borrowed)),
            Meeting::OddDescriptors(seed) | Meeting::DescriptorsWithHello(seed)
                if control.carries_descriptors() =>
            {
                let odd = Odd::some(seed, end.region_len);
                let _ = control.send(&welcome(end), &odd.borrowed());
                kept.extend(odd.kept);
            }
            Meeting::Spoilt(seed) => {
                let _ = control.flush();
                spoken::write(control, &spoken::spoilt(&welcome(end), seed), borrowed);
            }
            _ => drop(control.send(&welcome(end), borrowed)),
        });
        if let Meeting::Stops(_) = meeting {
            return None;
        }
        let (ready, descriptors) = await_message(control)?;
        let Message::Ready { end, .. } = ready else { return None };
        let joined = own.join(control.peer(), end, descriptors, Instant::now() + CONNECTING).ok()?;
        self.wire = Some(Wire::new(joined)?);
        let _ = control.send(&Message::Go, &[]);
        Some(())
    }

    /// Takes arrived messages and frames.
    fn listens(&mut self) {
        let Some(control) = &mut self.control else { return };
        loop {
            match control.recv() {
                Ok(Some((Message::LargeAccept { end }, descriptors))) => {
                    let until = Instant::now() + CONNECTING;
                    let peer = control.peer().clone();
                    let joined =
                        self.offered.take().and_then(|own| own.join(&peer, end, descriptors, until).ok());
                    self.bigger = joined.and_then(Wire::new);
                    let _ = control.send(&Message::Go, &[]);
                }
                Ok(Some((Message::LargeRequest { .. }, _))) if self.offered.is_none() => {
                    if self.met.is_multiple_of(2) {
                        self.offers(0);
                        return;
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => {
                    self.control = None;
                    return;
                }
            }
        }
        for wire in [&mut self.wire, &mut self.bigger].into_iter().flatten() {
            for came in wire.poll() {
                self.last = came.header.token;
                if came.header.flags.contains(farjump_core::frame::Flags::WANTS_REPLY) {
                    self.due.push((came.header.token, came.payload));
                }
            }
        }
    }

    fn offers(&mut self, seed: u64) {
        let Some(control) = &mut self.control else { return };
        let request = OpenRequest::new(region_len(1 << 17), 1 << 17);
        let Ok(own) = SecondEndpoint::open(self.transport.as_mut(), &request) else { return };
        let kept = &mut self.kept;
        own.tell(|end, borrowed| match seed % 4 {
            1 => drop(control.send(&Message::LargeOffer { end: changed(end, seed) }, borrowed)),
            2 if control.carries_descriptors() => {
                let odd = Odd::some(seed, end.region_len);
                let _ = control.send(&Message::LargeOffer { end }, &odd.borrowed());
                kept.extend(odd.kept);
            }
            3 => {
                let text = "not now".to_owned();
                let _ = control.send(&Message::LargeDecline { cause: RefusalCause::OutOfMemory, text }, &[]);
            }
            _ => drop(control.send(&Message::LargeOffer { end }, borrowed)),
        });
        self.offered = Some(own);
        if let Some(wire) = &mut self.wire {
            let _ = wire.channel().notify();
        }
    }

    fn takes(&mut self, turn: Turn) {
        let (Some(control), Some(wire)) = (&mut self.control, &mut self.wire) else { return };
        let echo = &functions()[0];
        let reply = |token: u32, status: u16| Plan {
            kind: Kind::Reply,
            wants_reply: false,
            alone: false,
            index: status,
            token,
            align_log2: 0,
            code: None,
        };
        match turn {
            Turn::Answers => {
                for (token, payload) in self.due.drain(..) {
                    wire.send(&reply(token, 0), &payload, None, Signal::Due);
                }
            }
            Turn::Replies(seed) => {
                let mut rng = Rng::with_seed(seed);
                let token = if rng.bool() { self.last } else { self.last ^ 1 << rng.u8(..32) };
                let bytes = vec![0x5b; rng.usize(..3000)];
                let spoil = rng.bool().then(|| (rng.u64(..), false));
                let signal = if rng.u8(..4) == 0 { Signal::Other(64) } else { Signal::Due };
                wire.send(&reply(token, rng.u16(..3)), &bytes, spoil, signal);
            }
            Turn::Frame(seed) => {
                let mut rng = Rng::with_seed(seed);
                let kinds = [Kind::Call, Kind::Flush, Kind::CallBatch, Kind::Large];
                let plan = Plan { kind: kinds[rng.usize(..4)], ..reply(self.last, rng.u16(..)) };
                wire.send(&plan, &vec![1; rng.usize(..300)], None, Signal::Due);
            }
            Turn::Refuses(seed) => {
                let causes = [RefusalCause::Policy, RefusalCause::OutOfMemory, RefusalCause::CodeMissing];
                let (cause, text) = (causes[(seed % 3) as usize], "\u{1b}[31mno\n".to_owned());
                let token = if seed % 4 == 0 { seed as u32 } else { self.last };
                let _ = control.send(&Message::Refused { token, cause, text }, &[]);
                let _ = wire.channel().notify();
            }
            Turn::Needs(seed) => {
                let function = &functions()[(seed >> 8) as usize % functions().len()];
                let id = if seed % 3 == 0 { [9; 16] } else { function.id().0 };
                let _ = control.send(&Message::NeedCode { index: seed as u16 % 4, id }, &[]);
                let _ = wire.channel().notify();
            }
            Turn::Says(kind) => drop(control.send(&spoken::any(kind, echo.id(), &[0; 64]), &[])),
            Turn::Spoilt(kind, seed) => {
                spoken::write(control, &spoken::spoilt(&spoken::any(kind, echo.id(), &[0; 64]), seed), &[]);
            }
            Turn::SaysWith(kind, seed) if control.carries_descriptors() => {
                let odd = Odd::some(seed, 8192);
                let bytes = spoken::bytes_of(&spoken::any(kind, echo.id(), &[0; 64]));
                let whole = [&spoken::head(bytes.len() - 8, odd.passed.len())[..], &bytes[8..]].concat();
                spoken::write(control, &whole, &odd.borrowed());
                self.kept.extend(odd.kept);
            }
            Turn::SaysWith(..) => {}
            Turn::Bytes(seed) => {
                let mut rng = Rng::with_seed(seed);
                let bytes: Vec<u8> = (0..rng.usize(1..100)).map(|_| rng.u8(..)).collect();
                spoken::write(control, &bytes, &[]);
            }
            Turn::Offers(seed) => self.offers(seed),
            Turn::Rewrites(seed) => wire.rewrite(seed, seed.is_multiple_of(2)),
            Turn::Returns(seed) => wire.write_return_line(seed),
            Turn::Pauses(time) => std::thread::sleep(Duration::from_millis(time.into())),
            Turn::Parts => self.control = None,
            Turn::Closes => {
                let _ = control.send(&Message::Closing { text: "enough\u{7}".into() }, &[]);
                let _ = wire.channel().notify();
                self.control = None;
            }
        }
    }
}

fn await_message(control: &mut Control) -> Option<(Message, Vec<DeferredFd>)> {
    let until = Instant::now() + CONNECTING;
    while Instant::now() < until {
        if let Some(came) = control.recv().ok()? {
            return Some(came);
        }
        let _ = control.flush();
        std::thread::sleep(Duration::from_micros(100));
    }
    None
}
