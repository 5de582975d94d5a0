//! Meeting a peer, beside the target: to meet takes the peer's loop to turn, and the peer may be waiting for this one's.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::Duration;

use farjump_control::TcpOptions;
use farjump_transports::BackendOptions;
use rustix::event::{EventfdFlags, eventfd};

use crate::{Error, Link};

/// How a target makes links to its peers.
#[derive(Clone, Debug)]
pub(in super::super) struct Choices {
    /// The only transport, if it is one of those built in.
    pub(in super::super) transport: Option<String>,
    /// Bytes of replies on their way from a peer, and of payload that waits to be sent to it.
    pub(in super::super) room: usize,
    /// How long a meeting may take.
    pub(in super::super) patience: Duration,
    /// The name that peers see.
    pub(in super::super) program: String,
    /// How to meet peers on other machines.
    pub(in super::super) tcp: TcpOptions,
    /// What the built-in transports may do.
    pub(in super::super) backends: BackendOptions,
}

/// What a meeting wakes the target with.
#[derive(Debug)]
pub(super) struct Wake(OwnedFd);

impl Wake {
    pub(super) fn new() -> Result<Wake, Error> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(Wake)
            .map_err(Error::system("making an event descriptor"))
    }

    fn ring(&self) {
        // The only failure is a counter that is full, and then the target is awake.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    pub(super) fn clear(&self) {
        // The only failure is a counter that is clear.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A meeting under way on a thread of its own, which ends when it has an outcome. Dropping this gives the meeting up.
#[derive(Debug)]
pub(super) struct Meeting(Receiver<Result<Link, Error>>);

impl Meeting {
    /// Starts to meet the target at `address`. Rings `wake` once there is an outcome.
    ///
    /// # Errors
    /// When the thread cannot be made.
    pub(super) fn start(address: &str, choices: &Choices, wake: Arc<Wake>) -> Result<Meeting, Error> {
        let (sender, receiver) = sync_channel(1);
        let mut link = Link::builder(address)
            .connect_timeout(choices.patience)
            .reply_room(choices.room)
            .program(&choices.program)
            .peer_timeout(choices.tcp.peer_timeout)
            .clear(choices.tcp.clear)
            .ucx_tcp(choices.backends.ucx_tcp)
            .on_refused(|refusal| log::info!("a call that was forwarded with nobody waiting: {refusal}"));
        if let Some(key) = &choices.tcp.key {
            link = link.key(key.clone());
        }
        if let Some(transport) = &choices.transport {
            link = link.transport(transport);
        }
        let meet = move || {
            // Nobody takes it where the target has ended: then the link is dropped, and says goodbye.
            drop(sender.send(link.connect()));
            wake.ring();
        };
        match std::thread::Builder::new().name("farjump-meeting".into()).spawn(meet) {
            Ok(_) => Ok(Meeting(receiver)),
            Err(source) => Err(Error::System { what: "starting a thread to meet a peer", source }),
        }
    }

    /// What came of it, once that is known.
    pub(super) fn outcome(&self) -> Option<Result<Link, Error>> {
        match self.0.try_recv() {
            Ok(outcome) => Some(outcome),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                let source = std::io::Error::other("its thread ended");
                Some(Err(Error::System { what: "meeting a peer", source }))
            }
        }
    }
}
