//! Large frames: the target makes a large mailbox when the first of them comes, and gets it back when none
//! has come for a while (`docs/design/mailbox.md`).
//!
//! A large frame lies in the large mailbox, and a `Large` in the link's own mailbox holds its place among
//! the others. The `Large` is sent last, so a frame is either sent with it or not at all.

use std::time::{Duration, Instant};

use farjump_control::{DeferredFd, EndpointInfo as Offered, Message, RefusalCause, SecondEndpoint};
use farjump_core::channel::{Channel, SendError};
use farjump_core::mailbox;
use farjump_core::transport::OpenRequest;

use super::super::send::{Call, Failed, Sent};
use super::Inner;
use crate::open_channel::joined_channel;
use crate::{CallError, Error, Refusal};

/// Time for which an unused large mailbox is kept.
const KEPT: Duration = Duration::from_secs(1);
/// The large mailbox carries no frames back: replies come through the link's own mailbox.
const UNUSED_RING: usize = mailbox::MIN_RING;

/// The large mailbox of a link.
#[derive(Default)]
pub(super) enum LargeMailbox {
    #[default]
    Absent,
    /// Requested, for frames of up to this many bytes. The target's endpoint is due.
    Requested(usize),
    /// Both endpoints are announced. The target's report that its own is connected is due.
    Joined(Box<Channel>),
    Open(Box<Open>),
    /// This source could not take the target's offer for a frame of this many bytes, for this reason or because the
    /// target is dying. The target's next message shows that it is not.
    Doubted(usize, Refusal),
    /// Declined for a frame of this many bytes, for the call that made the request.
    Declined(usize, Refusal),
}

pub(super) struct Open {
    channel: Channel,
    /// Time of the last frame.
    used: Instant,
    /// Whether a frame waits for credit without a doorbell.
    starved: bool,
}

impl Inner {
    /// Sends a call whose frame has `len` bytes, or more, where the link's mailbox takes `max` at most.
    /// Without a large mailbox, or without credit there, this behaves like a full mailbox.
    #[cold]
    pub(super) fn send_large(&mut self, call: &Call<'_>, len: usize, max: usize) -> Result<Sent, Failed> {
        if self.connection.channel.is_limited() {
            return Err(SendError::TooLarge { len, max }.into());
        }
        let index = usize::from(call.index);
        let (payload, frame) = call.extent(self.codes.get(index));
        let capabilities =
            self.settings.transport(&self.connection.target.transport).map(|own| own.capabilities());
        let most = capabilities.map_or(max, |own| own.max_frame);
        if frame > most {
            return Err(SendError::TooLarge { len: frame, max: most }.into());
        }
        let empty = self.connection.large.is_empty();
        match &mut self.connection.large {
            LargeMailbox::Open(open) if frame <= open.channel.max_frame() => {
                let sent = open.send(
                    &mut self.connection.channel,
                    |channel| call.send(channel, self.codes.get(index)),
                    call.token,
                );
                if let Err(Failed::Send(SendError::Full)) = sent {
                    // A skip may take the space, and the target passes it when it looks around.
                    self.connection.channel.notify().map_err(SendError::Failed)?;
                }
                sent
            }
            // The link returns the mailbox when it is empty, and not before.
            LargeMailbox::Open(open) if !empty => {
                open.starved = true;
                Err(SendError::Full.into())
            }
            LargeMailbox::Requested(_) | LargeMailbox::Joined(_) | LargeMailbox::Doubted(..) => {
                Err(SendError::Full.into())
            }
            LargeMailbox::Declined(len, _) if *len <= frame => {
                match std::mem::take(&mut self.connection.large) {
                    LargeMailbox::Declined(_, Refusal { cause, text }) => {
                        let ifunc = call.library.name().to_owned();
                        Err(Failed::Other(Error::Call(CallError::Refused { ifunc, cause, text })))
                    }
                    _ => Err(SendError::Full.into()),
                }
            }
            LargeMailbox::Absent | LargeMailbox::Open(_) | LargeMailbox::Declined(..) => {
                self.connection.large = LargeMailbox::Requested(frame);
                self.request(frame, payload).map_err(Failed::Other)?;
                Err(SendError::Full.into())
            }
        }
    }

    /// Requests a large mailbox.
    fn request(&mut self, frame: usize, payload: usize) -> Result<(), Error> {
        self.send_control(&Message::LargeRequest { frame: frame as u64, payload: payload as u64 })?;
        match self.connection.channel.notify() {
            Ok(()) => Ok(()),
            Err(error) => self.broken_for_now(&error),
        }
    }

