//! The bytes that travel: frames, the signals that announce them, and the images of code inside them.

pub mod frame;
pub mod image;
pub mod signal;
