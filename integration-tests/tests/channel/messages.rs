//! The two-sided family: whole messages, none of which may be lost, repeated, overtaken or anything but one
//! frame.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use farjump_core::channel::{Channel, ChannelParams, Polled, SendError};
use farjump_core::frame::{Flags, FrameError, Kind, MAX_FRAME, Plan, PlanCode};
use farjump_core::image::CodeId;
use farjump_core::transport::{ArrivalRules, Cause, Endpoint, Messages, Operation, TransportError};
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
    /// This many calls from now on return `Full`.
    full_reserves: u32,
    full_commits: u32,
}

#[derive(Default)]
struct Line(Arc<Mutex<Queue>>);

struct End {
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
unsafe impl Messages for End {
    fn reserve(&mut self, len: usize) -> Result<NonNull<u8>, TransportError> {
        self.space = None;
        let mut out = self.out.lock().unwrap();
        if out.full_reserves > 0 {
            out.full_reserves -= 1;
            return Err(full(Operation::Send));
        }
        // Bytes of another message, maybe of another link.
        Ok(self.space.insert(Message::of(&vec![STALE; len])).base)
    }

    fn commit(&mut self, len: usize, _: u64) -> Result<(), TransportError> {
        let mut out = self.out.lock().unwrap();
        let space = self.space.as_ref().expect("core commits what it reserved");
        assert!(len <= space.len && len.is_multiple_of(64));
        if out.full_commits > 0 {
            out.full_commits -= 1;
            return Err(full(Operation::Send));
        }
        let bytes = space.bytes();
        self.space = None;
        out.messages.push_back(Message::of(&bytes[..len]));
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<(NonNull<u8>, usize)>, TransportError> {
        if self.lent.is_none() {
            self.lent = self.inbound.lock().unwrap().messages.pop_front();
        }
        Ok(self.lent.as_ref().map(|message| (message.base, message.len)))
    }

    fn release(&mut self) {
        self.lent = None;
    }
}

/// A sender and a receiver, and the line between them.
fn pair() -> (Channel, Channel, Line) {
    let (line, back) = (Line::default(), Line::default());
    let end = |out: &Line, inbound: &Line, send: u8, receive: u8| {
        let end = End { out: out.0.clone(), inbound: inbound.0.clone(), space: None, lent: None };
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

/// The receiver's error after `change` was applied to a line with three messages of 1, 100 and 200 bytes of
/// payload. The first of them is taken before.
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
    fn messages_arrive_whole_in_order_and_once_however_often_the_backend_is_full(
        steps in prop::collection::vec((0..4_u8, 0..LIMIT - 64, 0..3_u32), 1..120),
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
fn lost_repeated_and_overtaken_messages_are_noticed_by_their_signal() {
    assert_eq!(refusal(|messages| drop(messages.pop_front())), FrameError::Signal, "lost");
    assert_eq!(
        refusal(|messages| messages.push_front(Message::of(&messages[0].bytes()))),
        FrameError::Signal,
        "twice"
    );
    assert_eq!(refusal(|messages| messages.swap(0, 1)), FrameError::Signal, "overtaken");
    assert_eq!(
        refusal(|messages| changed(messages, |bytes| bytes[7] ^= 1)),
        FrameError::Signal,
        "another signal"
    );
}

#[test]
fn messages_that_are_not_one_frame_are_refused() {
    let frame_len = 192;
    for len in [0, 1, 63] {
        let error = refusal(|messages| changed(messages, |bytes| bytes.truncate(len)));
        assert_eq!(error, FrameError::Truncated { needed: 64, found: len });
    }
    for len in [64, 128, frame_len - 1] {
        let error = refusal(|messages| changed(messages, |bytes| bytes.truncate(len)));
        assert_eq!(error, FrameError::Truncated { needed: frame_len, found: len });
    }
    for more in [1, 64, 4096] {
        let error = refusal(|messages| changed(messages, |bytes| bytes.resize(frame_len + more, 0)));
        assert_eq!(error, FrameError::Overlong { frame: frame_len, found: frame_len + more });
    }
    let skip = |bytes: &mut Vec<u8>| {
        bytes[12..16].fill(0);
        bytes[16] = Kind::Skip as u8;
    };
    assert_eq!(refusal(|messages| changed(messages, skip)), FrameError::Kind(Kind::Skip as u8));
    let trailer = |bytes: &mut Vec<u8>| bytes[17] |= Flags::TRAILER.bits();
    assert_eq!(refusal(|messages| changed(messages, trailer)), FrameError::Flags(0x36));
}

#[test]
fn messages_over_the_limits_are_refused_on_both_sides() {
    let (mut left, mut right, line) = pair();
    assert!(matches!(send(&mut left, 0, LIMIT - 63), Err(SendError::TooLarge { len: 8_256, max: LIMIT })));
    send(&mut left, 0, LIMIT - 64).unwrap();
    assert!(take(&mut right).is_some());
    send(&mut left, 1, 100).unwrap();
    // As long as it states, and longer than agreed.
    let mut queue = line.0.lock().unwrap();
    changed(&mut queue.messages, |bytes| {
        bytes.resize(LIMIT + 64, 0);
        bytes[8..12].copy_from_slice(&(LIMIT as u32 + 64).to_le_bytes());
    });
    drop(queue);
    let error = right.poll().unwrap_err();
    let too_long = FrameError::TooLong { len: LIMIT as u32 + 64, limit: LIMIT };
    assert_eq!(*error.cause(), Cause::Protocol(too_long));
}

#[test]
fn no_frame_is_longer_than_its_length_can_say() {
    let end = End { out: Arc::default(), inbound: Arc::default(), space: None, lent: None };
    let unlimited = terms(ArrivalRules::DELIVERED, false, 0);
    let mut channel = Channel::new(Endpoint::TwoSided(Box::new(end)), unlimited).unwrap();
    assert_eq!(channel.max_frame(), MAX_FRAME);
    for payload in [MAX_FRAME - 63, MAX_FRAME + 1, 1 << 32, usize::MAX] {
        let error = channel.reserve(&plan(Kind::Call, 0), payload).unwrap_err();
        assert!(matches!(error, SendError::TooLarge { max: MAX_FRAME, .. }), "{payload}: {error}");
    }
}

#[test]
fn what_room_held_before_does_not_travel() {
    let (mut left, _right, line) = pair();
    let image = [0; 200];
    let code = PlanCode { image: &image, id: CodeId([0; 16]), epoch: 0, name: "\0\0\0" };
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
        let of_signal = 8;
        assert!(!bytes[of_signal..].contains(&STALE), "{:02x?}", &bytes);
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
    assert!(left.reserve_delivered(10).is_none(), "a frame is kept");
    left.kept().unwrap().commit(&plan, 100).unwrap();
    assert!(left.kept().is_none(), "nothing is reserved");
    left.reserve(&plan, 1_000).unwrap().keep();
    let _ = left.reserve(&plan, 10).unwrap();
    assert!(left.kept().is_none(), "something else was reserved");
    left.reserve(&plan, 1_000).unwrap().keep();
    line.0.lock().unwrap().full_reserves = 1;
    assert!(matches!(left.reserve(&plan, 1_000), Err(SendError::Full)));
    assert!(left.kept().is_none(), "what was reserved is forgotten");
    assert!(left.reserve_delivered(10).is_some());
    assert_eq!(take(&mut right), Some((0, vec![0x55; 100])));
    assert_eq!(take(&mut right), None);
}

#[test]
fn only_delivered_messages_make_a_two_sided_channel() {
    for bits in 0..=ArrivalRules::all().bits() {
        let rule = ArrivalRules::from_bits_retain(bits);
        let end = End { out: Arc::default(), inbound: Arc::default(), space: None, lent: None };
        let made = Channel::new(Endpoint::TwoSided(Box::new(end)), terms(rule, false, 0));
        assert_eq!(made.is_ok(), rule == ArrivalRules::DELIVERED, "{rule:?}");
    }
}
