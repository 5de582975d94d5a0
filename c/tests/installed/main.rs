//! The C library as it is installed: C and C++ programs that are compiled against it, and their checks.
//!
//! Everything here is compiled by the system's compilers against one prefix, to which `cargo xtask install`
//! has installed the build under test. Where a compiler or a program is missing, the test says so and is
//! skipped.

mod calls;
#[path = "../common/mod.rs"]
mod common;
mod embedding;
mod exports;
mod functions_at;
mod headers;
mod installation;
mod objects;
mod packages;
mod programs;
mod recordings;
mod source_and_target;
mod streams;
mod valgrind;
