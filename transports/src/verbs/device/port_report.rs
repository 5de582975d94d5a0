//! The ports of this machine, and their use for this process: opens and tries each as a link would.

use std::iter::once;
use std::sync::Arc;

use farjump_core::transport::{OpenRequest, Transport};

use super::sysfs::{PortInfo, System};
use super::towards::in_other_networks;
use crate::verbs::device::Device;
use crate::verbs::options::Options;
use crate::verbs::write::Write;

/// A port, and its use by links.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PortReport {
    /// The system's description of it.
    pub info: PortInfo,
    /// The parts that a link over it would use; or the reason why no link is possible and a remedy, as a sentence.
    pub usable: Result<PortUse, String>,
    /// True if this process prefers it to its other ports, by [`Options::of_process`].
    pub is_taken: bool,
    /// Indices of the GIDs by which a target of this process offers it. The source of a link chooses one of the offered
    /// GIDs, of any port. Empty if the target does not offer the port.
    pub offered: Vec<u16>,
}

impl PortReport {
    /// Makes a report of a port that is neither preferred nor offered.
    pub fn new(info: PortInfo, usable: Result<PortUse, String>) -> PortReport {
        PortReport { info, usable, is_taken: false, offered: Vec::new() }
    }
}

/// The parts of a port that links use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PortUse {
    /// Index of their GID.
    pub gid: u16,
    /// Longest packet, in bytes.
    pub mtu: u16,
    /// Key of their partition.
    pub partition: u16,
}

impl PortUse {
    /// Makes a use of the GID at this index, packets of up to `mtu` bytes, and the partition of this key.
    pub fn new(gid: u16, mtu: u16, partition: u16) -> PortUse {
        PortUse { gid, mtu, partition }
    }
}

/// Lists all ports of all RDMA devices of this machine, by name and number. Tries each by opening an endpoint for
/// `request`, and closes it. Loads the verbs library only if there is a device.
pub fn ports(request: &OpenRequest) -> Vec<PortReport> {
    let ports = System::own().ports();
    if ports.is_empty() {
        return Vec::new();
    }
    let options = Options::of_process();
    // Kept open until all ports are tried, so that each is opened only once. The first is the preferred one.
    let offered = options.clone().and_then(|options| offered(&options)).unwrap_or_default();
    let report = |info: PortInfo| {
        let usable = options.clone().and_then(|options| tried(&info, options, request));
        let is_it = |device: &Device| (&device.name, device.port.number) == (&info.device, info.port);
        let is_taken = offered.first().is_some_and(|device| is_it(device));
        let gids = offered.iter().filter(|device| usable.is_ok() && is_it(device));
        let offered = gids.map(|device| device.port.gid.index.into()).collect();
        PortReport { is_taken, offered, ..PortReport::new(info, usable) }
    };
    ports.into_iter().map(report).collect()
}

/// The ports that a target offers, the preferred one first.
fn offered(options: &Options) -> Result<Vec<Arc<Device>>, String> {
    let first = Device::open(options)?;
    let others = in_other_networks(&first, options);
    Ok(once(first).chain(others).collect())
}

/// Tries a link over this port.
fn tried(info: &PortInfo, options: Options, request: &OpenRequest) -> Result<PortUse, String> {
    let options = Options { device: Some(info.device.clone()), port: Some(info.port), ..options };
    let device = Device::open(&options)?;
    let opened = Write::with_options(options).open(request);
    opened.map_err(|error| error.cause().to_string())?;
    let port = &device.port;
    Ok(PortUse::new(port.gid.index.into(), port.mtu, port.partition.1))
}
