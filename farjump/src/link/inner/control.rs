//! A target's control messages, and its end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farjump_control::{DeferredFd, HandshakeError, Message, RefusalCause, plain};
use farjump_core::image::{CodeId, FamilyId};
use farjump_core::transport::{Cause, TransportError};
use farjump_loader::Library;

use super::super::Deadline;
use super::super::forwarded::Wanted;
use super::super::pending_calls::{MAX_CALLS, one_way_index};
use super::super::sent_codes::Known;
use super::Inner;
use crate::wait::nanoseconds;
use crate::{CallError, Error, GoneCause, Refusal, WaitError};

/// Most characters kept of a target's text. A terminal may show it, so it is also made safe for one.
pub(super) const MAX_TEXT: usize = 4096;
/// Messages read at a time, so that a target that sends them without end does not stop the clock from being
/// read.
const MESSAGES: usize = 256;

impl Inner {
    pub(super) fn read_control(&mut self) -> Result<(), Error> {
        self.check_process()?;
        self.read_own_control()
    }

    /// [`Inner::read_control`] where this is known to be no forked child.
    pub(super) fn read_own_control(&mut self) -> Result<(), Error> {
        if self.connection.control.gone.is_some() {
            return Err(self.gone_error());
        }
        if let Some((until, cause)) = self.connection.control.leaving.as_deref() {
            // The control connection has ended.
            let (late, cause) = (*until <= Instant::now(), cause.clone());
            return if late { Err(self.end(cause)) } else { Ok(()) };
        }
        self.shrink_if_unused()?;
        self.connection.control.next_check = nanoseconds().saturating_add(self.settings.control_interval);
        self.connection.control.unread = true;
        for _ in 0..MESSAGES {
            match self.connection.control.stream.recv() {
                Ok(Some((message, descriptors))) => {
                    self.connection.control.has_notice = true;
                    self.control_message(message, descriptors)?;
                    if self.connection.control.leaving.is_some() {
                        self.connection.control.unread = false;
                        return Ok(());
                    }
                }
                Ok(None) => {
                    self.connection.control.unread = false;
                    break;
                }
                Err(error) => {
                    self.connection.control.unread = false;
                    return self.gone(error);
                }
            }
        }
        if self.connection.control.stream.wants_write()
            && let Err(error) = self.connection.control.stream.flush()
        {
            return self.gone(error);
        }
        Ok(())
    }

    fn control_message(&mut self, message: Message, descriptors: Vec<DeferredFd>) -> Result<(), Error> {
        match message {
            Message::Refused { token, cause, text } => {
                self.connection.control.refusals_read += 1;
                self.refused(token, Refusal { cause, text: plain(&text, MAX_TEXT) });
            }
            Message::NeedCode { id, .. } => return self.supply(CodeId(id)),
            Message::NeedManifest { family } => {
                let family = FamilyId(family);
                let manifest = self.codes.manifest(&family).cloned();
                if manifest.is_none() && self.note_wanted(Wanted::Manifest(family)) {
                    return Ok(());
                }
                return self.respond_with_manifest(family, manifest.as_deref());
            }
            Message::CodeLinked { index, nanoseconds } => {
                self.codes.set_link_time(index.into(), Duration::from_nanos(nanoseconds));
            }
            Message::LargeOffer { endpoint } => return self.offered(endpoint, descriptors),
            Message::Go => self.open_large(),
            Message::LargeDecline { cause, text } => {
                self.declined(Refusal { cause, text: plain(&text, MAX_TEXT) });
            }
            Message::Closing { text } => {
                return self.leaves(GoneCause::Closed { text: plain(&text, MAX_TEXT) });
            }
            other => log::debug!("{}: unexpected {} ignored", self.settings.address, other.name()),
        }
        Ok(())
    }

