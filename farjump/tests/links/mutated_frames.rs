//! A target in another process whose mailbox is filled with spoilt frames, each with the signal that is due. An
//! oracle predicts the target's reaction to each from the bytes in the mailbox, and the test compares the two.

use std::collections::HashMap;

use farjump::core::frame::{
    CODE_HEADER_LEN, CodePart, Flags, HEADER_LEN, Header, Kind, LINE, MESSAGES_HEAD_LEN, Messages, Passage,
    Plan, PlanCode,
};
use farjump::{CodeId, RefusalCause, TargetConfig};
use farjump_control::Message;
use farjump_fixtures::raw_source::{RawSource, call};
use farjump_fuzz::Mutator;
use farjump_loader::code_id;
use farjump_loader::library::bundle::is_name;

use crate::helper::{start_counting_target, statistics};
use crate::support::chronicle::Chronicle;
use crate::support::{PATIENCE, Place, id_of, image_of, library, words};

/// Frames that the test writes. If one cuts the link, the next one goes into the mailbox of a new link.
const FRAMES: usize = 4_000;
/// Longest payload of a frame before the test spoils it, in bytes.
const PAYLOAD: usize = 200;
/// More than the longest frame takes in the ring, in bytes: code for aarch64 that runs in place starts at a page.
const LONGEST: usize = 3 * 4096;
/// Variable with the seed, a number. Without it each run draws another seed.
const SEED: &str = "FARJUMP_FUZZ_SEED";

/// The functions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Function {
    Chronicle,
    Tally,
}

/// The target's expected reaction to a frame.
#[derive(Debug)]
enum Fate {
    /// No effect: it is a skip.
    Skipped,
    /// Run this on this payload, and reply if a reply is wanted.
    Runs(Function, Vec<u8>),
    /// Bind its code, run nothing, and reply.
    Binds,
    /// Run this on each of these, and reply to none.
    RunsEach(Function, Vec<Vec<u8>>),
    /// Only reply.
    Replies,
    Refused(RefusalCause),
    /// Request this code, and refuse the frame when it does not come.
    Requests(CodeId),
    /// Cut the link.
    Cut,
}

/// Model of the target: predicts its reactions and its statistics.
struct Oracle {
    stored: Vec<(CodeId, Vec<u8>, Function)>,
    epoch: u64,
    /// Bindings of the link's indexes.
    table: HashMap<u16, Result<Function, RefusalCause>>,
    /// The statics of `chronicle`.
    chronicle: Chronicle,
    tally: u64,
    refused: u64,
    /// Refusals on the present link.
    refused_here: u64,
    cuts: u64,
}

