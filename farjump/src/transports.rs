//! The transports that this build has, and the choice among them for an address.

use farjump_control::{HandshakeError, PeerAddress};
use farjump_core::transport::Transport;
pub use farjump_transports::{BackendOptions, TransportInfo, available, preferred};
use farjump_transports::{Chosen, Destination, Error as ChoiceError};

use crate::{ConnectError, Error};

/// The transports for `address`, from `own` and the built-in ones: those that `only` names, or else the
/// preferred ones.
///
/// # Errors
/// [`crate::ConnectError::Unavailable`] for a name that is not available,
/// [`HandshakeError::NeedsUnixSocket`], [`crate::ConnectError::NoTransport`].
pub(crate) fn transports_for(
    address: &PeerAddress,
    only: Option<&str>,
    own: Vec<Box<dyn Transport>>,
    options: BackendOptions,
) -> Result<Chosen, Error> {
    let destination = Destination {
        carries_descriptors: address.carries_descriptors(),
        is_this_machine: address.is_this_machine(),
        is_own_device: &|| address.is_own_device(),
    };
    farjump_transports::transports_for(destination, only, own, options).map_err(|error| {
        let address = address.clone();
        match error {
            ChoiceError::NeedsUnixSocket { transport } => {
                HandshakeError::NeedsUnixSocket { transport, address }.into()
            }
            ChoiceError::NoTransport { transports } => {
                Error::Connect(ConnectError::NoTransport { address, transports })
            }
            other => other.into(),
        }
    })
}
