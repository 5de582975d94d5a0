//! Errors of making a target or an executor.

use farjump_core::worded;

/// A target or an executor that could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// A limit of the policy that would let nothing in.
    #[error("a limit of {limit} bytes on {limited} admits nothing: set {least} at least, or leave it out")]
    Limit {
        /// The quantity that it limits.
        limited: Limited,
        /// Bytes asked for.
        limit: usize,
        /// The least useful value.
        least: usize,
    },
    /// A target with an allow-list of code that also allows mode in place.
    #[error(
        "mode in-place cannot go with a list of allowed code (TargetBuilder::allow_code): the bytes that the source has written in the \
         mailbox run, whatever their id says; leave one of the two out"
    )]
    InPlaceOfAllowed,
    /// A target that may have no sources.
    #[error("a target with a limit of 0 sources serves none: allow 1 at least, or leave the limit out")]
    NoSources,
    /// The file that names code for perf cannot be made.
    #[error("cannot write the perf map `{}`: {source}", path.display())]
    PerfMap {
        /// Where perf looks for it.
        path: std::path::PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

worded! {
    /// A quantity that a policy limits.
    #[non_exhaustive]
    Limited {
        /// Bytes of a frame.
        Frame = "the frame",
        /// Bytes of an image.
        Image = "the image",
        /// Bytes of a payload.
        Payload = "the payload",
        /// Bytes of memory that one source may take.
        SourceMemory = "the memory of a source with its mailbox",
    }
}
