//! The two-sided family: whole messages, none of which may be lost, repeated, overtaken or anything but one frame.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use farjump_core::channel::{Channel, ChannelParams, Polled, SendError};
use farjump_core::frame::{Flags, FrameError, Kind, MAX_FRAME, Plan, PlanCode, TRANSPORT_WORD_LEN};
use farjump_core::image::CodeId;
use farjump_core::transport::{self, ArrivalRules, Cause, Endpoint, Messages, Operation, TransportError};
use proptest::prelude::*;

use super::peers::{key, pattern, plan, terms};

const LIMIT: usize = 8_192;
/// Contents of a buffer before it is written.
const STALE: u8 = 0xee;

/// One message, on lines of its own.
struct Message {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the value owns the memory.
unsafe impl Send for Message {}

impl Message {
    fn new(len: usize) -> Message {
        let layout = Layout::from_size_align(len.max(1), 64).unwrap();
        // SAFETY: the layout is not empty.
        Message { base: NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap(), len }
    }

    fn of(bytes: &[u8]) -> Message {
        let message = Message::new(bytes.len());
        // SAFETY: as long as the bytes, and new.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), message.base.as_ptr(), bytes.len()) };
        message
    }

    fn bytes(&self) -> Vec<u8> {
        // SAFETY: `len` bytes that this value owns; no reference to them is alive.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }.to_vec()
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.base.as_ptr(), Layout::from_size_align_unchecked(self.len.max(1), 64)) };
    }
}

/// The messages in one direction, and the test's interference.
#[derive(Default)]
struct Queue {
    messages: VecDeque<Message>,
    /// Number of further calls that return `Full`.
    full_reserves: u32,
    full_commits: u32,
}

#[derive(Default)]
struct Line(Arc<Mutex<Queue>>);

struct QueueEndpoint {
    out: Arc<Mutex<Queue>>,
    inbound: Arc<Mutex<Queue>>,
    space: Option<Message>,
    lent: Option<Message>,
}

fn full(operation: Operation) -> TransportError {
    TransportError::new("queue", operation, Cause::Full)
}

// SAFETY: buffers and messages are allocations of this value's own, aligned to 64, which it keeps until core
// returns them.
unsafe impl Messages for QueueEndpoint {
    fn reserve(&mut self, len: usize) -> Result<NonNull<u8>, TransportError> {
        self.space = None;
        let mut out = self.out.lock().unwrap();
        if out.full_reserves > 0 {
            out.full_reserves -= 1;
            return Err(full(Operation::Send));
        }
        // The buffer has bytes of another message, maybe of another link.
        Ok(self.space.insert(Message::of(&vec![STALE; len])).base)
    }

