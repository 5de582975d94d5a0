//! The body for records: the bytes on a `tcp` stream.
//!
//! An honest endpoint sends messages, and a middleman between the two endpoints changes the bytes at will.
//! Its input: protection of records and size of the window (a byte), number of bytes that arrive at a time (a
//! byte; 0: all), then steps of two bytes each.

mod clear;

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::ptr::NonNull;

use farjump_core::transport::{
    Address, Cause, Endpoint, Messages, OpenRequest, Secret, Stream, StreamRole, Transport, TransportError,
};
use farjump_fixtures::allocation::{live, most_at_once};
use farjump_transports::tcp::Tcp;

use crate::assert_words;
use clear::{Reader, credit, message};

/// Most steps taken.
const MOST_STEPS: usize = 160;
/// Longest frame that either endpoint accepts.
const MAX_FRAME: usize = 80 << 10;
/// Windows of the endpoint under test.
const WINDOWS: [usize; 4] = [4096, 16 << 10, 64 << 10, 256 << 10];
/// Window of the honest endpoint. A few replies fill it.
const HONEST: usize = 8192;
/// Lengths of messages.
const LENGTHS: [usize; 8] = [24, 64, 100, 4096, 16 << 10, (16 << 10) + 1, 33 << 10, MAX_FRAME];
/// Memory besides that for messages: a few buffers, and tables of them.
const BESIDES: usize = 256 << 10;
/// Polls in a row that may find nothing although bytes are there.
const MOST_LOOKS: usize = 1 << 14;
/// Runs the middleman and the endpoints.
pub fn records(data: &[u8]) {
    let [terms, pace, steps @ ..] = data else { return };
    let seal = [Seal::Clear, Seal::Aes, Seal::ChaCha, Seal::Clear][usize::from(terms % 4)];
    let window = WINDOWS[usize::from(terms / 4 % 4)];
    let pace = if *pace == 0 { usize::MAX } else { usize::from(*pace) };
    let mut middleman = Middleman::new(seal, window, pace);
    for step in steps.chunks_exact(2).take(MOST_STEPS) {
        middleman.carry_out(step[0], step[1]);
    }
    middleman.end();
}

/// The protection of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seal {
    Clear,
    Aes,
    ChaCha,
}

/// The endpoint `role` of a link with this window and its peer's, on a socket; and the other end of the socket.
fn endpoint(seal: Seal, role: StreamRole, window: usize, peers: usize) -> (Box<dyn Messages>, UnixStream) {
    let (own, other) = UnixStream::pair().expect("a pair of sockets");
    other.set_nonblocking(true).expect("a socket that does not block");
    let own_end = Tcp::new().open(&OpenRequest::new(window, MAX_FRAME)).expect("an end");
    let peer = Tcp::new().open(&OpenRequest::new(peers, MAX_FRAME)).expect("an end");
    let mut bytes = peer.address().bytes;
    if seal == Seal::ChaCha {
        // The peer's processor has no AES instructions.
        bytes[1] = 0;
    }
    let secret = (seal != Seal::Clear).then(|| Secret::from_bytes([9; Secret::LEN]));
    let stream = Stream { descriptor: own.into(), role, token: [5; Stream::TOKEN], secret };
    let address = Address { bytes, descriptors: Vec::new(), stream: Some(stream) };
    match own_end.connect(address, 1000).expect("a connected end") {
        Endpoint::TwoSided(end) => (end, other),
        Endpoint::OneSided { .. } => panic!("tcp delivers whole messages"),
    }
}

/// A lent message, and its contents at that time.
struct Lent {
    start: NonNull<u8>,
    len: usize,
    bytes: Vec<u8>,
}

struct Middleman {
    sealed: bool,
    window: usize,
    pace: usize,
    honest: Box<dyn Messages>,
    /// The other end of the honest endpoint's socket.
    tap: UnixStream,
    /// The endpoint under test.
    own: Box<dyn Messages>,
    /// The other end of the tested endpoint's socket.
    line: UnixStream,
    /// Everything that the honest endpoint has sent.
    said: Vec<u8>,
    /// Its messages: their bytes, and their ends in `said`.
    sent: Vec<(Vec<u8>, usize)>,
    /// Bytes to pass on to the endpoint under test.
    queue: VecDeque<u8>,
    /// Bytes passed on.
    passed: Vec<u8>,
    /// A reader of the clear records among these.
    reader: Reader,
    /// Bytes sent by the endpoint under test, for the honest one.
    back: VecDeque<u8>,
    /// Bytes of messages that the endpoint under test has sent.
    replied: u32,
    /// Messages of it that the honest endpoint has yet to receive.
    outstanding: u32,
    lent: Option<Lent>,
    taken: Vec<Vec<u8>>,
    ended: Option<TransportError>,
    cut: bool,
    honest_ended: bool,
    /// Bytes held by the endpoint under test, beyond those before.
    held: i64,
}