impl Oracle {
    /// Predicts the fate of the frame that `hostile` has written as the next one.
    fn foretell(&mut self, hostile: &RawSource) -> (Option<Header>, Fate) {
        let at = hostile.offset();
        let first = hostile.read(at, LINE / 8);
        let word = |at: usize| u64::from_le_bytes(first[at..at + 8].try_into().unwrap());
        let Ok(header) = Header::from_words([word(8), word(16)]) else { return (None, Fate::Cut) };
        // No frame of a link over shared memory has a trailer.
        if header.flags.contains(Flags::TRAILER) {
            return (None, Fate::Cut);
        }
        let code = || [24, 32, 40, 48, 56].map(word);
        let Ok(parts) = header.check(at % 4096, hostile.left(), hostile.max_frame, code) else {
            return (None, Fate::Cut);
        };
        let fate = match (header.kind, parts.code) {
            (Kind::Skip, _) => Fate::Skipped,
            (Kind::Flush, _) => Fate::Replies,
            (Kind::Reply, _) => Fate::Refused(RefusalCause::BadFrame),
            // There is no large mailbox.
            (Kind::Large, _) => Fate::Cut,
            // The target has no function of its own.
            (Kind::CallLocal, _) => Fate::Refused(RefusalCause::CodeMissing),
            (Kind::CallInPlace, Some(code)) => {
                Fate::Refused(self.why_not_in_place(hostile, at, &header, &code))
            }
            (_, code) => {
                let frame = hostile.read(at, header.frame_len as usize / 8);
                let part = |start: u32, len: u32| frame[start as usize..][..len as usize].to_vec();
                let payload = part(parts.payload, header.payload_len);
                let bound = match code {
                    None => *self.table.get(&header.index).unwrap_or(&Err(RefusalCause::UnknownIndex)),
                    Some(code) => {
                        let stored = self.stored.iter().find(|(id, ..)| *id == code.id);
                        let image = part(code.image_offset, code.image_len);
                        let name = part(CODE_HEADER_LEN as u32, code.name_len.into());
                        let bound = match stored {
                            // Bound code came again.
                            Some((_, whole, function))
                                if code.epoch == self.epoch
                                    && *whole == image
                                    && self.table.get(&header.index) == Some(&Ok(*function)) =>
                            {
                                Ok(*function)
                            }
                            _ if code.epoch != self.epoch => Err(RefusalCause::StaleEpoch),
                            Some((.., function)) if header.kind == Kind::CallId => Ok(*function),
                            None if header.kind == Kind::CallId => {
                                self.table.insert(header.index, Err(RefusalCause::CodeMissing));
                                return (Some(header), Fate::Requests(code.id));
                            }
                            _ if !is_name(&String::from_utf8_lossy(&name)) => Err(RefusalCause::BadName),
                            Some((_, whole, function)) if *whole == image => Ok(*function),
                            _ => {
                                assert_ne!(code_id(&image), code.id, "nobody finds code by chance");
                                Err(RefusalCause::IdMismatch)
                            }
                        };
                        self.table.insert(header.index, bound);
                        bound
                    }
                };
                match (bound, header.kind) {
                    (Err(cause), _) => Fate::Refused(cause),
                    (Ok(_), Kind::Bind) => Fate::Binds,
                    (Ok(function), Kind::CallBatch) => {
                        let word = || u64::from_le_bytes(payload[..8].try_into().unwrap());
                        match Messages::of(&header, word) {
                            Ok(messages) => Fate::RunsEach(function, each(&messages, &payload)),
                            Err(_) => Fate::Refused(RefusalCause::BadFrame),
                        }
                    }
                    (Ok(function), _) if header.flags.contains(Flags::TRAVELLED) => {
                        let (argument, passage) = payload.split_last_chunk().unwrap();
                        match Passage::from_bytes(*passage).hops <= TargetConfig::default().max_hops {
                            true => Fate::Runs(function, argument.to_vec()),
                            false => Fate::Refused(RefusalCause::ForwardFailed),
                        }
                    }
                    (Ok(function), _) => Fate::Runs(function, payload),
                }
            }
        };
        (Some(header), fate)
    }

    /// The reason why the target refuses to run the code of a frame in place: it allows the mode, but neither
    /// function can run so.
    fn why_not_in_place(
        &self,
        hostile: &RawSource,
        at: usize,
        header: &Header,
        code: &CodePart,
    ) -> RefusalCause {
        let frame = hostile.read(at, header.frame_len as usize / 8);
        let image = &frame[code.image_offset as usize..][..code.image_len as usize];
        let name = String::from_utf8_lossy(&frame[CODE_HEADER_LEN..][..code.name_len.into()]);
        if code.epoch != self.epoch {
            RefusalCause::StaleEpoch
        } else if !is_name(&name) {
            RefusalCause::BadName
        } else if code_id(image) != code.id {
            RefusalCause::IdMismatch
        } else {
            // Both have statics.
            RefusalCause::BadImage
        }
    }

    /// Runs a function here, too, and returns its reply.
    fn run(&mut self, function: Function, payload: &[u8]) -> Vec<u8> {
        match function {
            Function::Tally => {
                self.tally += 1;
                words(&[self.tally])
            }
            Function::Chronicle => {
                self.chronicle.add(payload);
                self.chronicle.reply()
            }
        }
    }

