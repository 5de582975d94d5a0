//! Guarantees of links and targets over shared memory: within one process, and between processes that are
//! stopped and killed.

mod admin;
mod awaiting;
mod batches;
mod buffers;
mod call_ends;
mod callers;
mod calls;
mod closed_libraries;
mod code;
mod compile_for_peer;
mod crash_reports;
// cli/tests/debuggers.rs has the tests for x86-64.
#[cfg(not(target_arch = "x86_64"))]
mod debuggers;
mod event_loop;
mod eviction;
mod exports;
mod fork;
// Levels of CPUs are those of x86-64.
#[cfg(target_arch = "x86_64")]
mod forwarded_images;
mod forwarding;
mod held_replies;
mod helper;
mod hostile_sources;
mod hostile_targets;
mod in_place;
#[cfg(target_arch = "aarch64")]
mod landing_pads;
mod large;
mod libraries;
mod making;
mod mixed;
mod modes;
mod mutated_frames;
mod named_code;
mod no_filesystem;
mod own_calls;
mod panics;
mod payloads;
mod peer_death;
// Levels of CPUs are those of x86-64.
#[cfg(target_arch = "x86_64")]
mod platforms;
mod policy;
mod principals;
mod processors;
mod rights;
mod shared_waits;
mod sleep;
mod spreading;
mod streams;
#[path = "../support/mod.rs"]
mod support;
mod targets;
mod tcp_key;
mod typed;
