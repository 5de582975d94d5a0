//! Errors of making a target or an executor.

use farjump_core::image::Level;
use farjump_core::{counted, debug_in_words, worded};

/// A target or an executor that could not be made.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// A limit of the policy that admits nothing.
    #[error(
        "a limit of {} on {limited} admits nothing: set {least} at least, or leave it out",
        counted(*limit, "byte")
    )]
    Limit {
        /// The quantity that it limits.
        limited: Limited,
        /// Bytes requested.
        limit: usize,
        /// The smallest useful value.
        least: usize,
    },
    /// A target with an allow-list of code that also allows mode in place.
    #[error(
        "mode in-place cannot go with a list of allowed code (TargetBuilder::allow_code): the bytes that the source has written in the \
         mailbox run, whatever their id says; leave one of the two out"
    )]
    InPlaceOfAllowed,
    /// A CPU level above that of this CPU.
    #[error(
        "this CPU is {cpu}, and a target that claims level {level} would be sent code that it cannot run: claim a lower level (TargetBuilder::cpu_level)"
    )]
    CpuLevel {
        /// The requested level.
        level: Level,
        /// Machine, level and name of the CPU.
        cpu: Box<str>,
    },
    /// A forked child serves with its parent's target.
    #[error(
        "this target is that of the process with pid {parent}, which forked this one: build a target after the fork"
    )]
    Forked {
        /// The process that built it.
        parent: u32,
    },
    /// A call of a target from inside an injected function.
    #[error(
        "a target runs no code for a function that it or another target runs on this thread: return first, or have the function \
         send a message (farjump_again, farjump_inject)"
    )]
    InsideCall,
    /// A mode that cannot apply to forwarded calls.
    #[error(
        "calls are not sent on in mode {mode}: choose cached or always, or leave it out (TargetBuilder::forward_mode)"
    )]
    ForwardMode {
        /// The requested mode.
        mode: crate::Mode,
    },
    /// Too few file descriptors for one source.
    #[error(
        "the limit of descriptors is {limit} and leaves {free} to this target, and one source takes {needed}: raise it to {} at least (`ulimit -n`, LimitNOFILE= of systemd)",
        limit + (needed - free) as u64
    )]
    Descriptors {
        /// The limit of the process.
        limit: u64,
        /// Descriptors that it may still open.
        free: usize,
        /// Descriptors that a source takes.
        needed: usize,
    },
    /// An export under a name that code uses without declaring its type.
    #[error("`{name}` cannot be exported: {why}")]
    ReservedExport {
        /// The name.
        name: Box<str>,
        /// The user of the name, and the remedy.
        why: &'static str,
    },
    /// A target that should take bitcode, without a usable compiler.
    #[error("the target can take no bitcode: {why}")]
    Compiler {
        /// The reason, as a clause.
        why: String,
    },
    /// The file that names code for perf cannot be made.
    #[error("cannot write the perf map `{}`: {source}", path.display())]
    PerfMap {
        /// The path at which perf looks for it.
        path: std::path::PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

debug_in_words!(ServeError {
    Limit { limited, limit, least },
    InPlaceOfAllowed,
    CpuLevel { level, cpu },
    Forked { parent },
    InsideCall,
    ForwardMode { mode },
    Descriptors { limit, free, needed },
    ReservedExport { name, why },
    Compiler { why },
    PerfMap { path, source },
});

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
