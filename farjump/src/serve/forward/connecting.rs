//! Connecting to a destination, on a thread beside the target. The handshake needs turns of the destination's loop, and
//! the destination may be waiting for this target's loop.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::Duration;

use farjump_control::TcpOptions;
use farjump_transports::BackendOptions;
use rustix::event::{EventfdFlags, eventfd};

use crate::error::system;
use crate::forward_limits::ForwardLimits;
use crate::{Error, Link, SystemError, SystemOperation};

/// Choices for a target's links to its destinations.
#[derive(Clone, Debug)]
pub(in super::super) struct Choices {
    /// The only transport, if it is one of those built in.
    pub(in super::super) transport: Option<String>,
    /// Bytes of replies on their way from a destination, and of payload that waits to be sent to it.
    pub(in super::super) mailbox_size: usize,
    /// Time limit of connecting.
    pub(in super::super) patience: Duration,
    /// The name that destinations see.
    pub(in super::super) program: String,
    /// TCP options for destinations on other machines.
    pub(in super::super) tcp: TcpOptions,
    /// Limits for calls that forward themselves.
    pub(in super::super) limits: ForwardLimits,
    /// Most bytes of code that a function may make; `None` if functions may make none.
    pub(in super::super) makes: Option<usize>,
    /// Whether each forwarded message brings its code.
    pub(in super::super) brings_code: bool,
    /// Options of the built-in transports.
    pub(in super::super) backends: BackendOptions,
}

/// An eventfd by which a finished handshake wakes the target.
#[derive(Debug)]
pub(super) struct Wake(OwnedFd);

impl Wake {
    pub(super) fn new() -> Result<Wake, Error> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(Wake)
            .map_err(system(SystemOperation::MakeDescriptor))
    }

    fn wake(&self) {
        // The write fails only if the counter is full, and then the target is awake.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    pub(super) fn clear(&self) {
        // The read fails only if the counter is zero.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A handshake under way on another thread, which ends when it has an outcome. Dropping this abandons the handshake.
#[derive(Debug)]
pub(super) struct Connecting(Receiver<Result<Link, Error>>);

impl Connecting {
    /// Starts to connect to the target at `address`. Signals `wake` once there is an outcome.
    ///
    /// # Errors
    /// When the thread cannot be made.
    pub(super) fn start(address: &str, choices: &Choices, wake: Arc<Wake>) -> Result<Connecting, Error> {
        let (sender, receiver) = sync_channel(1);
        let mut link = Link::builder(address)
            .connect_timeout(choices.patience)
            .reply_mailbox_size(choices.mailbox_size)
            .program(&choices.program)
            .peer_timeout(choices.tcp.peer_timeout)
            .clear(choices.tcp.clear)
            .ucx_tcp(choices.backends.ucx_tcp)
            .on_refused(|refusal| log::info!("a forwarded one-way call failed: {refusal}"));
        if let Some(key) = &choices.tcp.key {
            link = link.key(key.clone());
        }
        if let Some(transport) = &choices.transport {
            link = link.transport(transport);
        }
        let connect = move || {
            // If the target has ended, nothing receives it: the link is dropped, and announces its close.
            drop(sender.send(link.connect()));
            wake.wake();
        };
        match std::thread::Builder::new().name("farjump-connect".into()).spawn(connect) {
            Ok(_) => Ok(Connecting(receiver)),
            Err(source) => Err(SystemError { operation: SystemOperation::StartThread, source }.into()),
        }
    }

    /// The outcome, once it is known.
    pub(super) fn outcome(&self) -> Option<Result<Link, Error>> {
        match self.0.try_recv() {
            Ok(outcome) => Some(outcome),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                let source = std::io::Error::other("its thread ended");
                Some(Err(SystemError { operation: SystemOperation::ConnectDestination, source }.into()))
            }
        }
    }
}
