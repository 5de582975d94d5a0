//! A hostile source: executes steps, with messages, frames and descriptors of its own making.

mod handshake;
mod streams;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use farjump_control::{
    AdminRequest, Control, DeferredFd, EndpointInfo, Message, PeerAddress, SecondEndpoint, TcpOptions,
    admin_request_with,
};
use farjump_core::frame::{Kind, Messages, Passage, Plan, PlanCode};
use farjump_core::image::CodeId;
use farjump_core::mailbox::region_len;
use farjump_core::transport::{OpenRequest, Stream, Transport};
use fastrand::Rng;

use crate::descriptors::MAY_BLOCK;
use crate::functions::{ALIGNED, NAMES, functions, id_of, made_up};
use crate::messages;
use crate::step::{Code, Ending, Epoch, FrameStep, Index, Saying, Settings};
use crate::transports::Opened;
use crate::wire::{Came, Wire};
pub(crate) use handshake::{await_message, changed};

/// A source that obeys no rule.
pub struct Hostile<'s> {
    settings: &'s Settings,
    pub(crate) address: PeerAddress,
    /// Its keys, used in turn.
    pub(crate) tcps: Vec<TcpOptions>,
    transport: Box<dyn Transport>,
    pub(crate) control: Option<Control>,
    pub(crate) link: Option<HostileLink>,
    /// Descriptors that must stay open.
    kept: Vec<OwnedFd>,
    /// Memory whose connection is closed.
    memories: Vec<HostileLink>,
    /// The transport's source of streams, if it has one.
    pub(crate) opened: Opened,
    /// Tokens of links that were made or begun, oldest first.
    pub(crate) tokens: Vec<[u8; Stream::TOKEN]>,
    /// Replies that were seen.
    pub replies: u64,
    /// Links that were made.
    pub links: u64,
}

/// The state after a handshake.
pub(crate) struct HostileLink {
    pub(crate) wire: Wire,
    /// The stream that its frames travel on, if any.
    pub(crate) stream: Option<OwnedFd>,
    large: Option<Wire>,
    pub(crate) epoch: u64,
    offer: Option<(EndpointInfo, Vec<DeferredFd>)>,
    /// The code that the target waits for.
    needed: Option<CodeId>,
    /// The images that were named last, whether they travelled or not.
    named: VecDeque<(CodeId, Vec<u8>)>,
    token: u32,
}

impl<'s> Hostile<'s> {
    /// Makes a source that has not connected yet.
    pub fn new(
        settings: &'s Settings,
        address: PeerAddress,
        tcps: Vec<TcpOptions>,
        transport: Box<dyn Transport>,
    ) -> Self {
        let opened = Opened::default();
        let transport = if settings.route.is_stream() { opened.transport() } else { transport };
        Hostile {
            settings,
            address,
            tcps,
            transport,
            opened,
            tokens: Vec::new(),
            control: None,
            link: None,
            kept: Vec::new(),
            memories: Vec::new(),
            replies: 0,
            links: 0,
        }
    }

    /// Returns whether it has a link, as far as it knows.
    pub fn is_linked(&self) -> bool {
        self.link.is_some() && self.control.is_some()
    }

    /// Reads arrived messages and frames.
    pub fn listen(&mut self) {
        let Some(control) = &mut self.control else { return };
        for _ in 0..64 {
            match control.recv() {
                Ok(Some((message, descriptors))) => match (&mut self.link, message) {
                    (Some(link), Message::NeedCode { id, .. }) => link.needed = Some(CodeId(id)),
                    (Some(link), Message::LargeOffer { endpoint }) => {
                        link.offer = Some((endpoint, descriptors))
                    }
                    _ => {}
                },
                Ok(None) => break,
                Err(_) => {
                    self.part(Ending::KeepMemory);
                    return;
                }
            }
        }
        let _ = control.flush();
        let Some(link) = &mut self.link else { return };
        for came in link.wire.poll() {
            self.replies += 1;
            check(&came, self.settings);
        }
        if let Some(large) = &mut link.large {
            large.poll();
        }
    }

