//! A hostile target, and a source that uses it: every wait of the source ends in time.

mod source;

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use farjump_control::{
    AdminResponse, Control, DeferredFd, Dropped, EndpointInfo, Key, Listener, Message, PeerAddress,
    RefusalCause, SecondEndpoint, TcpOptions,
};
use farjump_core::frame::{Kind, Plan};
use farjump_core::mailbox::region_len;
use farjump_core::transport::{OpenRequest, Transport};
use farjump_fixtures::by_hand::cpu;
use farjump_fixtures::raw_target::reply_plan;
use fastrand::Rng;
use tempfile::TempDir;

use crate::functions::functions;
use crate::hostile::changed;
use crate::messages;
use crate::step::{HandshakeKind, Route, Signal, any_handshake};
use crate::transports::transport;
use crate::wire::Wire;
use source::Source;

/// Timeout of connecting.
const CONNECTING: Duration = Duration::from_millis(300);

/// The next action of the hostile target.
#[derive(Clone, Copy, Debug)]
pub enum Turn {
    /// Replies to everything properly.
    RepliesToAll,
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
pub struct Script {
    /// The path between source and target.
    pub route: Route,
    /// The handshakes with sources, one after the other.
    pub handshakes: Vec<HandshakeKind>,
    /// The actions of the hostile target.
    pub turns: Vec<Turn>,
    /// The actions of the source.
    pub acts: Vec<u8>,
}

impl Script {
    /// Makes a conversation by the seed.
    pub fn new(rng: &mut Rng) -> Script {
        let kind = |rng: &mut Rng| if rng.u8(..3) == 0 { any_handshake(rng) } else { HandshakeKind::Proper };
        Script {
            // A hostile target has no streams.
            route: match Route::any(rng) {
                Route::Stream(_) => Route::Messages,
                route => route,
            },
            handshakes: (0..4).map(|_| kind(rng)).collect(),
            turns: (0..rng.usize(10..60)).map(|_| turn(rng)).collect(),
            acts: (0..rng.usize(4..20)).map(|_| rng.u8(..)).collect(),
        }
    }
}

fn turn(rng: &mut Rng) -> Turn {
    match rng.u8(..40) {
        0..14 => Turn::RepliesToAll,
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

/// Executes a conversation. Returns the number of the source's actions that succeeded, and of those that failed.
///
/// # Panics
/// When a guarantee is broken.
pub fn talk_to_source(seed: u64, script: &Script) -> (u64, u64) {
    let folder = TempDir::new().expect("a folder");
    let key = (script.route.is_tcp() && !seed.is_multiple_of(3)).then(|| Key::from_bytes([seed as u8; 32]));
    let tcp = TcpOptions::default().with_key(key.clone());
    let listen = match script.route.is_tcp() {
        true => "tcp:127.0.0.1:0".to_owned(),
        false => format!("unix:{}", folder.path().join("t.sock").display()),
    };
    let listen: PeerAddress = listen.parse().expect("an address");
    let listener = Listener::bind_with(&listen, tcp).expect("it listens");
    let address = listener.address().to_string();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let source = scope.spawn(|| {
            // Dropping this ends the other process's part, also when this one panics.
            let _over = Over(&over);
            Source { address, key, script, seed, link: None, well: 0, ill: 0 }.acts()
        });
        Liar::new(&listener, script, seed).lies(&over);
        source.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The target.
struct Liar<'s> {
    listener: &'s Listener,
    script: &'s Script,
    transport: Box<dyn Transport>,
    control: Option<Control>,
    wire: Option<Wire>,
    large: Option<Wire>,
    offered: Option<SecondEndpoint>,
    /// Calls that wait for a reply: token and payload.
    due: Vec<(u32, Vec<u8>)>,
    last: u32,
    kept: Vec<OwnedFd>,
    handshakes_made: usize,
}

impl<'s> Liar<'s> {
    fn new(listener: &'s Listener, script: &'s Script, seed: u64) -> Liar<'s> {
        Liar {
            listener,
            script,
            transport: transport(script.route, seed ^ 3),
            control: None,
            wire: None,
            large: None,
            offered: None,
            due: Vec::new(),
            last: 0,
            kept: Vec::new(),
            handshakes_made: 0,
        }
    }

    fn lies(mut self, over: &AtomicBool) {
        let mut turns = self.script.turns.iter().cycle();
        while !over.load(Ordering::Acquire) {
            if self.control.is_none() && !self.connects() {
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

    /// Performs the handshake with a connected source. Returns `false` if there is none.
    fn connects(&mut self) -> bool {
        let Ok(Some(control)) = self.listener.accept() else { return false };
        (self.wire, self.large, self.offered) = (None, None, None);
        self.due.clear();
        self.kept.clear();
        self.control = Some(control);
        let kind = self.script.handshakes[self.handshakes_made % self.script.handshakes.len()];
        self.handshakes_made += 1;
        if self.shake_hands(kind).is_none() {
            self.control = None;
        }
        true
    }

    fn shake_hands(&mut self, kind: HandshakeKind) -> Option<()> {
        let control = self.control.as_mut()?;
        let hello = await_message(control)?.0;
        let Message::Hello { .. } = hello else {
            let bytes = match self.handshakes_made % 4 {
                0 => Vec::new(),
                1 => vec![1, 3, 4],
                2 => vec![0xff; 100],
                _ => vec![2; 3],
            };
            let _ = control.send(&Message::AdminResponse { bytes }, &[]);
            let _ = AdminResponse::Dropped(Dropped::default());
            return None;
        };
        if let HandshakeKind::Stops(0) = kind {
            return None;
        }
        if let HandshakeKind::Bytes(seed) = kind {
            messages::write(control, &messages::random(seed, 1..500), &[]);
        }
        if let HandshakeKind::Undue(_, kind) = kind {
            let _ = control.send(&messages::any(kind, functions()[0].id(), &[1; 40]), &[]);
        }
        let request = OpenRequest::new(region_len(1 << 14), 1 << 14);
        let own = SecondEndpoint::open(self.transport.as_mut(), &request).ok()?;
        let welcome = |end: EndpointInfo| Message::Welcome {
            epoch: 5,
            cpu: cpu(),
            pid: 1,
            program: "hostile".into(),
            endpoint: end,
            stream: None,
        };
        let kept = &mut self.kept;
        own.with_info(|end, borrowed| match kind {
            HandshakeKind::OddEnd(seed) => drop(control.send(&welcome(changed(end, seed)), borrowed)),
            HandshakeKind::OddDescriptors(seed) | HandshakeKind::DescriptorsWithHello(seed)
                if control.carries_descriptors() =>
            {
                let len = end.region_len;
                messages::send_odd(control, &welcome(end), seed, len, kept);
            }
            HandshakeKind::Spoilt(seed) => {
                let _ = control.flush();
                messages::write(control, &messages::spoilt(&welcome(end), seed), borrowed);
            }
            _ => drop(control.send(&welcome(end), borrowed)),
        });
        if let HandshakeKind::Stops(_) = kind {
            return None;
        }
        let (ready, descriptors) = await_message(control)?;
        let Message::Ready { endpoint, .. } = ready else { return None };
        let joined = own.join(control.peer(), endpoint, descriptors, Instant::now() + CONNECTING).ok()?;
        self.wire = Some(Wire::new(joined)?);
        let _ = control.send(&Message::Go, &[]);
        Some(())
    }

    /// Takes arrived messages and frames.
    fn listens(&mut self) {
        let Some(control) = &mut self.control else { return };
        loop {
            match control.recv() {
                Ok(Some((Message::LargeAccept { endpoint }, descriptors))) => {
                    let until = Instant::now() + CONNECTING;
                    let peer = control.peer().clone();
                    let joined = self
                        .offered
                        .take()
                        .and_then(|own| own.join(&peer, endpoint, descriptors, until).ok());
                    self.large = joined.and_then(Wire::new);
                    let _ = control.send(&Message::Go, &[]);
                }
                Ok(Some((Message::LargeRequest { .. }, _))) if self.offered.is_none() => {
                    if self.handshakes_made.is_multiple_of(2) {
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
        for wire in [&mut self.wire, &mut self.large].into_iter().flatten() {
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
        own.with_info(|end, borrowed| match seed % 4 {
            1 => drop(control.send(&Message::LargeOffer { endpoint: changed(end, seed) }, borrowed)),
            2 if control.carries_descriptors() => {
                let len = end.region_len;
                messages::send_odd(control, &Message::LargeOffer { endpoint: end }, seed, len, kept);
            }
            3 => {
                let text = "not now".to_owned();
                let _ = control.send(&Message::LargeDecline { cause: RefusalCause::OutOfMemory, text }, &[]);
            }
            _ => drop(control.send(&Message::LargeOffer { endpoint: end }, borrowed)),
        });
        self.offered = Some(own);
        if let Some(wire) = &mut self.wire {
            let _ = wire.channel().notify();
        }
    }

    fn takes(&mut self, turn: Turn) {
        let (Some(control), Some(wire)) = (&mut self.control, &mut self.wire) else { return };
        let echo = &functions()[0];
        match turn {
            Turn::RepliesToAll => {
                for (token, payload) in self.due.drain(..) {
                    wire.send(&reply_plan(token, 0), &payload, None, Signal::Due);
                }
            }
            Turn::Replies(seed) => {
                let mut rng = Rng::with_seed(seed);
                let token = if rng.bool() { self.last } else { self.last ^ 1 << rng.u8(..32) };
                let bytes = vec![0x5b; rng.usize(..3000)];
                let spoil = rng.bool().then(|| (rng.u64(..), false));
                let signal = if rng.u8(..4) == 0 { Signal::Other(64) } else { Signal::Due };
                wire.send(&reply_plan(token, rng.u16(..3)), &bytes, spoil, signal);
            }
            Turn::Frame(seed) => {
                let mut rng = Rng::with_seed(seed);
                let kinds = [Kind::Call, Kind::Flush, Kind::CallBatch, Kind::Large];
                let plan = Plan { kind: kinds[rng.usize(..4)], ..reply_plan(self.last, rng.u16(..)) };
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
            Turn::Says(kind) => drop(control.send(&messages::any(kind, echo.id(), &[0; 64]), &[])),
            Turn::Spoilt(kind, seed) => {
                messages::write(
                    control,
                    &messages::spoilt(&messages::any(kind, echo.id(), &[0; 64]), seed),
                    &[],
                );
            }
            Turn::SaysWith(kind, seed) if control.carries_descriptors() => {
                let message = messages::any(kind, echo.id(), &[0; 64]);
                messages::write_odd(control, &message, seed, None, &mut self.kept);
            }
            Turn::SaysWith(..) => {}
            Turn::Bytes(seed) => messages::write(control, &messages::random(seed, 1..100), &[]),
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
