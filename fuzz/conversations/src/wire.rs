//! The hostile peer's end of a pair of mailboxes: writes anything anywhere, and reads arrived frames.

use std::sync::atomic::Ordering;

use farjump_control::Joined;
use farjump_core::channel::{Channel, Polled};
use farjump_core::frame::{Header, Kind, Plan, Trailer};
use farjump_core::transport::ArrivalRules;
use farjump_fixtures::raw_mailbox::{RawMailbox, frame_at};
use farjump_fuzz::Mutator;

use crate::step::Signal;

/// One pair of mailboxes. If the peer's mailbox is mapped here, frames are written directly. Otherwise they go
/// through a channel, which does not check their contents.
pub struct Wire {
    channel: Channel,
    raw: Option<RawMailbox>,
    /// Position of the last frame that was written to it.
    last: u64,
    trailer: Trailer,
    rule: ArrivalRules,
    /// Largest frame that the peer accepts.
    pub max_frame: usize,
}

/// A frame from the mailbox.
#[derive(Debug)]
pub struct Came {
    /// The header.
    pub header: Header,
    /// The payload.
    pub payload: Vec<u8>,
}

impl Wire {
    /// Makes a wire from connected endpoints. Returns `None` if they make no channel.
    pub fn new(joined: Joined) -> Option<Wire> {
        let (rule, send) = (joined.rule, joined.send);
        // SAFETY: the endpoint's memory is mapped as long as the channel beside the mailbox lives.
        let raw = unsafe { RawMailbox::new(&joined.endpoint, &send) };
        Some(Wire {
            channel: joined.into_channel().ok()?,
            raw: raw.filter(|_| rule != ArrivalRules::FENCED),
            last: 0,
            trailer: Trailer::for_rule(rule, send.line_whole),
            rule,
            max_frame: send.max_frame,
        })
    }

    /// Writes a frame. Returns `false` without credit, or if the link has failed.
    pub fn send(
        &mut self,
        plan: &Plan<'_>,
        payload: &[u8],
        spoil: Option<(u64, bool)>,
        signal: Signal,
    ) -> bool {
        let Some(raw) = &mut self.raw else {
            return self.channel.send_bytes(plan, payload).is_ok() && self.channel.progress(false).is_ok();
        };
        let frame = |raw: &RawMailbox| frame_at(raw.offset(), plan, payload, self.trailer);
        let Some(mut bytes) = frame(raw) else { return false };
        if bytes.len() > raw.left() {
            let left = raw.left();
            if !raw.has_credit(left) {
                return false;
            }
            raw.place(&raw.skip());
            raw.store_signal(raw.offset(), raw.key.header(raw.position));
            raw.position += left as u64;
            let Some(at_start) = frame(raw) else { return false };
            bytes = at_start;
        }
        let len = bytes.len();
        if len > raw.ring() || !raw.has_credit(len) {
            return false;
        }
        if self.trailer != Trailer::Never {
            let end = bytes.len() - 8;
            let words =
                bytes[8..end].chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
            let trailer = match self.rule {
                ArrivalRules::CHECKED => raw.key.checksum(raw.position, words),
                _ => raw.key.trailer(raw.position),
            };
            bytes[end..].copy_from_slice(&trailer.to_le_bytes());
        }
        if let Some((seed, may_run_what_lies_there)) = spoil {
            let kind = bytes[16];
            let mut spoilt = bytes.clone();
            Mutator::new(seed).mutate_in_place(&mut spoilt[8..], 64);
            let in_place = Kind::CallInPlace as u8;
            // Code in place runs the bytes that are there: changed bytes must not run.
            if !may_run_what_lies_there || (kind != in_place && spoilt[16] != in_place) {
                bytes = spoilt;
            }
        }
        raw.place(&bytes);
        let other = match signal {
            Signal::Due => Some(0),
            Signal::Other(by) => Some(by),
            Signal::None => None,
        };
        if let Some(by) = other {
            raw.store_signal(raw.offset(), raw.key.header(raw.position.wrapping_add_signed(by)));
        }
        if other == Some(0) {
            self.last = raw.position;
            raw.position += len as u64;
        }
        // Wakes a sleeping peer.
        self.channel.notify().is_ok()
    }

