//! The parts that every command shares.

#[cfg(feature = "build")]
pub mod bundled_ifuncs;
pub mod command_line;
pub mod config_arguments;
pub mod environment;
pub mod failure;
mod help;
pub mod link_options;
pub mod output;
pub mod procfs;
mod resources;
pub mod routines;
pub mod rust_names;
pub mod signals;
pub mod units;
pub mod workspace;
