//! What a conversation is made of: settings, and a list of steps. Both come from a seed; each step has what it needs to be
//! carried out without the others, so that steps can be left out of a conversation that fails.

use farjump_control::Rights;
use farjump_core::frame::Kind;
use fastrand::Rng;

use crate::functions::NAMES;

/// How the two sides reach each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Shared memory, met over a Unix socket.
    Shared,
    /// Shared memory without an order of stores: frames are checked.
    SharedChecked,
    /// Writes that are moved in pieces, over a Unix socket, by one of the arrival rules.
    Puts(usize),
    /// Whole messages, met over TCP with a key.
    Messages,
    /// Writes, met over TCP with a key.
    PutsByTcp(usize),
    /// `tcp`, met over TCP with a key if so, and over a Unix socket otherwise.
    Stream(bool),
}

impl Way {
    /// Whether the control connection is a TCP connection.
    pub fn is_tcp(self) -> bool {
        matches!(self, Way::Messages | Way::PutsByTcp(_) | Way::Stream(true))
    }

    /// Whether frames travel on a connection of their own.
    pub fn is_stream(self) -> bool {
        matches!(self, Way::Stream(_))
    }

    /// Whether the peer's memory is mapped, and descriptors travel.
    pub fn is_shared(self) -> bool {
        matches!(self, Way::Shared | Way::SharedChecked)
    }

    pub(crate) fn any(rng: &mut Rng) -> Way {
        match rng.u8(..16) {
            0..6 => Way::Shared,
            6 | 7 => Way::Stream(rng.bool()),
            8 | 9 => Way::SharedChecked,
            10 | 11 => Way::Puts(rng.usize(..5)),
            12..15 => Way::Messages,
            _ => Way::PutsByTcp(rng.usize(..5)),
        }
    }
}

/// What a target is like.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How its sources reach it.
    pub way: Way,
    /// Bytes of a mailbox.
    pub mailbox: usize,
    /// Room for code.
    pub code_room: usize,
    /// Most images held.
    pub images: usize,
    /// Whether it may run code in place.
    pub in_place: bool,
    /// Whether it takes only what it has itself.
    pub only_local: bool,
    /// Whether it has functions of its own.
    pub has_local: bool,
    /// Lets in these of [`NAMES`] alone, and the honest one.
    pub allowed: Option<Vec<usize>>,
    /// Whether what `lookup` needs is offered, and what `system` needs.
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
    /// What its sources may do. The honest one calls and injects.
    pub rights: Rights,
    /// Whether both sides have a key, over TCP.
    pub has_key: bool,
    /// What each further key allows of a target that has several, in a file; the first key's are the [`Settings::rights`].
    pub further_keys: Vec<Rights>,
    /// Whether it runs on a thread of its own, which sleeps.
    pub by_thread: bool,
    /// Whether it knows a peer, to which calls may go on.
    pub has_peer: bool,
}

impl Settings {
    /// What the seed says.
    pub fn new(rng: &mut Rng) -> Settings {
        let one_in = |rng: &mut Rng, n: u8| rng.u8(..n) == 0;
        let way = Way::any(rng);
        // No other has a mailbox that is executable.
        let in_place = way.is_shared() && one_in(rng, 4);
        let small = one_in(rng, 3);
        let has_key = way.is_tcp() && !one_in(rng, 3);
        let count = if has_key && one_in(rng, 2) { rng.usize(1..6) } else { 0 };
        let further_keys = (0..count).map(|_| Rights::from_bits_truncate(rng.u8(..))).collect();
        Settings {
            way,
            mailbox: 1 << rng.usize(12..18),
            code_room: if small { 300 << 10 } else { 2 << 20 },
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

/// Which code index a frame names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Index {
    /// The function's own.
    Own,
    /// Another function's.
    Of(u16),
    /// One that nothing is bound to, most likely.
    Any(u16),
}

/// Which image travels, or is named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// That of one of [`NAMES`].
    Function(usize),
    /// One that was made up from a seed, and is an image.
    MadeUp(u64),
    /// One that is none.
    Spoilt(u64),
    /// That of a function, with the identity of another.
    Mismatched(usize),
}

/// Which epoch a frame names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Epoch {
    /// The target's.
    Right,
    /// Another.
    Wrong,
}