    /// Counts the frame that `hostile` has written, and checks the target's reaction. Returns `false` if the frame
    /// ended the link.
    fn deliver(&mut self, hostile: &mut RawSource) -> bool {
        let (header, fate) = self.foretell(hostile);
        let (at, signal) = (hostile.offset(), hostile.key.header(hostile.position));
        hostile.position += header.map_or(0, |header| u64::from(header.frame_len));
        hostile.signal(at, signal);
        let token = header.map_or(0, |header| header.token);
        match fate {
            Fate::Skipped => {}
            Fate::Replies => {
                assert_eq!(hostile.reply_and_token(), (token, self.refused_here.to_le_bytes().to_vec()));
            }
            Fate::Runs(function, payload) => {
                let reply = self.run(function, &payload);
                if header.is_some_and(|header| header.flags.contains(Flags::WANTS_REPLY)) {
                    assert_eq!(hostile.reply_and_token(), (token, reply));
                }
            }
            Fate::Binds => assert_eq!(hostile.reply_and_token(), (token, Vec::new())),
            Fate::RunsEach(function, payloads) => {
                for payload in payloads {
                    self.run(function, &payload);
                }
            }
            Fate::Refused(cause) => self.hears_refusal(hostile, token, cause),
            Fate::Requests(wanted) => {
                assert_eq!(hostile.requested_code(), wanted);
                hostile.say(&Message::NoCode { id: wanted.0 });
                self.hears_refusal(hostile, token, RefusalCause::CodeMissing);
            }
            Fate::Cut => {
                hostile.closing();
                assert!(hostile.message().is_none());
                self.cuts += 1;
                return false;
            }
        }
        true
    }

    fn hears_refusal(&mut self, hostile: &mut RawSource, due: u32, expected: RefusalCause) {
        assert_eq!(hostile.refusal(due).0, expected);
        self.refused += 1;
        self.refused_here += 1;
    }

    /// A new link, on which both functions are bound.
    fn connect(&mut self, address: &str) -> RawSource {
        let mut hostile = RawSource::connect(address);
        self.epoch = hostile.epoch;
        self.refused_here = 0;
        self.table.clear();
        for number in 0..self.stored.len() {
            let frame = self.honest(&hostile, number, b"honest so far");
            self.deliver_honest(&mut hostile, &frame);
        }
        hostile
    }

    fn deliver_honest(&mut self, hostile: &mut RawSource, frame: &[u8]) {
        hostile.place(frame);
        assert!(self.deliver(hostile), "an honest frame cut the link");
    }

    /// Makes space for an honest frame: skips to the start of the ring if the frame may not fit before the end, and
    /// waits until the target has consumed everything.
    fn make_space(&mut self, hostile: &mut RawSource) {
        hostile.await_credit(LONGEST);
        if hostile.left() < LONGEST {
            let skip = hostile.skip();
            self.deliver_honest(hostile, &skip);
            hostile.await_credit(LONGEST);
        }
    }

    /// Makes one of the frames that honest sources send. The first two bring the two functions, at indexes 0 and 1.
    fn honest(&self, hostile: &RawSource, number: usize, payload: &[u8]) -> Vec<u8> {
        const NAMES: [&str; 2] = ["chronicle", "tally"];
        let (id, image, _) = &self.stored[number % 2];
        let code = PlanCode { image, id: *id, epoch: self.epoch, name: NAMES[number % 2], family: None };
        let plan = Plan { index: number as u16 % 2, wants_reply: number < 6, token: number as u32, ..call() };
        let plan = match number {
            0 | 1 => Plan { kind: Kind::CallCode, code: Some(code), ..plan },
            2 | 3 => Plan { kind: Kind::CallId, code: Some(PlanCode { image: &[], ..code }), ..plan },
            4..=7 => plan,
            8 => Plan { kind: Kind::Flush, ..plan },
            9 => Plan { kind: Kind::CallInPlace, code: Some(code), ..plan },
            10 | 11 => {
                let len = payload.len() / 5;
                let count = (payload.len() / Messages::stride(len).max(1)).max(1);
                let head = Messages { len: len as u32, count: count as u32 }.to_word();
                let several = [&head.to_le_bytes()[..], payload, &[0; 8]].concat();
                return hostile.frame(&Plan { kind: Kind::CallBatch, ..plan }, &several);
            }
            _ => return hostile.skip(),
        };
        hostile.frame(&plan, payload)
    }
}