    /// Sends a frame.
    pub fn frame(&mut self, step: &FrameStep) {
        let Some(link) = &mut self.link else { return };
        let (image, id, name, own) = match step.code {
            Code::Function(function) => {
                let it = &functions()[function];
                (it.image().to_vec(), it.id(), it.name, function as u16)
            }
            Code::MadeUp(seed) => {
                let image = made_up(seed, false);
                let id = id_of(&image);
                (image, id, "made_up", 100 + (seed % 64) as u16)
            }
            Code::Spoilt(seed) => {
                let image = made_up(seed, true);
                let id = id_of(&image);
                (image, id, "spoilt", 200)
            }
            Code::Mismatched(function) => {
                let (it, other) = (&functions()[function], &functions()[(function + 1) % NAMES.len()]);
                (it.image().to_vec(), other.id(), it.name, function as u16)
            }
        };
        link.named.push_front((id, image.clone()));
        link.named.truncate(8);
        let aligned = step.code == Code::Function(ALIGNED);
        let code = PlanCode {
            image: if step.kind.carries_image() { &image } else { &[] },
            id: if step.kind == Kind::CallLocal { CodeId([0; 16]) } else { id },
            epoch: match step.epoch {
                Epoch::Right => link.epoch,
                Epoch::Wrong => link.epoch ^ 1,
            },
            name,
            family: None,
        };
        link.token = link.token.wrapping_add(1);
        let plan = Plan {
            kind: step.kind,
            wants_reply: step.wants_reply,
            alone: step.seed.is_multiple_of(3),
            travelled: has_travelled(step),
            index: match step.index {
                Index::Own => own,
                Index::Of(index) | Index::Any(index) => index,
            },
            token: link.token,
            align_log2: if aligned { 12 } else { 0 },
            code: step.kind.names_code().then_some(code),
        };
        let payload = payload(step, name);
        let spoil = step.spoil.map(|seed| (seed, self.settings.in_place));
        if !step.large {
            link.wire.send(&plan, &payload, spoil, step.signal);
            return;
        }
        let Some(large) = &mut link.large else { return };
        if large.send(&plan, &payload, spoil, step.signal) {
            let switch = Plan { kind: Kind::Large, wants_reply: false, align_log2: 0, code: None, ..plan };
            link.wire.send(&switch, &[], None, step.signal);
        }
    }

    /// Changes bytes of one mailbox, or of both.
    pub fn rewrite(&mut self, seed: u64, waiting: bool) {
        // Code in place runs the bytes that are there, whichever they are.
        if self.settings.in_place {
            return;
        }
        let Some(link) = &mut self.link else { return };
        if waiting && seed.is_multiple_of(4) {
            link.wire.rename_last(["echo", "pure", "aligned"][(seed >> 8) as usize % 3], 1000);
        } else if seed.is_multiple_of(3)
            && let Some(large) = &mut link.large
        {
            large.rewrite(seed, waiting);
        } else {
            link.wire.rewrite(seed, waiting);
        }
    }

    /// Writes a credit line.
    pub fn write_return_line(&mut self, seed: u64) {
        let Some(link) = &mut self.link else { return };
        link.wire.write_return_line(seed);
        if seed.is_multiple_of(5) {
            link.wire.doze();
        }
        if seed.is_multiple_of(7) {
            let _ = link.wire.channel().notify();
        }
    }

    /// Sends a message on the control connection.
    pub fn say(&mut self, saying: Saying) {
        let Some(control) = &mut self.control else { return };
        let needed = self.link.as_ref().and_then(|link| link.needed);
        let named = self.link.iter().flat_map(|link| &link.named);
        let image = needed.and_then(|needed| named.into_iter().find(|(id, _)| *id == needed));
        let image = image.map(|(_, image)| image.clone());
        let echo = &functions()[0];
        match saying {
            Saying::Code | Saying::NoCode if needed.is_none() => {}
            Saying::Code => {
                let id = needed.unwrap_or(echo.id());
                let image = image.unwrap_or_default();
                let _ = control.send(&Message::Code { id: id.0, image }, &[]);
            }
            Saying::NoCode => {
                let _ = control.send(&Message::NoCode { id: needed.unwrap_or(echo.id()).0 }, &[]);
            }
            Saying::OtherCode(function) => {
                let image = functions()[function].image().to_vec();
                let _ = control.send(&Message::Code { id: needed.unwrap_or(echo.id()).0, image }, &[]);
            }
            Saying::LargeRequest(frame, payload) => {
                drop(control.send(&Message::LargeRequest { frame, payload }, &[]))
            }
            Saying::Accept => self.accept(None),
            Saying::OddAccept(seed) => self.accept(Some(seed)),
            Saying::Shrink => {
                let _ = control.send(&Message::LargeRelease, &[]);
                if let Some(link) = &mut self.link {
                    link.large = None;
                }
            }
            Saying::Bye => drop(control.send(&Message::Bye, &[])),
            Saying::Undue(kind) => drop(control.send(&messages::any(kind, echo.id(), echo.image()), &[])),
            Saying::Spoilt(kind, seed) => {
                let bytes = messages::spoilt(&messages::any(kind, echo.id(), echo.image()), seed);
                messages::write(control, &bytes, &[]);
            }
            Saying::Bytes(seed, len) => {
                let mut rng = Rng::with_seed(seed);
                let bytes: Vec<u8> = (0..len).map(|_| rng.u8(..)).collect();
                messages::write(control, &bytes, &[]);
            }
            Saying::Often(kind, times) => {
                // Requests for mailboxes, and messages without a response, come many at a time.
                let message = match kind % 4 {
                    0 => Message::LargeRequest { frame: u64::MAX, payload: 1 },
                    1 => Message::NoCode { id: echo.id().0 },
                    2 => Message::Code { id: echo.id().0, image: echo.image().to_vec() },
                    _ => Message::LargeRequest { frame: 5000, payload: 4000 },
                };
                for _ in 0..times {
                    if control.wants_write() || control.send(&message, &[]).is_err() {
                        break;
                    }
                }
            }
        }
    }

