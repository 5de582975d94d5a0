//! The samples that work on their payload, over shared memory, against answers that are found in another way.

mod chain;
mod codec;
mod indirect_put;
mod sanitized;
mod sum;
#[path = "../support/mod.rs"]
mod support;
