//! A destination gets the code that calls sent to it have named, and no other.

use std::thread;
use std::time::{Duration, Instant};

use farjump::core::transport::{OpenRequest, Transport};
use farjump::{Library, Link};
use farjump_control::{Arrival, ArrivalOptions, Handshake, Listener, Message, Progress};
use farjump_transports::shm::Shm;

use crate::forwarding::{address, member};
use crate::support::{PATIENCE, Place, id_of, image_of, library};

/// A destination that takes part in the handshake as a target does, and runs nothing.
struct CodeRequester(Box<Handshake>);

impl CodeRequester {
    fn accept_handshake(listener: &Listener) -> CodeRequester {
        let mut transports: Vec<Box<dyn Transport>> = vec![Box::new(Shm::new())];
        let mut arrival = awaited(|| listener.accept().unwrap()).map_or_else(
            || panic!("the target does not connect"),
            |control| {
                Arrival::new(control, ArrivalOptions::new("asking", 7, OpenRequest::new(1 << 20, 1 << 18)))
            },
        );
        let met = awaited(|| match arrival.advance(&mut transports).unwrap() {
            Progress::Handshake(handshake) => Some(handshake),
            _ => None,
        });
        CodeRequester(met.expect("the handshake ends"))
    }

    /// Requests the image with this id. Returns `None` if the target sends that it has none.
    fn request_image(&mut self, wanted: [u8; 16]) -> Option<Vec<u8>> {
        self.0.control.send(&Message::NeedCode { index: 0, id: wanted }, &[]).unwrap();
        self.await_response(|message| match message {
            Message::Code { id, image } if id == wanted => Some(Some(image)),
            Message::NoCode { id } if id == wanted => Some(None),
            _ => None,
        })
    }

    /// The same for the manifest of a family.
    fn request_manifest(&mut self, wanted: [u8; 16]) -> Option<Vec<u8>> {
        self.0.control.send(&Message::NeedManifest { family: wanted }, &[]).unwrap();
        self.await_response(|message| match message {
            Message::Manifest { family, text } if family == wanted => Some(Some(text)),
            Message::NoManifest { family } if family == wanted => Some(None),
            _ => None,
        })
    }

    fn await_response<T>(&mut self, is_answer: impl Fn(Message) -> Option<T>) -> T {
        let control = &mut self.0.control;
        awaited(|| control.recv().unwrap().and_then(|(message, _)| is_answer(message)))
            .expect("an answer comes")
    }
}

/// Repeats the attempt until it returns a value.
fn awaited<T>(mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if let Some(found) = attempt() {
            return Some(found);
        }
        thread::sleep(Duration::from_millis(1));
    }
    None
}

/// Makes a source call `ifunc` at the first target.
fn call(link: &Link, ifunc: &Library, payload: &[u8]) {
    link.send(ifunc, payload).unwrap();
    link.flush(PATIENCE).unwrap();
}

#[test]
fn a_destination_gets_only_the_code_of_calls_forwarded_to_it() {
    let place = Place::new();
    let [next, other] =
        [1, 2].map(|number| Listener::bind(&address(&place, number).parse().unwrap()).unwrap());
    let target =
        member(&place, 0, 2).destination("other", &address(&place, 2)).build().unwrap().spawn().unwrap();
    let link = Link::connect(&address(&place, 0)).unwrap();
    let (echo, onward, tally) = (library("echo"), library("onward"), library("tally"));
    // Code that is not forwarded.
    call(&link, &echo, b"stays");
    call(&link, &tally, b"");
    call(&link, &onward, b">next;");
    let mut next = CodeRequester::accept_handshake(&next);
    assert_eq!(next.request_image(id_of(&onward).0), Some(image_of(&onward)));
    assert_eq!(next.request_image(id_of(&echo).0), None);
    assert_eq!(next.request_image(id_of(&tally).0), None);
    assert_eq!(next.request_manifest(id_of(&echo).0), None);
    // Code for one destination does not go to the other.
    let spread = library("spread");
    call(&link, &spread, b"\x01\x01.nother;");
    let mut other = CodeRequester::accept_handshake(&other);
    assert_eq!(other.request_image(id_of(&spread).0), Some(image_of(&spread)));
    assert_eq!(other.request_image(id_of(&onward).0), None);
    assert_eq!(next.request_image(id_of(&spread).0), None);
    target.stop().unwrap();
}
