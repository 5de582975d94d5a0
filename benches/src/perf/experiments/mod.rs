//! What is measured: the cases, and the work of each.

pub(super) mod baselines;
pub(super) mod bitcode;
pub(super) mod case;
pub(super) mod chase;
pub(super) mod checks;
mod experiment;
pub(super) mod first_call;
pub(super) mod measurement;
pub(super) mod role;
pub(super) mod run;
pub(super) mod scaling;
pub(super) mod setting;
pub(super) mod tsi;
pub(super) mod wake_up;
pub(super) mod work;
