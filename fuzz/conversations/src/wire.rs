//! The hostile peer's end of a pair of mailboxes: writes anything anywhere, and reads arrived frames.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use farjump_control::Joined;
use farjump_core::channel::{Channel, ChannelParams, Polled};
use farjump_core::frame::{Header, Kind, LINE, Plan, Trailer};
use farjump_core::mailbox::{CONTROL_LEN, ring_len};
use farjump_core::signal::LinkKey;
use farjump_core::transport::{ArrivalRules, Endpoint};
use farjump_fuzz::Mutator;

use crate::step::Signal;

/// One pair of mailboxes. If the peer's mailbox is mapped here, frames are written directly. Otherwise they go
/// through a channel, which does not check their contents.
pub struct Wire {
    channel: Channel,
    raw: Option<Raw>,
    trailer: Trailer,
    rule: ArrivalRules,
    /// Largest frame that the peer accepts.
    pub max_frame: usize,
}

/// A mailbox of the peer's that is mapped here.
struct Raw {
    key: LinkKey,
    /// The peer's region.
    base: NonNull<u8>,
    ring: usize,
    /// The hostile peer's own region, with the peer's credit line.
    own: NonNull<u8>,
    position: u64,
    /// Start of the last written frame.
    last: u64,
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
        let Joined { endpoint, rule, send, receive } = joined;
        let terms = ChannelParams {
            rule,
            line_whole: send.line_whole,
            send_key: send.key,
            receive_key: receive.key,
            send_limit: send.max_frame,
            receive_limit: receive.max_frame,
            send_region: send.region_len,
            receive_region: receive.region_len,
        };
        let mapped = match &endpoint {
            Endpoint::OneSided { local, remote } => remote
                .mapped()
                .filter(|_| !matches!(rule, ArrivalRules::FENCED))
                .map(|base| (base, local.base())),
            _ => None,
        };
        let raw = match (mapped, ring_len(send.region_len)) {
            (Some((base, own)), Some(ring)) => {
                Some(Raw { key: send.key, base, ring, own, position: 0, last: 0 })
            }
            _ => None,
        };
        let trailer = Trailer::for_rule(rule, send.line_whole);
        Some(Wire {
            channel: Channel::new(endpoint, terms).ok()?,
            raw,
            trailer,
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
        let layout = |raw: &Raw| plan.layout(raw.offset() % 4096, payload.len(), self.trailer);
        let mut laid = layout(raw);
        if laid.frame_len > raw.ring - raw.offset() {
            let rest = raw.ring - raw.offset();
            if !raw.has_space(rest) {
                return false;
            }
            let mut skip = vec![0; LINE];
            skip[8..12].copy_from_slice(&(rest as u32).to_le_bytes());
            skip[16] = Kind::Skip as u8;
            raw.write(&skip, rest, Signal::Due);
            laid = layout(raw);
        }
        if laid.frame_len > raw.ring || !raw.has_space(laid.frame_len) {
            return false;
        }
        let mut bytes = vec![0; laid.frame_len];
        if plan.write(&laid, 0, payload.len(), &mut bytes).is_none() {
            return false;
        }
        bytes[laid.payload..][..payload.len()].copy_from_slice(payload);
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
        let len = laid.frame_len;
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
        raw.write(&bytes, len, signal);
        // Wakes a sleeping peer.
        self.channel.notify().is_ok()
    }

    /// Bytes of the peer's ring if it is mapped, else 0.
    pub fn ring(&self) -> usize {
        self.raw.as_ref().map_or(0, |raw| raw.ring)
    }

    /// Changes words of the peer's mailbox: anywhere, or in the header of the oldest waiting frame.
    pub fn rewrite(&mut self, seed: u64, waiting: bool) {
        let Some(raw) = &self.raw else { return };
        let mut rng = fastrand::Rng::with_seed(seed);
        let consumed = raw.consumed();
        let oldest = match consumed <= raw.position && raw.position - consumed <= raw.ring as u64 {
            true => consumed,
            false => raw.position,
        };
        // A peer returns credit late: the frame that it holds may be the last one.
        let start = if rng.bool() { raw.last } else { oldest };
        for _ in 0..rng.usize(1..6) {
            let at = match waiting {
                true => (start as usize + 8 * rng.usize(1..16)) % raw.ring,
                false => 8 * rng.usize(..raw.ring / 8),
            };
            let word = match rng.u8(..4) {
                0 => rng.u64(..),
                1 => raw.word(CONTROL_LEN + at).load(Ordering::Relaxed) ^ 1 << rng.u8(..64),
                // Possible lengths and kinds.
                2 => (64 * rng.u64(1..8)) | (rng.u64(..400) << 32),
                _ => [2, 3, 4, 6, 7, 9, 10_u64][rng.usize(..7)] | 0x36 << 8 | rng.u64(..8) << 16,
            };
            raw.word(CONTROL_LEN + at).store(word, Ordering::Relaxed);
        }
    }

    /// Turns the last written frame into a call of the target's own function, with the lengths of another.
    pub fn rename_last(&mut self, name: &str, payload: u32) {
        let Some(raw) = &self.raw else { return };
        let at = raw.last as usize % raw.ring;
        let word = |offset: usize| raw.word(CONTROL_LEN + (at + offset) % raw.ring);
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
        raw.word(0).store(word(&mut rng), Ordering::Release);
        raw.word(8).store(word(&mut rng), Ordering::Release);
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

impl Raw {
    fn offset(&self) -> usize {
        self.position as usize % self.ring
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= CONTROL_LEN + self.ring);
        // SAFETY: the peer's region is mapped as long as the channel beside this value lives, and has the length of
        // its ring; `at` is aligned and inside. Both processes use its words by atomics.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    fn consumed(&self) -> u64 {
        // SAFETY: the own region is mapped as long as the channel beside this value lives, and is longer than a word.
        unsafe { AtomicU64::from_ptr(self.own.as_ptr().cast()) }.load(Ordering::Acquire)
    }

    fn has_space(&self, len: usize) -> bool {
        self.position.wrapping_add(len as u64).wrapping_sub(self.consumed()) <= self.ring as u64
    }

    /// Writes `bytes` at the position of the next frame; the one after it is `len` bytes further.
    fn write(&mut self, bytes: &[u8], len: usize, signal: Signal) {
        let at = self.offset();
        for (index, word) in bytes.chunks_exact(8).enumerate().skip(1) {
            let word = u64::from_le_bytes(word.try_into().unwrap_or_default());
            self.word(CONTROL_LEN + at + index * 8).store(word, Ordering::Relaxed);
        }
        let due = match signal {
            Signal::Due => self.key.header(self.position),
            Signal::Other(by) => self.key.header(self.position.wrapping_add_signed(by)),
            Signal::None => return,
        };
        self.word(CONTROL_LEN + at).store(due, Ordering::Release);
        if signal == Signal::Due || signal == Signal::Other(0) {
            self.last = self.position;
            self.position += len as u64;
        }
    }
}
