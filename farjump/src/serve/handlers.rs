//! Handlers of a target's events.

use std::any::Any;

use farjump_control::PeerIdentity;
use farjump_core::image::CodeId;

use crate::Refusal;
use crate::principals::Principal;

type RefusedHandler = Box<dyn FnMut(&PeerIdentity, &Refusal) + Send>;
type CodeMissingHandler = Box<dyn FnMut(&PeerIdentity, &CodeId) + Send>;
type PeerJoinedHandler = Box<dyn FnMut(&PeerIdentity) + Send>;
type WordHandler = Box<dyn FnMut(&Principal) -> Box<dyn Any + Send + Sync> + Send>;
type PeerGoneHandler = Box<dyn FnMut(&PeerIdentity, &str) + Send>;

/// Handlers of a target's events. None of them can use the target.
#[derive(Default)]
pub(super) struct Handlers {
    pub(super) refused: Option<RefusedHandler>,
    pub(super) code_missing: Option<CodeMissingHandler>,
    pub(super) peer_joined: Option<PeerJoinedHandler>,
    pub(super) peer_gone: Option<PeerGoneHandler>,
    pub(super) word: Option<WordHandler>,
}

impl Handlers {
    pub(super) fn refused(&mut self, peer: &PeerIdentity, refusal: &Refusal) {
        log::info!("refused a frame of {peer}: {refusal}");
        if let Some(handler) = &mut self.refused {
            handler(peer, refusal);
        }
    }

    pub(super) fn code_missing(&mut self, peer: &PeerIdentity, id: &CodeId) {
        log::debug!("asked {peer} for code {id}");
        if let Some(handler) = &mut self.code_missing {
            handler(peer, id);
        }
    }

    /// Sets the program's word on a principal.
    pub(super) fn give_word(&mut self, principal: &mut Principal) {
        if let Some(handler) = &mut self.word {
            let word = handler(principal);
            principal.set_word(word);
        }
    }

    pub(super) fn peer_joined(&mut self, peer: &PeerIdentity) {
        match &peer.key {
            Some(_) => log::info!("{peer} has connected"),
            None => log::debug!("{peer} has connected"),
        }
        if let Some(handler) = &mut self.peer_joined {
            handler(peer);
        }
    }

    pub(super) fn peer_gone(&mut self, peer: &PeerIdentity, why: &str) {
        log::debug!("{peer} is gone: {why}");
        if let Some(handler) = &mut self.peer_gone {
            handler(peer, why);
        }
    }
}
