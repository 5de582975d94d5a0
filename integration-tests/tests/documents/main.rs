//! What the documents say is what the code does.

mod datagrams;
mod hex;
mod ifuncs;
mod mistakes;
mod pages;
mod protocol;
mod transports;