    /// Accepts the offer of a large mailbox, or something like it.
    fn accept(&mut self, odd: Option<u64>) {
        let (Some(control), Some(link)) = (&mut self.control, &mut self.link) else { return };
        let request = OpenRequest::new(region_len(4096), 4096);
        let Ok(own) = SecondEndpoint::open(self.transport.as_mut(), &request) else { return };
        let kept = &mut self.kept;
        own.with_info(|end, borrowed| match odd {
            Some(seed) if seed.is_multiple_of(2) && control.carries_descriptors() => {
                let len = end.region_len;
                messages::send_odd(control, &Message::LargeAccept { endpoint: end }, seed, len, kept);
            }
            Some(seed) => {
                drop(control.send(&Message::LargeAccept { endpoint: changed(end, seed) }, borrowed))
            }
            None => drop(control.send(&Message::LargeAccept { endpoint: end }, borrowed)),
        });
        let Some((end, descriptors)) = link.offer.take() else { return };
        let joined = own.join(control.peer(), end, descriptors, Instant::now() + Duration::from_secs(5));
        link.large = joined.ok().and_then(Wire::new);
    }

    /// Sends a message with descriptors of any kind.
    pub fn say_with(&mut self, kind: u8, seed: u64) {
        let Some(control) = &mut self.control else { return };
        if !control.carries_descriptors() {
            return;
        }
        let echo = &functions()[0];
        let kinds = [2, 8, 9, 10, 13, 15, 20, 17];
        let message = messages::any(kinds[usize::from(kind) % kinds.len()], echo.id(), echo.image());
        let claimed = seed.is_multiple_of(5).then_some((seed >> 16) as usize % 20);
        messages::write_odd(control, &message, seed, claimed, &mut self.kept);
    }

    /// Changes the descriptors that source and target have passed each other.
    pub fn tamper(&mut self, seed: u64) {
        let mut rng = Rng::with_seed(seed);
        if self.kept.is_empty() {
            return;
        }
        let descriptor = self.kept[rng.usize(..self.kept.len())].as_fd();
        match rng.u8(..4) {
            0 => {
                let _ = rustix::fs::ftruncate(descriptor, rng.u64(..1 << 20));
            }
            1 => {
                let _ = rustix::fs::fcntl_add_seals(descriptor, rustix::fs::SealFlags::SEAL);
            }
            2 => {
                // Reads the peer's doorbell, or wakes the peer.
                let mut bytes = [0; 8];
                if !is_blocking(descriptor) {
                    let _ = rustix::io::read(descriptor, &mut bytes);
                    let _ = rustix::io::write(descriptor, &u64::MAX.wrapping_sub(1).to_ne_bytes());
                }
            }
            _ if MAY_BLOCK => {
                let _ = rustix::fs::fcntl_setfl(descriptor, rustix::fs::OFlags::empty());
            }
            _ => {}
        }
    }