/// The messages in a payload.
fn each(messages: &Messages, payload: &[u8]) -> Vec<Vec<u8>> {
    let len = messages.len as usize;
    let starts =
        (0..messages.count as usize).map(|number| MESSAGES_HEAD_LEN + number * Messages::stride(len));
    starts.map(|start| payload[start..][..len].to_vec()).collect()
}

fn seed() -> u64 {
    match std::env::var(SEED) {
        Ok(seed) => seed.parse().unwrap_or_else(|_| panic!("{SEED} is {seed:?}: it must be a number")),
        Err(_) => fastrand::u64(..),
    }
}

/// The longer of the two headers, where most errors are.
const HEAD: usize = CODE_HEADER_LEN;

#[test]
fn mutated_frames_have_only_the_effects_that_their_bytes_state() {
    let place = Place::new();
    let target = start_counting_target(&place.address());
    let innocent = place.link().connect().unwrap();
    let sequence = library("sequence");
    let stored = [("chronicle", Function::Chronicle), ("tally", Function::Tally)].map(|(name, function)| {
        let library = library(name);
        (id_of(&library), image_of(&library), function)
    });
    let mut oracle = Oracle {
        stored: stored.to_vec(),
        epoch: 0,
        table: HashMap::new(),
        chronicle: Chronicle::new(),
        tally: 0,
        refused: 0,
        refused_here: 0,
        cuts: 0,
    };

    let seed = seed();
    println!("{SEED}={seed}");
    let mut mutator = Mutator::new(seed);
    let (mut hostile, mut links, mut calls) = (oracle.connect(&place.address()), 1, 0_u64);
    for number in 0..FRAMES {
        oracle.make_space(&mut hostile);
        let payload = vec![number as u8; mutator.below(PAYLOAD)];
        let mut frame = oracle.honest(&hostile, mutator.below(13), &payload);
        match mutator.below(8) {
            0 => {}
            // The rest of the ring holds an earlier lap.
            1 => frame.truncate(HEADER_LEN + mutator.below(frame.len() - HEADER_LEN)),
            _ => mutator.mutate_in_place(&mut frame, HEAD),
        }
        hostile.place(&frame);
        if mutator.below(8) == 0 {
            // A signal of another position, or with a wrong bit, does not count: to the target the frame has not come
            // yet.
            let due = hostile.key.header(hostile.position);
            for signal in [hostile.key.header(hostile.position + 64), due ^ 1 << mutator.below(64)] {
                hostile.signal(hostile.offset(), signal);
            }
        }
        if !oracle.deliver(&mut hostile) {
            hostile = oracle.connect(&place.address());
            links += 1;
        }
        if number % 16 == 0 {
            let call = innocent.inject(&sequence, &words(&[calls])).unwrap();
            calls += 1;
            assert_eq!(*call.wait(PATIENCE).unwrap(), *words(&[calls, 0]));
        }
    }
    // Frames without reply have run too, once and in order.
    for number in [4, 5] {
        oracle.make_space(&mut hostile);
        let frame = oracle.honest(&hostile, number, b"the end");
        oracle.deliver_honest(&mut hostile, &frame);
    }
    let ran = oracle.chronicle.calls + oracle.tally;
    println!("{ran} ran, {} were refused, {} cut their link", oracle.refused, oracle.cuts);
    assert!(ran > 500 && oracle.refused > 100 && oracle.cuts > 100, "the mutator does too little");
    assert_eq!(links, oracle.cuts + 1);
    drop((innocent, hostile));
    let counted = format!(
        "{} calls, {} refusals, 3 images, {} links",
        ran + calls,
        oracle.refused + oracle.cuts,
        links + 1
    );
    assert_eq!(statistics(target), counted);
}
