//! Errors by operation: addresses, keys, connecting, and the handshake with all that follows on its
//! connection.

mod address;
mod connect;
mod fault;
mod handshake;
mod key;
mod system;

pub use address::AddressError;
pub use connect::{ConnectionError, FileKind, NoListener};
pub use fault::{MessageFault, ParameterFault, ReservedBytes};
pub use handshake::HandshakeError;
pub use key::{KeyError, KeyFault, KeyLineFault};
pub(crate) use system::system;
pub use system::{ControlOperation, ControlSystemError, HandshakeEvent};

/// Refuses `address`, which is one of TCP, in builds without the feature `key`.
pub(crate) fn require_key_feature(address: &crate::PeerAddress) -> Result<(), ConnectionError> {
    match cfg!(feature = "key") {
        true => Ok(()),
        false => Err(ConnectionError::FeatureMissing { address: address.clone() }),
    }
}

/// The end of the text of each error about a missing feature.
const FEATURE_ADVICE: &str = "which this build leaves out: build farjump with one of the features tcp, ucx and verbs, which include \
                              it, or on one machine use unix:PATH without a key";

#[cfg(all(test, not(feature = "key")))]
mod tests {
    use std::path::Path;
    use std::time::Instant;

    use super::*;
    use crate::{Control, Key, Keys, Listener, PeerAddress, TcpOptions};

    #[test]
    fn without_the_feature_tcp_addresses_and_keys_are_refused_by_its_name() {
        let named = |error: &dyn std::error::Error, what: &str| {
            let text = error.to_string();
            assert!(text.starts_with(what) && text.contains("feature `key`"), "{text}");
        };
        let address: PeerAddress = "tcp:127.0.0.1:0".parse().unwrap();
        let with_key = TcpOptions::default().with_key(Some(Key::from_bytes([7; Key::LEN])));
        for error in [
            Listener::bind(&address).unwrap_err(),
            Listener::bind_with(&address, with_key).unwrap_err(),
            Control::connect(&address, Instant::now()).unwrap_err(),
        ] {
            assert!(matches!(error, ConnectionError::FeatureMissing { .. }), "{error}");
            named(&error, "tcp:127.0.0.1:0");
        }
        for (error, what) in [
            (Key::draw().unwrap_err(), "a new key"),
            (Key::read(Path::new("some.key")).unwrap_err(), "the key some.key"),
            (Keys::read(Path::new("some.key")).unwrap_err(), "the key some.key"),
        ] {
            assert!(matches!(error, KeyError::FeatureMissing { .. }), "{error}");
            named(&error, what);
        }
    }
}
