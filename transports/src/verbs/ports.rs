//! The ports of this machine, and what this process can make of each: they are opened and tried, as a link would.

use farjump_core::transport::{OpenRequest, Transport};

use super::device::Device;
use super::listing::{PortInfo, System};
use super::options::Options;
use super::write::Write;

/// A port, and whether links can be made over it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PortReport {
    /// What the system tells of it.
    pub info: PortInfo,
    /// What a link over it would use, or why there can be none and the mend, in a sentence for people.
    pub usable: Result<PortUse, String>,
    /// It is the one that links of this process use, as [`Options::of_process`] says.
    pub is_taken: bool,
}

impl PortReport {
    /// A port of which this is known, and that is not the one that is used.
    pub fn new(info: PortInfo, usable: Result<PortUse, String>) -> PortReport {
        PortReport { info, usable, is_taken: false }
    }
}

/// What links over a port use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PortUse {
    /// Index of the GID that they have.
    pub gid: u16,
    /// Longest packet, in bytes.
    pub mtu: u16,
    /// Key of the partition that they are in.
    pub partition: u16,
}

impl PortUse {
    /// The GID at this index, packets of up to `mtu` bytes, and the partition of this key.
    pub fn new(gid: u16, mtu: u16, partition: u16) -> PortUse {
        PortUse { gid, mtu, partition }
    }
}

/// All ports of all RDMA devices of this machine, by name and number. Each is tried by opening an end as `request` says, and closing it.
/// The verbs library is loaded where there is a device, and only there.
pub fn ports(request: &OpenRequest) -> Vec<PortReport> {
    let ports = System::own().ports();
    if ports.is_empty() {
        return Vec::new();
    }
    let options = Options::of_process();
    // Open until all are looked at, so that it is opened once.
    let taken = options.clone().and_then(|options| Device::open(&options)).ok();
    let report = |info: PortInfo| {
        let usable = options.clone().and_then(|options| tried(&info, options, request));
        let is_taken =
            taken.as_ref().is_some_and(|taken| (&taken.name, taken.port.number) == (&info.device, info.port));
        PortReport { is_taken, ..PortReport::new(info, usable) }
    };
    ports.into_iter().map(report).collect()
}

/// What a link over this port would use.
fn tried(info: &PortInfo, options: Options, request: &OpenRequest) -> Result<PortUse, String> {
    let options = Options { device: Some(info.device.clone()), port: Some(info.port), ..options };
    let device = Device::open(&options)?;
    let opened = Write::with_options(options).open(request);
    opened.map_err(|error| error.cause().to_string())?;
    let port = &device.port;
    Ok(PortUse::new(port.gid.index.into(), port.mtu, port.partition.1))
}
