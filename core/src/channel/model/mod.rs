//! Whole channels under loom: both endpoints on one mapping, and the code that really runs, from
//! [`Channel::reserve`] down to the words. `RUSTFLAGS="--cfg loom" cargo test -p farjump-core --release loom`
//!
//! Regions are a line of control and a ring of a few lines (`mailbox::CONTROL_LEN`), in [`Mapping`]s. Their
//! words are loom's atomics; loom watches their payload. A peer that may sleep without a limit really does.
//! Only the doorbell wakes it, so a lost wake-up is a deadlock, which loom reports. (Real sleepers also wake
//! by themselves once a second.) Each model has variants with a mistake that loom must find.

mod both_directions;
mod large;
mod membarrier;
mod notice;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::NonNull;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use loom::sync::atomic::AtomicU64;
use loom::thread;

use super::{Armed, Channel, ChannelParams, Polled, SendError, Taken};
use crate::descriptor::BorrowedFd;
use crate::frame::{Kind, LINE, Plan};
use crate::mailbox;
use crate::memory::mapping::{self, Mapping};
use crate::signal::LinkKey;
use crate::sync::membarrier as barrier;
use crate::sync::planted::plant;
use crate::sync::{Handover, Ordering, fence};
use crate::transport::{ArrivalRules, Endpoint, LocalMemory, RemoteMemory, TransportError};

/// The mechanism that orders "say asleep" before "poll", and "store a frame" before "does the peer sleep?".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    /// A fence in each peer.
    Fences,
    /// The sleeper makes the sender pass a fence.
    Membarrier,
    /// A mistake: the sender relies on the sleeper, which has only a fence of its own.
    Nothing,
}

/// A mistake of a peer that sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mistake {
    None,
    /// It sleeps although it should nap.
    SleepsForNap,
    /// It discards wake-ups once more after it has polled.
    SilencesLate,
}

/// A doorbell. The system keeps it under a lock: the next reader sees the wake-up and everything before it.
struct Bell {
    wake_ups: AtomicU64,
    /// The owner of the doorbell, and whether it sleeps. The system knows this; they are not words of the
    /// model.
    owner: OnceLock<thread::Thread>,
    sleeps: AtomicBool,
}

impl Bell {
    fn new() -> Arc<Bell> {
        Arc::new(Bell { wake_ups: AtomicU64::new(0), owner: OnceLock::new(), sleeps: AtomicBool::new(false) })
    }

    fn wake(&self) {
        self.wake_ups.fetch_add(1, Ordering::AcqRel);
        if self.sleeps.swap(false, Ordering::Relaxed)
            && let Some(owner) = self.owner.get()
        {
            owner.unpark();
        }
    }

    fn silence(&self) {
        self.wake_ups.swap(0, Ordering::AcqRel);
    }

    /// Sleeps until it is woken.
    fn wait(&self) {
        let _ = self.owner.set(thread::current());
        while self.wake_ups.fetch_add(0, Ordering::AcqRel) == 0 {
            self.sleeps.store(true, Ordering::Relaxed);
            thread::park();
        }
    }
}

/// The parts of one endpoint that both peers know.
#[derive(Clone)]
struct Station {
    region: Arc<Mapping>,
    bell: Arc<Bell>,
    thread: Arc<barrier::Thread>,
}

struct Local {
    own: Station,
    peer: Arc<barrier::Thread>,
    order: Order,
}

struct Remote {
    peer: Station,
    order: Order,
}

// SAFETY: a mapping keeps its memory, aligned and zero at first, and this value owns a share of it.
unsafe impl LocalMemory for Local {
    fn base(&self) -> NonNull<u8> {
        self.own.region.base()
    }

    fn len(&self) -> usize {
        self.own.region.len()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: nothing uses the descriptor; standard input stays open.
        Some(unsafe { BorrowedFd::borrow_raw(0) })
    }

    // Same order as in `shm`.
    fn before_sleep(&mut self) -> Result<bool, TransportError> {
        self.own.bell.silence();
        fence(Ordering::SeqCst);
        if self.order == Order::Membarrier {
            barrier::call(&self.peer);
        }
        Ok(true)
    }

    fn after_sleep(&mut self) -> Result<(), TransportError> {
        self.own.bell.silence();
        Ok(())
    }
}

// SAFETY: a mapping keeps its memory, and this value owns a share of it.
unsafe impl RemoteMemory for Remote {
    fn len(&self) -> usize {
        self.peer.region.len()
    }

    fn mapped(&self) -> Option<NonNull<u8>> {
        Some(self.peer.region.base())
    }

