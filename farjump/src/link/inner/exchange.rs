//! Exchanging the image that a library carries for one that is compiled for the target's CPU.

use farjump_control::Rights;
use farjump_core::channel::SendError;
use farjump_core::frame::{Kind, Plan, PlanCode};
use farjump_loader::{Library, LibraryImage};

use super::super::exact::{CompiledImage, KeptCause, State};
use super::super::sent_codes::Known;
use super::Inner;
use crate::policy::may;
use crate::{CallError, Error, Refusal};

impl Inner {
    /// Advances the exchange of `library`'s image, before a call of the library in mode cached. Never waits.
    #[cold]
    pub(super) fn exchange(&mut self, library: &Library) {
        let Some(exchanges) = &mut self.exchanges else { return };
        // A library without an image for the target has nothing to exchange, and its calls fail.
        let Ok(carried) = library.image_for_cpu(&self.connection.target.cpu) else { return };
        if exchanges.find(library).is_none() {
            let may_bring =
                may(self.connection.target.rights, Rights::INJECT, || self.settings.tcp.key.is_some())
                    .is_ok();
            exchanges.begin(library, carried, &self.connection.target.cpu, may_bring);
        }
        let Some(exchange) = exchanges.find(library) else { return };
        exchange.state.look_at_job(library, carried);
        if let State::Compiled(image) = &exchange.state {
            let image = image.clone();
            let state = self.offer(library, image);
            self.set_exchange(library, state);
        } else if let State::Offered(image, token, index) = &exchange.state {
            let (image, token, index) = (image.clone(), *token, *index);
            if let Some(state) = self.offered_image(library, image, token, index) {
                self.set_exchange(library, state);
            }
        }
    }

    /// Returns whether calls of `library` must take the general path, for its exchange.
    pub(super) fn is_exchanging(&mut self, library: &Library) -> bool {
        let exchange = self.exchanges.as_mut().and_then(|exchanges| exchanges.find(library));
        exchange.is_some_and(|exchange| !exchange.state.is_settled())
    }

    /// Returns the state of `library`'s exchange, for users. Takes results that have come, and sends nothing.
    pub(in super::super) fn compiled_image(&mut self, library: &Library) -> CompiledImage {
        let Some(exchange) = self.exchanges.as_mut().and_then(|exchanges| exchanges.find(library)) else {
            return CompiledImage::NotRequested;
        };
        if let Ok(carried) = library.image_for_cpu(&self.connection.target.cpu) {
            exchange.state.look_at_job(library, carried);
        }
        if let State::Offered(image, token, index) = &exchange.state {
            let (image, token, index) = (image.clone(), *token, *index);
            if let Some(state) = self.offered_image(library, image, token, index) {
                self.set_exchange(library, state);
            }
        }
        let exchange = self.exchanges.as_mut().and_then(|exchanges| exchanges.find(library));
        exchange.map_or(CompiledImage::NotRequested, |exchange| CompiledImage::from(&exchange.state))
    }

    /// Returns to the carried image if the target refused a call of the compiled one, which had this code index.
    #[cold]
    pub(super) fn exchange_refused(&mut self, index: u16, refusal: &Refusal) {
        if let Some(exchange) = self.exchanges.as_mut().and_then(|exchanges| exchanges.using(index)) {
            let cause = KeptCause::Refused(refusal.clone());
            log::info!(
                "{}: calls return to the image that their library carries: {cause}",
                self.settings.address
            );
            exchange.state = State::Kept(cause);
            self.codes.drop_recent();
        }
    }

    fn set_exchange(&mut self, library: &Library, state: State) {
        match &state {
            // The next call looks for its image again.
            State::InUse(image, _) => {
                log::debug!("{}: calls of `{}` run {}", self.settings.address, library.name(), image.id());
                self.codes.drop_recent();
            }
            State::Kept(cause) => {
                let (peer, name) = (&self.settings.address, library.name());
                log::info!("{peer}: `{name}` keeps the image that it carries: {cause}");
            }
            _ => {}
        }
        if let Some(exchange) = self.exchanges.as_mut().and_then(|exchanges| exchanges.find(library)) {
            exchange.state = state;
        }
    }

    /// Sends the frame that brings `image`, if there is credit right away.
    fn offer(&mut self, library: &Library, image: LibraryImage) -> State {
        let (len, max) = (image.bytes().len(), self.connection.target.limits.image);
        if len > max {
            return State::Kept(KeptCause::TooLong { len, max });
        }
        let Ok(index) = self.codes.index_compiled(library, &image) else {
            return State::Kept(KeptCause::NoIndex);
        };
        if self.codes.get(index.into()).known == Known::Bound {
            // Another handle on the library has bound it.
            return State::InUse(image, index);
        }
        let Some(token) = self.pending.slots.open(index) else { return State::Compiled(image) };
        let (id, epoch) = (image.id(), self.connection.target.epoch);
        let family = self.codes.get(index.into()).family();
        let code = PlanCode { image: image.bytes(), id, epoch, name: library.name(), family };
        let plan = Plan { wants_reply: true, token, index, code: Some(code), ..Plan::of(Kind::Bind) };
        let sent = self.connection.channel.send_bytes(&plan, &[]);
        if let Err(error) = sent {
            self.pending.slots.close(token);
            return match error {
                SendError::Full => State::Compiled(image),
                SendError::TooLarge { len, max } => State::Kept(KeptCause::TooLong { len, max }),
                SendError::Failed(error) => {
                    // The call that follows reports it.
                    let _ = self.broken(&error);
                    State::Kept(KeptCause::LinkEnded)
                }
            };
        }
        self.stats.code_bytes += len as u64;
        State::Offered(image, token, index)
    }

    /// The state after the outcome of the frame that brought `image`, if that has come.
    fn offered_image(
        &mut self,
        library: &Library,
        image: LibraryImage,
        token: u32,
        index: u16,
    ) -> Option<State> {
        if self.pending.slots.is_in_flight(token) {
            // The call that follows reports an error.
            let _ = self.look();
        }
        Some(match self.pending.slots.take(token)? {
            Ok(_) => {
                self.codes.set_known(index.into(), Known::Bound);
                log::debug!("`{}`: the target holds {}", library.name(), image.id());
                State::InUse(image, index)
            }
            Err(Error::Call(CallError::Refused { cause, text, .. })) => {
                State::Kept(KeptCause::Refused(Refusal { cause, text }))
            }
            Err(_) => State::Kept(KeptCause::LinkEnded),
        })
    }
}
