//! Images and ifunc libraries: what a source opens, and where a target holds the code that it was sent.
//!
//! | module | about | used by |
//! |---|---|---|
//! | [`library`] | ifunc libraries: their routines, and the images in them | source |
//! | [`bundle`] | the bytes that a library carries its images in | source, build |
//! | [`resolve`] | what injected code may import: exports, named libraries, the process | target |
//! | [`store`] | placed code by its identity: how much is held, and how often it was called | target |
//! | [`in_place`] | code that runs where its source wrote it | target |
//! | [`address_map`] | which code lies at an address, for signal handlers | target |
//! | [`arena`] | the memory it is placed in: mapped twice, never writable and executable at one address | target |
//! | `builder`, `inspect` | making ifunc libraries, and reading them without running anything (feature `build`) | authors |
//!
//! Native code in a process is trusted code: loading a library runs what its author wrote, and so does calling code that
//! was placed; opening one only reads it. What this crate promises is that bytes are checked before they are believed, that what was placed is
//! exactly what its identity says, and that nothing is linked to it that was not offered.

#![deny(missing_docs)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "farjump-loader maps memory and opens libraries as Linux does: it needs target_os = \"linux\""
);

pub mod address_map;
pub mod arena;
#[cfg(feature = "build")]
pub mod builder;
pub mod bundle;
mod carried;
mod code_id;
mod error;
pub mod in_place;
#[cfg(feature = "build")]
pub mod inspect;
pub mod library;
mod refusal;
pub mod resolve;
mod shared_library;
pub mod store;

pub use arena::Arena;
pub use code_id::{CodeHasher, code_id};
pub use error::Error;
pub use in_place::InPlace;
pub use library::{Library, LibraryIdentity, LibraryImage};
pub use resolve::{Exports, Resolver};
pub use store::{Capacity, Linked, Need, Refused, Store, Usage};
