//! The bytes that travel: frames, the signals that announce them, and the images of code inside them.

mod align;
pub mod bitcode;
pub mod code;
mod code_id;
pub mod cpu;
pub mod frame;
pub mod image;
pub(crate) mod layout;
pub mod signal;
