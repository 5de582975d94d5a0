//! The parts of a conversation: settings, and a list of steps. Both come from a seed. Each step can be executed
//! without the others, so steps can be left out of a failing conversation.

use farjump_control::Rights;
use farjump_core::frame::Kind;
use fastrand::Rng;

use crate::functions::NAMES;

/// The path between source and target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// Shared memory, with a handshake over a Unix socket.
    Shared,
    /// Shared memory without ordered stores: frames are checked.
    SharedChecked,
    /// Writes that are moved in pieces, over a Unix socket, by one of the arrival rules.
    Puts(usize),
    /// Whole messages, with a handshake over TCP with a key.
    Messages,
    /// Writes, with a handshake over TCP with a key.
    PutsByTcp(usize),
    /// `tcp`, with a handshake over TCP with a key if `true`, and over a Unix socket otherwise.
    Stream(bool),
}

impl Route {
    /// Returns whether the control connection is a TCP connection.
    pub fn is_tcp(self) -> bool {
        matches!(self, Route::Messages | Route::PutsByTcp(_) | Route::Stream(true))
    }

    /// Returns whether frames travel on a connection of their own.
    pub fn is_stream(self) -> bool {
        matches!(self, Route::Stream(_))
    }

    /// Returns whether the peer's memory is mapped, and descriptors travel.
    pub fn is_shared(self) -> bool {
        matches!(self, Route::Shared | Route::SharedChecked)
    }

    pub(crate) fn any(rng: &mut Rng) -> Route {
        match rng.u8(..16) {
            0..6 => Route::Shared,
            6 | 7 => Route::Stream(rng.bool()),
            8 | 9 => Route::SharedChecked,
            10 | 11 => Route::Puts(rng.usize(..5)),
            12..15 => Route::Messages,
            _ => Route::PutsByTcp(rng.usize(..5)),
        }
    }
}

/// The settings of a target.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The path to its sources.
    pub route: Route,
    /// Bytes of a mailbox.
    pub mailbox: usize,
    /// Size of the arena.
    pub arena_size: usize,
    /// Most stored images.
    pub images: usize,
    /// Whether it may run code in place.
    pub in_place: bool,
    /// Whether it accepts only its own functions.
    pub only_local: bool,
    /// Whether it has functions of its own.
    pub has_local: bool,
    /// If set, the target accepts only these of [`NAMES`], and the honest one.
    pub allowed: Option<Vec<usize>>,
    /// True if the target exports the imports of `lookup`, and those of `system`.
    pub offers: (bool, bool),
    /// Longest payload.
    pub max_payload: usize,
    /// Longest image.
    pub max_image: Option<usize>,
    /// Longest frame.
    pub max_frame: Option<usize>,
    /// Memory for each source.
    pub memory: Option<usize>,
    /// Most sources.
    pub sources: usize,
    /// The rights of its sources. The honest one calls and injects.
    pub rights: Rights,
    /// Whether source and target have a key, over TCP.
    pub has_key: bool,
    /// The rights of each further key of a target with several, in a file; the first key has
    /// [`Settings::rights`].
    pub further_keys: Vec<Rights>,
    /// Whether it runs on its own thread, which sleeps.
    pub by_thread: bool,
    /// True if it has a destination, to which calls may be forwarded.
    pub has_peer: bool,
}

impl Settings {
    /// Makes settings by the seed.
    pub fn new(rng: &mut Rng) -> Settings {
        let one_in = |rng: &mut Rng, n: u8| rng.u8(..n) == 0;
        let route = Route::any(rng);
        // Only these paths have an executable mailbox.
        let in_place = route.is_shared() && one_in(rng, 4);
        let small = one_in(rng, 3);
        let has_key = route.is_tcp() && !one_in(rng, 3);
        let count = if has_key && one_in(rng, 2) { rng.usize(1..6) } else { 0 };
        let further_keys = (0..count).map(|_| Rights::from_bits_truncate(rng.u8(..))).collect();
        Settings {
            route,
            mailbox: 1 << rng.usize(12..18),
            arena_size: if small { 300 << 10 } else { 2 << 20 },
            images: if one_in(rng, 3) { 3 } else { 64 },
            in_place,
            only_local: one_in(rng, 12),
            has_local: one_in(rng, 2),
            allowed: (!in_place && one_in(rng, 6)).then(|| vec![0, 1, rng.usize(..NAMES.len())]),
            offers: (rng.bool(), rng.bool()),
            max_payload: if one_in(rng, 3) { 5000 } else { 600 << 10 },
            max_image: one_in(rng, 5).then_some(6000),
            max_frame: one_in(rng, 6).then_some(40 << 10),
            memory: one_in(rng, 4).then_some(700 << 10),
            sources: if one_in(rng, 6) { 2 } else { 8 },
            rights: Rights::CALL
                | Rights::INJECT
                | if rng.bool() { Rights::all() } else { Rights::from_bits_truncate(rng.u8(..)) },
            has_key,
            further_keys,
            by_thread: one_in(rng, 4),
            has_peer: rng.bool(),
        }
    }
}

