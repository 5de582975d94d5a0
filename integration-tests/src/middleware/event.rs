//! The events that an observer of a transport receives: one for each operation that succeeded or failed.

use std::fmt;

use farjump_core::transport::TransportError;

/// One operation of one endpoint of a link, after it was tried. Its `Display` is one line for people: `shm#0
/// put 120 bytes at 4104, frame at 0`, and `: failed: there is no credit now` behind it after a failure.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Event<'a> {
    /// Name of the transport.
    pub transport: &'a str,
    /// Number of the endpoint: endpoints that this wrapper had opened before.
    pub link: u64,
    /// The operation.
    pub action: Action<'a>,
    /// The error of a failed operation.
    pub failure: Option<&'a TransportError>,
}

impl<'a> Event<'a> {
    pub(super) fn new(
        transport: &'a str,
        link: u64,
        action: Action<'a>,
        failure: Option<&'a TransportError>,
    ) -> Self {
        Event { transport, link, action, failure }
    }
}

impl fmt::Display for Event<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}#{} {}", self.transport, self.link, self.action)?;
        match self.failure {
            Some(failure) => write!(out, ": failed: {}", failure.cause()),
            None => Ok(()),
        }
    }
}

/// An operation with its arguments. Lengths and offsets are in bytes; offsets count from the start of the
/// peer's region. `frame` is the caller's position (two-sided: running number).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Action<'a> {
    /// Opening an endpoint.
    Open {
        /// Requested length of the local region.
        region_len: usize,
        /// Largest frame that this endpoint accepts.
        max_frame: usize,
    },
    /// Connecting to the peer's address.
    Connect {
        /// Length of the address.
        address_len: usize,
        /// Descriptors in it.
        descriptors: usize,
    },
    /// Bytes for the peer's region.
    Put {
        /// Their offset.
        offset: usize,
        /// The bytes.
        bytes: &'a [u8],
        /// The frame.
        frame: u64,
    },
    /// One word for the peer's region.
    PutWord {
        /// Its offset.
        offset: usize,
        /// The word.
        word: u64,
        /// The frame.
        frame: u64,
    },
    /// Bytes for the peer's region, and a completion there.
    PutWithCompletion {
        /// Their offset.
        offset: usize,
        /// The bytes.
        bytes: &'a [u8],
        /// The frame.
        frame: u64,
    },
    /// A fence between earlier and later puts.
    Fence,
    /// Progress. [`super::Trace`] reports only failures.
    Progress,
    /// Waking the peer's sleeper.
    Ring,
    /// Completions that have arrived since the last event.
    Completions {
        /// Their total since the link was made.
        count: u64,
    },
    /// Reserving a buffer for a message.
    Reserve {
        /// Its length.
        len: usize,
    },
    /// Sending a message.
    Commit {
        /// Its length.
        len: usize,
        /// Its running number.
        frame: u64,
    },
    /// Returning a message for the first time.
    Deliver {
        /// Its length; 0 if polling failed.
        len: usize,
    },
    /// Releasing a message.
    Release,
    /// Preparing to sleep.
    Arm {
        /// Whether the descriptor reports every event.
        promised: bool,
    },
    /// Waking up.
    Disarm,
    /// The end of the endpoint.
    Close,
}

impl Action<'_> {
    /// Bytes that the operation moves between the peers: of puts, words, messages sent and delivered; 0 for
    /// other operations.
    pub fn bytes_moved(&self) -> usize {
        match self {
            Action::Put { bytes, .. } | Action::PutWithCompletion { bytes, .. } => bytes.len(),
            Action::PutWord { word, .. } => size_of_val(word),
            Action::Commit { len, .. } | Action::Deliver { len } => *len,
            _ => 0,
        }
    }
}

impl fmt::Display for Action<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = self.step();
        match *self {
            Action::Open { region_len, max_frame } => {
                write!(out, "{step} a region of {region_len} bytes for frames of up to {max_frame}")
            }
            Action::Connect { address_len, descriptors } => {
                write!(out, "{step} to an address of {address_len} bytes and {descriptors} descriptors")
            }
            Action::Put { offset, bytes, frame } | Action::PutWithCompletion { offset, bytes, frame } => {
                write!(out, "{step} {} bytes at {offset}, frame at {frame}", bytes.len())
            }
            Action::PutWord { offset, word, frame } => {
                write!(out, "{step} {word:#018x} at {offset}, frame at {frame}")
            }
            Action::Completions { count } => write!(out, "{step} {count}"),
            Action::Reserve { len } | Action::Deliver { len } => write!(out, "{step} {len} bytes"),
            Action::Commit { len, frame } => write!(out, "{step} {len} bytes, frame {frame}"),
            Action::Arm { promised: true } => write!(out, "{step}, the descriptor will show it"),
            Action::Arm { promised: false } => write!(out, "{step}, no promise"),
            Action::Fence
            | Action::Progress
            | Action::Ring
            | Action::Release
            | Action::Disarm
            | Action::Close => write!(out, "{step}"),
        }
    }
}

/// Makes [`Step`] of a table: the documentation, the name in code, and the name in text.
macro_rules! steps {
    ($($(#[$doc:meta])* $step:ident $name:literal)*) => {
        /// The operations of a transport by name, of both families.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[repr(u8)]
        pub enum Step {
            $($(#[$doc])* $step,)*
        }

        impl Step {
            /// All steps, in the order of their numbers.
            pub const ALL: [Step; [$($name),*].len()] = [$(Step::$step),*];
        }

        impl fmt::Display for Step {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(match self {
                    $(Step::$step => $name,)*
                })
            }
        }

        impl Action<'_> {
            /// The operation without its arguments.
            pub fn step(&self) -> Step {
                match self {
                    $(Action::$step { .. } => Step::$step,)*
                }
            }
        }
    };
}

steps! {
    /// [`farjump_core::transport::Transport::open`]
    Open "open"
    /// [`farjump_core::transport::UnconnectedEndpoint::connect`]
    Connect "connect"
    /// [`farjump_core::transport::RemoteMemory::put`]
    Put "put"
    /// [`farjump_core::transport::RemoteMemory::put_word`]
    PutWord "put word"
    /// [`farjump_core::transport::RemoteMemory::put_with_completion`]
    PutWithCompletion "put with completion"
    /// [`farjump_core::transport::RemoteMemory::fence`]
    Fence "fence"
    /// `progress` of either family
    Progress "progress"
    /// [`farjump_core::transport::RemoteMemory::wake_peer`]
    Ring "ring"
    /// [`farjump_core::transport::LocalMemory::completions`], if it reported new ones
    Completions "completions"
    /// [`farjump_core::transport::Messages::reserve`]
    Reserve "reserve"
    /// [`farjump_core::transport::Messages::commit`]
    Commit "commit"
    /// [`farjump_core::transport::Messages::poll`], if it returned a new message
    Deliver "deliver"
    /// [`farjump_core::transport::Messages::release`] of a message delivered
    Release "release"
    /// [`farjump_core::transport::LocalMemory::before_sleep`], [`farjump_core::transport::Messages::arm`]
    Arm "arm"
    /// [`farjump_core::transport::LocalMemory::after_sleep`], [`farjump_core::transport::Messages::disarm`]
    Disarm "disarm"
    /// The end of an endpoint
    Close "close"
}
