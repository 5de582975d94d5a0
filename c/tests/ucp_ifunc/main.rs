//! Programs as the papers wrote them, over `ucp_ifunc.h` and an unmodified UCX. They are compiled here, in C
//! and in C++, and run as two processes, for both variants of the interface and over shared memory and TCP.

#![cfg(feature = "ucx")]

mod bad_input;
mod bitcode;
#[path = "../common/mod.rs"]
mod common;
mod every_byte;
mod fixture;
mod languages;
mod loopback;
mod measuring;
mod paper_sequence;
mod programs;