    fn commit(&mut self, len: usize, _: u64) -> Result<(), TransportError> {
        let mut out = self.out.lock().unwrap();
        let space = self.space.as_ref().expect("core commits what it reserved");
        assert!(len <= space.len && len >= 16);
        if out.full_commits > 0 {
            out.full_commits -= 1;
            return Err(full(Operation::Send));
        }
        let bytes = space.bytes();
        self.space = None;
        out.messages.push_back(Message::of(&bytes[..len]));
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<transport::Message>, TransportError> {
        if self.lent.is_none() {
            self.lent = self.inbound.lock().unwrap().messages.pop_front();
        }
        Ok(self.lent.as_ref().map(|message| transport::Message::new(message.base, message.len)))
    }

    fn release(&mut self) {
        self.lent = None;
    }
}

/// A sender and a receiver, and the line between them.
fn pair() -> (Channel, Channel, Line) {
    let (line, back) = (Line::default(), Line::default());
    let end = |out: &Line, inbound: &Line, send: u8, receive: u8| {
        let end = QueueEndpoint { out: out.0.clone(), inbound: inbound.0.clone(), space: None, lent: None };
        let terms = ChannelParams {
            send_key: key(send),
            receive_key: key(receive),
            send_limit: LIMIT,
            receive_limit: LIMIT,
            ..terms(ArrivalRules::DELIVERED, false, 0)
        };
        Channel::new(Endpoint::TwoSided(Box::new(end)), terms).unwrap()
    };
    (end(&line, &back, 1, 2), end(&back, &line, 2, 1), line)
}

fn send(channel: &mut Channel, token: u32, len: usize) -> Result<(), SendError> {
    channel.send_bytes(&plan(Kind::Call, token), &pattern(token, len))
}

fn take(channel: &mut Channel) -> Option<(u32, Vec<u8>)> {
    let Polled::Frame(frame) = channel.poll().unwrap() else { return None };
    let mut payload = Vec::new();
    frame.contents().copy_payload(&mut payload);
    let token = frame.header().token;
    frame.release().unwrap();
    Some((token, payload))
}

/// The receiver's error after `change` was applied to a line with three messages of 1, 100 and 200 bytes of payload.
/// The receiver takes the first of them before.
fn refusal(change: impl FnOnce(&mut VecDeque<Message>)) -> FrameError {
    let (mut left, mut right, line) = pair();
    for (token, len) in [(0, 1), (1, 100), (2, 200)] {
        send(&mut left, token, len).unwrap();
    }
    assert!(take(&mut right).is_some());
    change(&mut line.0.lock().unwrap().messages);
    for _ in 0..3 {
        match right.poll() {
            Ok(Polled::Frame(frame)) => frame.release().unwrap(),
            Ok(_) => {}
            Err(error) => match error.cause() {
                Cause::Protocol(error) => return error.clone(),
                other => panic!("{other}"),
            },
        }
    }
    panic!("nothing was refused");
}

fn changed(messages: &mut VecDeque<Message>, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = messages[0].bytes();
    change(&mut bytes);
    messages[0] = Message::of(&bytes);
}

proptest! {
    #[test]
    fn messages_arrive_whole_in_order_and_once_despite_a_full_backend(
        steps in prop::collection::vec((0..4_u8, 0..=LIMIT - 16, 0..3_u32), 1..120),
    ) {
        let (mut left, mut right, line) = pair();
        let (mut sent, mut taken) = (0, 0);
        let mut lens = VecDeque::new();
        for (step, len, times) in steps {
            match step {
                0 => line.0.lock().unwrap().full_reserves = times,
                1 => line.0.lock().unwrap().full_commits = times,
                2 => {
                    let space = match left.reserve(&plan(Kind::Call, sent), len) {
                        Ok(space) => space,
                        Err(SendError::Full) => continue,
                        Err(error) => panic!("{error}"),
                    };
                    let payload = pattern(sent, len);
                    // SAFETY: `reserve` lends at least `len` bytes.
                    unsafe { std::ptr::copy_nonoverlapping(payload.as_ptr(), space.payload().as_ptr(), len) };
                    // After "full" the buffer is unchanged: committing again sends its contents.
                    let mut result = space.commit(&plan(Kind::Call, sent), len);
                    while let Err(error) = result {
                        prop_assert!(matches!(error, SendError::Full), "{}", error);
                        result = left.kept().unwrap().commit(&plan(Kind::Call, sent), len);
                    }
                    lens.push_back(len);
                    sent += 1;
                }
                _ => if let Some(frame) = take(&mut right) {
                    prop_assert_eq!(frame, (taken, pattern(taken, lens.pop_front().unwrap())));
                    taken += 1;
                },
            }
        }
        while let Some(frame) = take(&mut right) {
            prop_assert_eq!(frame, (taken, pattern(taken, lens.pop_front().unwrap())));
            taken += 1;
        }
        prop_assert_eq!(taken, sent);
    }
}

#[test]
fn lost_repeated_and_overtaken_messages_are_noticed_by_their_stamp() {
    assert_eq!(refusal(|messages| drop(messages.pop_front())), FrameError::Signal, "lost");
    assert_eq!(
        refusal(|messages| messages.push_front(Message::of(&messages[0].bytes()))),
        FrameError::Signal,
        "twice"
    );
    assert_eq!(refusal(|messages| messages.swap(0, 1)), FrameError::Signal, "overtaken");
    assert_eq!(
        refusal(|messages| changed(messages, |bytes| bytes[100] ^= 1)),
        FrameError::Signal,
        "another stamp"
    );
}

#[test]
fn messages_that_are_not_one_frame_are_refused() {
    for len in [0, 1, 15] {
        let error = refusal(|messages| changed(messages, |bytes| bytes.truncate(len)));
        assert_eq!(error, FrameError::Truncated { needed: 16, found: len });
    }
    // The header is at the end, so a message that was cut or continued has none.
    for len in [16, 63, 115, 117, 5000] {
        let error = refusal(|messages| changed(messages, |bytes| bytes.resize(len, 0)));
        assert!(matches!(error, FrameError::Signal | FrameError::Kind(_) | FrameError::Flags(_)), "{error}");
    }
    let with = |kind: u8, change: fn(&mut [u8])| {
        refusal(|messages| {
            changed(messages, |bytes| {
                bytes[104] = kind;
                bytes[..64].fill(0);
                // A name of 1 byte, and a payload behind it.
                bytes[56..62].copy_from_slice(&[72, 0, 0, 0, 1, 0]);
                change(bytes);
            })
        })
    };
    let local = Kind::CallLocal as u8;
    for (error, expected) in [
        (with(Kind::Skip as u8, |_| ()), FrameError::Kind(Kind::Skip as u8)),
        (with(99, |_| ()), FrameError::Kind(99)),
        (with(local, |_| ()), FrameError::Payload { offset: 72, len: 28, frame: 116 }),
        (with(local, |bytes| bytes[56] = 101), FrameError::Payload { offset: 101, len: 0, frame: 116 }),
        (with(local, |bytes| bytes[23] = 1), FrameError::Reserved),
        (with(Kind::Call as u8, |bytes| bytes[105] |= Flags::TRAILER.bits()), FrameError::Flags(0x36)),
        (with(Kind::Flush as u8, |bytes| bytes[105] |= 0x80), FrameError::Flags(0x96)),
        (with(Kind::Call as u8, |bytes| bytes[105] = 2), FrameError::Flags(2)),
        (with(Kind::Call as u8, |bytes| bytes[105] = 13), FrameError::Flags(13)),
    ] {
        assert_eq!(error, expected);
    }
    let short = |messages: &mut VecDeque<Message>| {
        changed(messages, |bytes| {
            bytes[104] = Kind::CallLocal as u8;
            drop(bytes.drain(..37));
        })
    };
    assert_eq!(refusal(short), FrameError::Truncated { needed: 80, found: 79 }, "no code header");
}

#[test]
fn a_transport_may_overwrite_its_word_without_changing_the_message() {
    let (mut left, mut right, line) = pair();
    send(&mut left, 5, 8).unwrap();
    let mut queue = line.0.lock().unwrap();
    assert_eq!(queue.messages[0].bytes()[20..], [0; TRANSPORT_WORD_LEN]);
    changed(&mut queue.messages, |bytes| bytes[20..].fill(0xff));
    drop(queue);
    assert_eq!(take(&mut right), Some((5, pattern(5, 8))));
}

#[test]
fn a_message_is_as_long_as_its_payload_and_its_header() {
    let (mut left, _, line) = pair();
    let plan = |kind, align_log2| Plan { align_log2, ..plan(kind, 0) };
    for payload in [0, 1, 8, 40, 41, 84, 1000, 8000] {
        for align_log2 in [0, 3, 6, 12] {
            for kind in [Kind::Call, Kind::Reply, Kind::CallBatch] {
                left.send_bytes(&plan(kind, align_log2), &pattern(0, payload)).unwrap();
                let message = line.0.lock().unwrap().messages.pop_front().unwrap();
                assert_eq!(message.bytes().len(), payload + 16);
            }
        }
    }
}

#[test]
fn messages_over_the_limit_fail_at_sender_and_receiver() {
    let (mut left, mut right, line) = pair();
    assert!(matches!(send(&mut left, 0, LIMIT - 15), Err(SendError::TooLarge { len: 8_193, max: LIMIT })));
    send(&mut left, 0, LIMIT - 16).unwrap();
    assert!(take(&mut right).is_some());
    send(&mut left, 1, 100).unwrap();
    changed(&mut line.0.lock().unwrap().messages, |bytes| drop(bytes.splice(..0, [0; LIMIT])));
    let error = right.poll().unwrap_err();
    let too_long = FrameError::TooLong { len: LIMIT as u32 + 116, limit: LIMIT };
    assert_eq!(*error.cause(), Cause::Protocol(too_long));
}

#[test]
fn no_frame_is_longer_than_its_length_can_say() {
    let end = QueueEndpoint { out: Arc::default(), inbound: Arc::default(), space: None, lent: None };
    let unlimited = terms(ArrivalRules::DELIVERED, false, 0);
    let mut channel = Channel::new(Endpoint::TwoSided(Box::new(end)), unlimited).unwrap();
    assert_eq!(channel.max_frame(), MAX_FRAME);
    for payload in [MAX_FRAME - 15, MAX_FRAME + 1, 1 << 32, usize::MAX] {
        let error = channel.reserve(&plan(Kind::Call, 0), payload).unwrap_err();
        assert!(matches!(error, SendError::TooLarge { max: MAX_FRAME, .. }), "{payload}: {error}");
    }
}

#[test]
fn earlier_bytes_of_a_send_buffer_never_travel() {
    let (mut left, _right, line) = pair();
    let image = [0; 200];
    let code = PlanCode { image: &image, id: CodeId([0; 16]), epoch: 0, name: "\0\0\0", family: None };
    let call = Plan { token: 0, ..Plan::of(Kind::Call) };
    for len in [0, 1, 8, 39, 40, 41, 63, 64, 65, 1000, 4033] {
        let payload = vec![0; len];
        for align_log2 in [0, 3, 7, 12] {
            left.send_bytes(&Plan { align_log2, ..call }, &payload).unwrap();
            for (kind, image) in [(Kind::CallCode, &image[..]), (Kind::CallId, &[])] {
                let code = Some(PlanCode { image, ..code });
                left.send_bytes(&Plan { kind, align_log2, code, ..call }, &payload).unwrap();
            }
        }
        // More space than is used.
        let space = left.reserve(&call, len + 100).unwrap();
        // SAFETY: `reserve` lends at least `len` bytes.
        unsafe { space.payload().write_bytes(0, len) };
        space.commit(&call, len).unwrap();
    }
    let messages = std::mem::take(&mut line.0.lock().unwrap().messages);
    assert_eq!(messages.len(), 11 * 13);
    for message in messages {
        let bytes = message.bytes();
        let stamp = bytes.len() - 16..bytes.len() - 12;
        let mut others = bytes.iter().enumerate().filter(|(at, _)| !stamp.contains(at));
        assert!(others.all(|(_, byte)| *byte != STALE), "{:02x?}", &bytes);
    }
}

#[test]
fn a_kept_frame_is_forgotten_with_the_next_reservation() {
    let (mut left, mut right, line) = pair();
    let plan = plan(Kind::Call, 0);
    assert!(left.kept().is_none(), "nothing is reserved");
    let first = left.reserve(&plan, 100).unwrap();
    // SAFETY: `reserve` lends 100 bytes.
    unsafe { first.payload().write_bytes(0x55, 100) };
    first.keep();
    assert!(left.message(10).is_none(), "a frame is kept");
    left.kept().unwrap().commit(&plan, 100).unwrap();
    assert!(left.kept().is_none(), "nothing is reserved");
    left.reserve(&plan, 1_000).unwrap().keep();
    let _ = left.reserve(&plan, 10).unwrap();
    assert!(left.kept().is_none(), "something else was reserved");
    left.reserve(&plan, 1_000).unwrap().keep();
    line.0.lock().unwrap().full_reserves = 1;
    assert!(matches!(left.reserve(&plan, 1_000), Err(SendError::Full)));
    assert!(left.kept().is_none(), "what was reserved is forgotten");
    assert!(left.message(10).is_some());
    assert_eq!(take(&mut right), Some((0, vec![0x55; 100])));
    assert_eq!(take(&mut right), None);
}

#[test]
fn only_delivered_messages_make_a_two_sided_channel() {
    for bits in 0..=ArrivalRules::all().bits() {
        let rule = ArrivalRules::from_bits_retain(bits);
        let end = QueueEndpoint { out: Arc::default(), inbound: Arc::default(), space: None, lent: None };
        let made = Channel::new(Endpoint::TwoSided(Box::new(end)), terms(rule, false, 0));
        assert_eq!(made.is_ok(), rule == ArrivalRules::DELIVERED, "{rule:?}");
    }
}
