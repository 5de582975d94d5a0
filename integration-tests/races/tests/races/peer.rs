//! One endpoint of a link, used by one thread: the frames that it sends and expects, and its waits.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use farjump_core::channel::{Armed, Channel, Polled, Received, SendError};
use farjump_core::frame::{INLINE_PAYLOAD, Kind, Plan};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Seconds that an endpoint sleeps when its sleep is unbounded. Links wake by themselves much earlier, so there a
/// lost wake-up costs time and no frame. Here it fails the test.
const SOUNDLY: u32 = 60;
/// Token of the reply to a notice.
const HEARD: u32 = u32::MAX;

/// The form of sending a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SendForm {
    Line,
    Lines,
    Bytes,
    /// Reserves this many bytes more than it uses.
    Reserve(usize),
    /// Through the large mailbox.
    Large,
}

/// A frame of the source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) form: SendForm,
    pub(crate) len: usize,
    pub(crate) wants_reply: bool,
    /// The source waits for its reply before it sends the next frame.
    pub(crate) alone: bool,
    /// Number of spins of this step's waits before they sleep.
    pub(crate) spins: u32,
}

impl Step {
    /// Draws the frame with this token; both threads draw the same.
    pub(crate) fn drawn(token: u32, has_large: bool) -> Step {
        let mut state = (u64::from(token) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut below = |bound: u64| {
            state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            state ^= state >> 31;
            state % bound
        };
        let (form, longest) = match below(16) {
            0..=5 => (SendForm::Line, INLINE_PAYLOAD as u64),
            6..=8 => (SendForm::Lines, 900),
            9..=11 => (SendForm::Bytes, 1500),
            12 if has_large => (SendForm::Large, 20_000),
            _ => (SendForm::Reserve(below(300) as usize), 3000),
        };
        let wants_reply = below(4) == 0;
        Step {
            form,
            len: below(longest + 1) as usize,
            wants_reply,
            alone: wants_reply && below(4) == 0,
            spins: [0, 0, 20, 1000][below(4) as usize],
        }
    }

    fn plan(&self, kind: Kind, token: u32) -> Plan<'static> {
        let (wants_reply, alone) = (self.wants_reply, self.alone);
        Plan { kind, wants_reply, alone, travelled: false, index: 1, token, align_log2: 0, code: None }
    }
}

/// Returns the byte of a payload at `index`.
fn byte(token: u32, index: usize) -> u8 {
    (token as u8).wrapping_mul(31).wrapping_add((index as u8).wrapping_mul(7)) ^ (index >> 8) as u8
}

/// Writes a payload as a program does: with plain stores.
fn fill(at: NonNull<u8>, token: u32, len: usize) {
    for index in 0..len {
        // SAFETY: the channel lent `len` bytes at `at`.
        unsafe { at.add(index).write(byte(token, index)) };
    }
}

/// Compares a payload and overwrites it, as an injected function may.
fn check(at: NonNull<u8>, token: u32, len: usize) {
    for index in 0..len {
        // SAFETY: the frame is held and has `len` bytes.
        let found = unsafe { at.add(index).read() };
        assert_eq!(found, byte(token, index), "byte {index} of {len} of frame {token}");
        // SAFETY: as above.
        unsafe { at.add(index).write(!found) };
    }
}

/// Returns the length of the reply to a call.
fn reply_len(token: u32) -> usize {
    token as usize % 700
}

pub(crate) struct Peer<'c> {
    pub(crate) channel: &'c mut Channel,
    pub(crate) second: Option<&'c mut Channel>,
    /// Set when the other thread has failed.
    failed: &'c AtomicBool,
    /// Number of spins of the current wait before it sleeps.
    spins: u32,
    idle: u32,
    /// The number of replies to calls, and the values in replies to notices.
    pub(crate) replies: u32,
    pub(crate) heard: Vec<u64>,
}