/// A frame, as it goes into a mailbox.
#[derive(Clone, Copy, Debug)]
pub struct FrameStep {
    /// What it is.
    pub kind: Kind,
    /// The code that it is about.
    pub code: Code,
    /// The code index.
    pub index: Index,
    /// The epoch.
    pub epoch: Epoch,
    /// Bytes of payload.
    pub len: usize,
    /// Decides what the payload holds.
    pub seed: u64,
    /// Whether an answer is wanted.
    pub wants_reply: bool,
    /// Changes bytes of it, where the mailbox is mapped.
    pub spoil: Option<u64>,
    /// How many bytes of its image come, and as what the rest is claimed.
    pub signal: Signal,
    /// Whether it goes into the bigger mailbox, with a `Switch` for it in the other.
    pub bigger: bool,
}

/// Whether a frame's signal is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// The right one.
    Due,
    /// One of another position.
    Other(i64),
    /// None: what follows is written over it.
    None,
}

/// A message of the control connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Saying {
    /// The answer that the target waits for, if it does: the code.
    Code,
    /// That there is none.
    NoCode,
    /// Code that nobody asked for, or that is another's.
    OtherCode(usize),
    /// A bigger mailbox, for a frame and a payload of these lengths.
    Enlarge(u64, u64),
    /// The end of one, if there is an offer.
    Accept,
    /// The same, with something changed.
    OddAccept(u64),
    /// The bigger mailbox goes back.
    Shrink,
    /// The end.
    Bye,
    /// One that only targets send, or that is not due.
    Undue(u8),
    /// A whole message, changed.
    Spoilt(u8, u64),
    /// Bytes.
    Bytes(u64, usize),
    /// One again and again.
    Often(u8, u16),
}

/// How the hostile end goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parting {
    /// Without a word.
    Drop,
    /// With one.
    Bye,
    /// It shuts its half of the connection, and stays.
    Half,
    /// It closes the connection, and keeps the memory.
    KeepMemory,
}

/// Where a meeting goes wrong, if it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meeting {
    /// Nowhere.
    Proper,
    /// The end that is told of is changed.
    OddEnd(u64),
    /// Descriptors of other kinds come with it.
    OddDescriptors(u64),
    /// It ends after this many messages.
    Stops(u8),
    /// Something else comes after this many messages.
    Undue(u8, u8),
    /// Bytes come.
    Bytes(u64),
    /// What is sent is changed.
    Spoilt(u64),
    /// Descriptors come where none may.
    DescriptorsWithHello(u64),
    /// The stream of the link comes late, in pieces, more than once, by another token or not at all. Nowhere, where there is none.
    Stream(u64),
}

/// One step of a conversation.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Makes a link, or tries to. The one that there was ends.
    Connect(Meeting),
    /// A frame.
    Frame(FrameStep),
    /// Bytes of the mailbox are written over, wherever.
    Rewrite(u64),
    /// Bytes of the oldest frame that waits, header and code of it.
    RewriteWaiting(u64),
    /// The return line.
    Return(u64),
    /// A message.
    Say(Saying),
    /// A message with descriptors of any kind.
    SayWith(u8, u64),
    /// A question, asked properly.
    Ask(u8),
    /// A question, asked in another way.
    OddAsk(u64),
    /// The honest link works.
    Honest(u8),
    /// The honest link ends, and another one is made.
    HonestAgain,
    /// The target gets so many turns.
    Turns(u8),
    /// Time passes, in milliseconds.
    Pause(u8),
    /// Something is done to the descriptors of shared memory.
    Descriptor(u64),
    /// Something that is no record goes on the stream of the link, or the stream ends.
    Stray(u64),
    /// The target's owner does something.
    Owner(u8),
    /// A new link, and then more messages and a longer torn frame at once than the target takes in a turn.
    Burst(u64),
    /// It goes.
    Part(Parting),
}

