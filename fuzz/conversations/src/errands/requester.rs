//! A destination that runs nothing, and requests code.

use std::path::Path;

use farjump::CodeId;
use farjump_control::{Arrival, ArrivalOptions, Handshake, Listener, Message, PeerAddress, Progress};
use farjump_core::transport::{OpenRequest, Transport};
use farjump_transports::shm::Shm;

/// A process that connects with the target as a destination does.
pub(super) struct Requester {
    listener: Listener,
    arrival: Option<Arrival>,
    handshake: Option<Box<Handshake>>,
}

impl Requester {
    pub(super) fn at(path: &Path) -> Requester {
        let address: PeerAddress = format!("unix:{}", path.display()).parse().expect("an address");
        let listener = Listener::bind(&address).expect("a socket");
        Requester { listener, arrival: None, handshake: None }
    }

    /// Returns whether the target has a link to it.
    pub(super) fn is_connected(&self) -> bool {
        self.handshake.is_some()
    }

    /// Continues the handshake.
    pub(super) fn turn(&mut self) {
        if self.is_connected() {
            return;
        }
        if self.arrival.is_none() {
            let options = || ArrivalOptions::new("requester", 7, OpenRequest::new(1 << 18, 1 << 16));
            self.arrival =
                self.listener.accept().ok().flatten().map(|control| Arrival::new(control, options()));
        }
        let mut transports: Vec<Box<dyn Transport>> = vec![Box::new(Shm::new())];
        match self.arrival.as_mut().map(|arrival| arrival.advance(&mut transports)) {
            Some(Ok(Progress::Handshake(handshake))) => {
                (self.arrival, self.handshake) = (None, Some(handshake))
            }
            Some(Err(_)) => self.arrival = None,
            _ => {}
        }
    }

    /// Requests the image with this id.
    pub(super) fn request(&mut self, wanted: CodeId) {
        if let Some(handshake) = &mut self.handshake {
            // A target that has ended the link does not reply.
            let _ = handshake.control.send(&Message::NeedCode { index: 0, id: wanted.0 }, &[]);
        }
    }

    /// Returns whether the target sent the image, if its message has come. Returns `None` before, and `Some(Err)` at
    /// the end of the link.
    pub(super) fn response(&mut self, wanted: CodeId) -> Option<Result<bool, ()>> {
        let control = &mut self.handshake.as_mut()?.control;
        loop {
            match control.recv() {
                Ok(Some((Message::Code { id, .. }, _))) if id == wanted.0 => return Some(Ok(true)),
                Ok(Some((Message::NoCode { id }, _))) if id == wanted.0 => return Some(Ok(false)),
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(_) => {
                    self.handshake = None;
                    return Some(Err(()));
                }
            }
        }
    }
}
