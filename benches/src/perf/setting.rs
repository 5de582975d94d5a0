//! The parts of a run that every metric needs.

use super::baselines::ring::Layout;
use super::child_protocol::{EndpointSpec, Set};
use super::ifuncs::Libraries;
use super::machine::Cpus;
use super::network_namespaces::Across;
use super::options::Perf;
use crate::program::workspace::Stage;

/// The parts of a run with any metric.
pub(super) struct Setting<'a> {
    pub(super) options: &'a Perf,
    pub(super) stage: &'a Stage,
    /// `None` if the system chooses.
    pub(super) cpus: Option<Cpus>,
    /// Names, each once.
    pub(super) transports: &'a [String],
    pub(super) libraries: &'a Libraries,
}

impl Setting<'_> {
    /// Returns the setup of a process on processor `cpu` that has these endpoints.
    pub(super) fn set(&self, specs: &[EndpointSpec], cpu: Option<usize>, layout: Layout) -> Set {
        Set {
            endpoints: specs.to_vec(),
            cpu,
            ring: self.options.ring(),
            sleeps: self.options.target_sleeps,
            layout,
            folder: self.stage.folder().to_owned(),
            host: Across::host(self.options.across.as_ref()).to_owned(),
            counter: self.libraries.counter.clone(),
        }
    }
}
