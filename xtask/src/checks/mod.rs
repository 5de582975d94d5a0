//! Checks of the crates' guarantees, one file each.

pub(crate) mod cycles;
pub(crate) mod dependencies;
pub(crate) mod features;
pub(crate) mod few_crates;
pub(crate) mod lengths;
pub(crate) mod links;
pub(crate) mod native;
pub(crate) mod no_std;
pub(crate) mod without_ucx;
