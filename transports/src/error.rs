//! Refusals to name, choose or make a transport.

/// A transport that cannot be had. Its text says which, why, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name that no transport has.
    #[error("there is no transport `{name}`: choose one of {known}")]
    UnknownTransport {
        /// The name as given.
        name: String,
        /// The known names, joined by commas.
        known: String,
    },
    /// A transport that this build leaves out, or that does not work on this machine.
    #[error("transport `{name}` cannot be used: {why}")]
    Unusable {
        /// Its name.
        name: &'static str,
        /// The reason, and the mend.
        why: String,
    },
    /// A transport that hands over file descriptors, for a destination to which none travel.
    #[error(
        "transport `{transport}` hands file descriptors to its peer, which only a Unix socket carries: use unix:PATH, or another \
         transport (`farjump transports`), for example tcp"
    )]
    NeedsUnixSocket {
        /// Its name.
        transport: String,
    },
    /// No transport that works on this machine leads to the destination.
    #[error("no transport is usable: {reasons}")]
    NoTransport {
        /// The reason of each transport.
        reasons: String,
    },
}
