//! A hostile target: it completes the handshake in order, and then sends arbitrary frames.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use farjump::core::channel::{Channel, ChannelParams, Polled};
use farjump::core::frame::{Header, Kind, Plan};
use farjump::core::mailbox::region_len;
use farjump::core::transport::{OpenRequest, Transport};
use farjump_control::{Arrival, ArrivalOptions, Control, Handshake, Listener, Progress};
use farjump_transports::shm::Shm;

use crate::support::PATIENCE;

/// A hostile target after the handshake.
pub(crate) struct RawTarget {
    pub(crate) channel: Channel,
    pub(crate) control: Control,
}

impl RawTarget {
    /// Listens at `address`, completes the handshake with the first source, and then runs `act`.
    pub(crate) fn start<T: Send + 'static>(
        address: &str,
        act: impl FnOnce(RawTarget) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        RawTarget::start_by(address, Box::new(Shm::new()), act)
    }

    /// The same, over `transport`.
    pub(crate) fn start_by<T: Send + 'static>(
        address: &str,
        transport: Box<dyn Transport>,
        act: impl FnOnce(RawTarget) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let listener = Listener::bind(&address.parse().unwrap()).unwrap();
        thread::spawn(move || act(RawTarget::meet(&listener, transport)))
    }

    fn meet(listener: &Listener, transport: Box<dyn Transport>) -> RawTarget {
        let deadline = Instant::now() + PATIENCE;
        let wait = || {
            assert!(Instant::now() < deadline, "nobody connects");
            thread::sleep(Duration::from_millis(1));
        };
        let control = loop {
            match listener.accept().unwrap() {
                Some(control) => break control,
                None => wait(),
            }
        };
        let request = OpenRequest::new(region_len(1 << 16), 1 << 16);
        let mut arrival = Arrival::new(control, ArrivalOptions::new("a raw target", 5, request));
        let mut transports = [transport];
        loop {
            match arrival.advance(&mut transports).unwrap() {
                Progress::Handshake(met) => return RawTarget::of(*met),
                Progress::Pending => wait(),
                Progress::Admin(asker) => panic!("{} asks, and makes no link", asker.peer()),
                Progress::Stream(stream) => panic!("{} opens a stream first", stream.peer()),
            }
        }
    }

    fn of(met: Handshake) -> RawTarget {
        let terms = ChannelParams {
            rule: met.rule,
            line_whole: met.send.line_whole,
            send_key: met.send.key,
            receive_key: met.receive.key,
            send_limit: met.send.max_frame,
            receive_limit: met.receive.max_frame,
            send_region: met.send.region_len,
            receive_region: met.receive.region_len,
        };
        RawTarget { channel: Channel::new(met.endpoint, terms).unwrap(), control: met.control }
    }

    /// The header of the next frame, which is consumed.
    pub(crate) fn next(&mut self) -> Header {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Polled::Frame(frame) = self.channel.poll().unwrap() {
                let header = frame.header();
                frame.release().unwrap();
                return header;
            }
            self.channel.progress(true).unwrap();
            assert!(Instant::now() < deadline, "no frame comes");
            thread::yield_now();
        }
    }

    /// Sends a reply with arbitrary fields.
    pub(crate) fn reply(&mut self, token: u32, status: u16, bytes: &[u8]) {
        let plan = Plan {
            kind: Kind::Reply,
            wants_reply: false,
            alone: false,
            index: status,
            token,
            align_log2: 0,
            code: None,
        };
        // A full mailbox is acceptable.
        drop(self.channel.send_bytes(&plan, bytes));
    }
}
