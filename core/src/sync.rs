//! Atomics: the processor's, or loom's when the protocol is model-checked (`--cfg loom`).

pub(crate) use core::sync::atomic::{Ordering, compiler_fence};

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::fence;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::fence;
