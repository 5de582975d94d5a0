//! The programs of a build: compilers and linkers, tried and run, and the folder that they write to.

pub(crate) mod run_tool;
pub(crate) mod supervisor;
pub(crate) mod temp_folder;
pub(crate) mod trial;
