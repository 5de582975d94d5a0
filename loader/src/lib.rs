#![doc = include_str!("../README.md")]
//!
//! # Modules
//! Source: [`library`] (routines and images), [`bundle`](library::bundle) (their
//! bytes), [`manifest`](library::manifest) (the images of all platforms).
//! Target: [`resolve`] (imports), [`store`] (linked images by code id), [`in_place`] (code that runs in the mailbox),
//! [`address_map`] (code at an address, for signal handlers), [`debugger`] (code as debuggers see it), [`arena`]
//! (memory for code). Authors: the crate `farjump-builder` makes libraries, whose layout is in [`library`].
//!
//! Native code in a process is trusted code: loading a library runs its author's code, and so does calling placed code;
//! opening only reads. This crate guarantees that it checks bytes before it uses them, that placed code is exactly the
//! code of its id, and that it links only offered symbols to it.

#![deny(missing_docs)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "farjump-loader maps memory and opens libraries as Linux does: it needs target_os = \"linux\""
);

pub mod address_map;
pub mod arena;
mod code_id;
pub mod debugger;
mod domain;
mod error;
pub mod in_place;
pub mod library;
pub mod resolve;
mod shared_library;
pub mod store;

pub use arena::{Arena, Block, Need};
pub use code_id::{CodeHasher, code_id};
pub use debugger::Symbols;
pub use domain::{CodeKey, Domain};
pub use error::{ArenaStep, Error, FileKind, OtherType, TypedPart};
pub use in_place::InPlace;
pub use library::manifest::{Manifest, ManifestError};
pub use library::signature::{Shape, Signature};
pub use library::typed::{TypedArgs, TypedFunction, TypedReply};
pub use library::{Library, LibraryIdentity, LibraryImage, PayloadRoutines};
pub use resolve::import_causes::{ImportCause, MissingImports, Names, import_causes, runtime_cause};
pub use resolve::{Exports, Resolver};
pub use store::{Capacity, Compilation, Copied, Inserted, LinkedImage, Refused, Store, Usage};