/// The code index that a frame names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Index {
    /// The index of the function itself.
    Own,
    /// The index of another function.
    Of(u16),
    /// An index that is most likely unbound.
    Any(u16),
}

/// The image that a frame carries or names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// The image of one of [`NAMES`].
    Function(usize),
    /// An image made up from a seed.
    MadeUp(u64),
    /// Bytes from a seed that are no image.
    Spoilt(u64),
    /// The image of a function, with the code id of another.
    Mismatched(usize),
}

/// The epoch that a frame names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Epoch {
    /// The target's.
    Right,
    /// Another.
    Wrong,
}

/// A frame, as it is written into a mailbox.
#[derive(Clone, Copy, Debug)]
pub struct FrameStep {
    /// Its kind.
    pub kind: Kind,
    /// Its code.
    pub code: Code,
    /// The code index.
    pub index: Index,
    /// The epoch.
    pub epoch: Epoch,
    /// Bytes of payload.
    pub len: usize,
    /// Decides the contents of the payload.
    pub seed: u64,
    /// Whether a reply is wanted.
    pub wants_reply: bool,
    /// If set, changes bytes of the frame, provided that the mailbox is mapped.
    pub spoil: Option<u64>,
    /// The signal that is written.
    pub signal: Signal,
    /// True if it goes into the large mailbox, with a `Large` frame for it in the other.
    pub large: bool,
}

/// The signal that is written with a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// The right signal.
    Due,
    /// The signal of another position.
    Other(i64),
    /// No signal: later bytes overwrite it.
    None,
}

/// A message of the control connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Saying {
    /// The code that the target waits for, if it waits for any.
    Code,
    /// The message that the source has no such code.
    NoCode,
    /// Unrequested code, or code of another function.
    OtherCode(usize),
    /// A request for a large mailbox, for a frame and a payload of these lengths.
    LargeRequest(u64, u64),
    /// The endpoint address for a large mailbox, if there is an offer.
    Accept,
    /// The endpoint address for a large mailbox, with a change.
    OddAccept(u64),
    /// The release of the large mailbox.
    Shrink,
    /// The message that ends the link.
    Bye,
    /// A message that only targets send, or a message at the wrong time.
    Undue(u8),
    /// A whole message, changed.
    Spoilt(u8, u64),
    /// Bytes.
    Bytes(u64, usize),
    /// The same message again and again.
    Often(u8, u16),
}

/// The form in which the hostile source leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// It leaves without a message.
    Drop,
    /// It leaves with a message.
    Bye,
    /// It shuts its half of the connection, and stays.
    Half,
    /// It closes the connection, and keeps the memory.
    KeepMemory,
}

/// The fault of a handshake, if any.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandshakeKind {
    /// None.
    Proper,
    /// A changed endpoint address.
    OddEnd(u64),
    /// Descriptors of other kinds.
    OddDescriptors(u64),
    /// The source ends after this many messages.
    Stops(u8),
    /// Another message after this many.
    Undue(u8, u8),
    /// Arbitrary bytes.
    Bytes(u64),
    /// Changed messages.
    Spoilt(u64),
    /// Descriptors where none are allowed.
    DescriptorsWithHello(u64),
    /// The stream of the link comes late, in pieces, more than once, with another token or not at all. Without a
    /// stream there is no fault.
    Stream(u64),
}

