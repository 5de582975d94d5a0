//! A hostile source: it completes the handshake in order, and then writes anything anywhere. It knows the
//! frames of `core/src/wire/frame/mod.rs` and the mailbox of `core/src/mailbox/mod.rs` from their documents,
//! and checks nothing.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use farjump::core::frame::{HEADER_LEN, Kind, LINE, Layout, Plan, PlanCode, Trailer};
use farjump::core::image::CodeId;
use farjump::core::mailbox::{CONTROL_LEN, region_len, ring_len};
use farjump::core::signal::LinkKey;
use farjump::core::transport::{Endpoint, LocalMemory, OpenRequest, RemoteMemory, Transport};
use farjump_control::{Control, Joined, Message, SecondEndpoint, SourceOptions, connect_target};
use farjump_transports::shm::Shm;

use crate::support::PATIENCE;

pub(crate) struct RawSource {
    pub(crate) control: Control,
    pub(crate) epoch: u64,
    /// Key of the frames that it sends.
    pub(crate) key: LinkKey,
    /// Largest frame that the target takes, in bytes.
    pub(crate) max_frame: usize,
    reply_key: LinkKey,
    local: Box<dyn LocalMemory>,
    remote: Box<dyn RemoteMemory>,
    ring: usize,
    reply_ring: usize,
    /// Positions of the next frame to send, and of the next reply.
    pub(crate) position: u64,
    replied: u64,
    next_index: u16,
}

/// A control message, or why none came.
#[derive(Debug)]
pub(crate) enum Told {
    Message(Message),
    End,
}

impl RawSource {
    pub(crate) fn connect(address: &str) -> RawSource {
        RawSource::connect_by(address, Box::new(Shm::new()))
    }

    pub(crate) fn connect_by(address: &str, transport: Box<dyn Transport>) -> RawSource {
        let request = OpenRequest::new(region_len(4096), 4096);
        let options = SourceOptions::new("a raw source", request);
        let deadline = Instant::now() + PATIENCE;
        let met = connect_target(&address.parse().unwrap(), &mut [transport], &options, deadline).unwrap();
        let Endpoint::OneSided { local, remote } = met.endpoint else { panic!("shm is one-sided") };
        RawSource {
            control: met.control,
            epoch: met.epoch,
            key: met.send.key,
            max_frame: met.send.max_frame,
            reply_key: met.receive.key,
            ring: ring_len(met.send.region_len).unwrap(),
            reply_ring: ring_len(met.receive.region_len).unwrap(),
            local,
            remote,
            position: 0,
            replied: 0,
            next_index: 0,
        }
    }

    /// Length of the target's ring in bytes.
    pub(crate) fn ring(&self) -> usize {
        self.ring
    }

