//! Errors by operation, [`Error`], which holds any of them, and all causes inside, for programs that match.
//!
//! The text of an error ([`Display`](std::fmt::Display)) is a sentence that names the fault, its place, the causes
//! and the remedy. [`Debug`] prints the same, so that a `main` that returns an error shows it; `{:#?}` prints the
//! structure.

mod call;
mod connect;
mod inject;
mod serve;
mod system;
mod wait;

pub use call::{CallError, IncompleteReply, ReplyLength};
pub use connect::{ConnectError, Mailbox};
#[cfg(feature = "build")]
pub use farjump_builder::BuildError;
pub use farjump_control::{
    AddressError, ConnectionError, ControlOperation, ControlSystemError, HandshakeError, HandshakeEvent,
    KeyError, KeyFault, KeyLineFault, MessageFault, MissingRights, NoListener, ParameterFault, PeerAddress,
    RefusalCause, RejectCause, ReservedBytes,
};
pub use farjump_core::bitcode::BitcodeError;
pub use farjump_core::code::CodeError;
use farjump_core::debug_in_words;
pub use farjump_core::image::{ImageError, PlaceError};
pub use farjump_core::transport::{
    Cause as TransportCause, Operation as TransportOperation, PassedOver, TransportError,
};
pub use farjump_loader::library::bundle::BundleError;
pub use farjump_loader::{ArenaStep, Error as LibraryError, FileKind};
pub use farjump_transports::Error as TransportUnavailable;
pub use inject::{InPlaceFault, InjectError, Part};
pub use serve::{Limited, ServeError};
pub use system::{SystemError, SystemOperation};
pub use wait::{Awaited, GoneCause, WaitError};

/// An error of farjump. Its text names the fault, its place, and the remedy.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option that cannot be set so.
    #[error(transparent)]
    Config(#[from] Box<crate::config::ConfigError>),
    /// No link, or no response to an admin request.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Nothing was sent.
    #[error(transparent)]
    Inject(#[from] InjectError),
    /// The outcome did not come.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// The outcome is a refusal or a panic.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A target or an executor that could not be made.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// An ifunc library or its code.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// A buffer that is not aligned.
    #[error("the buffer is not aligned to {align} bytes: use an AlignedBuffer, or align it")]
    Misaligned {
        /// The alignment that it needs in bytes.
        align: usize,
    },
    /// A file cannot be mapped for injected functions.
    #[error("cannot map `{}`: {source}", path.display())]
    DataFile {
        /// The path as given.
        path: std::path::PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Memory for code, or an unsupported machine.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The operating system.
    #[error(transparent)]
    System(#[from] SystemError),
}

debug_in_words!(Error {
    Config(inner),
    Connect(inner),
    Inject(inner),
    Wait(inner),
    Call(inner),
    Serve(inner),
    Library(inner),
    Misaligned { align },
    DataFile { path, source },
    Transport(inner),
    System(inner),
});

impl Error {
    /// Returns the cause of the target's refusal, if this is one.
    pub fn refusal_cause(&self) -> Option<RefusalCause> {
        match self {
            Error::Call(CallError::Refused { cause, .. }) => Some(*cause),
            _ => None,
        }
    }
}

impl From<crate::config::ConfigError> for Error {
    fn from(error: crate::config::ConfigError) -> Error {
        Error::Config(Box::new(error))
    }
}

impl From<HandshakeError> for Error {
    fn from(error: HandshakeError) -> Error {
        ConnectError::from(error).into()
    }
}

impl From<farjump_control::ConnectionError> for Error {
    fn from(error: farjump_control::ConnectionError) -> Error {
        ConnectError::from(error).into()
    }
}

impl From<AddressError> for Error {
    fn from(error: AddressError) -> Error {
        ConnectError::from(error).into()
    }
}

impl From<KeyError> for Error {
    fn from(error: KeyError) -> Error {
        ConnectError::from(error).into()
    }
}

impl From<farjump_transports::Error> for Error {
    fn from(error: farjump_transports::Error) -> Error {
        ConnectError::from(error).into()
    }
}

pub(crate) fn system(operation: SystemOperation) -> impl FnOnce(rustix::io::Errno) -> Error {
    move |errno| SystemError { operation, source: errno.into() }.into()
}