/// One step of a conversation.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Makes a link, or tries to make one. The earlier link ends.
    Connect(HandshakeKind),
    /// A frame.
    Frame(FrameStep),
    /// Overwrites bytes anywhere in the mailbox.
    Rewrite(u64),
    /// Overwrites bytes of the oldest waiting frame, in its header and code part.
    RewriteWaiting(u64),
    /// The credit line.
    Return(u64),
    /// A message.
    Say(Saying),
    /// A message with descriptors of any kind.
    SayWith(u8, u64),
    /// A proper admin request.
    Admin(u8),
    /// A malformed or unfinished admin request.
    OddAdmin(u64),
    /// An action of the honest link.
    Honest(u8),
    /// The honest link ends, and another one is made.
    HonestAgain,
    /// Turns of the target.
    Turns(u8),
    /// A pause, in milliseconds.
    Pause(u8),
    /// A change to the descriptors of shared memory.
    Descriptor(u64),
    /// Bytes that are no record on the stream of the link, or the end of the stream.
    Stray(u64),
    /// An action of the target's owner.
    Owner(u8),
    /// A new link, and then more messages and a longer torn frame at once than the target takes in a turn.
    Burst(u64),
    /// The hostile source leaves.
    Part(Ending),
}

/// Longest conversation.
const MOST_STEPS: usize = 60;

/// Makes the steps of a conversation.
pub fn steps(rng: &mut Rng, settings: &Settings) -> Vec<Step> {
    let count = rng.usize(8..MOST_STEPS);
    let mut steps =
        vec![Step::Connect(if rng.u8(..4) == 0 { any_handshake(rng) } else { HandshakeKind::Proper })];
    while steps.len() < count {
        if settings.route.is_stream() && rng.u8(..8) == 0 {
            steps.push(match rng.u8(..4) {
                0 => Step::Stray(rng.u64(..)),
                _ => Step::Connect(HandshakeKind::Stream(rng.u64(..))),
            });
        }
        match rng.u8(..64) {
            // All messages for a large mailbox: single steps seldom make one.
            0..3 => {
                let len = rng.u64(1000..200 << 10);
                steps.push(Step::Say(Saying::LargeRequest(len + 20_000, len)));
                steps.push(Step::Turns(2));
                steps.push(Step::Say(if rng.u8(..4) == 0 {
                    Saying::OddAccept(rng.u64(..))
                } else {
                    Saying::Accept
                }));
                steps.push(Step::Turns(2));
                for _ in 0..rng.usize(1..4) {
                    let mut frame =
                        FrameStep { large: true, len: rng.usize(..len as usize), ..frame(rng, settings) };
                    let waits = rng.bool();
                    if waits {
                        (frame.kind, frame.code) = (Kind::CallId, Code::MadeUp(rng.u64(..)));
                        (frame.epoch, frame.signal, frame.spoil) = (Epoch::Right, Signal::Due, None);
                    }
                    steps.push(Step::Frame(frame));
                    if rng.bool() {
                        steps.push(Step::Turns(1));
                        steps.push(Step::RewriteWaiting(rng.u64(..)));
                    }
                    if waits {
                        steps.push(Step::Turns(1));
                        steps.push(Step::Say(if rng.u8(..4) == 0 { Saying::NoCode } else { Saying::Code }));
                    }
                }
            }
            // A frame that must wait for its code, and possible changes to it meanwhile.
            3..7 => {
                let frame = FrameStep {
                    kind: Kind::CallId,
                    epoch: Epoch::Right,
                    spoil: None,
                    signal: Signal::Due,
                    ..frame(rng, settings)
                };
                steps.push(Step::Frame(frame));
                steps.push(Step::Turns(1));
                if rng.bool() {
                    steps.push(Step::RewriteWaiting(rng.u64(..)));
                }
                steps.push(match rng.u8(..4) {
                    0 => Step::Say(Saying::NoCode),
                    1 => Step::Say(Saying::OtherCode(rng.usize(..NAMES.len()))),
                    _ => Step::Say(Saying::Code),
                });
            }
            7..34 => {
                for _ in 0..rng.usize(1..5) {
                    steps.push(Step::Frame(frame(rng, settings)));
                }
            }
            34..40 => steps.push(Step::Turns(rng.u8(1..8))),
            40..44 => steps.push(Step::Honest(rng.u8(..))),
            44..49 => steps.push(Step::Say(saying(rng))),
            49 => steps.push(Step::SayWith(rng.u8(..12), rng.u64(..))),
            50 | 51 => steps.push(Step::Admin(rng.u8(..))),
            52 => steps.push(Step::OddAdmin(rng.u64(..))),
            53 | 54 => steps.push(Step::Rewrite(rng.u64(..))),
            55 => steps.push(Step::RewriteWaiting(rng.u64(..))),
            56 => steps.push(Step::Return(rng.u64(..))),
            57 => steps.push(Step::HonestAgain),
            58 => steps.push(Step::Pause(rng.u8(1..40))),
            59 => steps.push(Step::Descriptor(rng.u64(..))),
            60 => steps.push(Step::Part(ending(rng))),
            61 => steps.push(Step::Owner(rng.u8(..))),
            62 => steps.push(Step::Burst(rng.u64(..))),
            _ => steps.push(Step::Connect(any_handshake(rng))),
        }
    }
    if settings.route == Route::SharedChecked || rng.bool() {
        steps.push(Step::Burst(rng.u64(..)));
    }
    steps
}

