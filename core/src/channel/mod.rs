//! An endpoint with framing, arrival rule and credit, over either family of transports.
//!
//! Everything above core works with a [`Channel`]. To send: [`Channel::reserve`] space for a frame, write its
//! payload, [`Reserved::commit`]. To receive: [`Channel::poll`], use the frame,
//! [`Received::release`]. Only
//! [`Channel::rule`] shows the arrival rule of the transport below.
//!
//! Over mapped memory (`Stores`) the hot path has no virtual call: a small frame is one line written and one
//! line read.

use alloc::boxed::Box;

use crate::frame::{CodeHeader, FrameError, MAX_FRAME, Trailer};
use crate::mailbox;
use crate::memory::Memory;
use crate::signal::LinkKey;
use crate::transport::{
    ArrivalRules, BorrowedFd, Cause, Endpoint, Lender, Operation, PathInfo, Reads, TransportError,
};
use crate::wait::AwaitedWord;

mod contents;
mod credit;
mod in_place;
mod large;
mod line;
mod lines;
mod message;
#[cfg(all(test, loom))]
mod model;
mod one_sided;
mod plain;
mod receive;
mod received_frame;
mod send;
mod template;
mod two_sided;

pub use contents::Contents;
use credit::IdleRounds;
pub use in_place::InPlace;
pub use line::{ClearLine, Line};
pub use lines::Lines;
pub use message::MessageSpace;
use one_sided::OneSided;
pub use plain::{Delivered, Mapped, PlainFrame, PlainFrames, PlainPath, PlainPoll, PlainSent, Put};
pub use receive::{FastPoll, Polled};
use received_frame::Held;
pub use received_frame::{Received, Taken};
use send::Space;
pub use send::{BESIDE, Reserved, SendError};
pub use template::FrameTemplate;
use two_sided::TwoSided;

/// The parameters of a channel as agreed in the handshake, from the view of this endpoint.
#[derive(Clone, Copy, Debug)]
pub struct ChannelParams {
    /// The arrival rule: exactly one.
    pub rule: ArrivalRules,
    /// Lines written by either peer arrive whole.
    pub line_whole: bool,
    /// Key of the frames that this endpoint sends, drawn by the peer.
    pub send_key: LinkKey,
    /// Key of the frames that this endpoint receives, drawn by this endpoint.
    pub receive_key: LinkKey,
    /// Largest frame that the peer accepts, in bytes.
    pub send_limit: usize,
    /// Largest frame that this endpoint accepts, in bytes.
    pub receive_limit: usize,
    /// One-sided: length in bytes of the peer's region as the peer stated it. Its ring is the largest power
    /// of two that fits behind the control page ([`mailbox::ring_len`]), so both peers must use the same
    /// length.
    pub send_region: usize,
    /// One-sided: length in bytes of this endpoint's region as it stated it.
    pub receive_region: usize,
}

/// The way to sleep after [`Channel::arm`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Armed {
    /// An event is pending: do not sleep.
    Ready,
    /// Sleep until [`Channel::descriptor`] is readable, or until other work is due.
    Sleep,
    /// No doorbell will come: nap for a millisecond at most, then poll.
    Nap,
}

/// An endpoint with framing, arrival rule and credit.
// The data that each call touches lies in few cache lines: the frame at the head in the first, then the path.
#[repr(C, align(64))]
pub struct Channel {
    /// The frame that `poll` returned and that is not released. No poll reads it again while it is held,
    /// because on a one-sided path the peer can change its bytes in the mailbox.
    held: Held,
    /// True if the held frame was taken. Then no poll returns it.
    taken: bool,
    /// True if the held frame has the code part `code`.
    names_code: bool,
    trailer: Trailer,
    /// True if `path` is one-sided and the peer's memory is mapped.
    is_mapped: bool,
    /// True if `kept` is a frame that was reserved and is kept. Then `OneSided::lines_open` is `false`.
    keeps: bool,
    /// Largest frame that the peer accepts, in bytes.
    send_limit: usize,
    path: Path,
    /// The code header of the last frame that named code, as read with it, and the prediction that another
    /// frame repeats it.
    code: CodeHeader,
    terms: ChannelParams,
    idle_rounds: IdleRounds,
    kept: Option<Space>,
}

// Both variants are large and exist once for each link. Boxing one would put a pointer into the hot path. The
// tag stands before the variants, where each call reads: the compiler would put it into the last line.
#[allow(clippy::large_enum_variant)]
#[repr(u8)]
enum Path {
    OneSided(OneSided),
    TwoSided(TwoSided),
}

impl core::fmt::Debug for Channel {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("Channel").field("rule", &self.terms.rule).finish_non_exhaustive()
    }
}

