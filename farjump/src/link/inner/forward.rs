//! Forwarding received calls: a target's links to its destinations.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use farjump_control::Rights;
use farjump_core::channel::{Armed, SendError};
use farjump_core::frame::{Kind, Plan, PlanCode};
use farjump_core::transport::TransportError;
use farjump_loader::LinkedImage;

use super::super::pending_calls::{MAX_CALLS, ReplyBytes};
use super::super::send::Sent;
use super::super::sent_codes::Known;
use super::Inner;
use crate::{Error, InjectError};

impl Inner {
    /// Injects stored code with a payload as it is. Never waits. The token is for [`Inner::take`] if a reply
    /// is wanted.
    pub(in super::super) fn forward(
        &mut self,
        linked: &Arc<LinkedImage>,
        payload: &[u8],
        wants_reply: bool,
    ) -> Result<u32, Error> {
        if self.connection.control.gone.is_some() || self.connection.control.leaving.is_some() {
            return Err(self.gone_error());
        }
        self.release_closed();
        let index = self.codes.index_stored(linked)?;
        let token = self
            .pending
            .slots
            .token(index, wants_reply)
            .ok_or(Error::Inject(InjectError::TooManyCalls { max: MAX_CALLS }))?;
        let code = self.codes.get(index.into());
        let (image, id, name) = (linked.image(), linked.id(), linked.name());
        let align_log2 = code.align_log2;
        let mut plan =
            Plan { kind: Kind::Call, wants_reply, alone: false, index, token, align_log2, code: None };
        let binds = code.known != Known::Bound;
        if binds {
            // Where this target may bring no code, its destination may have it in its store all the same.
            let brings = self.connection.target.rights.contains(Rights::INJECT);
            let image = if brings { image } else { &[] };
            plan.kind = if brings { Kind::CallCode } else { Kind::CallId };
            plan.code = Some(PlanCode {
                image,
                id,
                epoch: self.connection.target.epoch,
                name,
                family: linked.family(),
            });
        }
        match self.connection.channel.send_bytes(&plan, payload) {
            Ok(()) => {
                let code = plan.code.map_or(0, |code| code.image.len());
                self.sent(index.into(), Sent { payload: payload.len(), code, binds });
                Ok(token)
            }
            Err(error) => {
                self.pending.slots.take_back(token);
                Err(match error {
                    SendError::Full => Error::Inject(InjectError::Full),
                    SendError::TooLarge { len, max } => {
                        Error::Inject(InjectError::TooLarge { ifunc: name.into(), len, max })
                    }
                    SendError::Failed(error) => self.broken(&error),
                })
            }
        }
    }

    /// Takes the outcome of a call, if it has come; the token is then void.
    pub(in super::super) fn take(&mut self, token: u32) -> Option<Result<ReplyBytes, Error>> {
        self.pending.slots.take(token)
    }

    /// Prepares to sleep on [`Inner::doorbell`] and [`Inner::control`]. [`Inner::disarm`] follows in any
    /// case.
    pub(in super::super) fn arm(&mut self) -> Result<Armed, TransportError> {
        let armed = self.connection.channel.arm()?;
        Ok(if self.connection.control.unread { Armed::Ready } else { armed })
    }

    pub(in super::super) fn disarm(&mut self) -> Result<(), TransportError> {
        self.connection.channel.disarm()
    }

    pub(in super::super) fn control(&self) -> BorrowedFd<'_> {
        self.connection.control.stream.as_fd()
    }

    /// Whether to watch the control connection for writability.
    pub(in super::super) fn wants_write(&self) -> bool {
        self.connection.control.stream.wants_write()
    }

    /// Whether to watch the doorbell for writability.
    pub(in super::super) fn doorbell_wants_write(&self) -> bool {
        self.connection.channel.wants_write() && self.connection.control.leaving.is_none()
    }

    /// Whether the control connection has ended, and the channel not yet.
    pub(in super::super) fn is_going(&self) -> bool {
        self.connection.control.leaving.is_some()
    }

    /// The doorbell's descriptor; the same for the life of the channel.
    pub(in super::super) fn doorbell(&self) -> Option<BorrowedFd<'_>> {
        self.connection.channel.descriptor()
    }
}
