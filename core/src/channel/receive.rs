//! Receiving: poll, use the frame, release it.

use super::received_frame::Held;
use super::{Channel, Path, Received, Taken, two_sided};
use crate::frame::{CodeHeader, DELIVERED_HEADER_LEN, Flags, HEADER_LEN};
use crate::mailbox::{self, Seen};
use crate::transport::TransportError;

/// The result of [`Channel::poll`].
#[derive(Debug)]
pub enum Polled<'c> {
    /// Nothing.
    Nothing,
    /// The start of a frame that has not arrived whole. If that lasts, the peer has stalled.
    Partial,
    /// A whole frame, checked.
    Frame(Received<'c>),
}

/// The result of [`Channel::poll_fast`], the fast poll.
#[derive(Debug)]
pub enum FastPoll<'c> {
    /// Nothing.
    Nothing,
    /// A whole frame without code, held as [`Channel::poll`] holds it.
    Frame(Received<'c>),
    /// Something else: call [`Channel::poll_general`].
    Other,
}

/// The result of the fast poll, before a frame is lent.
enum Found {
    Nothing,
    /// A frame without code, now held.
    Frame,
    Other,
}

impl Channel {
    /// Polls for the next frame. Returns the same frame, as first read, until its release, even if the peer
    /// writes over it in the meantime. Returns nothing while the frame is taken.
    ///
    /// # Errors
    /// When the transport failed or the peer broke the protocol. The link cannot be used any more.
    #[inline]
    pub fn poll(&mut self) -> Result<Polled<'_>, TransportError> {
        match self.find() {
            Found::Nothing => Ok(Polled::Nothing),
            Found::Frame => Ok(Polled::Frame(Received { channel: self })),
            Found::Other => self.poll_general(),
        }
    }

    /// The fast poll, for loops in which each nanosecond counts. Finds nothing, or a frame without code on a
    /// one-sided path whose signal proves the whole frame. Leaves everything else to [`Channel::poll`]. If a
    /// reply is wanted, prefetches the line for it.
    #[inline(always)]
    pub fn poll_fast(&mut self) -> FastPoll<'_> {
        match self.find() {
            Found::Nothing => FastPoll::Nothing,
            Found::Frame => FastPoll::Frame(Received { channel: self }),
            Found::Other => FastPoll::Other,
        }
    }

    #[inline(always)]
    fn find(&mut self) -> Found {
        let Path::OneSided(path) = &self.path else { return self.find_delivered() };
        if self.held.is_some() {
            return Found::Other;
        }
        match path.inbound.poll_fast() {
            mailbox::FastPoll::Nothing => Found::Nothing,
            mailbox::FastPoll::Plain(at, header, payload) => {
                if header.flags.contains(Flags::WANTS_REPLY) {
                    path.out.prefetch();
                }
                // The frame's length was checked to lie in the ring.
                let start = path.inbound.ring().line_pointer(at);
                self.hold(Held::new(header, payload, start), false);
                Found::Frame
            }
            mailbox::FastPoll::Look => Found::Other,
        }
    }

    #[inline(always)]
    pub(super) fn hold(&mut self, frame: Held, names_code: bool) {
        (self.held, self.taken, self.names_code) = (frame, false, names_code);
    }

    /// [`Channel::find`] on a two-sided path.
    #[inline(never)]
    fn find_delivered(&mut self) -> Found {
        let Path::TwoSided(path) = &mut self.path else { return Found::Other };
        if self.held.is_some() {
            return Found::Other;
        }
        match path.poll_fast() {
            two_sided::FastPoll::Nothing => Found::Nothing,
            two_sided::FastPoll::Plain(words, start) => {
                self.hold(Held::of_plain(words, 0, start), false);
                Found::Frame
            }
            two_sided::FastPoll::Look => Found::Other,
        }
    }

    /// Leaves frames of more than `len` bytes, header included, to [`Channel::poll_general`]. Then no payload
    /// of the fast poll is longer than `len` - 24, and a receiver with further checks of large payloads can
    /// skip them there.
    pub fn limit_glances(&mut self, len: usize) {
        match &mut self.path {
            Path::OneSided(path) => path.inbound.limit_glances(len),
            Path::TwoSided(path) => {
                // The header of these frames is shorter.
                let len = len.saturating_sub(HEADER_LEN - DELIVERED_HEADER_LEN);
                path.fast_limit = self.terms.receive_limit.min(len);
            }
        }
    }

    /// [`Channel::poll`] after a [`FastPoll::Other`]: the general path, for frames with code or a trailer,
    /// for errors, and for two-sided paths.
    ///
    /// # Errors
    /// Those of [`Channel::poll`].
    #[inline(never)]
    pub fn poll_general(&mut self) -> Result<Polled<'_>, TransportError> {
        if self.held.is_some() {
            return Ok(if self.taken { Polled::Nothing } else { Polled::Frame(Received { channel: self }) });
        }
        let (frame, code) = match &mut self.path {
            Path::OneSided(path) => match path.poll()? {
                Seen::Nothing => return Ok(Polled::Nothing),
                Seen::Partial => return Ok(Polled::Partial),
                Seen::Frame(at, header, parts) => {
                    let start = path.inbound.ring().pointer(at, header.frame_len as usize);
                    (Held::new(header, parts.payload, start), parts.code)
                }
            },
            Path::TwoSided(path) => match path.poll()? {
                None => return Ok(Polled::Nothing),
                Some((header, parts, start)) => (Held::new(header, parts.payload, start), parts.code),
            },
        };
        if let Some(code) = code {
            self.code = CodeHeader::new(&code, frame.payload as u32);
        }
        self.hold(frame, code.is_some());
        if frame.header().flags.contains(Flags::WANTS_REPLY) {
            self.prefetch();
        }
        Ok(Polled::Frame(Received { channel: self }))
    }

    /// Predicts that further frames have the header of `frame`, which was taken: [`Channel::predicted`] finds
    /// them. The prediction lasts until [`Channel::poll`] finds another frame that names code. Does nothing
    /// for a frame that names none or allows no prediction, and on paths that cannot gain by it.
    pub fn predict(&mut self, frame: &Taken) {
        if let Path::OneSided(path) = &self.path
            && path.inbound.can_predict()
            && self.names_code
            && self.holds(frame)
        {
            self.code.predict(&frame.header());
        }
    }

    /// [`Channel::poll`] for frames with the same header as the one of the last [`Channel::predict`], token
    /// and flags aside: they are not parsed and checked again. `None` for all other frames, without a frame,
    /// and while a frame is held. Name and image may differ.
    #[inline(always)]
    pub fn predicted(&mut self) -> Option<Received<'_>> {
        let Path::OneSided(path) = &self.path else { return None };
        if self.held.is_some() {
            return None;
        }
        let (at, header) = path.inbound.predicted(&self.code)?;
        if header.flags.contains(Flags::WANTS_REPLY) {
            path.out.prefetch();
        }
        let start = path.inbound.ring().pointer(at, header.frame_len as usize);
        self.hold(Held::new(header, self.code.payload(), start), true);
        Some(Received { channel: self })
    }

    /// Returns whether the next poll continues the checksum of a frame that is not yet known to be whole. If
    /// so, [`Polled::Partial`] does not mean that the peer stalls.
    pub fn is_summing(&self) -> bool {
        matches!(&self.path, Path::OneSided(path) if path.inbound.is_summing())
    }

    /// Bytes checksummed since the link was made: 0 except under
    /// [`CHECKED`](crate::transport::ArrivalRules::CHECKED). One poll checksums 16 KiB at most, so a frame
    /// that never becomes whole cannot block the caller.
    pub fn summed(&self) -> u64 {
        match &self.path {
            Path::OneSided(path) => path.inbound.summed(),
            Path::TwoSided(_) => 0,
        }
    }
}