impl Channel {
    /// Makes a channel from an endpoint and the agreed parameters.
    ///
    /// # Errors
    /// When the regions are too small for a ring, or the rule does not fit the endpoint.
    pub fn new(endpoint: Endpoint, mut terms: ChannelParams) -> Result<Channel, TransportError> {
        // Lengths in frames have 32 bits.
        terms.send_limit = terms.send_limit.min(MAX_FRAME);
        terms.receive_limit = terms.receive_limit.min(MAX_FRAME);
        let trailer = Trailer::for_rule(terms.rule, terms.line_whole);
        let path = match endpoint {
            Endpoint::OneSided { local, remote } => {
                Path::OneSided(OneSided::new(local, remote, &terms, trailer)?)
            }
            Endpoint::TwoSided(messages) => {
                if terms.rule != ArrivalRules::DELIVERED {
                    return Err(failed(
                        Operation::Connect,
                        Cause::Unsupported("an arrival rule other than delivered"),
                    ));
                }
                Path::TwoSided(TwoSided::new(messages, &terms))
            }
        };
        Ok(Channel {
            held: Held::NOTHING,
            taken: false,
            names_code: false,
            trailer,
            is_mapped: matches!(&path, Path::OneSided(path) if path.is_mapped()),
            keeps: false,
            send_limit: terms.send_limit,
            path,
            code: CodeHeader::NOTHING,
            idle_rounds: IdleRounds::new(terms.rule),
            terms,
            kept: None,
        })
    }

    /// The arrival rule in use.
    pub fn rule(&self) -> ArrivalRules {
        self.terms.rule
    }

    /// The path of this endpoint's frames, as the backend describes it. For people; may take long.
    pub fn path_info(&self) -> PathInfo {
        match &self.path {
            Path::OneSided(path) => path.path_info(),
            Path::TwoSided(path) => path.messages.path_info(),
        }
    }

    /// Returns whether frames are written to a mailbox. Otherwise they are sent as messages.
    pub fn has_mailbox(&self) -> bool {
        matches!(self.path, Path::OneSided(_))
    }

    /// Returns whether code can run where its frame lies.
    pub fn runs_in_place(&self) -> bool {
        self.has_mailbox()
    }

    /// Returns whether a large mailbox can be added, for frames longer than [`Channel::max_frame`].
    pub fn takes_large_mailbox(&self) -> bool {
        self.has_mailbox()
    }

    /// Returns whether each frame costs a send, which takes as long as copying some KiB: calls should share frames.
    pub fn has_costly_sends(&self) -> bool {
        !self.has_mailbox()
    }

    /// Returns whether a poll only reads memory of this process. Otherwise it may take a system call.
    pub fn polls_memory(&self) -> bool {
        self.has_mailbox()
    }

    /// Largest frame that can be sent, in bytes, header and code included.
    pub fn max_frame(&self) -> usize {
        match &self.path {
            Path::OneSided(path) => path.out.ring().len().min(self.send_limit),
            Path::TwoSided(_) => self.send_limit,
        }
    }

    /// Returns whether the peer's limit on frames is below the length of its ring. If so, a large mailbox
    /// does not help.
    pub fn is_limited(&self) -> bool {
        match &self.path {
            Path::OneSided(path) => self.send_limit < path.out.ring().len(),
            Path::TwoSided(_) => true,
        }
    }

    /// Lets the transport make progress, and returns credit to the peer when `idle` (polling has found
    /// nothing for a while). Returns whether the peer has sent a notice since the last call.
    ///
    /// # Errors
    /// Failures of frames sent earlier.
    #[inline]
    pub fn progress(&mut self, idle: bool) -> Result<bool, TransportError> {
        match &mut self.path {
            Path::OneSided(path) => path.progress(idle),
            Path::TwoSided(path) => {
                path.messages.progress()?;
                // Two-sided transports have no credit line: the control connection is read when idle.
                Ok(idle)
            }
        }
    }

    /// Returns whether the peer's memory is mapped here.
    #[inline(always)]
    pub fn is_mapped(&self) -> bool {
        self.is_mapped
    }

