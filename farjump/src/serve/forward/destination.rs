//! One destination of a target: the link to it, calls that wait to be sent, and calls that wait for an
//! outcome.

use std::collections::VecDeque;
use std::sync::Arc;

use farjump_control::RefusalCause;
use farjump_core::channel::Armed;

use super::connecting::Connecting;
use super::ends::take_from;
use super::families::{Found, Other};
use super::named::NamedCode;
use super::{Caller, Forward, Outcome, Returned, Work, wake};
use crate::link::{Forwarded, Image, Outgoing, Wanted};
use crate::serve::epoll::{Event, Watch};
use crate::wait::Rest;
use crate::{CallError, Error, InjectError, WaitError};

/// A destination. Calls are sent to it in the order in which they came.
pub(super) struct Peer {
    name: Box<str>,
    address: String,
    /// Identifies its events.
    number: u64,
    state: State,
    queue: VecDeque<Forward>,
    queued_bytes: usize,
    /// Calls that wait for an outcome, by their tokens.
    sent: Vec<(u32, Caller)>,
}

enum State {
    /// No call is to be sent, or none has been since the link ended.
    Apart,
    Connecting(Connecting),
    Connected(Box<Connected>),
}

struct Connected {
    link: Outgoing,
    /// True if anything has been sent. If a link ends before that, no new one is made for the waiting calls.
    used: bool,
    /// Whether the control connection may have messages.
    attended: bool,
    /// Requests of the destination without a response.
    wanted: Vec<Wanted>,
    /// The code that it may request.
    named: NamedCode,
    watches_write: bool,
    doorbell_watches_write: bool,
}