    /// A word of the region that the target reads.
    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.remote.len());
        let base = self.remote.mapped().expect("shm is mapped");
        word_at(base, at)
    }

    /// Writes words into the target's ring, from the offset `at` on.
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
        for (index, word) in bytes.chunks(8).enumerate() {
            let mut whole = [0; 8];
            whole[..word.len()].copy_from_slice(word);
            self.word(CONTROL_LEN + at + index * 8).store(u64::from_le_bytes(whole), Ordering::Relaxed);
        }
    }

    /// Reads `words` words of the target's ring from the offset `at` on.
    pub(crate) fn read(&self, at: usize, words: usize) -> Vec<u8> {
        (0..words)
            .flat_map(|index| self.word(CONTROL_LEN + at + index * 8).load(Ordering::Relaxed).to_le_bytes())
            .collect()
    }

    /// Stores a signal, and wakes the target.
    pub(crate) fn signal(&mut self, at: usize, signal: u64) {
        self.word(CONTROL_LEN + at).store(signal, Ordering::Release);
        self.remote.wake_peer().unwrap();
    }

    /// Writes the credit line: the consumed position, and the state.
    pub(crate) fn write_return_line(&mut self, consumed: u64, state: u64) {
        self.word(0).store(consumed, Ordering::Release);
        self.word(8).store(state, Ordering::Release);
        self.remote.wake_peer().unwrap();
    }

    /// The position that the target reports as consumed.
    pub(crate) fn consumed(&self) -> u64 {
        word_at(self.local.base(), 0).load(Ordering::Acquire)
    }

    /// Waits until the target has consumed so much that `len` bytes can be written at the next frame's
    /// position.
    pub(crate) fn await_room(&self, len: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.position + len as u64 - self.consumed() > self.ring as u64 {
            assert!(Instant::now() < deadline, "the target does not say what it consumed");
            thread::yield_now();
        }
    }

    /// Offset in the ring of the next frame.
    pub(crate) fn offset(&self) -> usize {
        self.position as usize % self.ring
    }

    /// Writes `frame` as the next one, with the signal that is due instead of its first word, and moves on by
    /// the length in its header.
    pub(crate) fn send(&mut self, frame: &[u8]) {
        let at = self.offset();
        let inside = frame.len().min(self.ring - at);
        self.write(at + 8, &frame[8..inside]);
        let signal = self.key.header(self.position);
        self.position += u64::from(u32::from_le_bytes(frame[8..12].try_into().unwrap()));
        self.signal(at, signal);
    }

    /// An honest source's frame for the next position; its first word is 0.
    pub(crate) fn frame(&self, plan: &Plan<'_>, payload: &[u8]) -> Vec<u8> {
        let layout = plan.layout(self.offset() % 4096, payload.len(), Trailer::Never);
        assert!(layout.frame_len <= self.ring - self.offset(), "the test's frames do not reach the end");
        frame_bytes(plan, &layout, payload)
    }

    /// Sends an honest source's frame.
    pub(crate) fn send_plan(&mut self, plan: &Plan<'_>, payload: &[u8]) {
        let frame = self.frame(plan, payload);
        self.send(&frame);
    }

    /// Calls new code, and waits for the reply.
    pub(crate) fn call_new(&mut self, name: &str, image: &[u8], payload: &[u8]) -> Vec<u8> {
        let id = farjump_loader::code_id(image);
        let index = self.next_index;
        self.next_index += 1;
        // Space up to the end, or from the start again behind a skip.
        if self.ring - self.offset() < image.len() + payload.len() + 4 * LINE {
            let skip = self.skip();
            self.send(&skip);
        }
        let plan = Plan { index, ..call_code(name, image, id, self.epoch) };
        self.send_plan(&plan, payload);
        self.reply()
    }

    /// A skip from the next frame's position to the end of the ring.
    pub(crate) fn skip(&self) -> Vec<u8> {
        let mut skip = vec![0; LINE];
        skip[8..12].copy_from_slice(&((self.ring - self.offset()) as u32).to_le_bytes());
        skip[16] = Kind::Skip as u8;
        skip
    }

    /// The payload of the next frame from the target, a successful reply.
    pub(crate) fn reply(&mut self) -> Vec<u8> {
        self.reply_and_token().1
    }

    /// The same, with the token of its call.
    pub(crate) fn reply_and_token(&mut self) -> (u32, Vec<u8>) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let at = CONTROL_LEN + self.replied as usize % self.reply_ring;
            let word = |offset: usize| word_at(self.local.base(), at + offset).load(Ordering::Acquire);
            if word(0) == self.reply_key.header(self.replied) {
                let (lengths, rest) = (word(8), word(16));
                let payload_len = (lengths >> 32) as usize;
                let kind = rest as u8;
                let status = (rest >> 16) as u16;
                let start = if payload_len <= LINE - HEADER_LEN { HEADER_LEN } else { LINE };
                let payload: Vec<u8> = (0..payload_len.div_ceil(8))
                    .flat_map(|index| word(start + index * 8).to_le_bytes())
                    .take(payload_len)
                    .collect();
                self.replied += u64::from(lengths as u32);
                self.write_return_line(self.replied, 0);
                if kind != Kind::Skip as u8 {
                    assert_eq!((kind, status), (Kind::Reply as u8, 0));
                    return ((rest >> 32) as u32, payload);
                }
                continue;
            }
            if let Some(told) = self.told_now() {
                panic!("{told:?} instead of a reply");
            }
            assert!(Instant::now() < deadline, "no reply comes");
            thread::yield_now();
        }
    }

    /// The next control message of the target, except link times.
    pub(crate) fn told(&mut self) -> Told {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.told_now() {
                Some(told) => return told,
                None if Instant::now() > deadline => panic!("the target says nothing"),
                None => thread::sleep(Duration::from_micros(200)),
            }
        }
    }

    pub(crate) fn told_now(&mut self) -> Option<Told> {
        match self.control.recv() {
            Ok(Some((Message::CodeLinked { .. }, _))) => self.told_now(),
            Ok(Some((message, _))) => Some(Told::Message(message)),
            Ok(None) => None,
            Err(_) => Some(Told::End),
        }
    }
}