pub(crate) fn any_handshake(rng: &mut Rng) -> HandshakeKind {
    match rng.u8(..12) {
        0 | 1 => HandshakeKind::OddEnd(rng.u64(..)),
        2 | 3 => HandshakeKind::OddDescriptors(rng.u64(..)),
        4 => HandshakeKind::Stops(rng.u8(..3)),
        5 => HandshakeKind::Undue(rng.u8(..2), rng.u8(..)),
        6 => HandshakeKind::Bytes(rng.u64(..)),
        7 => HandshakeKind::Spoilt(rng.u64(..)),
        8 => HandshakeKind::DescriptorsWithHello(rng.u64(..)),
        _ => HandshakeKind::Proper,
    }
}

fn ending(rng: &mut Rng) -> Ending {
    [Ending::Drop, Ending::Bye, Ending::Half, Ending::KeepMemory][rng.usize(..4)]
}

fn saying(rng: &mut Rng) -> Saying {
    let any = |rng: &mut Rng| [0, 1, 64, 5000, 100_000, 700_000, 1 << 31, u64::MAX][rng.usize(..8)];
    match rng.u8(..16) {
        0 | 1 => Saying::Code,
        2 => Saying::NoCode,
        3 => Saying::OtherCode(rng.usize(..NAMES.len())),
        4 | 5 => Saying::LargeRequest(any(rng), any(rng)),
        6 => Saying::Accept,
        7 => Saying::OddAccept(rng.u64(..)),
        8 => Saying::Shrink,
        9 => Saying::Bye,
        10 => Saying::Undue(rng.u8(..)),
        11 | 12 => Saying::Spoilt(rng.u8(..), rng.u64(..)),
        13 => Saying::Bytes(rng.u64(..), rng.usize(1..300)),
        _ => Saying::Often(rng.u8(..), rng.u16(2..2000)),
    }
}

fn frame(rng: &mut Rng, settings: &Settings) -> FrameStep {
    let kind = match rng.u8(..40) {
        0..15 => Kind::CallCode,
        15..23 => Kind::Call,
        23..26 => Kind::CallId,
        26 | 27 => Kind::CallLocal,
        28..31 if settings.in_place => Kind::CallInPlace,
        31..34 => Kind::Flush,
        34..38 => Kind::CallBatch,
        38 if rng.bool() => Kind::Large,
        38 => Kind::Reply,
        _ => Kind::Bind,
    };
    let code = match rng.u8(..16) {
        0 | 1 => Code::MadeUp(rng.u64(..)),
        2 => Code::Spoilt(rng.u64(..)),
        3 => Code::Mismatched(rng.usize(..NAMES.len())),
        _ => Code::Function(rng.usize(..NAMES.len())),
    };
    FrameStep {
        kind,
        code,
        index: match rng.u8(..16) {
            0 => Index::Of(rng.u16(..NAMES.len() as u16)),
            1 => Index::Any(rng.u16(..)),
            _ => Index::Own,
        },
        epoch: if rng.u8(..24) == 0 { Epoch::Wrong } else { Epoch::Right },
        len: match rng.u8(..6) {
            0 => 0,
            1 => rng.usize(..41),
            2 => rng.usize(..3000),
            3 => 64 * rng.usize(..20),
            _ => rng.usize(16..200),
        },
        seed: rng.u64(..),
        wants_reply: rng.u8(..4) != 0,
        spoil: (rng.u8(..10) == 0).then(|| rng.u64(..)),
        signal: match rng.u8(..32) {
            0 => Signal::Other(rng.i64(-4096..4096) / 64 * 64),
            1 => Signal::None,
            _ => Signal::Due,
        },
        large: false,
    }
}