    fn put(&mut self, _: usize, _: &[u8], _: u64) -> Result<(), TransportError> {
        unreachable!("what is mapped is stored to")
    }

    fn put_word(&mut self, _: usize, _: u64, _: u64) -> Result<(), TransportError> {
        unreachable!("what is mapped is stored to")
    }

    fn fence(&mut self) -> Result<(), TransportError> {
        unreachable!("what is mapped is stored to")
    }

    fn wake_peer(&mut self) -> Result<(), TransportError> {
        self.peer.bell.wake();
        Ok(())
    }

    fn store_load_ordered(&self) -> bool {
        self.order != Order::Fences
    }
}

/// One endpoint of a link, used by one thread.
struct ModelEndpoint {
    channel: Channel,
    bell: Arc<Bell>,
    thread: Arc<barrier::Thread>,
    mistake: Mistake,
}

/// The parameters of a link.
#[derive(Clone, Copy)]
struct Setting {
    /// Lines of the ring to the left side, and to the right.
    rings: [usize; 2],
    /// Longest frame in lines.
    longest: usize,
    order: Order,
}

const KEYS: [LinkKey; 2] =
    [LinkKey::from_bytes(*b"to the left side"), LinkKey::from_bytes(*b"to the right one")];

/// Makes both endpoints of a link.
fn link(setting: Setting) -> (ModelEndpoint, ModelEndpoint) {
    let threads = [barrier::Thread::new(), barrier::Thread::new()];
    let bells = [Bell::new(), Bell::new()];
    link_of(setting, &threads, &bells)
}

/// Makes both endpoints of a link for these threads and doorbells.
fn link_of(
    setting: Setting,
    threads: &[Arc<barrier::Thread>; 2],
    bells: &[Arc<Bell>; 2],
) -> (ModelEndpoint, ModelEndpoint) {
    let stations = [0, 1].map(|side| Station {
        region: Mapping::new(mailbox::CONTROL_LEN + setting.rings[side] * LINE),
        bell: bells[side].clone(),
        thread: threads[side].clone(),
    });
    let side = |own: usize| {
        let peer = 1 - own;
        let order = setting.order;
        let local = Local { own: stations[own].clone(), peer: stations[peer].thread.clone(), order };
        let remote = Remote { peer: stations[peer].clone(), order };
        let terms = ChannelParams {
            rule: ArrivalRules::STORES,
            line_whole: true,
            send_key: KEYS[peer],
            receive_key: KEYS[own],
            send_limit: setting.longest * LINE,
            receive_limit: setting.longest * LINE,
            send_region: stations[peer].region.len(),
            receive_region: stations[own].region.len(),
        };
        let endpoint = Endpoint::OneSided { local: Box::new(local), remote: Box::new(remote) };
        ModelEndpoint {
            channel: Channel::new(endpoint, terms).expect("the model's terms fit"),
            bell: bells[own].clone(),
            thread: threads[own].clone(),
            mistake: Mistake::None,
        }
    };
    (side(0), side(1))
}

/// The form of sending a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SendForm {
    /// [`Channel::line`].
    Line,
    /// [`Channel::lines`].
    Lines,
    /// [`Channel::reserve`] and [`Reserved::commit`](super::Reserved::commit).
    Reserve,
}

/// The payload of a frame.
fn payload(token: u32, words: usize) -> Vec<u64> {
    (0..words as u64).map(|word| u64::from(token + 1) << 32 | word).collect()
}

fn plan(kind: Kind, token: u32, alone: bool) -> Plan<'static> {
    Plan { kind, wants_reply: false, alone, travelled: false, index: 0, token, align_log2: 0, code: None }
}

/// Writes the payload by plain writes, as a program does.
fn fill(at: NonNull<u8>, token: u32, words: usize) {
    if words != 0 {
        mapping::writes(at, words * 8);
    }
    for (index, word) in payload(token, words).into_iter().enumerate() {
        // SAFETY: the space was lent for this number of words, aligned to 8.
        unsafe { at.cast::<u64>().add(index).write(word) };
    }
}

/// Sends the frame unless there is no credit.
fn try_send(
    channel: &mut Channel,
    form: SendForm,
    token: u32,
    words: usize,
    alone: bool,
) -> Result<(), SendError> {
    let plan = plan(Kind::Call, token, alone);
    match form {
        SendForm::Line => {
            let line = channel.line().ok_or(SendError::Full)?;
            fill(line.payload(), token, words);
            Ok(line.send(&plan, words * 8)?)
        }
        SendForm::Lines => {
            let lines = channel.lines(words * 8).ok_or(SendError::Full)?;
            fill(lines.payload(), token, words);
            Ok(lines.send(&plan, words * 8)?)
        }
        SendForm::Reserve => {
            let space = channel.reserve(&plan, words * 8)?;
            fill(space.payload(), token, words);
            space.commit(&plan, words * 8)
        }
    }
}

