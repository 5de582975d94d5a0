//! Two peers with a channel each.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use farjump_core::channel::{Channel, ChannelParams, Polled, SendError};
use farjump_core::frame::{Kind, Plan};
use farjump_core::mailbox::{CONTROL_LEN, region_len};
use farjump_core::signal::LinkKey;
use farjump_core::transport::{
    ArrivalRules, BorrowedFd, Cause, Endpoint, LocalMemory, Operation, RemoteMemory, TransportError,
};
use farjump_integration_tests::simulated_wire::{Put, SharedBlock, Tear, Wire};

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
    pub(crate) pages: Arc<SharedBlock>,
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
    Plan { wants_reply: true, index: 1, token, ..Plan::of(kind) }
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

/// A region of zeroes.
pub(crate) fn region(len: usize) -> Arc<SharedBlock> {
    Arc::new(SharedBlock::zeroed(len, 4096).unwrap())
}

/// A peer's doorbell, as the other peer and the test see it.
#[derive(Default)]
pub(crate) struct Bell {
    pub(crate) rings: AtomicU64,
    /// Called between the store of "asleep" and the poll for a frame.
    pub(crate) before_sleep: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    pub(crate) cannot_promise: AtomicBool,
}

/// The direction from one peer to the other.
#[derive(Clone)]
pub(crate) struct Direction {
    pub(crate) wire: Arc<Mutex<Wire>>,
    to: Arc<SharedBlock>,
    bell: Arc<Bell>,
    completions: Arc<AtomicU64>,
    rule: ArrivalRules,
    line_whole: bool,
}

impl Direction {
    /// Makes a wire under `rule` to the region `to`, whose owner has `bell`.
    pub(crate) fn new(
        to: &Arc<SharedBlock>,
        bell: &Arc<Bell>,
        rule: ArrivalRules,
        line_whole: bool,
    ) -> Direction {
        let completions = Arc::default();
        let wire = Wire::new(to.clone(), Arc::clone(&completions), |changed| {
            panic!("core changed bytes that were under way: {changed:?}");
        });
        let wire = Arc::new(Mutex::new(wire.unwrap()));
        Direction { wire, to: to.clone(), bell: bell.clone(), completions, rule, line_whole }
    }

    /// The endpoint that sends in this direction, and receives in the direction `back`.
    pub(crate) fn endpoint(&self, back: &Direction, is_mapped: bool) -> Endpoint {
        let remote = Remote { direction: self.clone(), is_mapped };
        Endpoint::OneSided { local: Box::new(Local(back.clone())), remote: Box::new(remote) }
    }

    fn take(&self, at: usize, bytes: &[u8], is_word: bool, completion: bool) -> Result<(), TransportError> {
        let tear = match self.rule {
            _ if is_word => Tear::InTurn,
            _ if completion => Tear::Anyhow,
            ArrivalRules::IN_ORDER if self.line_whole => Tear::Ascending(64),
            ArrivalRules::IN_ORDER => Tear::Ascending(1),
            _ => Tear::Anyhow,
        };
        // Under `CHECKED` a frame can read whole, and its credit return, before its last write has arrived.
        let lent = !is_word && self.rule != ArrivalRules::CHECKED;
        let put = Put { at, bytes, frame: 0, lent, completion, tear, cuts: &[] };
        match self.wire.lock().unwrap().put(put) {
            true => Ok(()),
            false => Err(TransportError::new("wire", Operation::Put, Cause::Full)),
        }
    }
}

struct Remote {
    direction: Direction,
    is_mapped: bool,
}

// SAFETY: the region lives as long as the value, is aligned to 4096 and `len` bytes long.
unsafe impl RemoteMemory for Remote {
    fn len(&self) -> usize {
        self.direction.to.len()
    }

    fn mapped(&self) -> Option<NonNull<u8>> {
        self.is_mapped.then_some(self.direction.to.start())
    }

    fn put(&mut self, offset: usize, bytes: &[u8], _: u64) -> Result<(), TransportError> {
        self.direction.take(offset, bytes, false, false)
    }

    fn put_word(&mut self, offset: usize, word: u64, _: u64) -> Result<(), TransportError> {
        assert!(offset.is_multiple_of(8));
        self.direction.take(offset, &word.to_le_bytes(), true, false)
    }

    fn fence(&mut self) -> Result<(), TransportError> {
        self.direction.wire.lock().unwrap().fence();
        Ok(())
    }

    fn put_with_completion(&mut self, offset: usize, bytes: &[u8], _: u64) -> Result<(), TransportError> {
        self.direction.take(offset, bytes, false, true)
    }