/// The large mailbox of a raw source's link, into which it also writes anything.
pub(crate) struct RawBigger {
    key: LinkKey,
    // It was the target's peer endpoint: it is dropped with this.
    _local: Box<dyn LocalMemory>,
    remote: Box<dyn RemoteMemory>,
    position: u64,
}

impl RawBigger {
    /// Requests one for frames of `frame` bytes, and accepts it.
    pub(crate) fn open(source: &mut RawSource, frame: u64) -> RawBigger {
        source.control.send(&Message::LargeRequest { frame, payload: frame / 2 }, &[]).unwrap();
        let deadline = Instant::now() + PATIENCE;
        let (end, descriptors) = loop {
            match source.control.recv().unwrap() {
                Some((Message::LargeOffer { end }, descriptors)) => break (end, descriptors),
                Some((Message::CodeLinked { .. }, _)) | None => thread::yield_now(),
                Some((other, _)) => panic!("{other:?}"),
            }
            assert!(Instant::now() < deadline, "no mailbox is offered");
        };
        let request = OpenRequest::new(region_len(4096), 4096);
        let mut own = SecondEndpoint::open(&mut Shm::new(), &request).unwrap();
        own.answers(source.control.peer(), &end).unwrap();
        own.tell(|end, descriptors| source.control.send(&Message::LargeAccept { end }, descriptors)).unwrap();
        let joined = own.join(source.control.peer(), end, descriptors, deadline).unwrap();
        let Joined { endpoint: Endpoint::OneSided { local, remote }, send, .. } = joined else {
            panic!("shm is one-sided")
        };
        assert!(matches!(source.told(), Told::Message(Message::Go)));
        RawBigger { key: send.key, _local: local, remote, position: 0 }
    }

    /// Writes `bytes` over the frame that is due, or that was sent last without moving on, from its offset
    /// `at` on.
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
        let base = self.remote.mapped().expect("shm is mapped");
        for (index, word) in bytes.chunks(8).enumerate() {
            let mut whole = [0; 8];
            whole[..word.len()].copy_from_slice(word);
            let at = CONTROL_LEN + self.position as usize + at + index * 8;
            word_at(base, at).store(u64::from_le_bytes(whole), Ordering::Relaxed);
        }
    }

    /// Writes an honest source's frame, with its signal.
    pub(crate) fn place(&self, plan: &Plan<'_>, payload: &[u8]) {
        let layout = plan.layout(self.position as usize % 4096, payload.len(), Trailer::Never);
        let frame = frame_bytes(plan, &layout, payload);
        self.write(8, &frame[8..]);
        let base = self.remote.mapped().expect("shm is mapped");
        let signal = self.key.header(self.position);
        word_at(base, CONTROL_LEN + self.position as usize).store(signal, Ordering::Release);
    }
}

fn word_at<'a>(base: NonNull<u8>, at: usize) -> &'a AtomicU64 {
    // SAFETY: a region is mapped as long as the memory that gave `base` lives, which outlives each use here;
    // callers keep `at` inside and aligned; both processes access the words by atomics.
    unsafe { AtomicU64::from_ptr(base.as_ptr().add(at).cast()) }
}

fn frame_bytes(plan: &Plan<'_>, layout: &Layout, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; layout.frame_len];
    plan.write(layout, 0, payload.len(), &mut bytes).unwrap();
    bytes[layout.payload..][..payload.len()].copy_from_slice(payload);
    bytes
}

/// A call of the code at index 0, token 7.
pub(crate) fn call() -> Plan<'static> {
    Plan { kind: Kind::Call, wants_reply: true, alone: false, index: 0, token: 7, align_log2: 0, code: None }
}

/// A call that brings its code.
pub(crate) fn call_code<'a>(name: &'a str, image: &'a [u8], id: CodeId, epoch: u64) -> Plan<'a> {
    Plan { kind: Kind::CallCode, code: Some(PlanCode { image, id, epoch, name }), ..call() }
}

/// A call that names its code.
pub(crate) fn call_id(name: &str, id: CodeId, epoch: u64) -> Plan<'_> {
    Plan { kind: Kind::CallId, code: Some(PlanCode { image: &[], id, epoch, name }), ..call() }
}