impl<'c> Peer<'c> {
    pub(crate) fn new(
        channel: &'c mut Channel,
        second: Option<&'c mut Channel>,
        failed: &'c AtomicBool,
    ) -> Peer<'c> {
        Peer { channel, second, failed, spins: 0, idle: 0, replies: 0, heard: Vec::new() }
    }

    /// Sends a call. While there is no credit, takes replies.
    pub(crate) fn send(&mut self, token: u32, step: &Step) {
        self.spins = step.spins;
        loop {
            match self.try_send(&step.plan(Kind::Call, token), step.form, step.len) {
                Ok(()) => break self.idle = 0,
                Err(SendError::Full) if step.form == SendForm::Large => {
                    // No doorbell signals credit of the large mailbox. A skip may hold the credit back, until the
                    // receiver passes it when it checks the mailbox. A link gives notice for the same reason.
                    self.channel.notify().unwrap();
                    if !self.take_reply() {
                        thread::sleep(Duration::from_micros(50));
                    }
                }
                Err(SendError::Full) => self.take_reply_or_rest(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn try_send(&mut self, plan: &Plan<'_>, form: SendForm, len: usize) -> Result<(), SendError> {
        let token = plan.token;
        let reserve = |channel: &mut Channel, more: usize| {
            let space = channel.reserve(plan, len + more)?;
            fill(space.payload(), token, len);
            space.commit(plan, len)
        };
        match form {
            SendForm::Line if let Some(line) = self.channel.line() => {
                fill(line.payload(), token, len);
                Ok(line.send(plan, len)?)
            }
            SendForm::Lines if let Some(lines) = self.channel.lines(len) => {
                fill(lines.payload(), token, len);
                Ok(lines.send(plan, len)?)
            }
            SendForm::Bytes => {
                let bytes: Vec<u8> = (0..len).map(|index| byte(token, index)).collect();
                self.channel.send_bytes(plan, &bytes)
            }
            SendForm::Large => {
                let second = self.second.as_mut().expect("there is one");
                self.channel.send_large_frame(second, token, |second| reserve(second, 0))
            }
            SendForm::Reserve(more) => reserve(self.channel, more),
            // The fast paths find no credit, or a skip is due.
            SendForm::Line | SendForm::Lines => reserve(self.channel, 0),
        }
    }

    /// Takes a reply, or rests if there is none.
    pub(crate) fn take_reply_or_rest(&mut self) {
        if !self.take_reply() {
            self.rest();
        }
    }

    fn take_reply(&mut self) -> bool {
        let frame = match self.channel.poll().unwrap() {
            Polled::Frame(frame) => frame,
            Polled::Nothing => return false,
            Polled::Partial => panic!("stores are never partial"),
        };
        let header = frame.header();
        assert_eq!(header.kind, Kind::Reply);
        if header.token == HEARD {
            self.heard.push(frame.contents().payload_word());
        } else {
            assert_eq!(header.payload_len as usize, reply_len(header.token));
            check(frame.payload(), header.token, reply_len(header.token));
            self.replies += 1;
        }
        frame.release().unwrap();
        self.idle = 0;
        true
    }

    /// Takes the call with this token, if it has come, and replies to it.
    pub(crate) fn take(&mut self, token: u32, step: &Step) -> bool {
        self.spins = step.spins;
        let frame = match self.channel.poll().unwrap() {
            Polled::Frame(frame) => frame,
            Polled::Nothing => return false,
            Polled::Partial => panic!("stores are never partial"),
        };
        assert_eq!(frame.header().token, token, "order");
        let is_switch = frame.header().kind == Kind::Large;
        assert_eq!(is_switch, step.form == SendForm::Large);
        let looked_at = |frame: Received<'_>| {
            let header = frame.header();
            assert_eq!((header.kind, header.token), (Kind::Call, token));
            assert_eq!(header.payload_len as usize, step.len);
            check(frame.payload(), token, step.len);
            frame.take()
        };
        let (own, large) = match &mut self.second {
            Some(second) if is_switch => match second.poll().unwrap() {
                Polled::Frame(large) => (frame.take(), Some(looked_at(large))),
                _ => panic!("a Large without its frame"),
            },
            _ => (looked_at(frame), None),
        };
        if step.wants_reply {
            self.reply(token, SendForm::Line, reply_len(token));
        }
        if let (Some(second), Some(large)) = (&mut self.second, large) {
            second.release(large).unwrap();
            second.progress(true).unwrap();
        }
        self.channel.release(own).unwrap();
        self.idle = 0;
        true
    }

    fn reply(&mut self, token: u32, form: SendForm, len: usize) {
        let plan = Plan { token, ..Plan::of(Kind::Reply) };
        let form = if len > INLINE_PAYLOAD { SendForm::Lines } else { form };
        loop {
            match self.try_send(&plan, form, len) {
                Ok(()) => break,
                // The source takes replies during any of its waits.
                Err(SendError::Full) => self.rest(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Replies to a notice.
    pub(crate) fn hear(&mut self, said: u64) {
        let plan = Plan { token: HEARD, ..Plan::of(Kind::Reply) };
        loop {
            match self.channel.send_bytes(&plan, &said.to_le_bytes()) {
                Ok(()) => break,
                Err(SendError::Full) => self.rest(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Waits: spins for a while, then sleeps as soundly as the channel allows.
    pub(crate) fn rest(&mut self) {
        assert!(!self.failed.load(Ordering::Relaxed), "the other side failed");
        if self.idle < self.spins {
            self.idle += 1;
            return thread::yield_now();
        }
        match self.channel.arm().unwrap() {
            Armed::Ready => return thread::yield_now(),
            Armed::Nap => thread::sleep(Duration::from_micros(50)),
            Armed::Sleep => self.sleep(),
        }
        self.channel.disarm().unwrap();
    }

    fn sleep(&self) {
        let doorbell = self.channel.descriptor().expect("there is one to sleep on");
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        for _ in 0..SOUNDLY {
            match poll(&mut [PollFd::from_borrowed_fd(doorbell, PollFlags::IN)], Some(&second)) {
                Ok(1) | Err(rustix::io::Errno::INTR) => return,
                Ok(_) => assert!(!self.failed.load(Ordering::Relaxed), "the other side failed"),
                Err(error) => panic!("{error}"),
            }
        }
        panic!("nobody rang for {SOUNDLY} s");
    }
}