    /// Makes a proper admin request over another connection, and waits for the response. Returns `true` if one came.
    pub fn request(&self, kind: u8) -> impl FnOnce() -> Result<bool, String> + Send + 'static {
        let function = &functions()[usize::from(kind / 8) % NAMES.len()];
        let request = match kind % 6 {
            0 | 1 => AdminRequest::Store,
            2 => AdminRequest::Stats,
            3 => AdminRequest::Drop { id: function.id().0 },
            4 => AdminRequest::DropAll,
            // The library's constructors do nothing. Half of it is no library.
            _ => {
                let len = if kind >= 128 { function.file.len() } else { function.file.len() / 2 };
                AdminRequest::Export { name: "fuzz".into(), library: function.file[..len].to_vec() }
            }
        };
        let (address, tcp) = (self.address.clone(), self.tcps[0].clone());
        move || match admin_request_with(&address, &tcp, request, Instant::now() + Duration::from_secs(20)) {
            Err(farjump_control::HandshakeError::TimedOut { .. }) => {
                Err("an admin request got no response".to_owned())
            }
            // A target may be full, or refuse.
            answer => Ok(answer.is_ok()),
        }
    }

    /// Makes a malformed or unfinished admin request, and leaves.
    pub fn odd_admin_request(&mut self, seed: u64) {
        let mut rng = Rng::with_seed(seed);
        let deadline = Instant::now() + Duration::from_secs(5);
        let Ok(mut control) = Control::connect_with(&self.address, &self.tcps[0], deadline) else { return };
        let ask = Message::AdminRequest(AdminRequest::Store);
        match rng.u8(..5) {
            0 => {
                let _ = control.send(&ask, &[]);
                let _ = control.send(&ask, &[]);
            }
            1 => {
                let _ = control.flush();
                messages::write(&control, &messages::spoilt(&ask, seed), &[]);
            }
            2 => {
                let _ = control.flush();
                let bytes = messages::bytes_of(&ask);
                messages::write(&control, &bytes[..bytes.len() / 2], &[]);
            }
            3 => {
                let library = vec![0x7f; 70_000];
                let _ = control
                    .send(&Message::AdminRequest(AdminRequest::Export { name: "none".into(), library }), &[]);
            }
            _ => drop(control.send(&ask, &[])),
        }
        // The connection stays for the rest of the conversation, or closes without the response.
        if rng.bool()
            && let Ok(descriptor) = control.as_fd().try_clone_to_owned()
        {
            self.kept.push(descriptor);
        }
    }

    /// Leaves.
    pub fn part(&mut self, ending: Ending) {
        match ending {
            Ending::Half => {
                if let Some(control) = &self.control {
                    let _ = rustix::net::shutdown(control, rustix::net::Shutdown::Write);
                }
                return;
            }
            Ending::Bye => {
                if let Some(control) = &mut self.control {
                    let _ = control.send(&Message::Bye, &[]);
                }
            }
            Ending::KeepMemory => self.memories.extend(self.link.take()),
            Ending::Drop => {}
        }
        self.control = None;
        self.link = None;
        self.kept.clear();
    }
}

fn is_blocking(descriptor: BorrowedFd<'_>) -> bool {
    rustix::fs::fcntl_getfl(descriptor).is_ok_and(|flags| !flags.contains(rustix::fs::OFlags::NONBLOCK))
}

/// The payload of a function. None of its groups of eight bytes looks like an address.
fn payload(step: &FrameStep, name: &str) -> Vec<u8> {
    let mut rng = Rng::with_seed(step.seed);
    let mut bytes: Vec<u8> = (0..step.len).map(|_| rng.u8(0x40..0x60)).collect();
    let mut put = |at: usize, part: &[u8]| {
        if let Some(space) = bytes.get_mut(at..at + part.len()) {
            space.copy_from_slice(part);
        }
    };
    let mut len_of_all = step.len;
    match name {
        _ if step.kind == Kind::CallBatch => {
            let len = rng.u32(..60);
            let most = step.len.saturating_sub(8) / Messages::stride(len as usize).max(1);
            let count = match rng.u8(..6) {
                0 => rng.u32(..),
                _ => most.max(1) as u32,
            };
            put(0, &Messages { len, count }.to_word().to_le_bytes());
        }
        "onward" => {
            let peer = ["next", "gone", "nobody"][rng.usize(..3)];
            let len = peer.len() as u8;
            match rng.u8(..4) {
                0 => put(0, &[&[len | 128, rng.u8(..128)][..], peer.as_bytes()].concat()),
                // The function makes code of the first function, or of no image.
                1 => {
                    let head = [&[len | 128, rng.u8(128..)][..], peer.as_bytes()].concat();
                    put(0, &head);
                    put(head.len(), functions()[0].image());
                    let exact = head.len() + functions()[0].image().len();
                    if rng.bool() && step.len >= exact {
                        len_of_all = exact;
                    }
                }
                _ => put(0, &[&[len][..], peer.as_bytes()].concat()),
            }
        }
        _ => {}
    }
    bytes.truncate(len_of_all);
    if has_travelled(step) && rng.bool() {
        let passage = Passage { hops: rng.u32(..300) };
        match bytes.last_chunk_mut() {
            Some(last) => *last = passage.to_bytes(),
            None => bytes.extend(passage.to_bytes()),
        }
    }
    bytes
}

/// Returns whether a frame claims that targets have forwarded it.
fn has_travelled(step: &FrameStep) -> bool {
    step.kind.travels() && step.seed.is_multiple_of(5)
}

/// Checks that the target's frames contain none of its memory.
fn check(came: &Came, settings: &Settings) {
    let header = &came.header;
    // The sites of code in place are patched in the mailbox: those bytes may come back in a reply.
    if header.kind != Kind::Reply || settings.in_place {
        return;
    }
    for word in came.payload.chunks_exact(8) {
        let word = u64::from_ne_bytes(word.try_into().unwrap_or_default());
        let looks_like_an_address = matches!(word >> 40, 0x55 | 0x56 | 0x7f) && word & 0xffff_0000 != 0;
        assert!(
            !looks_like_an_address,
            "a reply holds {word:#x}, an address of the target's memory: {header:?}"
        );
    }
}
