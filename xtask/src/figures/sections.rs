//! The sections of the results, one run of `farjump perf` each, and the bounds on their figures, as
//! `figures.toml` lists them.

use std::sync::LazyLock;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

use super::goals::Bound;

/// A run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Section {
    /// Its name, used by `--only` and for its files.
    pub(crate) name: String,
    /// Arguments of `farjump perf`.
    pub(crate) run: String,
    /// Whether it has a picture.
    #[serde(default)]
    pub(crate) picture: bool,
    /// Caption of the picture, if the page shows it.
    pub(crate) caption: Option<String>,
    /// The series of the kernels in whose virtual machines the section is measured; none for this machine itself.
    #[serde(default)]
    pub(super) kernels: Vec<String>,
    /// The kernel of these that the section is about.
    #[serde(skip)]
    pub(crate) kernel: Option<String>,
    /// Features of farjump's that are off by default.
    pub(crate) features: Option<String>,
    /// Time limit.
    #[serde(rename = "minutes", default = "usual_limit", deserialize_with = "minutes")]
    pub(crate) limit: Duration,
    /// Least number of rounds, for a ratio so close to 1 that it has to be distinguished from 1.
    #[serde(default)]
    pub(crate) rounds: u32,
    /// Delay of packets from source to target. With a delay both run in network namespaces of their own.
    #[serde(rename = "delay_ms", default, deserialize_with = "milliseconds")]
    pub(crate) delay: Option<Duration>,
    /// `UCX_TLS` of the run: the transports that UCX may use.
    pub(crate) tls: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    section: Vec<Section>,
    bounds: Vec<Bound>,
}

fn usual_limit() -> Duration {
    Duration::from_secs(3 * 60)
}

fn minutes<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    u64::deserialize(from).map(|minutes| Duration::from_secs(minutes * 60))
}

fn milliseconds<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    u64::deserialize(from).map(|delay| Some(Duration::from_millis(delay)))
}

static LISTED: LazyLock<Listed> = LazyLock::new(|| {
    let mut listed: Listed =
        toml::from_str(include_str!("figures.toml")).expect("a test checks the list of sections");
    listed.section = listed.section.into_iter().flat_map(Section::of_each_kernel).collect();
    listed
});

/// All sections, in the order in which they run and are listed.
pub(crate) fn sections() -> &'static [Section] {
    &LISTED.section
}

/// All bounds.
pub(crate) fn bounds() -> &'static [Bound] {
    &LISTED.bounds
}

impl Section {
    /// The section itself, or one for each of its kernels.
    fn of_each_kernel(self) -> Vec<Section> {
        if self.kernels.is_empty() {
            return vec![self];
        }
        let of = |(number, kernel): (usize, &String)| Section {
            name: if number == 0 { self.name.clone() } else { format!("{}-{kernel}", self.name) },
            kernel: Some(kernel.clone()),
            ..self.clone()
        };
        self.kernels.iter().enumerate().map(of).collect()
    }
}

/// The name of all sections that are measured in virtual machines.
const VERBS: &str = "verbs";

/// The section of this name, or all sections in virtual machines.
pub(crate) fn named(name: &str) -> Result<Vec<&'static Section>, String> {
    let is_meant = |section: &&Section| section.name == name || (name == VERBS && section.kernel.is_some());
    let found: Vec<_> = sections().iter().filter(is_meant).collect();
    if found.is_empty() {
        let names: Vec<_> = sections().iter().map(|section| &*section.name).collect();
        return Err(format!(
            "there is no section `{name}`: there are {}; and {VERBS} for those in virtual machines",
            names.join(", ")
        ));
    }
    Ok(found)
}
