//! Checks of the crates' guarantees, one file each.

pub(crate) mod crate_papers;
pub(crate) mod cycles;
pub(crate) mod dependencies;
pub(crate) mod doc_links;
pub(crate) mod features;
pub(crate) mod few_crates;
pub(crate) mod file_lengths;
pub(crate) mod names;
pub(crate) mod no_native_library;
pub(crate) mod no_std;
pub(crate) mod without_ucx;