/// Takes the pending frame. Checks that it is `token` and whole, then writes to it as an injected function
/// may.
fn take_held(channel: &mut Channel, token: u32, words: usize) -> Option<Taken> {
    let frame = match channel.poll().expect("nobody breaks the protocol") {
        Polled::Frame(frame) => frame,
        Polled::Nothing => return None,
        Polled::Partial => panic!("stores are never partial"),
    };
    let header = frame.header();
    assert_eq!((header.kind, header.token), (Kind::Call, token), "order");
    assert_eq!(header.payload_len as usize, words * 8);
    if words != 0 {
        mapping::reads(frame.payload(), words * 8);
        mapping::writes(frame.payload(), words * 8);
    }
    let read: Vec<u64> = (0..words)
        // SAFETY: the frame is held and has this number of words, aligned to 8.
        .map(|index| unsafe { frame.payload().cast::<u64>().add(index).read() })
        .collect();
    assert_eq!(read, payload(token, words), "a torn frame");
    Some(frame.take())
}

impl ModelEndpoint {
    fn with(mut self, mistake: Mistake) -> ModelEndpoint {
        self.mistake = mistake;
        self
    }

    /// Starts, in the thread that has this endpoint.
    fn start(&self) {
        barrier::run_as(self.thread.clone());
    }

    /// Ends: the thread does nothing more.
    fn stop(&self) {
        barrier::pause();
    }

    /// Sends the frame, and waits for credit if there is none.
    fn send(&mut self, form: SendForm, token: u32, words: usize, alone: bool) {
        loop {
            barrier::interruptible();
            match try_send(&mut self.channel, form, token, words, alone) {
                Ok(()) => break,
                // The fast paths leave skips, and recording that there is no credit, to the general one.
                Err(SendError::Full) if form != SendForm::Reserve => {
                    match try_send(&mut self.channel, SendForm::Reserve, token, words, alone) {
                        Ok(()) => break,
                        Err(SendError::Full) => self.rest(),
                        Err(error) => panic!("{error}"),
                    }
                }
                Err(SendError::Full) => self.rest(),
                Err(error) => panic!("{error}"),
            }
        }
        barrier::interruptible();
    }

    /// Takes frame `token` when it comes.
    fn take(&mut self, token: u32, words: usize) {
        while !self.try_take(token, words) {
            self.rest();
        }
    }

    fn try_take(&mut self, token: u32, words: usize) -> bool {
        barrier::interruptible();
        let Some(frame) = take_held(&mut self.channel, token, words) else { return false };
        self.channel.release(frame).expect("returning credit is a store");
        true
    }

    /// Goes to sleep, as far as the mistake allows.
    fn rest(&mut self) {
        let armed = self.channel.arm().expect("nothing fails in the model");
        match armed {
            Armed::Ready => return,
            Armed::Nap if self.mistake != Mistake::SleepsForNap => {
                barrier::interruptible();
                thread::yield_now();
            }
            Armed::Nap | Armed::Sleep => {
                if self.mistake == Mistake::SilencesLate {
                    self.bell.silence();
                }
                barrier::pause();
                self.bell.wait();
                barrier::resume();
            }
        }
        self.channel.disarm().expect("nothing fails in the model");
    }
}

/// Runs every order of `model` with up to `preemptions` preemptions (all if `None`), with a planted race or
/// none.
fn check(preemptions: Option<usize>, planted: Option<Handover>, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = 10_000;
    plant(planted);
    builder.check(model);
}

/// [`check`] for a model with a mistake or a planted race, in which loom must find one of these failures.
fn finds(
    failures: &[&str],
    preemptions: Option<usize>,
    planted: Option<Handover>,
    model: impl Fn() + Send + Sync + 'static + std::panic::UnwindSafe,
) {
    let tried = std::panic::catch_unwind(|| check(preemptions, planted, model));
    let panic = tried.expect_err("loom found nothing");
    let said = panic.downcast_ref::<&str>().map(|said| std::string::String::from(*said));
    let failure = said.or_else(|| panic.downcast_ref().cloned()).unwrap_or_default();
    assert!(failures.iter().any(|one| failure.contains(one)), "another failure: {failure}");
}
