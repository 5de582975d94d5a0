//! The parts of the program `farjump` that every command shares.

#[cfg(feature = "build")]
pub mod bundled_ifuncs;
pub mod failure;
pub mod link_options;
pub mod output;
pub mod procfs;
pub mod routines;
pub mod rust_names;
pub mod signals;
pub mod units;
#[cfg(feature = "build")]
pub mod workspace;
