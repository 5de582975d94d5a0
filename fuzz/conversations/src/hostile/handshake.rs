//! The handshake of the hostile source, and its mistakes there.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use farjump_control::{Control, DeferredFd, EndpointInfo, Message, SecondEndpoint};
use farjump_core::mailbox::region_len;
use farjump_core::transport::OpenRequest;
use farjump_fixtures::by_hand::cpu;
use fastrand::Rng;

use super::streams::Streams;
use super::{Hostile, HostileLink};
use crate::descriptors::Odd;
use crate::functions::functions;
use crate::messages;
use crate::step::{Ending, HandshakeKind};
use crate::wire::Wire;

/// Turns of the target in which a response must come.
const TURNS: usize = 400;

impl Hostile<'_> {
    /// Connects, and performs the handshake as far as the step says. `turn` polls the target.
    pub fn connect(&mut self, kind: HandshakeKind, turn: &mut dyn FnMut()) {
        self.part(Ending::Drop);
        self.tcps.rotate_left(1);
        let deadline = Instant::now() + Duration::from_secs(10);
        // A target that is full or closing does not accept every connection.
        let Ok(control) = Control::connect_with(&self.address, &self.tcps[0], deadline) else { return };
        self.control = Some(control);
        if let Some(linked) = self.shake_hands(kind, turn) {
            self.link = Some(linked);
            self.links += 1;
        }
    }

    fn shake_hands(&mut self, kind: HandshakeKind, turn: &mut dyn FnMut()) -> Option<HostileLink> {
        let control = self.control.as_mut()?;
        let hello = Message::Hello {
            cpu: cpu(),
            pid: std::process::id(),
            program: "hostile".into(),
            transports: vec![self.transport.name().to_owned()],
        };
        match kind {
            HandshakeKind::Stops(0) => return None,
            HandshakeKind::Bytes(seed) => {
                messages::write(control, &messages::random(seed, 1..500), &[]);
            }
            HandshakeKind::Undue(0, kind) => {
                let message = messages::any(kind, functions()[0].id(), functions()[0].image());
                let _ = control.send(&message, &[]);
            }
            HandshakeKind::Spoilt(seed) if seed % 2 == 0 => {
                messages::write(control, &messages::spoilt(&hello, seed), &[])
            }
            HandshakeKind::DescriptorsWithHello(seed) if control.carries_descriptors() => {
                let odd = Odd::some(seed, 8192);
                let _ = control.flush();
                messages::write(control, &messages::bytes_of(&hello), &odd.borrowed());
                self.kept.extend(odd.kept);
            }
            _ => drop(control.send(&hello, &[])),
        }
        let (welcome, descriptors) = await_message(control, turn)?;
        let share = messages::share_of(&welcome);
        let Message::Welcome { epoch, endpoint: theirs, stream: offer, .. } = welcome else { return None };
        let offered = offer.is_some();
        let mut streams = Streams::new(self, offer, share, kind, turn);
        let control = self.control.as_mut()?;
        match kind {
            HandshakeKind::Stops(_) => return None,
            HandshakeKind::Undue(_, kind) => {
                let message = messages::any(kind, functions()[0].id(), functions()[0].image());
                let _ = control.send(&message, &[]);
            }
            _ => {}
        }
        let request = OpenRequest::new(region_len(4096), 4096);
        let mut own = SecondEndpoint::open(self.transport.as_mut(), &request).ok()?;
        own.adapt_to(control.peer(), &theirs).ok()?;
        let reply = || streams.reply();
        let kept = &mut self.kept;
        own.with_info(|end, borrowed| match kind {
            HandshakeKind::OddEnd(seed) => {
                let _ =
                    control.send(&Message::Ready { endpoint: changed(end, seed), stream: reply() }, borrowed);
            }
            HandshakeKind::OddDescriptors(seed) if control.carries_descriptors() => {
                let len = end.region_len;
                let ready = Message::Ready { endpoint: end, stream: reply() };
                messages::send_odd(control, &ready, seed, len, kept);
            }
            HandshakeKind::Spoilt(seed) => {
                let bytes = messages::spoilt(&Message::Ready { endpoint: end, stream: reply() }, seed);
                messages::write(control, &bytes, borrowed);
            }
            _ => drop(control.send(&Message::Ready { endpoint: end, stream: reply() }, borrowed)),
        });
        let copies = descriptors.iter().filter_map(|descriptor| descriptor.as_fd().try_clone_to_owned().ok());
        kept.extend(copies);
        let (stream, copy) = streams.take(&self.address, turn);
        if offered && stream.is_none() {
            // Without its stream there is no link, whatever else came.
            while let Some((message, _)) = await_message(control, turn) {
                assert!(message != Message::Go, "a link without its stream");
            }
            return None;
        }
        self.opened.set(stream);
        let joined =
            own.join(control.peer(), theirs, descriptors, Instant::now() + Duration::from_secs(5)).ok()?;
        let wire = Wire::new(joined)?;
        loop {
            match await_message(control, turn)?.0 {
                Message::Go => break,
                Message::Reject { .. } | Message::Closing { .. } => return None,
                // The source's limits and rights.
                _ => {}
            }
        }
        streams.again(&self.address);
        Some(HostileLink {
            wire,
            stream: copy,
            large: None,
            epoch,
            offer: None,
            needed: None,
            named: VecDeque::new(),
            token: 0,
        })
    }
}

/// Returns the next message; the target gets some turns for it.
pub(crate) fn await_message(
    control: &mut Control,
    turn: &mut dyn FnMut(),
) -> Option<(Message, Vec<DeferredFd>)> {
    for _ in 0..TURNS {
        turn();
        if let Some(came) = control.recv().ok()? {
            return Some(came);
        }
        let _ = control.flush();
    }
    None
}

/// An endpoint's address with a change.
pub(crate) fn changed(mut end: EndpointInfo, seed: u64) -> EndpointInfo {
    let mut rng = Rng::with_seed(seed);
    match rng.u8(..8) {
        0 => end.region_len = [0, 4096, 8192, 1 << 20, 1 << 40, u64::MAX][rng.usize(..6)],
        1 => end.max_frame = [0, 1, 63, 64, u32::MAX][rng.usize(..5)],
        2 => end.rules = rng.u8(..),
        3 => {
            end.transport =
                ["", "shm", "ucx", "a transport with much too long a name for one"][rng.usize(..4)].into()
        }
        4 => end.line_whole = !end.line_whole,
        5 => end.address.truncate(rng.usize(..=end.address.len())),
        _ if end.address.is_empty() => {}
        _ => {
            let at = rng.usize(..end.address.len());
            end.address[at] = rng.u8(..);
        }
    }
    end
}
