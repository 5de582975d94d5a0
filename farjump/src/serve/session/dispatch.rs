//! Taking the next frame, and handling it by its kind.

use farjump_control::{RefusalCause, Rights};
use farjump_core::channel::Polled;
use farjump_core::frame::{Header, Kind, ReplyStatus};

use crate::Refusal;
use crate::policy::may;

use super::head::{HeldFrame, Mailbox};
use super::{Session, Shared, Stop};

impl Session {
    /// Takes the next frame along the general path. Returns the number of calls, or `None` if no frame is
    /// whole.
    #[cold]
    pub(super) fn take(&mut self, shared: &mut Shared) -> Result<Option<usize>, Stop> {
        let frame = match self.channel.poll_general()? {
            Polled::Frame(frame) => frame,
            Polled::Nothing => return Ok(None),
            Polled::Partial => {
                if !self.channel.is_summing() {
                    self.head.check_age(shared.stall_timeout)?;
                }
                return Ok(None);
            }
        };
        if frame.header().kind == Kind::Large {
            // It stays at the head until its frame is whole.
            return self.take_large(shared);
        }
        self.head.note_whole();
        let header = frame.header();
        // The most frequent frame where a transport delivers whole messages, and each comes along this path.
        if header.kind == Kind::Call
            && let Some(code) = self.codes.table.callable(header.index)
            && frame.payload_is_aligned(code.align)
            && may_run(&header, Mailbox::Own, shared).is_ok()
        {
            let payload = frame.payload().as_ptr();
            let frame = frame.take();
            return self.run(frame, payload, code, shared).map(|()| Some(1));
        }
        let held = HeldFrame::own(frame.take());
        self.run_held(held, shared).map(Some)
    }

    /// Handles a frame, and releases it; or keeps it, if its code must come first.
    #[cold]
    pub(super) fn dispatch(&mut self, held: HeldFrame, shared: &mut Shared) -> Result<(), Stop> {
        let header = held.header();
        let allowed = self.may_send(header.kind).and_then(|()| may_run(&header, held.mailbox(), shared));
        if let Err(refusal) = allowed {
            if matches!(header.kind, Kind::CallCode | Kind::CallId | Kind::Bind) {
                // The frame was to bind other code than the index stood for before.
                self.codes.table.refuse(header.index, &refusal);
            }
            return self.refuse_frame(held, refusal, shared);
        }
        match header.kind {
            Kind::Call => self.call(held, shared),
            Kind::CallCode | Kind::CallId | Kind::Bind => self.bind(held, shared),
            Kind::CallLocal => self.call_local(held, shared),
            Kind::CallInPlace => self.call_in_place(held, shared),
            Kind::Flush => {
                let sent = self.control.refusals_sent().to_le_bytes();
                // Held calls ran before.
                let replied = match self.is_holding() {
                    true => self.hold(Some(header.token), &sent, shared.forwards.holds_mut()),
                    false => self.send_reply(header.token, ReplyStatus::Done, &sent, false),
                };
                self.release_held(held)?;
                replied
            }
            Kind::Reply | Kind::Skip | Kind::Large | Kind::CallBatch => {
                let text = "a source sent a frame that only targets send, or one that leads nowhere, or several messages where one belongs";
                self.refuse_frame(held, Refusal::new(RefusalCause::BadFrame, text), shared)
            }
        }
    }

    /// Checks that its source may send such a frame at all. A frame that names code is checked again if the
    /// code is missing.
    pub(super) fn may_send(&self, kind: Kind) -> Result<(), Refusal> {
        match kind {
            Kind::CallCode | Kind::CallInPlace | Kind::Bind => {
                may(self.control.rights(), Rights::INJECT, || self.control.has_key())
            }
            _ => Ok(()),
        }
    }
}

/// Checks whether a frame may have its payload.
pub(super) fn may_run(header: &Header, mailbox: Mailbox, shared: &Shared) -> Result<(), Refusal> {
    shared.executor.policy.payload(header.argument_len())?;
    // It lies in the large mailbox, or was delivered and fits none.
    if mailbox == Mailbox::Large || header.frame_len as usize > shared.mailbox {
        shared.large_frames.check_payload(header.payload_len.into())?;
    }
    Ok(())
}
