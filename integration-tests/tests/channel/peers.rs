//! Two peers with a channel each.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use farjump_core::channel::{Channel, Polled, SendError, Terms};
use farjump_core::frame::{Kind, Plan};
use farjump_core::mailbox::{CONTROL_LEN, region_len};
use farjump_core::signal::LinkKey;
use farjump_core::transport::{ArrivalRules, Endpoint};

use super::wire::{Bell, Local, Pages, Remote, Wire, wire};

/// Every rule of the one-sided family, with and without whole lines.
pub(crate) const RULES: [(ArrivalRules, bool); 6] = [
    (ArrivalRules::STORES, true),
    (ArrivalRules::FENCED, false),
    (ArrivalRules::IN_ORDER, true),
    (ArrivalRules::IN_ORDER, false),
    (ArrivalRules::WRITE_IMM, false),
    (ArrivalRules::CHECKED, false),
];

/// One endpoint, and the test's access to it.
pub(crate) struct Peer {
    pub(crate) channel: Channel,
    /// This peer's puts that the other does not see yet.
    pub(crate) wire: Arc<Mutex<Wire>>,
    /// The region that the other peer writes.
    pub(crate) pages: Arc<Pages>,
    /// The doorbell of this peer.
    pub(crate) bell: Arc<Bell>,
    /// Key of the frames that this peer receives.
    pub(crate) key: LinkKey,
}

pub(crate) struct Pair {
    pub(crate) left: Peer,
    pub(crate) right: Peer,
}

pub(crate) fn key(seed: u8) -> LinkKey {
    let mut state = u64::from(seed) + 1;
    LinkKey::from_bytes(std::array::from_fn(|_| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 56) as u8
    }))
}

pub(crate) fn plan(kind: Kind, token: u32) -> Plan<'static> {
    Plan { kind, wants_reply: true, alone: false, index: 1, token, align_log2: 0, code: None }
}

/// Bytes that differ between any two payloads, and between neighbouring offsets.
pub(crate) fn pattern(number: u32, len: usize) -> Vec<u8> {
    let mut state = u64::from(number) << 32 | len as u64;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 56) as u8
        })
        .collect()
}

impl Pair {
    /// Rings of `ring` bytes in both directions under `rule`.
    pub(crate) fn new(rule: ArrivalRules, line_whole: bool, ring: usize) -> Pair {
        Pair::limited(rule, line_whole, ring, usize::MAX)
    }

    /// Two peers that accept frames of up to `limit` bytes.
    pub(crate) fn limited(rule: ArrivalRules, line_whole: bool, ring: usize, limit: usize) -> Pair {
        let len = region_len(ring);
        let pages = [Pages::new(len), Pages::new(len)];
        let bells = [Arc::new(Bell::default()), Arc::new(Bell::default())];
        let keys = [key(1), key(2)];
        let wires = [wire(&pages[1], rule, line_whole), wire(&pages[0], rule, line_whole)];
        let peer = |me: usize| {
            let you = 1 - me;
            let local = Local {
                pages: pages[me].clone(),
                completions: wires[you].1.clone(),
                bell: bells[me].clone(),
            };
            let remote = Remote {
                wire: wires[me].0.clone(),
                pages: pages[you].clone(),
                is_mapped: rule == ArrivalRules::STORES,
                bell: bells[you].clone(),
            };
            let endpoint = Endpoint::OneSided { local: Box::new(local), remote: Box::new(remote) };
            let terms = Terms {
                send_key: keys[you],
                receive_key: keys[me],
                send_limit: limit,
                receive_limit: limit,
                ..terms(rule, line_whole, len)
            };
            let channel = Channel::new(endpoint, terms).unwrap();
            let (wire, pages, bell) = (wires[me].0.clone(), pages[me].clone(), bells[me].clone());
            Peer { channel, wire, pages, bell, key: keys[me] }
        };
        Pair { left: peer(0), right: peer(1) }
    }

    pub(crate) fn side(&mut self, left: bool) -> &mut Peer {
        if left { &mut self.left } else { &mut self.right }
    }

    /// Lets everything under way arrive, and everything that it causes.
    pub(crate) fn settle(&mut self) {
        for _ in 0..8 {
            for peer in [&mut self.left, &mut self.right] {
                peer.channel.progress(false).unwrap();
                peer.wire.lock().unwrap().deliver_all();
            }
        }
    }
}

pub(crate) fn terms(rule: ArrivalRules, line_whole: bool, region: usize) -> Terms {
    Terms {
        rule,
        line_whole,
        send_key: key(2),
        receive_key: key(1),
        send_limit: usize::MAX,
        receive_limit: usize::MAX,
        send_region: region,
        receive_region: region,
    }
}

impl Peer {
    /// Sends a frame of minimal length, also where [`Peer::send`] leaves space behind it.
    pub(crate) fn send_packed(&mut self, token: u32, payload: &[u8]) -> Result<(), SendError> {
        let plan = plan(Kind::Call, token);
        let room = self.channel.reserve(&plan, payload.len())?;
        // SAFETY: `reserve` lends at least `payload.len()` bytes.
        unsafe { room.payload.as_ptr().copy_from_nonoverlapping(payload.as_ptr(), payload.len()) };
        self.channel.commit(&plan, &room, payload.len())
    }

    pub(crate) fn send(&mut self, token: u32, payload: &[u8]) -> Result<(), SendError> {
        self.channel.send_bytes(&plan(Kind::Call, token), payload)
    }

    /// Token and payload of the present frame, which stays.
    pub(crate) fn look(&mut self) -> Option<(u32, Vec<u8>)> {
        match self.channel.poll().unwrap() {
            Polled::Frame(frame) => {
                let mut payload = Vec::new();
                self.channel.copy_payload(&mut payload);
                Some((frame.header().token, payload))
            }
            Polled::Nothing | Polled::Partial => None,
        }
    }

    pub(crate) fn take(&mut self) -> Option<(u32, Vec<u8>)> {
        let frame = self.look();
        self.channel.release().unwrap();
        frame
    }

    pub(crate) fn is_partial(&mut self) -> bool {
        matches!(self.channel.poll().unwrap(), Polled::Partial)
    }

    pub(crate) fn rings(&self) -> u64 {
        self.bell.rings.load(Ordering::Relaxed)
    }

    /// Writes into this peer's ring, as a peer that breaks the protocol does.
    pub(crate) fn scribble(&self, at: usize, bytes: &[u8]) {
        self.pages.write(CONTROL_LEN + at, bytes);
    }
}

/// Largest payload whose frame fits `ring` bytes under `rule`.
pub(crate) fn largest(rule: ArrivalRules, ring: usize) -> usize {
    let trailer = if matches!(rule, ArrivalRules::IN_ORDER | ArrivalRules::CHECKED) { 8 } else { 0 };
    ring - 64 - trailer
}
