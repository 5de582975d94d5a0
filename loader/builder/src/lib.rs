#![doc = include_str!("../README.md")]
//!
//! # How a library is built
//! Every source is compiled to position-independent objects. One link with a short linker script takes exactly the code
//! and data that `NAME_main` reaches. The result becomes a canonical image. An ordinary link of all objects makes the
//! library, which carries the image. No assembly is rewritten. The build refuses unsupported code in front of its
//! author, before it reaches a target.
//!
//! For other machines and CPU levels the build repeats these steps, up to the image. The library itself, and the
//! payload routines in it, are for the machine that builds it.
//!
//! Requires at run time: a C compiler driver (for the library's link, even without sources), and for Rust inputs
//! rustc or cargo. For other machines a compiler for these. Images are linked by GNU ld or lld, and without them by
//! farjump's own linker.

#![deny(missing_docs)]

mod build;
mod compile;
mod error;
mod error_parts;
mod for_cpu;
mod image;
pub mod inspect;
mod link;
mod objects;
mod of_objects;
mod options;
mod rules;
mod tools;

pub use build::{BuildReport, build};
pub use compile::compiler::try_compiler;
pub use compile::reduce::rust_llvms;
pub use error::{BuildError, Pointee, Site};
pub use farjump_loader::library::carried_source::CarriedSource;
pub use for_cpu::build_for_cpu;
pub use link::{LINKERS, OWN, follows_scripts, try_linker};
pub use of_objects::{LinkError, Linked, ObjectsOf, link_library, link_objects};
pub use options::{BuiltImage, Options};
pub use tools::supervisor::Supervisor;