impl Middleman {
    fn new(seal: Seal, window: usize, pace: usize) -> Middleman {
        let (honest, tap) = endpoint(seal, StreamRole::Source, HONEST, window);
        let (own, line) = endpoint(seal, StreamRole::Target, window, HONEST);
        Middleman {
            sealed: seal != Seal::Clear,
            window,
            pace,
            honest,
            tap,
            own,
            line,
            said: Vec::new(),
            sent: Vec::new(),
            queue: VecDeque::new(),
            passed: Vec::new(),
            reader: Reader::new(window),
            back: VecDeque::new(),
            replied: 0,
            outstanding: 0,
            lent: None,
            taken: Vec::new(),
            ended: None,
            cut: false,
            honest_ended: false,
            held: 0,
        }
    }

    fn carry_out(&mut self, step: u8, arg: u8) {
        let some = usize::from(arg);
        match step % 16 {
            0 | 1 => self.send(LENGTHS[some % LENGTHS.len()]),
            2 => self.pass(usize::MAX),
            3 => self.pass(some * some),
            4 => {
                let _ = self.look();
            }
            5 => self.release(),
            6 => self.reply(LENGTHS[some % LENGTHS.len()]),
            7 => self.bring_back(),
            8 => {
                // A bit of the waiting bytes, usually near their beginning.
                let at = if arg.is_multiple_of(2) { some / 8 } else { some * 67 };
                if let Some(byte) = self.queue.get_mut(at) {
                    *byte ^= 1 << (arg % 8);
                }
            }
            9 => drop(self.queue.drain(..some.min(self.queue.len()))),
            10 => {
                // Repeats bytes that were passed on.
                let from = self.passed.len() - some.min(self.passed.len());
                let again = self.passed[from..].to_vec();
                self.insert(&again);
            }
            11 => self.insert(&credit(self.replied, arg).repeat(8 * some)),
            12 => self.insert(&message(self.replied, LENGTHS[some % LENGTHS.len()], arg)),
            13 => self.insert(&vec![arg; some % 40]),
            14 if some % 8 == 0 => self.shut(),
            14 => {
                // Puts records into the wrong order.
                let turned = some.min(self.queue.len());
                self.queue.rotate_left(turned);
            }
            _ => {
                let own = &mut self.own;
                let (progress, arm) = (arg.is_multiple_of(2), arg.is_multiple_of(3));
                self.held = measured(self.held, self.window, || {
                    if progress {
                        drop(own.progress());
                    } else if arm {
                        drop(own.arm());
                    }
                })
                .1;
            }
        }
    }

    /// Makes the honest endpoint send a message, if it has credit.
    fn send(&mut self, len: usize) {
        if self.honest_ended {
            return;
        }
        let Ok(space) = self.honest.reserve(len) else { return self.hear() };
        let number = self.sent.len();
        let bytes: Vec<u8> = (0..len).map(|at| (number * 31 + at / 5) as u8).collect();
        // SAFETY: `reserve` lends `len` bytes.
        unsafe { std::slice::from_raw_parts_mut(space.as_ptr(), len) }.copy_from_slice(&bytes);
        if self.honest.commit(len, number as u64).is_err() {
            return self.hear();
        }
        self.hear();
        if !self.honest_ended {
            self.sent.push((bytes, self.said.len()));
        }
    }

    /// Takes the bytes that the honest endpoint sends.
    fn hear(&mut self) {
        loop {
            let heard = drain(&mut self.tap);
            self.queue.extend(&heard);
            self.said.extend(&heard);
            if self.honest.progress().is_err() {
                self.honest_ended = true;
            }
            if heard.is_empty() && (self.honest_ended || !self.honest.wants_write()) {
                return;
            }
        }
    }

    fn insert(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().rev() {
            self.queue.push_front(*byte);
        }
    }