    /// Handles the target's offer of a large mailbox.
    ///
    /// An offer that cannot be taken may come from a dying target, whose memory is gone before its control connection
    /// ends. So the call fails only after the target has responded to another request.
    #[cold]
    pub(super) fn offered(&mut self, endpoint: Offered, descriptors: Vec<DeferredFd>) -> Result<(), Error> {
        let frame = match std::mem::take(&mut self.connection.large) {
            LargeMailbox::Requested(frame) => frame,
            LargeMailbox::Doubted(frame, refusal) => {
                self.connection.large = LargeMailbox::Declined(frame, refusal);
                return self.send_control(&Message::LargeRelease);
            }
            other => {
                self.connection.large = other;
                return Ok(());
            }
        };
        let offers = endpoint.max_frame as usize;
        let taken = if offers < frame {
            Err(format!("{} offers a mailbox for frames of {offers} bytes", self.settings.address))
        } else {
            self.accept(endpoint, descriptors)?
        };
        match taken {
            Ok(channel) => self.connection.large = LargeMailbox::Joined(Box::new(channel)),
            Err(why) => {
                let text = format!("no mailbox could be made for a frame of {frame} bytes: {why}");
                let refusal = Refusal { cause: RefusalCause::OutOfMemory, text };
                self.connection.large = LargeMailbox::Doubted(frame, refusal);
                self.send_control(&Message::LargeRelease)?;
                self.request(frame, 0)?;
            }
        }
        Ok(())
    }

    /// Connects to the mailbox at `endpoint`. The inner error is the reason why it cannot; the outer error is the link's
    /// end.
    fn accept(
        &mut self,
        endpoint: Offered,
        descriptors: Vec<DeferredFd>,
    ) -> Result<Result<Channel, String>, Error> {
        let deadline = self.settings.connect_deadline();
        let request = OpenRequest::new(mailbox::region_len(UNUSED_RING), UNUSED_RING);
        let Some(transport) = self.settings.transport(&self.connection.target.transport) else {
            return Ok(Err(format!("this process has {} no longer", self.connection.target.transport)));
        };
        let opened = SecondEndpoint::open(transport, &request).and_then(|mut own| {
            own.adapt_to(self.connection.control.stream.peer(), &endpoint)?;
            Ok(own)
        });
        let own = match opened {
            Ok(own) => own,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let sent = own.with_info(|endpoint, descriptors| {
            self.connection.control.stream.send(&Message::LargeAccept { endpoint }, descriptors)
        });
        if let Err(error) = sent {
            let text = error.to_string();
            self.gone(error)?;
            return Ok(Err(text));
        }
        if let Err(error) = self.connection.channel.notify() {
            return Err(self.broken(&error));
        }
        let peer = self.connection.control.stream.peer();
        let joined = own.join(peer, endpoint, descriptors, deadline).map_err(Error::from);
        Ok(joined.and_then(|joined| joined_channel(joined, peer)).map_err(|error| error.to_string()))
    }

    /// Handles the target's report that its endpoint is connected.
    #[cold]
    pub(super) fn open_large(&mut self) {
        self.connection.large = match std::mem::take(&mut self.connection.large) {
            LargeMailbox::Joined(channel) => {
                LargeMailbox::Open(Box::new(Open { channel: *channel, used: Instant::now(), starved: false }))
            }
            other => other,
        };
    }

    /// Handles the target's refusal to make a large mailbox.
    #[cold]
    pub(super) fn declined(&mut self, refusal: Refusal) {
        self.connection.large = match std::mem::take(&mut self.connection.large) {
            LargeMailbox::Requested(frame) => LargeMailbox::Declined(frame, refusal),
            LargeMailbox::Doubted(frame, own) => LargeMailbox::Declined(frame, own),
            // This process was too slow to take it: the next frame makes a new request.
            LargeMailbox::Joined(_) => LargeMailbox::Absent,
            other => other,
        };
    }

    /// Makes the large mailbox's transport progress.
    pub(super) fn tend_large(&mut self) -> Result<(), Error> {
        if let LargeMailbox::Open(open) = &mut self.connection.large
            && let Err(error) = open.channel.progress(true)
        {
            return Err(self.broken(&error));
        }
        Ok(())
    }

    /// Returns the large mailbox to the target if it is empty and was not used for a while.
    pub(super) fn shrink_if_unused(&mut self) -> Result<(), Error> {
        if let LargeMailbox::Open(open) = &mut self.connection.large
            && open.used.elapsed() >= KEPT
            && open.is_empty()
        {
            self.connection.large = LargeMailbox::Absent;
            self.send_control(&Message::LargeRelease)?;
        }
        Ok(())
    }

    /// Returns whether the link awaits an event without a doorbell.
    pub(super) fn is_starved(&self) -> bool {
        matches!(&self.connection.large, LargeMailbox::Open(open) if open.starved)
    }
}

impl LargeMailbox {
    /// Returns whether the target has consumed everything in it.
    fn is_empty(&mut self) -> bool {
        match self {
            LargeMailbox::Open(open) => open.is_empty(),
            _ => true,
        }
    }
}

impl Open {
    fn is_empty(&mut self) -> bool {
        self.channel.in_flight() == Some(0)
    }

    /// Sends by `send` the frame of the call with this token to this mailbox, and its `Large` to `own`, the
    /// link's.
    fn send(
        &mut self,
        own: &mut Channel,
        send: impl FnOnce(&mut Channel) -> Result<Sent, Failed>,
        token: u32,
    ) -> Result<Sent, Failed> {
        let starved = &mut self.starved;
        let sent = own.send_large_frame(&mut self.channel, token, |channel| {
            let sent = send(channel);
            *starved = matches!(sent, Err(Failed::Send(SendError::Full)));
            sent
        })?;
        self.used = Instant::now();
        Ok(sent)
    }
}
