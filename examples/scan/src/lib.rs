//! A target beside a file of records filters and projects them by predicates that sources send, and streams the rows
//! that they keep.
//!
//! [`table`] is the file, [`mapped`] its mapping at the target, [`target`] serves it, [`functions`] builds the
//! functions to send, and [`source`] is the stream. [`local`] reads blocks without a target, and [`compare`] measures.

#![deny(missing_docs)]

pub mod compare;
mod cut;
pub mod functions;
pub mod local;
pub mod mapped;
pub mod options;
pub mod source;
pub mod table;
pub mod target;

/// An error of this program: its text says what to do.
pub type Failed = Box<dyn std::error::Error + Send + Sync>;