    /// Passes up to `most` waiting bytes on, as far as the socket takes them. The endpoint polls as they arrive.
    fn pass(&mut self, most: usize) {
        let mut left = most.min(self.queue.len());
        let mut looks = 0;
        while left > 0 && !self.cut {
            let pace = if looks < 200 { self.pace } else { usize::MAX };
            let (front, _) = self.queue.as_slices();
            let part = &front[..left.min(pace).min(front.len())];
            let written = match self.line.write(part) {
                Ok(written) => written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The endpoint closes its socket only when it is dropped.
                Err(error) => panic!("the end under test takes nothing: {error}"),
            };
            let part: Vec<u8> = self.queue.drain(..written).collect();
            self.reader.read(&part, self.replied);
            self.passed.extend(part);
            left -= written;
            looks += 1;
            if self.pace != usize::MAX && looks <= 200 {
                let _ = self.look();
            }
        }
    }

    /// Polls the endpoint under test for a message. A message is lent until its release. Returns whether there is
    /// none, and none is on its way.
    fn look(&mut self) -> bool {
        if self.ended.is_some() {
            return true;
        }
        let own = &mut self.own;
        let (found, held) = measured(self.held, self.window, || own.poll());
        self.held = held;
        match found {
            Ok(Some(message)) => {
                let (start, len) = (message.start(), message.len());
                assert!(
                    start.addr().get().is_multiple_of(64) && len <= MAX_FRAME,
                    "{len} bytes at {start:?}"
                );
                // SAFETY: `poll` lends `len` bytes until `release`.
                let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), len) };
                match &self.lent {
                    Some(lent) => assert!(lent.start == start && lent.len == len, "another before a release"),
                    None => self.lent = Some(Lent { start, len, bytes: bytes.to_vec() }),
                }
                false
            }
            Ok(None) => {
                assert!(self.lent.is_none(), "a message that is lent is gone");
                self.own.wakes_unarmed()
            }
            Err(error) => {
                assert!(self.lent.is_none(), "the end came before a message that is lent: {error}");
                assert_words(&error);
                let again = self.own.poll().expect_err("it does not stay at its end");
                assert_eq!(again, error);
                self.ended = Some(error);
                true
            }
        }
    }

    /// Releases the lent message.
    fn release(&mut self) {
        let Some(Lent { start, len, bytes }) = self.lent.take() else { return };
        // SAFETY: `poll` has lent them, and they are not released yet.
        let now = unsafe { std::slice::from_raw_parts(start.as_ptr(), len) };
        assert!(now == bytes, "a message that is lent has changed");
        let own = &mut self.own;
        self.held = measured(self.held, self.window, || own.release()).1;
        self.taken.push(bytes);
    }

    /// Makes the endpoint under test send a message, if it has credit. Without credit it receives.
    fn reply(&mut self, len: usize) {
        let own = &mut self.own;
        let (sent, held) = measured(self.held, self.window, || {
            let space = own.reserve(len)?;
            // SAFETY: `reserve` lends `len` bytes.
            unsafe { std::slice::from_raw_parts_mut(space.as_ptr(), len) }.fill(len as u8);
            own.commit(len, 1)
        });
        self.held = held;
        match sent {
            Ok(()) => {
                // A message to a closed socket is not sent, and is no error yet.
                self.replied = self.replied.wrapping_add(len as u32);
                self.outstanding += 1;
            }
            Err(error) => assert_words(&error),
        }
        self.back.extend(drain(&mut self.line));
    }

    /// Passes the bytes of the endpoint under test to the honest one.
    fn bring_back(&mut self) {
        self.back.extend(drain(&mut self.line));
        while !self.honest_ended && !self.back.is_empty() {
            let (front, _) = self.back.as_slices();
            let written = match self.tap.write(front) {
                Ok(written) => written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                Err(error) => panic!("the honest end takes nothing: {error}"),
            };
            drop(self.back.drain(..written));
            loop {
                match self.honest.poll() {
                    Ok(Some(message)) => {
                        let (start, len) = (message.start(), message.len());
                        // SAFETY: `poll` lends `len` bytes until `release`.
                        let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), len) };
                        assert!(bytes.iter().all(|byte| *byte == len as u8), "an answer was changed");
                        self.honest.release();
                        self.outstanding -= 1;
                    }
                    Ok(None) if self.honest.wakes_unarmed() => break,
                    Ok(None) => {}
                    Err(error) => {
                        assert!(!self.is_honest(), "the honest end ended: {error}");
                        self.honest_ended = true;
                        break;
                    }
                }
            }
            self.back.extend(drain(&mut self.line));
        }
        self.hear();
    }

    /// Ends the stream here.
    fn shut(&mut self) {
        self.cut = true;
        self.line.shutdown(Shutdown::Write).expect("a socket that is shut down");
    }

    /// Number of passed bytes up to the first change.
    fn common(&self) -> usize {
        self.passed.iter().zip(&self.said).take_while(|(one, other)| one == other).count()
    }

    /// Returns whether nothing was changed.
    fn is_honest(&self) -> bool {
        self.common() == self.passed.len()
    }

    /// Passes all waiting bytes on until they are taken, or nothing more arrives.
    fn finish(&mut self) {
        let mut looks = 0;
        loop {
            let before = (self.queue.len(), self.taken.len());
            self.pass(usize::MAX);
            let nothing = self.look();
            self.release();
            if self.ended.is_some() || (nothing && (self.queue.is_empty() || self.cut)) {
                return;
            }
            looks = if before == (self.queue.len(), self.taken.len()) { looks + 1 } else { 0 };
            assert!(looks < MOST_LOOKS, "it finds neither a message nor that there is none");
        }
    }

    fn end(mut self) {
        self.finish();
        if self.is_honest() {
            while !self.honest_ended && (self.own.wants_write() || self.outstanding != 0) {
                let before = self.outstanding;
                let _ = self.own.progress();
                self.back.extend(drain(&mut self.line));
                assert!(before == 0 || !self.back.is_empty(), "{before} answers are lost");
                self.bring_back();
            }
            assert!(self.cut || (self.ended.is_none() && !self.honest_ended), "an honest link ended");
            // The honest endpoint may have sent bytes meanwhile.
            self.finish();
        }
        self.compare();
        if self.sealed && !self.is_honest() && !self.cut {
            // The most bytes that any head can have announced: none of them decrypts.
            self.queue = vec![0; 2 * MAX_FRAME].into();
            self.finish();
            assert!(self.ended.is_some(), "a sealed stream goes on although it was changed");
            self.compare();
        }
        if !self.cut {
            self.shut();
        }
        self.finish();
        self.compare();
        let (is_honest, at) = (self.is_honest(), self.passed.len());
        let Middleman { sent, ended, tap, line, honest, own, .. } = self;
        let error = ended.expect("its stream has ended");
        if is_honest {
            let is_gone = matches!(error.cause(), Cause::PeerGone | Cause::Unreachable(_));
            assert!(is_gone, "{error}");
            let whole = at == 0 || sent.iter().any(|(_, end)| *end == at);
            assert!(!whole || *error.cause() == Cause::PeerGone, "{error}");
        }
        // An endpoint with bytes to send waits for its reader.
        drop((tap, line));
        drop((honest, own));
    }

    /// Compares the taken messages with the expected ones.
    fn compare(&mut self) {
        let common = self.common();
        if self.sealed {
            let due = self.sent.iter().take_while(|(_, end)| *end <= common).map(|(bytes, _)| bytes);
            assert!(
                self.taken.iter().eq(due),
                "it took {} messages, of which some are others",
                self.taken.len()
            );
            return;
        }
        let due = &self.reader.messages;
        assert!(due.starts_with(&self.taken), "it took what did not come");
        let may_lack = self.reader.may_end;
        assert!(may_lack || self.taken.len() == due.len(), "it took {} of {}", self.taken.len(), due.len());
        assert!(self.ended.is_some() || !self.reader.lie, "it goes on although a head lies");
        let may_end = self.cut || self.reader.lie || may_lack;
        assert!(may_end || self.ended.is_none(), "it ended: {:?}", self.ended);
    }
}

/// Runs an operation of the endpoint under test, and adds the bytes that it holds then to `held`. Checks that it
/// never holds more than its window and the longest frame need.
fn measured<T>(held: i64, window: usize, act: impl FnOnce() -> T) -> (T, i64) {
    let before = live();
    let (result, most) = most_at_once(act);
    let most = held + most as i64;
    // 64 bytes have a head and a tag beside them, and a buffer is full when no whole record fits.
    let bound = 4 * window + 2 * MAX_FRAME + BESIDES;
    assert!(most <= bound as i64, "it holds {most} bytes, and its window is {window}");
    (result, held + live() - before)
}

/// Reads all bytes that are there.
fn drain(stream: &mut UnixStream) -> Vec<u8> {
    let mut bytes = vec![0; 64 << 10];
    let mut have = 0;
    loop {
        match stream.read(&mut bytes[have..]) {
            Ok(0) => break,
            Ok(read) => {
                have += read;
                if have == bytes.len() {
                    bytes.resize(2 * have, 0);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("reading what an end has sent: {error}"),
        }
    }
    bytes.truncate(have);
    bytes
}