    fn refused(&mut self, token: u32, refusal: Refusal) {
        let one_way = one_way_index(token);
        let code = one_way.or_else(|| self.pending.slots.code(token));
        let mut ifunc = String::from("a frame");
        if let Some(code) = code
            && let Some(name) = self.codes.name(code.into())
        {
            name.clone_into(&mut ifunc);
            if !bound_still(refusal.cause) {
                // The code that the frame was to bind is not bound: the next call brings it again.
                self.codes.set_known(code.into(), Known::Nothing);
                #[cfg(feature = "build")]
                self.exchange_refused(code, &refusal);
            }
        }
        if one_way.is_some()
            && let Some(handler) = &mut self.settings.on_refused
        {
            handler(&refusal);
        }
        let error = Error::Call(CallError::Refused { ifunc, cause: refusal.cause, text: refusal.text });
        if one_way.is_some() {
            self.pending.one_way_refusal.get_or_insert(error);
        } else {
            self.pending.slots.set_outcome(token, || Err(error));
        }
    }

    /// Supplies code that the target requests. An image that is too long travels in frames only: the target refuses
    /// this frame, and the next one brings the code.
    fn supply(&mut self, id: CodeId) -> Result<(), Error> {
        let Some((name, image)) = self.codes.image_of(&id) else {
            return if self.note_wanted(Wanted::Code(id)) {
                Ok(())
            } else {
                self.respond_with_code(id, None)
            };
        };
        if image.len() <= self.connection.target.limits.image
            && let Some(handler) = &mut self.settings.on_code_missing
        {
            handler(name);
        }
        self.respond_with_code(id, Some(&image))
    }

    pub(super) fn send_control(&mut self, message: &Message) -> Result<(), Error> {
        self.check_process()?;
        match self.connection.control.stream.send(message, &[]) {
            Ok(()) => Ok(()),
            Err(error) => self.gone(error),
        }
    }

    pub(in super::super) fn link_time(
        &mut self,
        library: &Library,
        timeout: Duration,
    ) -> Result<Option<Duration>, Error> {
        let index = match self.codes.recent_index(library) {
            Some(index) => index.into(),
            None => self.switch_to(library)?.into(),
        };
        let deadline = Deadline::after(timeout);
        loop {
            let code = self.codes.get(index);
            if code.link_time.is_some() || code.known != Known::Bound || deadline.passed() {
                return Ok(code.link_time);
            }
            self.sleep(deadline)?;
            self.look_everywhere()?;
        }
    }

    // ---- the end ----

    /// Reads the control messages. Returns whether the connection has ended.
    #[cold]
    pub(in super::super) fn is_gone(&mut self) -> bool {
        self.read_control().is_err() || self.connection.control.leaving.is_some()
    }

    /// Handles the end of the control connection: the target is gone. Returns no error if its last replies may still
    /// come.
    #[cold]
    pub(super) fn gone(&mut self, error: HandshakeError) -> Result<(), Error> {
        self.leaves(GoneCause::Control(Arc::new(error)))
    }

    /// Handles the target's end by `cause`. If the channel reports its own end, the link polls it until then for
    /// earlier replies, as long as the target's machine may be silent.
    #[cold]
    fn leaves(&mut self, cause: GoneCause) -> Result<(), Error> {
        if self.connection.control.leaving.is_some() {
            return Ok(());
        }
        if !self.is_own() {
            return Err(self.end(cause));
        }
        self.take_last_outcomes();
        if self.connection.control.gone.is_none()
            && self.connection.channel.has_end()
            && !self.pending.slots.none_in_flight()
        {
            self.connection.control.leaving = Some(Box::new((self.settings.silence_deadline(), cause)));
            self.codes.cool();
            return Ok(());
        }
        Err(self.end(cause))
    }

    /// Takes the replies that the target gave before its end from the mailbox: at most one for each call.
    fn take_last_outcomes(&mut self) {
        for _ in 0..MAX_CALLS {
            if self.connection.control.gone.is_some() || !matches!(self.step(), Ok(true)) {
                break;
            }
        }
    }

    /// Handles a failure of the transport, or a breach of the protocol. A channel that sends nothing more may
    /// still bring replies: then the link has not ended yet.
    #[cold]
    pub(super) fn broken(&mut self, error: &TransportError) -> Error {
        let cause = GoneCause::Transport(error.clone().with_peer(self.settings.address.clone()));
        if self.connection.control.leaving.is_none() && is_gone(error) {
            return match self.leaves(cause) {
                Ok(()) => self.gone_error(),
                Err(error) => error,
            };
        }
        self.end(cause)
    }

