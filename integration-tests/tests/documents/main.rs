//! What the documents say is what the code does.

mod datagrams;
mod hex;
mod ifuncs;
mod pages;
mod protocol;
mod transports;
