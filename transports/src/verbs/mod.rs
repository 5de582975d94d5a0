//! RDMA devices, driven through verbs directly: a machine needs only `rdma-core`, and building needs no part of it.
//!
//! [`mod@write`] is the backend `verbs-write`, which writes frames into the peer's memory. [`mod@send`] is
//! `verbs-send`, which sends each frame as a message. [`Options`] lists the choices.
//! `docs/design/verbs.md` has the decisions and reasons.

mod completions;
mod counters;
mod device;
mod endpoints;
mod error;
#[cfg(test)]
mod fake;
mod memory;
mod options;
mod queue;
mod reads;
pub mod send;
mod send_slots;
pub mod write;

pub use crate::verbs::device::port_report::{PortReport, PortUse, ports};
pub use crate::verbs::device::sysfs::{GidInfo, NodeError, PortInfo};
pub use counters::{Counts, counts};
pub use options::{DEVICE_VARIABLE, Gid, OPTIONS_VARIABLE, Options, choose_device};
pub use send::Send;
pub use write::Write;

use std::sync::{Arc, Mutex, PoisonError};

use device::Device;
use farjump_core::transport::PathInfo;

/// The device of a backend: opened at first use, and chosen anew after a failure.
#[derive(Default)]
struct Chosen {
    options: Option<Options>,
    open: Mutex<Option<Arc<Device>>>,
}

impl Chosen {
    fn by(options: Option<Options>) -> Chosen {
        Chosen { options, open: Mutex::new(None) }
    }

    /// The options that choose the device.
    fn wished(&self) -> Result<Options, String> {
        self.options.clone().map_or_else(Options::of_process, Ok)
    }

    /// The device, or the reason why there is none.
    fn device(&self) -> Result<Arc<Device>, String> {
        let opened = Device::open(&self.wished()?);
        // Without a device, this closes the earlier one: the removal of a device waits until no process has it open.
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = opened.as_ref().ok().map(Arc::clone);
        opened
    }

    /// The device that was opened last, if one was or can be opened.
    fn known(&self) -> Option<Arc<Device>> {
        let known = self.open.lock().unwrap_or_else(PoisonError::into_inner).clone();
        known.filter(|device| !device.is_parents()).or_else(|| self.device().ok())
    }
}

/// The port used by links of this process.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PortInUse {
    /// The device's name: `rxe0`.
    pub device: String,
    /// The port's number, from 1.
    pub port: u8,
    /// Index of the source GID of its packets.
    pub gid: u8,
}

/// The port that [`Options::of_process`] chooses, for later links. Opens the device if no link has opened it.
///
/// # Errors
/// The reason why there is none, as a sentence.
pub fn port_in_use() -> Result<PortInUse, String> {
    let device = Device::open(&Options::of_process()?)?;
    let port = &device.port;
    Ok(PortInUse { device: device.name.clone(), port: port.number, gid: port.gid.index })
}

/// The path of a backend's frames.
fn path_info(device: &Device, how: &str) -> PathInfo {
    let port = &device.port;
    let notes = vec![
        how.to_owned(),
        format!("{}, packets of {} bytes, partition {:#06x}", port.gid, port.mtu, port.partition.1),
    ];
    PathInfo::new(format!("{}:{}", device.name, port.number), notes)
}

#[cfg(test)]
mod tests;

/// Calls `done` until it returns `true`; aborts a test in which that never happens after a minute.
#[cfg(test)]
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !done() {
        assert!(std::time::Instant::now() < end, "{what} did not come");
        std::thread::yield_now();
    }
}