/// Longest conversation.
const MOST_STEPS: usize = 60;

/// Makes the steps of a conversation.
pub fn steps(rng: &mut Rng, settings: &Settings) -> Vec<Step> {
    let count = rng.usize(8..MOST_STEPS);
    let mut steps = vec![Step::Connect(if rng.u8(..4) == 0 { any_meeting(rng) } else { Meeting::Proper })];
    while steps.len() < count {
        if settings.way.is_stream() && rng.u8(..8) == 0 {
            steps.push(match rng.u8(..4) {
                0 => Step::Stray(rng.u64(..)),
                _ => Step::Connect(Meeting::Stream(rng.u64(..))),
            });
        }
        match rng.u8(..64) {
            // What makes a bigger mailbox, as a whole: it is seldom made step by step.
            0..3 => {
                let len = rng.u64(1000..200 << 10);
                steps.push(Step::Say(Saying::Enlarge(len + 20_000, len)));
                steps.push(Step::Turns(2));
                steps.push(Step::Say(if rng.u8(..4) == 0 {
                    Saying::OddAccept(rng.u64(..))
                } else {
                    Saying::Accept
                }));
                steps.push(Step::Turns(2));
                for _ in 0..rng.usize(1..4) {
                    let mut frame =
                        FrameStep { bigger: true, len: rng.usize(..len as usize), ..frame(rng, settings) };
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
            // A frame that has to wait for its code, and what may be done to it meanwhile.
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
            50 | 51 => steps.push(Step::Ask(rng.u8(..))),
            52 => steps.push(Step::OddAsk(rng.u64(..))),
            53 | 54 => steps.push(Step::Rewrite(rng.u64(..))),
            55 => steps.push(Step::RewriteWaiting(rng.u64(..))),
            56 => steps.push(Step::Return(rng.u64(..))),
            57 => steps.push(Step::HonestAgain),
            58 => steps.push(Step::Pause(rng.u8(1..40))),
            59 => steps.push(Step::Descriptor(rng.u64(..))),
            60 => steps.push(Step::Part(parting(rng))),
            61 => steps.push(Step::Owner(rng.u8(..))),
            62 => steps.push(Step::Burst(rng.u64(..))),
            _ => steps.push(Step::Connect(any_meeting(rng))),
        }
    }
    if settings.way == Way::SharedChecked || rng.bool() {
        steps.push(Step::Burst(rng.u64(..)));
    }
    steps
}

pub(crate) fn any_meeting(rng: &mut Rng) -> Meeting {
    match rng.u8(..12) {
        0 | 1 => Meeting::OddEnd(rng.u64(..)),
        2 | 3 => Meeting::OddDescriptors(rng.u64(..)),
        4 => Meeting::Stops(rng.u8(..3)),
        5 => Meeting::Undue(rng.u8(..2), rng.u8(..)),
        6 => Meeting::Bytes(rng.u64(..)),
        7 => Meeting::Spoilt(rng.u64(..)),
        8 => Meeting::DescriptorsWithHello(rng.u64(..)),
        _ => Meeting::Proper,
    }
}

fn parting(rng: &mut Rng) -> Parting {
    [Parting::Drop, Parting::Bye, Parting::Half, Parting::KeepMemory][rng.usize(..4)]
}

fn saying(rng: &mut Rng) -> Saying {
    let any = |rng: &mut Rng| [0, 1, 64, 5000, 100_000, 700_000, 1 << 31, u64::MAX][rng.usize(..8)];
    match rng.u8(..16) {
        0 | 1 => Saying::Code,
        2 => Saying::NoCode,
        3 => Saying::OtherCode(rng.usize(..NAMES.len())),
        4 | 5 => Saying::Enlarge(any(rng), any(rng)),
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
        34..38 => Kind::Calls,
        38 if rng.bool() => Kind::Switch,
        38 => Kind::Reply,
        _ => Kind::CallCode,
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
        bigger: false,
    }
}