impl Peer {
    pub(super) fn new(name: &str, address: String, number: u64) -> Peer {
        Peer {
            name: name.into(),
            address,
            number,
            state: State::Apart,
            queue: VecDeque::new(),
            queued_bytes: 0,
            sent: Vec::new(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn is_linked(&self) -> bool {
        matches!(self.state, State::Connected(_))
    }

    /// Returns whether the destination waits for code or a manifest.
    pub(super) fn awaits_code(&self) -> bool {
        matches!(&self.state, State::Connected(linked) if !linked.wanted.is_empty())
    }

    /// Number of calls that wait to be sent, or for an outcome.
    pub(super) fn in_flight(&self) -> usize {
        self.queue.len() + self.sent.len()
    }

    /// Bytes of payload that wait to be sent; `None` if nothing waits.
    pub(super) fn queued_bytes(&self) -> Option<usize> {
        (!self.queue.is_empty()).then_some(self.queued_bytes)
    }

    /// Largest frame that it takes, if that is known.
    pub(super) fn max_frame(&self) -> Option<usize> {
        match &self.state {
            State::Connected(linked) => Some(linked.link.max_frame()),
            _ => None,
        }
    }

    pub(super) fn push(&mut self, forward: Forward) {
        self.queued_bytes += forward.payload.len();
        self.queue.push_back(forward);
    }

    fn remove(&mut self, index: usize) -> Option<Forward> {
        let forward = self.queue.remove(index)?;
        self.queued_bytes -= forward.payload.len();
        Some(forward)
    }

    /// Removes the waiting calls for whose callers `goes` returns `true`, and adds these callers to `taken`.
    pub(super) fn take_waiting(&mut self, goes: &mut impl FnMut(&Caller) -> bool, taken: &mut Vec<Caller>) {
        take_from(&mut self.queue, |forward| &forward.caller, goes, taken);
        self.queued_bytes = self.queue.iter().map(|forward| forward.payload.len()).sum();
    }

    pub(super) fn set_address(&mut self, address: String, watch: &Watch, outcomes: &mut VecDeque<Returned>) {
        if self.address != address {
            self.part(watch);
            self.fail_sent("it is at another address now", outcomes);
            self.fail_queued("it is at another address now", outcomes);
            self.address = address;
        }
    }

    pub(super) fn attend(&mut self) {
        if let State::Connected(linked) = &mut self.state {
            linked.attended = true;
        }
    }

    /// Sends a call at once, if nothing waits to be sent before it and the destination has its code. Returns its
    /// payload, which is not needed any more. Otherwise returns the call, for [`Peer::push`].
    ///
    /// An error is left to the turn in which the call is sent again.
    #[inline]
    pub(super) fn send_now(&mut self, forward: Forward) -> Result<Vec<u8>, Forward> {
        let State::Connected(linked) = &mut self.state else { return Err(forward) };
        if !self.queue.is_empty() || linked.attended {
            return Err(forward);
        }
        let Forward { linked: code, family, payload, caller } = &forward;
        let call =
            Forwarded { linked: code, family: family.as_ref(), payload, wants_reply: caller.wants_reply };
        let Some(image) = linked.link.image_of(code) else { return Err(forward) };
        let Ok(token) = linked.link.forward(&call, image) else { return Err(forward) };
        linked.named.note(image, code, *family, caller);
        linked.used = true;
        if forward.caller.wants_reply {
            self.sent.push((token, forward.caller));
        }
        Ok(forward.payload)
    }

    /// Returns whether [`Peer::turn`] has something to do, besides the occasional work of an idle link.
    #[inline]
    pub(super) fn is_active(&self) -> bool {
        self.in_flight() != 0
            || match &self.state {
                State::Apart => false,
                State::Connecting(_) => true,
                State::Connected(linked) => linked.attended || !linked.wanted.is_empty(),
            }
    }

    /// Does all work that needs no waiting.
    pub(super) fn turn(&mut self, work: &mut Work<'_>) {
        if let State::Connecting(connecting) = &self.state
            && let Some(connected) = connecting.outcome()
        {
            match connected
                .and_then(|link| self.join(Outgoing::new(link, work.choices.brings_code), work.watch))
            {
                Ok(linked) => self.state = State::Connected(Box::new(linked)),
                Err(error) => {
                    self.state = State::Apart;
                    self.fail_queued(&error.to_string(), work.outcomes);
                }
            }
        }
        if let State::Connected(linked) = &mut self.state {
            let mut result = linked.link.look(std::mem::take(&mut linked.attended));
            self.take_outcomes(work.outcomes);
            if result.is_ok() {
                result = self.send(work).and_then(|()| self.respond(work));
            }
            if let Err(error) = result {
                self.link_ended(&error, work.watch, work.outcomes);
            }
        }
        if matches!(self.state, State::Apart) && !self.queue.is_empty() {
            match self.start_connecting(work) {
                Ok(connecting) => self.state = State::Connecting(connecting),
                Err(error) => self.fail_queued(&error.to_string(), work.outcomes),
            }
        }
    }

    fn start_connecting(&self, work: &mut Work<'_>) -> Result<Connecting, Error> {
        Connecting::start(&self.address, work.choices, Arc::clone(wake(work.wake, work.watch)?))
    }

    /// Watches a link that was made.
    fn join(&self, link: Outgoing, watch: &Watch) -> Result<Connected, Error> {
        // `part` takes them out of the watch before the link is dropped.
        let event = Event::Peer(self.number);
        watch.add_link(link.doorbell().map(|doorbell| (doorbell, event)), false, (link.control(), event))?;
        log::debug!("linked to destination `{}` at {}", self.name, self.address);
        Ok(Connected {
            link,
            used: false,
            attended: true,
            wanted: Vec::new(),
            named: NamedCode::default(),
            watches_write: false,
            doorbell_watches_write: false,
        })
    }

    /// Sends calls while there is credit. A call whose image is not here waits, and so do later calls of its source;
    /// those of other sources continue.
    ///
    /// # Errors
    /// At the end of the link.
    fn send(&mut self, work: &mut Work<'_>) -> Result<(), Error> {
        let mut waiting = Vec::new();
        let mut index = 0;
        while let Some(Forward { linked: code, family, payload, caller }) = self.queue.get(index) {
            let State::Connected(linked) = &mut self.state else { return Ok(()) };
            let caller = caller.clone();
            if waiting.contains(&caller.session) {
                index += 1;
                continue;
            }
            let call =
                Forwarded { linked: code, family: family.as_ref(), payload, wants_reply: caller.wants_reply };
            let forward = |linked: &mut Connected, image: Image<'_>| {
                let sent = linked.link.forward(&call, image);
                if sent.is_ok() {
                    linked.named.note(image, code, *family, &caller);
                }
                sent
            };
            let sent = match linked.link.image_of(code) {
                Some(image) => forward(linked, image),
                None => {
                    match work.families.image_for(code, *family, &caller, linked.link.cpu(), work.executor) {
                        Found::Here(Other::Stored(other)) => forward(linked, Image::Stored(&other)),
                        Found::Here(Other::Passed(other)) => forward(linked, Image::Passed(&other)),
                        Found::Waits => {
                            waiting.push(caller.session);
                            index += 1;
                            continue;
                        }
                        Found::Not(why) => {
                            work.outcomes.push_back(self.failed(caller, &why));
                            drop(self.remove(index));
                            continue;
                        }
                    }
                }
            };
            match sent {
                Ok(token) => {
                    linked.used = true;
                    if caller.wants_reply {
                        self.sent.push((token, caller));
                    }
                }
                Err(Error::Inject(InjectError::Full)) => return Ok(()),
                Err(error @ Error::Wait(WaitError::PeerGone { .. })) => return Err(error),
                // Another link has other indexes. The replies that are due come first.
                Err(error @ Error::Inject(InjectError::TooManyFunctions)) if linked.used => {
                    return if self.sent.is_empty() { Err(error) } else { Ok(()) };
                }
                Err(error) => work.outcomes.push_back(self.failed(caller, &error.to_string())),
            }
            drop(self.remove(index));
        }
        Ok(())
    }

    /// Responds to the destination's requests whose results are here, or are unavailable.
    ///
    /// # Errors
    /// At the end of the link.
    fn respond(&mut self, work: &mut Work<'_>) -> Result<(), Error> {
        let State::Connected(linked) = &mut self.state else { return Ok(()) };
        linked.wanted.append(&mut linked.link.take_wanted());
        let mut index = 0;
        while let Some(&wanted) = linked.wanted.get(index) {
            let answered = match wanted {
                Wanted::Manifest(id) => {
                    let named = linked.named.family(id);
                    match named.map(|family| work.families.manifest(family, work.executor)) {
                        Some(Found::Waits) => None,
                        Some(Found::Here(manifest)) => {
                            Some(linked.link.respond_with_manifest(id, Some(&manifest)))
                        }
                        Some(Found::Not(_)) | None => Some(linked.link.respond_with_manifest(id, None)),
                    }
                }
                Wanted::Code(id) => match work.families.named_image(id, &linked.named, work.executor) {
                    Found::Waits => None,
                    Found::Here(Other::Stored(other)) => {
                        Some(linked.link.respond_with_code(id, Some(other.image())))
                    }
                    Found::Here(Other::Passed(other)) => {
                        Some(linked.link.respond_with_code(id, Some(other.bytes())))
                    }
                    Found::Not(_) => Some(linked.link.respond_with_code(id, None)),
                },
            };
            match answered {
                None => index += 1,
                Some(answered) => {
                    answered?;
                    linked.wanted.remove(index);
                }
            }
        }
        Ok(())
    }

    fn take_outcomes(&mut self, outcomes: &mut VecDeque<Returned>) {
        let State::Connected(linked) = &mut self.state else { return };
        let mut index = 0;
        while let Some(&(token, _)) = self.sent.get(index) {
            let Some(outcome) = linked.link.take(token) else {
                index += 1;
                continue;
            };
            // In order: later entries are more likely to have a later outcome.
            let (_, caller) = self.sent.remove(index);
            let outcome = match outcome {
                Ok(bytes) => Outcome::Done(bytes),
                Err(Error::Call(CallError::Panicked { message, .. })) => {
                    Outcome::Panicked(message.into_bytes())
                }
                Err(Error::Call(CallError::Incomplete(inner))) => Outcome::Incomplete {
                    lost: inner.lost,
                    why: inner.text.into_bytes(),
                    replies: inner.replies,
                },
                // Lost at a later destination, which has given its reason.
                Err(Error::Call(CallError::Refused { cause: RefusalCause::ForwardFailed, text, .. })) => {
                    Outcome::Failed(text)
                }
                Err(error) => Outcome::Failed(reason(&self.name, &error.to_string())),
            };
            outcomes.push_back(Returned { caller, outcome });
        }
    }

    /// Handles the end of the link. Calls that were sent to the destination are lost; waiting calls are sent on another
    /// link, if this one was used.
    fn link_ended(&mut self, error: &Error, watch: &Watch, outcomes: &mut VecDeque<Returned>) {
        let used = matches!(&self.state, State::Connected(linked) if linked.used);
        let text = error.to_string();
        log::info!("the link to destination `{}` ended: {text}", self.name);
        self.part(watch);
        self.fail_sent(&text, outcomes);
        if !used {
            self.fail_queued(&text, outcomes);
        }
    }

    fn failed(&self, caller: Caller, why: &str) -> Returned {
        Returned { caller, outcome: Outcome::Failed(reason(&self.name, why)) }
    }

    fn fail_sent(&mut self, why: &str, outcomes: &mut VecDeque<Returned>) {
        for (_, caller) in std::mem::take(&mut self.sent) {
            outcomes.push_back(self.failed(caller, why));
        }
    }

    fn fail_queued(&mut self, why: &str, outcomes: &mut VecDeque<Returned>) {
        while let Some(forward) = self.remove(0) {
            outcomes.push_back(self.failed(forward.caller, why));
        }
    }

    /// Drops the link or the handshake. Closing a link's descriptors would not do, as other processes have
    /// copies of them: see [`Watch::remove`].
    fn part(&mut self, watch: &Watch) {
        if let State::Connected(linked) = std::mem::replace(&mut self.state, State::Apart) {
            watch.remove_link(linked.link.doorbell(), linked.link.control());
        }
    }

    pub(super) fn close(&mut self, watch: &Watch) {
        self.part(watch);
        self.sent.clear();
        self.queue.clear();
        self.queued_bytes = 0;
    }

    pub(super) fn arm(&mut self) -> Rest {
        let State::Connected(linked) = &mut self.state else { return Rest::Sleep };
        match linked.link.arm() {
            Ok(Armed::Ready) | Err(_) => {
                linked.attended = true;
                Rest::None
            }
            // Credit shows in memory only.
            Ok(Armed::Sleep) if self.queue.is_empty() => Rest::Sleep,
            Ok(Armed::Sleep | Armed::Nap) => Rest::Nap,
        }
    }

    /// Ends the sleep; `false` if the link needs a poll.
    pub(super) fn disarm(&mut self) -> bool {
        let State::Connected(linked) = &mut self.state else { return true };
        linked.link.disarm().is_ok()
    }

    pub(super) fn rewatch(&mut self, watch: &Watch) -> Result<(), Error> {
        let State::Connected(linked) = &mut self.state else { return Ok(()) };
        let event = Event::Peer(self.number);
        let wanted = linked.link.wants_write() && !linked.link.is_draining();
        watch.watch_write(linked.link.control(), event, wanted, &mut linked.watches_write)?;
        if linked.link.is_draining() {
            // An ended connection would stay readable for ever.
            watch.remove(linked.link.control());
        }
        let Some(doorbell) = linked.link.doorbell() else { return Ok(()) };
        let wanted = linked.link.doorbell_wants_write();
        watch.watch_write(doorbell, event, wanted, &mut linked.doorbell_watches_write)
    }
}

/// The text for the source of a call that was lost.
fn reason(peer: &str, why: &str) -> String {
    format!("the target refused a call: it could not forward it to its destination `{peer}`: {why}")
}
