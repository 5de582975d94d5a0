//! The parts of a run that every metric needs.

use super::baselines::ring::Layout;
use crate::perf::machine::Cpus;
use crate::perf::options::Perf;
use crate::perf::options::ifuncs::Libraries;
use crate::perf::process::child_protocol::{EndpointSpec, Set};
use crate::perf::process::network_namespaces::Across;
use crate::program::workspace::Stage;

/// The parts of a run with any metric.
pub(in crate::perf) struct Setting<'a> {
    pub(in crate::perf) options: &'a Perf,
    pub(in crate::perf) stage: &'a Stage,
    /// `None` if the system chooses.
    pub(in crate::perf) cpus: Option<Cpus>,
    /// Names, each once.
    pub(in crate::perf) transports: &'a [String],
    pub(in crate::perf) libraries: &'a Libraries,
}

impl Setting<'_> {
    /// Returns the setup of a process on processor `cpu` that has these endpoints.
    pub(in crate::perf) fn set(&self, specs: &[EndpointSpec], cpu: Option<usize>, layout: Layout) -> Set {
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