    /// Bytes of the peer's ring if it is mapped, else 0.
    pub fn ring(&self) -> usize {
        self.raw.as_ref().map_or(0, RawMailbox::ring)
    }

    /// Changes words of the peer's mailbox: anywhere, or in the header of the oldest waiting frame.
    pub fn rewrite(&mut self, seed: u64, waiting: bool) {
        let Some(raw) = &self.raw else { return };
        let mut rng = fastrand::Rng::with_seed(seed);
        let consumed = raw.consumed();
        let oldest = match consumed <= raw.position && raw.position - consumed <= raw.ring() as u64 {
            true => consumed,
            false => raw.position,
        };
        // A peer returns credit late: the frame that it holds may be the last one.
        let start = if rng.bool() { self.last } else { oldest };
        for _ in 0..rng.usize(1..6) {
            let at = match waiting {
                true => (start as usize + 8 * rng.usize(1..16)) % raw.ring(),
                false => 8 * rng.usize(..raw.ring() / 8),
            };
            let word = match rng.u8(..4) {
                0 => rng.u64(..),
                1 => raw.word(at).load(Ordering::Relaxed) ^ 1 << rng.u8(..64),
                // Possible lengths and kinds.
                2 => (64 * rng.u64(1..8)) | (rng.u64(..400) << 32),
                _ => [2, 3, 4, 6, 7, 9, 10_u64][rng.usize(..7)] | 0x36 << 8 | rng.u64(..8) << 16,
            };
            raw.word(at).store(word, Ordering::Relaxed);
        }
    }

    /// Turns the last written frame into a call of the target's own function, with the lengths of another.
    pub fn rename_last(&mut self, name: &str, payload: u32) {
        let Some(raw) = &self.raw else { return };
        let at = self.last as usize % raw.ring();
        let word = |offset: usize| raw.word((at + offset) % raw.ring());
        let frame_len = word(8).load(Ordering::Relaxed) & 0xffff_ffff;
        word(8).store(frame_len | u64::from(payload) << 32, Ordering::Relaxed);
        word(16).store(u64::from(Kind::CallLocal as u8) | 0x16 << 8 | 77 << 32, Ordering::Relaxed);
        let mut padded = [0; 8];
        let len = name.len().min(8);
        padded[..len].copy_from_slice(&name.as_bytes()[..len]);
        word(56).store(u64::from(128_u32) | (len as u64) << 32, Ordering::Relaxed);
        word(64).store(u64::from_le_bytes(padded), Ordering::Relaxed);
    }

    /// Writes the credit line.
    pub fn write_return_line(&mut self, seed: u64) {
        let Some(raw) = &self.raw else { return };
        let mut rng = fastrand::Rng::with_seed(seed);
        let word = |rng: &mut fastrand::Rng| {
            [0, 64, u64::MAX, 1 << 63, rng.u64(..), rng.u64(..1 << 16)][rng.usize(..6)]
        };
        raw.store_credit_line(word(&mut rng), word(&mut rng));
    }

    /// Takes the arrived frames.
    pub fn poll(&mut self) -> Vec<Came> {
        let mut all = Vec::new();
        // A hostile peer need not read all frames at once.
        while all.len() < 64
            && let Ok(Polled::Frame(frame)) = self.channel.poll()
        {
            let mut payload = Vec::new();
            frame.contents().copy_payload(&mut payload);
            all.push(Came { header: frame.header(), payload });
            if frame.release().is_err() {
                break;
            }
        }
        let _ = self.channel.progress(true);
        all
    }

    /// Goes to sleep and wakes up.
    pub fn doze(&mut self) {
        let _ = self.channel.arm();
        let _ = self.channel.disarm();
    }

    /// The channel itself.
    pub fn channel(&mut self) -> &mut Channel {
        &mut self.channel
    }
}