    /// As [`Inner::broken`], where the failure does not stop replies from being taken.
    #[cold]
    pub(super) fn broken_for_now(&mut self, error: &TransportError) -> Result<(), Error> {
        let error = self.broken(error);
        if self.connection.control.leaving.is_some() && self.connection.control.gone.is_none() {
            Ok(())
        } else {
            Err(error)
        }
    }

    /// Ends the link: the transport failed, the target broke the protocol, or a channel reported its end.
    #[cold]
    pub(super) fn finished(&mut self, error: &TransportError) -> Error {
        if let Some((_, cause)) = self.connection.control.leaving.as_deref() {
            let cause = cause.clone();
            return self.end(cause);
        }
        let mut cause = GoneCause::Transport(error.clone().with_peer(self.settings.address.clone()));
        let is_own = self.is_own();
        if is_own
            && self.connection.control.gone.is_none()
            && is_gone(error)
            && self.connection.channel.has_end()
        {
            // The target's last control messages explain more. The deadline is now: the link waits for no reply.
            self.connection.control.leaving = Some(Box::new((Instant::now(), cause.clone())));
            for _ in 0..MESSAGES {
                match self.connection.control.stream.recv() {
                    Ok(Some((Message::Closing { text }, _))) => {
                        cause = GoneCause::Closed { text: plain(&text, MAX_TEXT) };
                        break;
                    }
                    Ok(Some((message @ Message::Refused { .. }, descriptors))) => {
                        drop(self.control_message(message, descriptors));
                    }
                    Ok(Some(_)) => {}
                    _ => break,
                }
            }
        }
        self.end(cause)
    }

    fn end(&mut self, cause: GoneCause) -> Error {
        if self.connection.control.gone.is_none() {
            // In a forked child the copy ends, and not the link.
            let (is_own, parent) = (self.is_own(), self.connection.control.owner.pid());
            if is_own && let Some(handler) = &mut self.settings.on_peer_gone {
                handler(&cause.to_string());
            }
            let peer = self.settings.address.clone();
            self.pending.slots.fail_all(|| match is_own {
                true => WaitError::PeerGone { peer: peer.clone(), cause: cause.clone() }.into(),
                false => WaitError::Forked { peer: peer.clone(), parent }.into(),
            });
            self.codes.cool();
            self.connection.control.gone = Some(Box::new(cause));
            self.connection.control.leaving = None;
        }
        self.gone_error()
    }

    #[cold]
    pub(super) fn gone_error(&self) -> Error {
        if !self.is_own() {
            return self.forked();
        }
        let leaving = self.connection.control.leaving.as_deref().map(|(_, cause)| cause);
        let known = self.connection.control.gone.as_deref().or(leaving).cloned();
        let cause = known.unwrap_or(GoneCause::Closed { text: String::new() });
        Error::Wait(WaitError::PeerGone { peer: self.settings.address.clone(), cause })
    }

    /// Announces the close, so that the target need not detect it.
    pub(super) fn leave(&mut self) {
        if self.connection.control.gone.is_none()
            && self.connection.control.leaving.is_none()
            && self.connection.control.stream.send(&Message::Bye, &[]).is_ok()
        {
            // Best effort: the end of the connection says the same.
            drop(self.connection.control.stream.flush());
        }
    }
}

/// Returns whether an error means that the peer is gone.
fn is_gone(error: &TransportError) -> bool {
    matches!(error.cause(), Cause::PeerGone | Cause::Unreachable(_))
}

/// Returns whether a bound code index stays bound when the target refuses a call for this cause: the call ran, or its
/// mode is not allowed.
fn bound_still(cause: RefusalCause) -> bool {
    matches!(
        cause,
        RefusalCause::ReplyTooLarge
            | RefusalCause::Panicked
            | RefusalCause::Policy
            | RefusalCause::ForwardFailed
    )
}
