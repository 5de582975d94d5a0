//! Errors of naming, choosing or making a transport.

use farjump_core::transport::PassedOver;

/// A transport that cannot be used. The text names it, the reason and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name that no transport has.
    #[error(
        "there is no transport `{name}`: choose one of {}; or ucx for the better of ucx-put and ucx-am",
        known.join(", ")
    )]
    UnknownTransport {
        /// The name as given.
        name: String,
        /// The known names.
        known: Vec<&'static str>,
    },
    /// A transport that is missing from this build.
    #[error(
        "transport `{name}` cannot be used: this build of farjump lacks it (feature `{feature}`); choose another one"
    )]
    NotBuilt {
        /// Name of the transport.
        name: &'static str,
        /// The feature that adds it.
        feature: &'static str,
    },
    /// A transport that does not work on this machine.
    #[error("transport `{name}` cannot be used: {why}")]
    Unusable {
        /// Name of the transport.
        name: &'static str,
        /// A sentence from the backend: the reason and the remedy.
        why: String,
    },
    /// A transport that hands over file descriptors, for a destination that cannot receive them.
    #[error(
        "transport `{transport}` hands file descriptors to its peer, which only a Unix socket carries: use unix:PATH, or another \
         transport (`farjump transports`), for example tcp"
    )]
    NeedsUnixSocket {
        /// Name of the transport.
        transport: String,
    },
    /// No transport that works on this machine leads to the destination.
    #[error("no transport is usable: {}", PassedOver::reasons(transports))]
    NoTransport {
        /// The transports, with the reason against each.
        transports: Vec<PassedOver>,
    },
}
