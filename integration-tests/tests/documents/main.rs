//! What the documents say is what the code does.

mod hex;
mod protocol;
