//! A destination that runs nothing, and asks for code.

use std::path::Path;

use farjump::CodeId;
use farjump_control::{Arrival, ArrivalOptions, Handshake, Listener, Message, PeerAddress, Progress};
use farjump_core::transport::{OpenRequest, Transport};
use farjump_transports::shm::Shm;

/// One that meets the target as a destination does.
pub(super) struct Asking {
    listener: Listener,
    arrival: Option<Arrival>,
    met: Option<Box<Handshake>>,
}

impl Asking {
    pub(super) fn at(path: &Path) -> Asking {
        let address: PeerAddress = format!("unix:{}", path.display()).parse().expect("an address");
        let listener = Listener::bind(&address).expect("a socket");
        Asking { listener, arrival: None, met: None }
    }

    /// Whether the target has a link to it.
    pub(super) fn is_met(&self) -> bool {
        self.met.is_some()
    }

    /// Goes on with the handshake.
    pub(super) fn turn(&mut self) {
        if self.is_met() {
            return;
        }
        if self.arrival.is_none() {
            let options = || ArrivalOptions::new("asking", 7, OpenRequest::new(1 << 18, 1 << 16));
            self.arrival =
                self.listener.accept().ok().flatten().map(|control| Arrival::new(control, options()));
        }
        let mut transports: Vec<Box<dyn Transport>> = vec![Box::new(Shm::new())];
        match self.arrival.as_mut().map(|arrival| arrival.advance(&mut transports)) {
            Some(Ok(Progress::Handshake(handshake))) => (self.arrival, self.met) = (None, Some(handshake)),
            Some(Err(_)) => self.arrival = None,
            _ => {}
        }
    }

    /// Asks for the image with this id.
    pub(super) fn ask(&mut self, wanted: CodeId) {
        if let Some(met) = &mut self.met {
            // A target that has ended the link answers no more.
            let _ = met.control.send(&Message::NeedCode { index: 0, id: wanted.0 }, &[]);
        }
    }

    /// The answer to it, if one has come: whether there is such an image. `None` before, and `Some(Err)` at the end of the link.
    pub(super) fn answer(&mut self, wanted: CodeId) -> Option<Result<bool, ()>> {
        let control = &mut self.met.as_mut()?.control;
        loop {
            match control.recv() {
                Ok(Some((Message::Code { id, .. }, _))) if id == wanted.0 => return Some(Ok(true)),
                Ok(Some((Message::NoCode { id }, _))) if id == wanted.0 => return Some(Ok(false)),
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(_) => {
                    self.met = None;
                    return Some(Err(()));
                }
            }
        }
    }
}