    fn wake_peer(&mut self) -> Result<(), TransportError> {
        self.direction.bell.rings.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// The receiving half of an endpoint: the direction from the peer.
struct Local(Direction);

// SAFETY: the region lives as long as the value, is aligned to 4096, `len` bytes long and zero at first.
unsafe impl LocalMemory for Local {
    fn base(&self) -> NonNull<u8> {
        self.0.to.start()
    }

    fn len(&self) -> usize {
        self.0.to.len()
    }

    fn completions(&mut self) -> Result<u64, TransportError> {
        Ok(self.0.completions.load(Ordering::Relaxed))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: standard error is open as long as the process.
        Some(unsafe { BorrowedFd::borrow_raw(2) })
    }

    fn before_sleep(&mut self) -> Result<bool, TransportError> {
        self.0.bell.rings.store(0, Ordering::Relaxed);
        if let Some(meanwhile) = self.0.bell.before_sleep.lock().unwrap().take() {
            meanwhile();
        }
        Ok(!self.0.bell.cannot_promise.load(Ordering::Relaxed))
    }

    fn after_sleep(&mut self) -> Result<(), TransportError> {
        self.0.bell.rings.store(0, Ordering::Relaxed);
        Ok(())
    }
}

impl Pair {
    /// Makes rings of `ring` bytes in both directions under `rule`.
    pub(crate) fn new(rule: ArrivalRules, line_whole: bool, ring: usize) -> Pair {
        Pair::limited(rule, line_whole, ring, usize::MAX)
    }

    /// Makes two peers that accept frames of up to `limit` bytes.
    pub(crate) fn limited(rule: ArrivalRules, line_whole: bool, ring: usize, limit: usize) -> Pair {
        let len = region_len(ring);
        let [left, right] = [(); 2].map(|()| (region(len), Arc::new(Bell::default())));
        let keys = [key(1), key(2)];
        let to = [&right, &left].map(|(to, bell)| Direction::new(to, bell, rule, line_whole));
        let peer = |me: usize| {
            let you = 1 - me;
            let endpoint = to[me].endpoint(&to[you], rule == ArrivalRules::STORES);
            let terms = ChannelParams {
                send_key: keys[you],
                receive_key: keys[me],
                send_limit: limit,
                receive_limit: limit,
                ..terms(rule, line_whole, len)
            };
            let channel = Channel::new(endpoint, terms).unwrap();
            let (wire, pages, bell) = (to[me].wire.clone(), to[you].to.clone(), to[you].bell.clone());
            Peer { channel, wire, pages, bell, key: keys[me] }
        };
        Pair { left: peer(0), right: peer(1) }
    }

    pub(crate) fn peer_mut(&mut self, left: bool) -> &mut Peer {
        if left { &mut self.left } else { &mut self.right }
    }

    /// Lets all bytes on their way arrive, and all that their arrival causes.
    pub(crate) fn settle(&mut self) {
        for _ in 0..8 {
            for peer in [&mut self.left, &mut self.right] {
                peer.channel.progress(false).unwrap();
                peer.wire.lock().unwrap().deliver_all();
            }
        }
    }
}

pub(crate) fn terms(rule: ArrivalRules, line_whole: bool, region: usize) -> ChannelParams {
    ChannelParams {
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
        let space = self.channel.reserve(&plan, payload.len())?;
        // SAFETY: `reserve` lends at least `payload.len()` bytes.
        unsafe { space.payload().as_ptr().copy_from_nonoverlapping(payload.as_ptr(), payload.len()) };
        space.commit(&plan, payload.len())
    }

    pub(crate) fn send(&mut self, token: u32, payload: &[u8]) -> Result<(), SendError> {
        self.channel.send_bytes(&plan(Kind::Call, token), payload)
    }

    /// Token and payload of the present frame, which stays.
    pub(crate) fn look(&mut self) -> Option<(u32, Vec<u8>)> {
        match self.channel.poll().unwrap() {
            Polled::Frame(frame) => {
                let mut payload = Vec::new();
                frame.contents().copy_payload(&mut payload);
                Some((frame.header().token, payload))
            }
            Polled::Nothing | Polled::Partial => None,
        }
    }

    pub(crate) fn take(&mut self) -> Option<(u32, Vec<u8>)> {
        let frame = self.look();
        if let Polled::Frame(held) = self.channel.poll().unwrap()
            && frame.is_some()
        {
            held.release().unwrap();
        }
        frame
    }

    pub(crate) fn is_partial(&mut self) -> bool {
        matches!(self.channel.poll().unwrap(), Polled::Partial)
    }

    pub(crate) fn rings(&self) -> u64 {
        self.bell.rings.load(Ordering::Relaxed)
    }

    /// A word of this peer's region.
    pub(crate) fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.pages.read(at, 8).try_into().unwrap())
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