    /// The word whose change announces the next frame, for
    /// [`Waiter::turn_awaiting`](crate::wait::Waiter::turn_awaiting). `None` where frames move only while the
    /// channel is called.
    pub fn awaited(&self) -> Option<AwaitedWord<'_>> {
        match &self.path {
            Path::OneSided(path) if self.is_mapped => Some(path.inbound.awaited()),
            _ => None,
        }
    }

    /// Sends the peer the number of the processor that this thread runs on, `own`, and returns whether the
    /// peer last sent the same number. If so, polling keeps the peer from running: yield. Call this only
    /// after waiting for a while. `None` if the peer's memory is not mapped: then neither process knows. The
    /// peer may lie, or have moved since.
    pub fn shares_processor(&mut self, own: usize) -> Option<bool> {
        match &mut self.path {
            Path::OneSided(path) => path.shares_processor(own),
            Path::TwoSided(_) => None,
        }
    }

    /// Returns whether a poll may find a frame: `false` if a mapped mailbox shows none, `true` if only a poll
    /// can find out.
    pub fn may_have_frames(&self) -> bool {
        match &self.path {
            Path::OneSided(path) => path.may_have_frames(),
            Path::TwoSided(_) => true,
        }
    }

    /// Returns the lender of other memory of this process to the peer; `None` if the transport lends none.
    pub fn lender(&self) -> Option<Box<dyn Lender>> {
        match &self.path {
            Path::OneSided(path) => path.local.lender(),
            Path::TwoSided(path) => path.messages.lender(),
        }
    }

    /// Returns the reader of memory that the peer lent; `None` if the transport reads none.
    pub fn reads(&mut self) -> Option<&mut dyn Reads> {
        match &mut self.path {
            Path::OneSided(path) => path.reads(),
            Path::TwoSided(path) => path.messages.reads(),
        }
    }

    /// Sends the peer a notice: something for it is on the control connection.
    ///
    /// # Errors
    /// When the transport fails.
    pub fn notify(&mut self) -> Result<(), TransportError> {
        match &mut self.path {
            Path::OneSided(path) => path.notify(),
            Path::TwoSided(_) => Ok(()),
        }
    }

    /// Prepares to sleep until a frame comes. Unless the result is `Ready`, the caller sleeps and then calls
    /// [`Channel::disarm`].
    ///
    /// # Errors
    /// When the transport fails.
    pub fn arm(&mut self) -> Result<Armed, TransportError> {
        match &mut self.path {
            Path::OneSided(path) => path.arm(self.held.is_some()),
            Path::TwoSided(path) => path.arm(),
        }
    }

    /// Ends the sleep. Does nothing on a channel that is not armed.
    ///
    /// # Errors
    /// When the transport fails.
    pub fn disarm(&mut self) -> Result<(), TransportError> {
        match &mut self.path {
            Path::OneSided(path) => path.disarm(),
            Path::TwoSided(path) => path.messages.disarm(),
        }
    }

    /// The descriptor to sleep on after [`Channel::arm`]; the same for the life of the channel.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.path {
            Path::OneSided(path) => path.local.descriptor(),
            Path::TwoSided(path) => path.messages.descriptor(),
        }
    }

    /// Returns whether a sleeper on [`Channel::descriptor`] must also wake when it becomes writable, to call
    /// [`Channel::progress`].
    pub fn wants_write(&self) -> bool {
        match &self.path {
            Path::OneSided(_) => false,
            Path::TwoSided(path) => path.messages.wants_write(),
        }
    }

    /// Returns whether [`Channel::descriptor`] becomes readable at the next frame even if the channel is not
    /// armed. `false` while an arrived frame has not been polled.
    pub fn wakes_unarmed(&self) -> bool {
        match &self.path {
            Path::OneSided(_) => false,
            Path::TwoSided(path) => path.messages.wakes_unarmed(),
        }
    }

    /// Returns whether an armed channel may stay armed while its process works. If so,
    /// [`Channel::descriptor`] becomes readable at the next frame.
    pub fn stays_armed(&self) -> bool {
        match &self.path {
            Path::OneSided(path) => self.is_mapped && path.local.stays_armed(),
            Path::TwoSided(_) => false,
        }
    }

    /// Returns whether frames of a peer that has ended may still come, until `poll` returns
    /// [`Cause::PeerGone`].
    pub fn has_end(&self) -> bool {
        match &self.path {
            Path::OneSided(_) => false,
            Path::TwoSided(path) => path.messages.has_end(),
        }
    }

    /// Bytes of the frames released so far, with the unused bytes between them.
    pub fn received(&self) -> u64 {
        match &self.path {
            Path::OneSided(path) => path.inbound.position(),
            Path::TwoSided(path) => path.received,
        }
    }

    /// Bytes of sent frames that the peer is not known to have consumed; `None` if the transport does not
    /// say.
    pub fn in_flight(&mut self) -> Option<u64> {
        match &mut self.path {
            Path::OneSided(path) => Some(path.out.in_flight()),
            Path::TwoSided(_) => None,
        }
    }
}

#[cold]
fn failed(operation: Operation, cause: Cause) -> TransportError {
    TransportError::new("core", operation, cause)
}

#[cold]
fn protocol(error: FrameError) -> TransportError {
    failed(Operation::Receive, Cause::Protocol(error))
}

fn ring_of(region_len: usize) -> Result<usize, TransportError> {
    mailbox::ring_len(region_len).filter(|ring| *ring <= MAX_FRAME).ok_or_else(|| {
        failed(
            Operation::Connect,
            Cause::Address(alloc::format!("a region of {region_len} bytes holds no ring")),
        )
    })
}
