//! The samples that work on their payload, over shared memory, checked by independent computations.

mod chain;
mod codec;
mod indirect_put;
mod sanitized;
mod sum;
#[path = "../support/mod.rs"]
mod support;
